"""Add a table that is read whole: a small one, joined to those that are sampled."""

from __future__ import annotations

from pathlib import Path

from relaqs_engine.duck import DEFAULT_MEMORY_LIMIT_BYTES
from relaqs_engine.layouts.build import Build, building
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.sources import TableSource


def add_static(
    source: TableSource,
    into: str | Path,
    *,
    force: bool = False,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    threads: int | None = None,
) -> Layout:
    """Return the layout of a table stored in one file. The folder's name becomes the table's name.

    It takes the same sources as `shuffle`, keeps the same promises and raises the same errors. The table may
    be empty.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     layout = add_static(pa.table({"zone": [1, 2], "city": ["Oslo", "Bergen"]}), f"{folder}/zones")
    >>> layout.kind, layout.row_count, layout.column("city").maximum
    ('static', 2, 'Oslo')
    """
    with building(source, into, force=force, memory_limit_bytes=memory_limit_bytes, threads=threads) as build:
        return store_whole(build)


def store_whole(build: Build) -> Layout:
    """Write an opened source as a static layout, and return it."""
    file = build.target.parts / "part-00000.parquet"
    copy_to_parquet(build.cursor, f"SELECT * FROM {build.source.sql}", file)
    rows = build.source.row_count
    return build.publish("static", (settled(build.cursor, build.target, file, rows, unit_count=rows),))
