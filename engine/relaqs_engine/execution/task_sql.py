"""The SQL of one task: a plan's partial query, with the files and numbers of the task filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import parquet_rows
from relaqs_engine.layouts.manifest import Layout, Partition
from relaqs_engine.layouts.reads import LaidOutRead, read_of_copy, read_of_outliers, read_of_partitions
from relaqs_engine.plans.folded import FoldedPlan
from relaqs_engine.plans.heavy_groups import HeavyGroups
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import FAN_OUT, RANGE_HIGH, RANGE_LOW
from relaqs_engine.plans.ranges import Range
from relaqs_engine.plans.refined import OuterRows
from relaqs_engine.plans.schedule import MiniBatch


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
