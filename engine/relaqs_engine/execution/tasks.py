"""Which partitions a task reads, and the SQL that it runs over them.

A plan's streams are cut into mini-batches, and those into tasks (`scheduled_batches`). A task runs the
plan's partial query, with its own files and numbers filled in (`partial_sql`). Rows of the outlier index
and of heavy units are read by tasks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Protocol

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import parquet_rows
from relaqs_engine.layouts.manifest import (
    BLOCK_COUNT,
    SOON_SECONDS,
    Layout,
    Partition,
    counted_together,
    scan_core_seconds,
)
from relaqs_engine.layouts.reads import LaidOutRead, read_of_copy, read_of_outliers, read_of_partitions
from relaqs_engine.plans.aggregate import (
    FAN_OUT,
    RANGE_HIGH,
    RANGE_LOW,
    FoldedPlan,
    HeavyGroups,
    MergePlan,
    ResultShape,
    StreamScan,
)
from relaqs_engine.plans.composite import OuterRows, Range
from relaqs_engine.plans.plan import Method, Stream
from relaqs_engine.plans.schedule import (
    BATCH_SHARE,
    BATCH_SHARE_OF_MANY_GROUPS,
    BLOCK_SHARE,
    BLOCKED_ROWS,
    MANY_GROUPS,
    MiniBatch,
    mini_batches,
    partition_order,
)


def partial_sql(plan: FoldedPlan, catalog: Catalog, partitions: tuple[int, ...], *, by_block: bool) -> str:
    """Return the partial query over the given partitions of every stream."""
    partial = plan.partial
    files = {
        stream.token: parquet_rows(_paths(catalog.table(stream.table), partitions)) for stream in plan.streams
    }
    return _filled(partial.by_block_sql if by_block and partial.by_block_sql else partial.sql, files)


def partial_reads(plan: FoldedPlan, catalog: Catalog, partitions: tuple[int, ...]) -> tuple[LaidOutRead, ...]:
    """Return what the partial query over the given partitions reads of its streams."""
    return tuple(
        read_of_partitions(catalog.table(stream.table), stream.columns, partitions) for stream in plan.streams
    )


def batch_sqls(plan: FoldedPlan, catalog: Catalog, batch: MiniBatch) -> tuple[str, ...]:
    """Return the SQL of each task of a mini-batch. Tasks that read an index of the plan come first."""
    sqls = [partial_sql(plan, catalog, partitions, by_block=batch.by_block) for partitions in batch.tasks]
    if reads_outliers(plan, batch):
        return (outlier_sql(plan, catalog), *sqls)
    if (heavy := read_heavy(plan, batch)) is not None:
        return (heavy_sql(plan, heavy, catalog), *sqls)
    return tuple(sqls)


def batch_reads(plan: FoldedPlan, catalog: Catalog, batch: MiniBatch) -> tuple[tuple[LaidOutRead, ...], ...]:
    """Return what each task of a mini-batch reads of its streams, in the order of `batch_sqls`."""
    reads = [partial_reads(plan, catalog, partitions) for partitions in batch.tasks]
    if reads_outliers(plan, batch):
        (stream,) = plan.streams
        return ((read_of_outliers(catalog.table(stream.table), stream.columns),), *reads)
    if (heavy := read_heavy(plan, batch)) is not None:
        return (_heavy_reads(plan, heavy, catalog), *reads)
    return tuple(reads)


def reads_outliers(plan: FoldedPlan, batch: MiniBatch) -> bool:
    """Whether a mini-batch has a task that reads the outlier index: the first has, where there is one."""
    return batch.index == 0 and bool(plan.partial.outlier_sql)


def outlier_sql(plan: FoldedPlan, catalog: Catalog) -> str:
    """Return the partial query over the outlier index."""
    (stream,) = plan.streams
    files = parquet_rows(catalog.table(stream.table).outlier_paths)
    return _filled(plan.partial.outlier_sql, {stream.token: files})


def read_heavy(plan: FoldedPlan, batch: MiniBatch) -> HeavyGroups | None:
    """Return the heavy groups that a task of a mini-batch reads: the second has one, where there are any.

    So the first estimate is there as early as it would be without them.
    """
    return plan.partial.heavy if batch.index == 1 else None


def heavy_sql(plan: FoldedPlan, heavy: HeavyGroups, catalog: Catalog) -> str:
    """Return the partial query over the heavy units alone, with how many static rows a row can meet."""
    files = {}
    for stream in plan.streams:
        layout = catalog.table(stream.table)
        rows = _rows_of_heavy(layout, heavy)
        files[stream.token] = parquet_rows([layout.directory / each.file for each in rows.files])
    return f"SELECT *, {heavy.fan_out_sql} AS {FAN_OUT} FROM ({_filled(plan.partial.sql, files)})"


def _heavy_reads(plan: FoldedPlan, heavy: HeavyGroups, catalog: Catalog) -> tuple[LaidOutRead, ...]:
    layouts = [(catalog.table(stream.table), stream.columns) for stream in plan.streams]
    return tuple(read_of_copy(layout, columns, _rows_of_heavy(layout, heavy)) for layout, columns in layouts)


def _rows_of_heavy(layout: Layout, heavy: HeavyGroups) -> Partition:
    rows = layout.rows_of_heavy(heavy.index)
    assert rows is not None, f"{layout.table} has no copy of the rows of heavy units"
    return rows


def kept_within(outer: OuterRows, within: Range) -> MergePlan:
    """Return how rows of a refined plan are kept by tasks that decide those outside of a range."""
    kept, belonging = outer.kept, outer.belonging
    if belonging is None or belonging.threshold is None or not within.decides:
        return kept
    ends = {_text(RANGE_LOW): _text(repr(within.low)), _text(RANGE_HIGH): _text(repr(within.high))}
    partial = replace(
        kept.partial,
        sql=_filled(belonging.ranged_sql, ends),
        by_block_sql=_filled(belonging.ranged_by_block_sql, ends),
    )
    return replace(kept, partial=partial)


def _filled(sql: str, places: Mapping[str, str]) -> str:
    """Return the SQL with a text in each place that stands for one. Every place has to occur."""
    for place, text in places.items():
        assert place in sql, f"{place} does not occur in {sql}"
        sql = sql.replace(place, text)
    return sql


def _paths(layout: Layout, partitions: Sequence[int]) -> list[Path]:
    return [path for i in partitions for path in layout.paths_of(i)]


def _text(value: str) -> str:
    return f"'{value}'"


FEW_BLOCK_ROWS = 16_384  # groups times blocks that a task may return of any mini-batch
VALUE_BYTES = 16  # of a column in a row of a partial result: a decimal, or a short text


class BatchedPlan(Protocol):
    """A plan that is answered in mini-batches: an aggregation, a list of rows, or a refined one."""

    @property
    def streams(self) -> tuple[Stream, ...]: ...

    @property
    def measured_by(self) -> tuple[str, ...]: ...

    @property
    def joined(self) -> tuple[str, ...]: ...

    @property
    def leaves_units_out(self) -> bool: ...

    @property
    def method(self) -> Method: ...

    @property
    def expected_groups(self) -> int: ...

    @property
    def task_plans(self) -> tuple[FoldedPlan, ...]:
        """The plans with the partial queries that a mini-batch's tasks run."""
        ...

    @property
    def result_shape(self) -> ResultShape | None:
        """How large a partial result gets; None where a condition decides that."""
        ...


def leading_stream(plan: BatchedPlan, catalog: Catalog) -> Layout:
    """Return the layout with the rows that measure what was scanned: of several tables, counted together.

    Where several tables are joined, its largest unit is as large as that of the joined rows can be: each row
    of a unit may meet all others of it.
    """
    if plan.leaves_units_out:
        return catalog.table(plan.measured_by[0]).without_outlier_units()
    measured = counted_together([catalog.table(name) for name in plan.measured_by])
    if len(plan.joined) < 2:
        return measured
    joined = [catalog.table(name) for name in plan.joined]
    return replace(
        measured,
        max_unit_rows=prod(layout.max_unit_rows for layout in joined),
        typical_unit_rows=prod(layout.typical_unit_rows for layout in joined),
        unit_kurtosis_rows=prod(layout.unit_kurtosis_rows or layout.max_unit_rows for layout in joined),
    )


def scheduled_batches(
    plan: BatchedPlan, catalog: Catalog, seed: int, batches: int | None = None
) -> tuple[MiniBatch, ...]:
    """Return the mini-batches of a query.

    Args:
        plan: how the query is answered.
        catalog: the tables that it reads.
        seed: of the order of partitions.
        batches: this many equal ones, instead of growing ones.
    """
    return mini_batches(
        scan_order(plan, catalog, seed),
        used_bytes_per_partition(plan, catalog),
        result_bytes=result_bytes_per_partition(plan, catalog),
        batches=batches,
        batch_share=BATCH_SHARE_OF_MANY_GROUPS if plan.expected_groups > MANY_GROUPS else BATCH_SHARE,
        block_share=block_share(plan, catalog),
        soon_partitions=soon_partitions(plan, catalog),
    )


def batches_together(
    plans: Sequence[BatchedPlan], catalog: Catalog, seed: int, batches: int | None = None
) -> tuple[MiniBatch, ...]:
    """Return mini-batches that several queries have in common, for layouts with equally many partitions.

    They are those of a query that reads and returns the most that any of them does.
    """
    many_groups = any(plan.expected_groups > MANY_GROUPS for plan in plans)
    return mini_batches(
        _scan_order(plans, catalog, seed),
        max(used_bytes_per_partition(plan, catalog) for plan in plans),
        result_bytes=max(result_bytes_per_partition(plan, catalog) for plan in plans),
        batches=batches,
        batch_share=BATCH_SHARE_OF_MANY_GROUPS if many_groups else BATCH_SHARE,
        block_share=max(BLOCK_SHARE, min(block_share(plan, catalog) for plan in plans)),
        soon_partitions=min(soon_partitions(plan, catalog) for plan in plans),
    )


def fractions_after(batches: Sequence[MiniBatch], leading: Layout) -> tuple[float, ...]:
    """Return the share of the leading rows that has been scanned after each mini-batch; the last is 1."""
    rows = [sum(leading.partitions[i].row_count for i in batch.partitions) for batch in batches]
    return tuple(done / max(sum(rows), 1) for done in accumulate(rows))


def scan_order(plan: BatchedPlan, catalog: Catalog, seed: int) -> tuple[int, ...]:
    """Return the partitions that hold rows, in the order in which the query takes them.

    A cluster key of few values leaves partitions empty. One without rows that count gives no joined rows.
    """
    return _scan_order((plan,), catalog, seed)


def _scan_order(plans: Sequence[BatchedPlan], catalog: Catalog, seed: int) -> tuple[int, ...]:
    """Return the partitions that hold rows of any plan. The first holds rows of each, where there is one.

    From no rows nothing can be estimated. The others stay in the random order.
    """
    leading = [leading_stream(plan, catalog) for plan in plans]
    order = partition_order(len(leading[0].partitions), seed)
    held = {i: [each.partitions[i].row_count > 0 for each in leading] for i in order}
    first = [i for i in order if all(held[i])][:1]
    return (*first, *(i for i in order if any(held[i]) and i not in first))


def block_share(plan: BatchedPlan, catalog: Catalog) -> float:
    """Return the share of the table whose partial results are kept per block, 0 where bars need none."""
    if plan.method is not Method.REPLICATES:
        return 0.0
    if plan.expected_groups * BLOCK_COUNT > FEW_BLOCK_ROWS:
        return BLOCK_SHARE
    return max(BLOCK_SHARE, min(1.0, BLOCKED_ROWS / max(leading_stream(plan, catalog).row_count, 1)))


def soon_partitions(plan: BatchedPlan, catalog: Catalog) -> float:
    """Return of how many partitions one core reads what a task needs within SOON_SECONDS, by its size."""
    core_seconds = max(
        sum(_scan_core_seconds_per_partition(scan, catalog) for scan in each.partial.scans)
        for each in plan.task_plans
    )
    return SOON_SECONDS / max(core_seconds, 1e-9)


def _scan_core_seconds_per_partition(scan: StreamScan, catalog: Catalog) -> float:
    layout = catalog.table(scan.table)
    seconds = scan_core_seconds(layout.bytes_of(scan.columns), layout.row_count)
    return scan.times * seconds / len(layout.partitions)


def used_bytes_per_partition(plan: BatchedPlan, catalog: Catalog) -> float:
    """Return about how many compressed bytes a task reads in one partition of its streams.

    Where the tasks of a mini-batch run several queries, the bytes of the largest.
    """
    return max(
        sum(_bytes_per_partition(scan, catalog) for scan in each.partial.scans) for each in plan.task_plans
    )


def _bytes_per_partition(scan: StreamScan, catalog: Catalog) -> float:
    """Return the bytes of the columns that are read, as often as the query reads the table."""
    layout = catalog.table(scan.table)
    return scan.times * layout.bytes_of(scan.columns) / len(layout.partitions)


def result_bytes_per_partition(plan: BatchedPlan, catalog: Catalog) -> float:
    """Return about how many bytes the partial result over one partition takes where rows are not filtered.

    How many rows a condition lets through is not known; to take all for granted would cut selective queries
    into tasks that are too small. 0 is returned then.
    """
    shape = plan.result_shape
    if shape is None:
        return 0.0
    largest = max((catalog.table(each.table) for each in plan.streams), key=lambda layout: layout.row_count)
    read = largest.row_count / len(largest.partitions)
    rows = read if shape.most_rows is None else min(read, shape.most_rows)
    return VALUE_BYTES * (read * shape.lists + rows * shape.columns)
