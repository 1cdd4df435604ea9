"""Append rows to a table that was laid out. Any prefix of its partitions stays a random sample of all rows.

New rows are hashed into the partitions that there are, and are one more file of each:

    part-00000.parquet    part-00001.parquet    …    as laid out
    + its new rows        + its new rows        …    each append adds one file to a partition

With a cluster key the hash is that of the key, so a unit stays whole in its partition. Where the unit is a
row, the hash is of its place in the source, which every batch counts from the start. So each batch has a seed
of its own. Else the tenth rows of all batches would fall together, and would not be independent.

Nothing that is there is changed or read anew, but for the key's columns and a sample. Replacing the manifest
is the switch, as it is when a table is laid out. Queries that run go on over the files that they began with.
"""

from __future__ import annotations

import glob
import hashlib
from dataclasses import replace
from pathlib import Path

from relaqs_engine.duck import DEFAULT_MEMORY_LIMIT_BYTES
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.assignment import HASH_SCHEME, Assignment, hash_probe, key_unit
from relaqs_engine.layouts.build import Build, Progress, building
from relaqs_engine.layouts.cached_files import is_cached
from relaqs_engine.layouts.fitting import fitted
from relaqs_engine.layouts.growth import grown
from relaqs_engine.layouts.manifest import (
    LAYOUT_MARK,
    MANIFEST_NAME,
    Layout,
    read_manifest,
)
from relaqs_engine.layouts.one_pass import write_in_one_pass
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.partitions import PartitionJob, PartitionWriter, WrittenPartitions
from relaqs_engine.layouts.sources import ParquetSource, TableSource, fingerprint
from relaqs_engine.layouts.spread import Spread, in_turn


def append(
    source: TableSource,
    into: str | Path,
    *,
    batch: str = "",
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    threads: int | None = None,
    progress: Progress | None = None,
    spread: Spread = in_turn,
) -> Layout:
    """Return the layout of a table after the rows of a source were added to it.

    Two appends to one table take turns. Sessions that are open go on with the rows that they had when they
    were opened, until `Session.refresh`.

    Args:
        source: as `shuffle` takes it. Its columns must be those of the table, in any order.
        into: the table's folder.
        batch: a name for these rows. If a batch of this name was appended before, nothing is done.
        memory_limit_bytes: beyond it, disk in `into` is used.
        threads: of DuckDB. The default is all cores.
        progress: called with the share done and what is being done.
        spread: threads of the caller, for all else.

    Raises:
        LayoutError: there is no layout, the columns are others, or the disk is full.
        DataError: the source cannot be read.

    A crash or an interrupt at any point leaves the table without the new rows, or with all of them.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from relaqs_engine.layouts import shuffle
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = shuffle(pa.table({"fare": list(range(1000))}), f"{folder}/trips", partitions=4)
    ...     layout = append(pa.table({"fare": [5000, 6000]}), f"{folder}/trips", batch="may")
    ...     again = append(pa.table({"fare": [5000, 6000]}), f"{folder}/trips", batch="may")
    >>> layout.row_count, layout.column("fare").maximum, again.row_count
    (1002, 6000, 1002)
    """
    appendable(read_manifest(into))
    _check_only_layout(Path(into))
    report = progress or (lambda share, doing: None)
    report(0.0, "opening the source")
    with building(
        source, into, force=True, memory_limit_bytes=memory_limit_bytes, threads=threads, waits=True
    ) as build:
        held = read_manifest(into)
        if build.source.row_count and (not batch or batch not in held.batches):
            held = _append(build, held, batch, report, spread)
    report(1.0, "done")
    return held


def appendable(layout: Layout) -> Path:
    """Return the folder of a table that rows can be added to. Raises LayoutError for the user's own files."""
    if layout.is_plain or is_cached(layout.directory):
        raise LayoutError(
            f"{layout.table} is made of {layout.source}, and has its rows from there: add a file there and "
            "open a new session; or lay the table out into a folder of its own with relaqs.shuffle, and "
            "append to that"
        )
    return layout.directory


def _check_only_layout(directory: Path) -> None:
    table = directory.name.partition(LAYOUT_MARK)[0]
    folders = [*directory.parent.glob(f"{glob.escape(table)}{LAYOUT_MARK}*"), directory.with_name(table)]
    others = sorted(each for each in folders if each != directory and (each / MANIFEST_NAME).is_file())
    if others:
        raise LayoutError(
            f"{directory} is one of several layouts of {table}, beside {', '.join(map(str, others))}, which "
            "must have the same rows; remove those folders, append, and make them again with `relaqs shuffle`"
        )


def _append(build: Build, held: Layout, batch: str, progress: Progress, spread: Spread) -> Layout:
    source = fitted(build.source, held, build.cursor, build.target.scratch)
    written = _written(build, held, source, progress, spread)
    if (
        sum(each.row_count for each in written.partitions) != source.row_count
        or fingerprint(build.source.files) != build.state
    ):
        raise DataError(
            f"{build.source.description} changed while it was being appended; nothing was, so append it again"
        )
    progress(0.9, "updating what is known of the columns")
    layout = grown(build, held, written)
    layout = replace(layout, batches=(*held.batches, *([batch] if batch else [])))
    build.target.publish(layout)
    return layout


def _written(
    build: Build, held: Layout, source: ParquetSource, progress: Progress, spread: Spread
) -> WrittenPartitions:
    """Write the new rows: a file for each partition that some of them fall into."""
    if not held.is_sampled:
        file = build.target.parts / "part-00000.parquet"
        copy_to_parquet(build.cursor, f"SELECT * FROM {source.sql}", file)
        only = settled(build.cursor, build.target, file, source.row_count, unit_count=source.row_count)
        return WrittenPartitions((only,), 1, 1.0)
    job = PartitionJob(
        build.cursor,
        source,
        build.target,
        _assignment(build, held, source),
        held.cluster_key,
        lambda share, doing: progress(0.8 * share, doing),
        keeps_empty=False,
    )
    memory_limit_bytes = build.memory_limit_bytes
    return write_in_one_pass(job, memory_limit_bytes, spread) or PartitionWriter(job).write(
        memory_limit_bytes
    )


def _assignment(build: Build, held: Layout, source: ParquetSource) -> Assignment:
    if not held.cluster_key:
        return Assignment(source.row_identity, _seed_of_batch(held), len(held.partitions))
    if (held.hash_scheme, held.hash_probe) != (HASH_SCHEME, hash_probe(build.cursor)):
        raise LayoutError(
            f"{held.directory} was laid out by {held.created_with}, which hashed its cluster key in another "
            "way, so new rows would not meet their units; lay the table out again with `relaqs shuffle`"
        )
    key = [(name, held.column(name).type) for name in held.cluster_key]
    return Assignment(key_unit(key), held.seed, len(held.partitions))


def _seed_of_batch(held: Layout) -> int:
    """Return the seed of the next batch of a table whose unit is a row. No two batches have the same."""
    text = f"{held.seed} after {held.row_count} rows"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
