"""What all ways of laying a table out share: opening the source and the folder, and closing the layout.

- `add_static`: a table that is read whole, a small one, joined to those that are sampled.
- `new_files`: which files of a source a table does not have yet. Each layout knows the files that its rows
  came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from relaqs_engine.duck import (
    DEFAULT_MEMORY_LIMIT_BYTES,
    DUCKDB_VERSION,
    CivilTime,
    Cursor,
    FileState,
    open_for_writing,
)
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.column_statistics import (
    column_statistics,
    with_counted_values,
    with_ends_by_group,
    with_values_by_group,
    with_zones,
)
from relaqs_engine.layouts.folder import Writing, layout_folders, settle, writing
from relaqs_engine.layouts.heavy_units import with_heavy_units
from relaqs_engine.layouts.manifest import Column, FirstPart, Layout, Partition
from relaqs_engine.layouts.outliers import outlier_index, with_outlier_units
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.remote import writing_to_store
from relaqs_engine.layouts.sources import (
    FileSource,
    ParquetSource,
    TableSource,
    find_files,
    fingerprint,
    is_path,
    layout_folder,
    open_source,
    paths_in_call,
)
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.mirror import default_cache_directory, mirror_root


def given_files(source: TableSource) -> tuple[FileState, ...]:
    """Return the states of the files that a source names, () where it is none of files."""
    if not is_path(source) or paths_in_call(source) or layout_folder(source) is not None:
        return ()
    return fingerprint(find_files(source))


def new_files(source: FileSource, held: Layout) -> list[Path]:
    """Return the files of a source that a table was not made of.

    Raises LayoutError where a file that it was made of has changed or is gone, or where the table does not
    know its files.
    """
    known = {path: (path, size, modified_ns) for path, size, modified_ns in held.source_files}
    if not known:
        raise LayoutError(
            f"{held.directory} does not say of which files it was made; lay it out again from files, or "
            "append without asking for new files only"
        )
    found = {state[0]: state for state in fingerprint(find_files(source))}
    changed = [path for path, state in known.items() if found.get(path, state) != state]
    gone = [path for path in known if path not in found and _is_below(path, found)]
    if changed or gone:
        what = f"{changed[0]} changed" if changed else f"{gone[0]} is gone"
        raise LayoutError(
            f"{what} since its rows went into {held.directory}, and rows are only added here; lay the table "
            "out again with `relaqs shuffle --force`"
        )
    return [Path(path) for path in found if path not in known]


def _is_below(path: str, found: dict[str, FileState]) -> bool:
    """Whether a file lies in a folder that other files of the source are in."""
    return any(Path(other).parent == Path(path).parent for other in found)


Progress = Callable[[float, str], None]
"""Told the share of the work that is done, in [0, 1], and what is being done now."""


@dataclass(frozen=True, slots=True)
class Build:
    """A layout that is being made.

    Attributes:
        state: the source's files, sizes and times when they were opened.
        given: the files that the user named, in the same way; () where the source is none of files.
    """

    target: Writing
    cursor: Cursor
    source: ParquetSource
    memory_limit_bytes: int
    state: tuple[FileState, ...]
    given: tuple[FileState, ...] = ()

    def publish(
        self,
        kind: Literal["sampled", "static"],
        partitions: tuple[Partition, ...],
        *,
        cluster_key: tuple[str, ...] = (),
        seed: int = 0,
        hash_scheme: str = "",
        hash_probe: str = "",
        max_unit_rows: int = 1,
        typical_unit_rows: float = 1.0,
        columns: tuple[Column, ...] | None = None,
        heads: tuple[Partition, ...] = (),
    ) -> Layout:
        """Make the written partitions the table's layout, and return it.

        columns: with what is known of them; without them all files are read to find that out.
        Raises DataError if the source changed since it was opened: the partitions would not fit together.
        """
        row_count = sum(partition.row_count for partition in partitions)
        if row_count != self.source.row_count or fingerprint(self.source.files) != self.state:
            raise DataError(
                f"{self.source.description} changed while it was being laid out; lay it out again"
            )
        files = self.target.files_of(partitions)
        columns = columns or column_statistics(
            self.cursor, files, self.source.columns, keys_exactly=kind == "static"
        )
        outliers = None
        if kind == "sampled":
            columns = with_counted_values(self.cursor, files, columns, row_count)
            columns = with_values_by_group(self.cursor, files, columns, row_count, cluster_key)
            columns, outliers = outlier_index(self.cursor, self.target, columns, partitions)
            columns = with_ends_by_group(self.cursor, files, columns, row_count)
        layout = Layout(
            table=self.target.directory.name,
            directory=self.target.directory,
            kind=kind,
            columns=columns,
            partitions=partitions,
            row_count=row_count,
            unit_count=sum(partition.unit_count for partition in partitions),
            cluster_key=cluster_key,
            seed=seed,
            hash_scheme=hash_scheme,
            hash_probe=hash_probe,
            max_unit_rows=max_unit_rows,
            typical_unit_rows=typical_unit_rows,
            source=self.source.description,
            created_with=f"relaqs {version('relaqs')}, duckdb {DUCKDB_VERSION}",
            outliers=outliers,
            source_files=self.given,
            heads=heads,
        )
        if kind == "sampled":
            layout = with_zones(self.cursor, files, layout)
        if kind == "sampled" and cluster_key:
            layout = with_outlier_units(self.cursor, self.target, layout)
            layout = with_heavy_units(self.cursor, self.target, layout)
        return self.target.publish(layout)

    def first_part(
        self,
        partitions: tuple[Partition, ...],
        columns: tuple[Column, ...],
        *,
        seed: int,
        hash_scheme: str,
        hash_probe: str,
    ) -> FirstPart:
        """Return the first part of a layout by rows, whose other partitions are not written yet.

        columns: with what is known of them over the whole table.
        """
        return FirstPart(
            table=self.target.directory.name,
            directory=self.target.directory,
            kind="sampled",
            columns=columns,
            partitions=partitions,
            row_count=self.source.row_count,
            unit_count=self.source.row_count,
            cluster_key=(),
            seed=seed,
            hash_scheme=hash_scheme,
            hash_probe=hash_probe,
            max_unit_rows=1,
            source=self.source.description,
            created_with="",
        )


@contextmanager
def building(
    source: TableSource | ParquetSource,
    into: str | Path,
    *,
    force: bool,
    memory_limit_bytes: int,
    threads: int | None,
    waits: bool = False,
    civil_time: CivilTime | None = None,
) -> Iterator[Build]:
    """Open a source and the place that it is laid out into, and clean up afterwards, whatever happened.

    Args:
        force: whether what is there may be replaced.
        waits: for another process that writes the folder, instead of raising LayoutError.
    """
    with _target(into, force=force, waits=waits) as target:
        cursor = open_for_writing(
            target.scratch / "spill",
            memory_limit_bytes=memory_limit_bytes,
            threads=threads,
            civil_time=civil_time,
        )
        with closing(cursor):
            given = given_files(source)
            opened = open_source(source, cursor, target.scratch, target.directory.name)
            state = fingerprint(opened.files)
            target.check_space(opened.byte_count)
            yield Build(target, cursor, opened, memory_limit_bytes, state, given)


def _target(into: str | Path, *, force: bool, waits: bool) -> AbstractContextManager[Writing]:
    """Return the place to write to: a folder, or an address in an object store."""
    if (address := Address.of(into)) is not None:
        return writing_to_store(address, mirror_root(default_cache_directory()), force=force)
    settle(layout_folders(Path(os.path.abspath(into))))
    return writing(into, force=force, waits=waits)


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
