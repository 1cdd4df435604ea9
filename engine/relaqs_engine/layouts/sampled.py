"""Lay a table out so that any prefix of its partitions is a uniform random sample of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from relaqs_engine.duck import DEFAULT_MEMORY_LIMIT_BYTES
from relaqs_engine.errors import LayoutError
from relaqs_engine.layouts.assignment import (
    HASH_SCHEME,
    HEAD_DIVISOR,
    Assignment,
    Spread,
    hash_probe,
    in_turn,
    key_unit,
    together,
)
from relaqs_engine.layouts.build import Build, Progress, building
from relaqs_engine.layouts.column_statistics import FEW_SAMPLE_ROWS, SAMPLE_ROWS, described, distinct_counts
from relaqs_engine.layouts.manifest import Column, FirstPart, Layout
from relaqs_engine.layouts.partitions import PartitionJob, PartitionWriter, WrittenPartitions
from relaqs_engine.layouts.shuffling import write_by_tasks, write_in_one_pass
from relaqs_engine.layouts.sources import ParquetSource, TableSource

_MOST_PARTITIONS = 100_000
_ALWAYS_ALLOWED = 1_000
"""Partitions of a table with few rows, too: a small table may meet a large one partition by partition."""
_FEWEST_ROWS_A_PARTITION = 4
_HEADED_ROWS = 100_000
"""Of a partition: fewer are read in less time than an estimate takes, and have no head."""
_SHARE_OF_WRITING = 0.9
"""The share of the whole work that is writing. The statistics are the rest."""


def shuffle(
    source: TableSource,
    into: str | Path,
    *,
    partitions: int = 100,
    cluster_by: str | Sequence[str] | None = None,
    seed: int = 0,
    force: bool = False,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    threads: int | None = None,
    progress: Progress | None = None,
    spread: Spread = in_turn,
) -> Layout:
    """Return the layout of a table, written to the folder `into`. The folder's name becomes the table's name.

    Args:
        source: Parquet or CSV (a path, folder, glob, or a list of them), the folder of a layout, Arrow data,
            or a DuckDB relation.
        into: the folder to write.
        partitions: how many to make, at most one for four rows where there are more than 1,000. A table with
            fewer rows gets fewer, unless it is clustered: then some partitions stay empty.
        cluster_by: the columns whose equal values stay together as one sampling unit. Without it each row is
            one. Tables that are clustered on the same key, with the same number of partitions and seed, meet
            partition by partition.
        seed: the same source, seed and number of partitions give the same rows in the same order in each
            partition.
        force: whether to replace a layout that is already there.
        memory_limit_bytes: beyond it, disk in `into` is used.
        threads: of DuckDB. The default is all cores.
        progress: called with the share done and what is being done.
        spread: threads of the caller, for all else. What is written does not depend on how many there are.

    Raises:
        LayoutError: it cannot be written. A layout is there and `force` is not given, the cluster key is not
            a column, the table is empty or has too few rows for so many partitions, or the disk is full.
        DataError: the source cannot be read.

    A crash or an interrupt at any point leaves what was there before, or nothing.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> trips = pa.table({"zone": [1, 2, 3, 4] * 250, "fare": [float(i) for i in range(1000)]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     layout = shuffle(trips, f"{folder}/trips", partitions=4, cluster_by="zone")
    >>> layout.table, layout.row_count, layout.cluster_key, layout.unit_count, len(layout.partitions)
    ('trips', 1000, ('zone',), 4, 4)
    """
    if not 1 <= partitions <= _MOST_PARTITIONS:
        raise LayoutError(f"partitions is {partitions}; between 1 and {_MOST_PARTITIONS} can be made")
    report = progress or (lambda share, doing: None)
    report(0.0, "opening the source")
    with building(source, into, force=force, memory_limit_bytes=memory_limit_bytes, threads=threads) as build:
        layout = sample(build, partitions, cluster_by=cluster_by, seed=seed, progress=report, spread=spread)
    report(1.0, "done")
    return layout


def sample(
    build: Build,
    partitions: int,
    *,
    cluster_by: str | Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress = lambda share, doing: None,
    spread: Spread = in_turn,
    first_there: Callable[[FirstPart], None] | None = None,
    processes: Spread | None = None,
) -> Layout:
    """Write an opened source as a sampled layout, and return it.

    Args:
        partitions: as in `shuffle`, as are `cluster_by`, `seed`, `progress` and `spread`.
        first_there: is handed the first part of the layout as soon as it can be asked. That makes the whole
            almost half more work. Where the sampling unit is no row, or DuckDB alone reads the source, it is
            not called.
        processes: other processes that see the source and the folder that is written. They do all they can.
            The bytes are the same.
    """
    key = _cluster_key(cluster_by, build.source)
    job = PartitionJob(
        build.cursor,
        build.source,
        build.target,
        _assignment(build.source, key, partitions, seed),
        key=tuple(name for name, _ in key),
        progress=lambda share, doing: progress(_SHARE_OF_WRITING * share, doing),
    )
    on_first = None
    if first_there is not None and not key:
        on_first = partial(_announce_first, build, job, first_there)
    limit = build.memory_limit_bytes
    written = (
        (processes and write_by_tasks(job, limit, processes))
        or write_in_one_pass(job, limit, spread, on_first)
        or PartitionWriter(job).write(limit)
    )
    progress(_SHARE_OF_WRITING, "counting distinct values")
    count = job.assignment.partition_count
    rest, heads = written.partitions[:count], written.partitions[count:]
    whole = [together(head, each, each.unit_count) for head, each in zip(heads, rest, strict=False)]
    return build.publish(
        "sampled",
        (*whole, *rest[len(heads) :]),
        heads=heads,
        cluster_key=job.key,
        seed=seed,
        hash_scheme=HASH_SCHEME,
        hash_probe=hash_probe(build.cursor),
        max_unit_rows=written.max_unit_rows,
        typical_unit_rows=written.typical_unit_rows,
        columns=_known_columns(build, job, written, FEW_SAMPLE_ROWS),
    )


def _announce_first(
    build: Build, job: PartitionJob, first_there: Callable[[FirstPart], None], written: WrittenPartitions
) -> None:
    columns = _known_columns(build, job, written, SAMPLE_ROWS)
    assert columns is not None  # what one pass writes was seen
    first_there(
        build.first_part(
            written.partitions,
            columns,
            seed=job.assignment.seed,
            hash_scheme=HASH_SCHEME,
            hash_probe=hash_probe(build.cursor),
        )
    )


def _known_columns(
    build: Build, job: PartitionJob, written: WrittenPartitions, sample_rows: int
) -> tuple[Column, ...] | None:
    """Return the columns with what was seen of them while they were written; None where nothing was.

    sample_rows: from how many rows numbers of distinct values are estimated.
    """
    if written.seen is None:
        return None
    columns, files = build.source.columns, build.target.files_of(written.partitions)
    extremes = written.seen.extremes(build.cursor, columns)
    names = [name for name, _ in columns]
    units = job.assignment.unit if job.key else ()
    distinct = distinct_counts(
        build.cursor, build.target.files_of, written.partitions, names, units, sample_rows
    )
    return described(files, columns, extremes, distinct)


def _assignment(
    source: ParquetSource, key: Sequence[tuple[str, str]], partitions: int, seed: int
) -> Assignment:
    if source.row_count == 0:
        raise LayoutError(
            f"{source.description} has no rows to sample; add it as a static table (--static, or add_static)"
        )
    most = max(_ALWAYS_ALLOWED, source.row_count // _FEWEST_ROWS_A_PARTITION)
    if partitions > most:
        raise LayoutError(
            f"{partitions:,} partitions are too many for {source.row_count:,} rows, each a file of its own; "
            f"up to {most:,} can be made of {source.description}; 100 is a good number"
        )
    heads = partitions // HEAD_DIVISOR if source.row_count >= _HEADED_ROWS * partitions else 0
    if key:
        return Assignment(key_unit(key), seed, partitions, heads)
    return Assignment(source.row_identity, seed, min(partitions, source.row_count), heads)


def _cluster_key(
    cluster_by: str | Sequence[str] | None, source: ParquetSource
) -> tuple[tuple[str, str], ...]:
    """Return the columns of the cluster key as (name, DuckDB type), found without regard to case."""
    wanted = [cluster_by] if isinstance(cluster_by, str) else list(cluster_by or ())
    columns = {name.lower(): (name, type_text) for name, type_text in source.columns}
    for name in wanted:
        if name.lower() not in columns:
            near = difflib.get_close_matches(name.lower(), columns)
            hint = (
                f"did you mean {' or '.join(repr(columns[n][0]) for n in near)}?"
                if near
                else f"it has {', '.join(n for n, _ in source.columns)}"
            )
            raise LayoutError(f"the cluster key {name!r} is not a column of {source.description}; {hint}")
    key = tuple(columns[name.lower()] for name in wanted)
    if len(set(key)) < len(key):
        raise LayoutError(f"the cluster key {', '.join(wanted)} names a column twice; name each once")
    return key
