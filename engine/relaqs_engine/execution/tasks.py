"""The SQL of one task: a plan's partial query over some partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import list_literal
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.reads import TableRead, read_of_outliers, read_of_partitions
from relaqs_engine.plans.plan import Basis, Method, OnlinePlan
from relaqs_engine.plans.refinement import RANGE_HIGH, RANGE_LOW, Range, Refinement
from relaqs_engine.plans.schedule import (
    BATCH_SHARE,
    BATCH_SHARE_OF_MANY_GROUPS,
    BLOCK_SHARE,
    MiniBatch,
    mini_batches,
    partition_order,
)
from relaqs_engine.rewrite.method import MANY_GROUPS

VALUE_BYTES = 16  # of a column in a row of a partial result: a decimal, or a short text


def partial_sql(plan: OnlinePlan, catalog: Catalog, partitions: tuple[int, ...], *, by_block: bool) -> str:
    """Return the partial query over the given partitions of every stream."""
    text = plan.partial_by_block_sql if by_block and plan.partial_by_block_sql else plan.partial_sql
    for stream in plan.streams:
        layout = catalog.table(stream.table)
        files = list_literal([str(layout.path(i)) for i in partitions])
        # A folder of the user's may be called "year=2020"; DuckDB would take that for a column.
        text = text.replace(stream.token, f"read_parquet({files}, hive_partitioning = false)")
    return text


def batch_sqls(plan: OnlinePlan, catalog: Catalog, batch: MiniBatch) -> tuple[str, ...]:
    """Return the SQL of each task of a mini-batch. The first one reads the plan's outlier index as well."""
    sqls = [partial_sql(plan, catalog, partitions, by_block=batch.by_block) for partitions in batch.tasks]
    return (*([outlier_sql(plan, catalog)] if reads_outliers(plan, batch) else []), *sqls)


def batch_reads(plan: OnlinePlan, catalog: Catalog, batch: MiniBatch) -> tuple[tuple[TableRead, ...], ...]:
    """Return what each task of a mini-batch reads of its streams, in the order of `batch_sqls`."""
    reads = [partial_reads(plan, catalog, partitions) for partitions in batch.tasks]
    if not reads_outliers(plan, batch):
        return tuple(reads)
    (stream,) = plan.streams
    return ((read_of_outliers(catalog.table(stream.table), stream.columns),), *reads)


def partial_reads(plan: OnlinePlan, catalog: Catalog, partitions: tuple[int, ...]) -> tuple[TableRead, ...]:
    """Return what the partial query over the given partitions reads of its streams."""
    return tuple(
        read_of_partitions(catalog.table(stream.table), stream.columns, partitions) for stream in plan.streams
    )


def reads_outliers(plan: OnlinePlan, batch: MiniBatch) -> bool:
    return batch.index == 0 and bool(plan.outlier_sql)


def outlier_sql(plan: OnlinePlan, catalog: Catalog) -> str:
    """Return the partial query over the outlier index."""
    (stream,) = plan.streams
    file = list_literal([str(catalog.table(stream.table).outlier_path)])
    return plan.outlier_sql.replace(stream.token, f"read_parquet({file}, hive_partitioning = false)")


def kept_within(refinement: Refinement, within: Range) -> OnlinePlan:
    """Return how rows of a refined plan are kept by tasks that decide those outside of a range."""
    kept, belonging = refinement.kept, refinement.belonging
    assert kept is not None
    if belonging is None or belonging.threshold is None or not within.decides:
        return kept
    ends = {RANGE_LOW: repr(within.low), RANGE_HIGH: repr(within.high)}

    def filled(text: str) -> str:
        for mark, end in ends.items():
            text = text.replace(mark, f"'{end}'")
        return text

    return replace(
        kept,
        partial_sql=filled(belonging.ranged_sql),
        partial_by_block_sql=filled(belonging.ranged_by_block_sql),
    )


def leading_stream(plan: OnlinePlan, catalog: Catalog) -> Layout:
    """Return the layout whose rows measure what was scanned."""
    return catalog.table(plan.leading)


def scheduled_batches(
    plan: OnlinePlan, catalog: Catalog, seed: int, batches: int | None = None
) -> tuple[MiniBatch, ...]:
    """Return the mini-batches of a query. batches: so many equal ones, instead of growing ones."""
    return mini_batches(
        scan_order(plan, catalog, seed),
        used_bytes_per_partition(plan, catalog),
        result_bytes=result_bytes_per_partition(plan, catalog),
        batches=batches,
        batch_share=BATCH_SHARE_OF_MANY_GROUPS if plan.expected_groups > MANY_GROUPS else BATCH_SHARE,
        block_share=BLOCK_SHARE if plan.method is Method.REPLICATES else 0.0,
    )


def fractions_after(batches: Sequence[MiniBatch], leading: Layout) -> tuple[float, ...]:
    """Return the share of the leading rows that has been scanned after each mini-batch; the last is 1."""
    rows = [sum(leading.partitions[i].row_count for i in batch.partitions) for batch in batches]
    return tuple(done / max(sum(rows), 1) for done in accumulate(rows))


def scan_order(plan: OnlinePlan, catalog: Catalog, seed: int) -> tuple[int, ...]:
    """Return the partitions that hold rows, in the order in which the query takes them.

    A cluster key of few values leaves partitions empty. The first must hold rows of the leading stream: from
    none nothing can be estimated.
    """
    streams = [catalog.table(stream.table) for stream in plan.streams]
    leading = leading_stream(plan, catalog)
    order = partition_order(len(leading.partitions), seed)
    held = [i for i in order if any(stream.partitions[i].row_count for stream in streams)]
    return tuple(sorted(held, key=lambda i: leading.partitions[i].row_count == 0))


def used_bytes_per_partition(plan: OnlinePlan, catalog: Catalog) -> float:
    """Return about how many compressed bytes the partial query reads in one partition of its streams.

    A table that the query names several times, as in a self-join, is read as often.
    """
    if plan.refinement is not None:
        parts = [*([plan.refinement.kept] if plan.refinement.kept else [])]
        parts += [stage.plan for stage in plan.refinement.stages]
        return max(used_bytes_per_partition(part, catalog) for part in parts)
    total = 0.0
    for stream in plan.streams:
        layout = catalog.table(stream.table)
        # A column is read if the partial query names it; names are quoted by the rewriter.
        used = [column for column in layout.columns if f'"{column.name.lower()}"' in plan.partial_sql.lower()]
        reads = plan.partial_sql.count(stream.token)
        total += reads * sum(column.byte_count for column in used) / len(layout.partitions)
    return total


def result_bytes_per_partition(plan: OnlinePlan, catalog: Catalog) -> float:
    """Return about how many bytes the partial result over one partition takes where rows are not filtered.

    How many rows a condition lets through is not known; to take all for granted would cut selective queries
    into tasks that are too small. 0 is returned then.
    """
    if " WHERE " in plan.partial_sql:
        return 0.0
    leading = leading_stream(plan, catalog)
    rows = leading.row_count / len(leading.partitions)
    lists = sum(column.kind is Basis.VALUES for column in plan.basis)
    kept = rows * VALUE_BYTES * lists
    if not plan.returns_rows:
        rows = min(rows, plan.expected_groups)
    return kept + rows * VALUE_BYTES * (len(plan.keys) + len(plan.basis) + 1)
