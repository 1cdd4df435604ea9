"""Partial aggregates: the tasks that make them, and the state of a query that they are merged into.

**Tasks.** A plan's streams are cut into mini-batches, and those into tasks (`scheduled_batches`). A task
runs the plan's partial query, with its own files filled in (`PartialTask`). Rows of the
outlier index and of heavy units are read by tasks of their own.

**The state** of one query (`GroupState`) has partial rows for each group and replicate block. A small one
stays in Arrow, where appending costs nothing. A larger one moves to a DuckDB table that only the cursor
sees. Beyond its memory limit, DuckDB spills it to its temporary folder. `count_groups` says how many
groups a state has, and about how many there will be at the end.

**Estimates** are made where they are worth what they cost (`EstimateCosts`). That follows from counts of rows
and values, and from no clock. An estimate merges all partial rows: with 200,000 groups, one after each
mini-batch took twice as long as reading the table did. COUNT(DISTINCT) and aggregates that need all values,
such as MEDIAN, have a state of values. DuckDB keeps the values as well, but moves and merges them once. So a
query with many runs as a whole after some mini-batch. Any prefix of them is a sample: its values give
estimates, and the others are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil, prod
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap.certify import unseen_groups

from relaqs_engine.arrow_arrays import arrow, doubles
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, parquet_rows
from relaqs_engine.errors import MemoryLimitError
from relaqs_engine.layouts.assignment import HEAD_DIVISOR, heads_apart
from relaqs_engine.layouts.manifest import (
    BLOCK_COUNT,
    SMALL_SECONDS,
    SOON_SECONDS,
    LaidOutRead,
    Layout,
    Partition,
    StoredFile,
    scan_core_seconds,
)
from relaqs_engine.plans.aggregate import (
    BLOCK,
    FAN_OUT,
    HEAVY,
    OUTLIER_BLOCK,
    ROWS,
    STATE,
    VALUE,
    FoldedPlan,
    HeavyGroups,
    MergePlan,
    ResultShape,
    StreamScan,
)
from relaqs_engine.plans.plan import (
    BATCH_SHARE,
    BATCH_SHARE_OF_MANY_GROUPS,
    BLOCK_SHARE,
    BLOCKED_ROWS,
    MANY_GROUPS,
    Method,
    MiniBatch,
    Stream,
    mini_batches,
    partition_order,
)


@dataclass(frozen=True, slots=True)
class PartialTask:
    """What a task runs: a partial query, over some files of each stream.

    query: with a token in the place of each stream's files.
    """

    query: str
    scans: tuple[tuple[Stream, Layout, tuple[StoredFile, ...]], ...]

    @classmethod
    def over(
        cls,
        plan: FoldedPlan,
        catalog: Catalog,
        query: str,
        files_of: Callable[[Layout], tuple[StoredFile, ...]],
    ) -> PartialTask:
        layouts = [(stream, catalog.layout(stream.table)) for stream in plan.streams]
        return cls(query, tuple((stream, layout, files_of(layout)) for stream, layout in layouts))

    @property
    def sql(self) -> str:
        """Return the statement."""
        files = {
            stream.token: parquet_rows([layout.directory / each.file for each in files])
            for stream, layout, files in self.scans
        }
        return filled(self.query, files)

    @property
    def reads(self) -> tuple[LaidOutRead, ...]:
        """Return what it reads of the streams."""
        return tuple(layout.read(stream.columns, files) for stream, layout, files in self.scans)


def partial_task(
    plan: FoldedPlan, catalog: Catalog, partitions: tuple[int, ...], *, by_block: bool
) -> PartialTask:
    """Return the task that reads the given partitions of every stream."""
    partial = plan.partial
    query = partial.by_block_sql if by_block and partial.by_block_sql else partial.sql
    return PartialTask.over(plan, catalog, query, lambda layout: layout.files_of(partitions))


def batch_tasks(plan: FoldedPlan, catalog: Catalog, batch: MiniBatch) -> tuple[PartialTask, ...]:
    """Return the tasks of a mini-batch. Those that read an index of the plan come first."""
    tasks = [partial_task(plan, catalog, each, by_block=batch.by_block) for each in batch.tasks]
    if reads_outliers(plan, batch):
        tasks.insert(0, outlier_task(plan, catalog))
    elif (heavy := read_heavy(plan, batch)) is not None:
        tasks.insert(0, heavy_task(plan, heavy, catalog))
    return tuple(tasks)


def reads_outliers(plan: FoldedPlan, batch: MiniBatch) -> bool:
    """Whether a mini-batch has a task that reads the outlier index: the first has, where there is one."""
    return batch.index == 0 and bool(plan.partial.outlier_sql)


def outlier_task(plan: FoldedPlan, catalog: Catalog) -> PartialTask:
    """Return the task that reads the outlier index."""
    return PartialTask.over(plan, catalog, plan.partial.outlier_sql, lambda layout: layout.outlier_files)


def read_heavy(plan: FoldedPlan, batch: MiniBatch) -> HeavyGroups | None:
    """Return the heavy groups that a task of a mini-batch reads: the second has one, where there are any.

    So the first estimate is there as early as it would be without them.
    """
    return plan.partial.heavy if batch.index == 1 else None


def heavy_task(plan: FoldedPlan, heavy: HeavyGroups, catalog: Catalog) -> PartialTask:
    """Return the task that reads the heavy units alone, with how many static rows a row can meet."""
    query = f"SELECT *, {heavy.fan_out_sql} AS {FAN_OUT} FROM ({plan.partial.sql})"
    return PartialTask.over(plan, catalog, query, lambda layout: _rows_of_heavy(layout, heavy).files)


def _rows_of_heavy(layout: Layout, heavy: HeavyGroups) -> Partition:
    rows = layout.rows_of_heavy(heavy.index)
    assert rows is not None, f"{layout.table} has no copy of the rows of heavy units"
    return rows


def filled(sql: str, places: Mapping[str, str]) -> str:
    """Return the SQL with a text in each place that stands for one. Every place has to occur."""
    for place, text in places.items():
        assert place in sql, f"{place} does not occur in {sql}"
        sql = sql.replace(place, text)
    return sql


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


def counted_together(layouts: Sequence[Layout]) -> Layout:
    """Return one layout with the rows of several that have as many partitions. It measures, and has no files.

    A unit has its rows of all of them. Of what is not known of it, this has what makes units look larger.
    """
    first = layouts[0]
    if len(layouts) == 1:
        return first
    of_rows = sum(each.typical_unit_rows * each.row_count for each in layouts)
    row_count = sum(each.row_count for each in layouts)
    partitions = tuple(
        Partition(
            (),
            sum(each.row_count for each in same),
            max(each.unit_count for each in same),
            tuple(map(sum, zip(*(each.block_rows for each in same), strict=True))),
        )
        for same in zip(*(each.partitions for each in layouts), strict=True)
    )
    return replace(
        first,
        partitions=partitions,
        row_count=row_count,
        unit_count=sum(each.unit_count for each in partitions),
        max_unit_rows=sum(each.max_unit_rows for each in layouts),
        unit_kurtosis_rows=None,
        typical_unit_rows=of_rows / max(row_count, 1),
    )


def leading_stream(plan: BatchedPlan, catalog: Catalog) -> Layout:
    """Return the layout with the rows that measure what was scanned: of several tables, counted together.

    Where several tables are joined, its largest unit is as large as that of the joined rows can be: each row
    of a unit may meet all others of it.
    """
    if plan.leaves_units_out:
        return catalog.layout(plan.measured_by[0]).without_outlier_units()
    measured = counted_together([catalog.layout(name) for name in plan.measured_by])
    if len(plan.joined) < 2:
        return measured
    joined = [catalog.layout(name) for name in plan.joined]
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
        first_partitions=first_partitions(plan, catalog),
    )


def own_schedule(
    plan: BatchedPlan, catalog: Catalog, seed: int, batches: int | None = None
) -> tuple[Catalog, tuple[MiniBatch, ...]]:
    """Return the mini-batches of a query by itself, and the catalog by which they number partitions.

    Where few rows are predicted to be enough, the first mini-batch has heads of partitions, which are
    partitions of their own there.
    """
    usual = scheduled_batches(plan, catalog, seed, batches)
    heads = () if batches else _first_heads(plan, catalog, seed)
    if not heads:
        return catalog, usual
    count = len(catalog.layout(plan.streams[0].table).partitions)
    for stream in plan.streams:
        catalog = catalog.with_layout(heads_apart(catalog.layout(stream.table), heads))
    first = MiniBatch(0, (tuple(range(count, count + len(heads))),), usual[0].by_block)
    return catalog, (first, *(replace(batch, index=batch.index + 1) for batch in usual))


def _first_heads(plan: BatchedPlan, catalog: Catalog, seed: int) -> tuple[int, ...]:
    """Return the partitions with the heads that a query needs for ±5 %; () where they have too few rows."""
    layouts = [catalog.layout(stream.table) for stream in plan.streams]
    needed = min(each.share_needed for each in plan.task_plans)
    count = ceil(needed * HEAD_DIVISOR * len(layouts[0].partitions) - 1e-9)
    order = partition_order(len(layouts[0].partitions), seed)
    held = [i for i in order if all(i < len(each.heads) and each.heads[i].row_count for each in layouts)]
    return tuple(held[:count]) if count <= len(held) and not plan.leaves_units_out else ()


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
    return SOON_SECONDS / _core_seconds_per_partition(plan, catalog)


# A mini-batch takes a core 10 ms beside its rows, to be planned by DuckDB, merged and estimated from. So the
# first has as many rows as the query is predicted to need, up to what a core reads meanwhile. Predictions
# take values to be spread as widely as exponential ones, and mostly half of the rows is enough.
FIRST_SECONDS = 0.01
FIRST_OF_NEEDED = 0.5


def first_partitions(plan: BatchedPlan, catalog: Catalog) -> float:
    """Return how many partitions the first mini-batch has: about as many as the query needs for ±5 %.

    It has one where that is not predicted, and where the whole table is read in less than SMALL_SECONDS.
    """
    seconds, count = _core_seconds_per_partition(plan, catalog), len(leading_stream(plan, catalog).partitions)
    needed = min(each.share_needed for each in plan.task_plans)
    if seconds * count < SMALL_SECONDS:
        return 1.0
    return max(1.0, min(FIRST_OF_NEEDED * needed * count, FIRST_SECONDS / seconds, BLOCK_SHARE * count))


def _core_seconds_per_partition(plan: BatchedPlan, catalog: Catalog) -> float:
    return max(_most_per_partition(plan, catalog, scan_core_seconds), 1e-9)


def used_bytes_per_partition(plan: BatchedPlan, catalog: Catalog) -> float:
    """Return about how many compressed bytes a task reads in one partition of its streams."""
    return _most_per_partition(plan, catalog, lambda size, _: size)


def _most_per_partition(plan: BatchedPlan, catalog: Catalog, cost: Callable[[int, int], float]) -> float:
    """Return what a task costs in one partition, the dearest of several. cost: of so many bytes and rows."""

    def of(scan: StreamScan) -> float:
        layout = catalog.layout(scan.table)
        whole = cost(layout.bytes_of(scan.columns), layout.row_count)
        return scan.times * whole / len(layout.partitions)

    return max(sum(map(of, each.partial.scans)) for each in plan.task_plans)


def result_bytes_per_partition(plan: BatchedPlan, catalog: Catalog) -> float:
    """Return about how many bytes the partial result over one partition takes where rows are not filtered.

    How many rows a condition lets through is not known; to take all for granted would cut selective queries
    into tasks that are too small. 0 is returned then.
    """
    shape = plan.result_shape
    if shape is None:
        return 0.0
    largest = max((catalog.layout(each.table) for each in plan.streams), key=lambda layout: layout.row_count)
    read = largest.row_count / len(largest.partitions)
    rows = read if shape.most_rows is None else min(read, shape.most_rows)
    return VALUE_BYTES * (read * shape.lists + rows * shape.columns)


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The groups of one answer. seen: so far. in_all: at the end, about; too few rather than too many."""

    seen: int
    in_all: int


def count_groups(plan: MergePlan, cursor: Cursor, fraction: float, *, by_value: bool = False) -> GroupCount:
    """Return how many groups there are before HAVING and LIMIT.

    Args:
        fraction: the share of the sampling units that was scanned.
        by_value: count each value of a group that COUNT(DISTINCT) counts.
    """
    keys = (*plan.columns.keys, VALUE) if by_value else plan.columns.keys
    if not keys:
        return GroupCount(1, 1)
    groups = f"SELECT sum({ROWS}) AS n FROM {STATE} GROUP BY {', '.join(keys)}"
    [(seen, once, twice, rows)] = cursor.rows(
        "SELECT count(*), count(*) FILTER (n = 1), count(*) FILTER (n = 2), coalesce(sum(n), 0)::BIGINT "
        f"FROM ({groups})"
    )
    is_local = plan.groups_are_local and not by_value
    in_all = seen / fraction if is_local else seen + unseen_groups(once, twice, rows, fraction)
    return GroupCount(seen, round(in_all))


# The most partial rows, and bytes (rows may hold lists), in Arrow. Beyond either, they move to DuckDB.
ARROW_ROWS = 50_000
ARROW_BYTES = 64 << 20


class PartialRows:
    """What answers are estimated from: partial rows, which a cursor sees as `state`. None so far.

    Attributes:
        block_rows: the rows scanned in each block, whether they match or not, shape (blocks,).
        unit_count: the sampling units scanned.
        in_arrow: the partial rows; None once they are in DuckDB.
        unseen_most: the most that a group which was not seen can total, once heavy groups were read; inf
            before.
    """

    def __init__(self, block_count: int) -> None:
        self.block_rows: NDArray[np.int64] = np.zeros(block_count, dtype=np.int64)
        self.unit_count = 0
        self.in_arrow: pa.Table | None = None
        self.unseen_most = np.inf


class GroupState(PartialRows):
    """Folds mini-batches. The first block_count blocks are stored in the data, then each task is one.

    The cursor sees the partial rows as `state`.

    Args:
        most_bytes: that partial rows may take.
    """

    def __init__(self, plan: FoldedPlan, leading: Layout, cursor: Cursor, most_bytes: float = np.inf) -> None:
        super().__init__(plan.block_count)
        self._plan = plan
        self._leading = leading
        self._cursor = cursor
        self._columns = list(plan.state_columns)
        self._in_duckdb = False
        self._row_count = 0
        self._compacted_row_count = 0
        self._row_bytes = 0.0  # of a partial row, the most so far
        self._most_bytes = most_bytes

    @property
    def row_count(self) -> int:
        return self._row_count

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch: one partial table for each task, in task order (see `batch_tasks`).

        Raises MemoryLimitError where they take more than they may.
        """
        blocks = self._plan.block_count
        pieces = []
        if reads_outliers(self._plan, batch):
            outliers, *partials = partials
            pieces.append(self._aligned(_in_block(outliers, OUTLIER_BLOCK)))
        elif (heavy := read_heavy(self._plan, batch)) is not None:
            found, *partials = partials
            if found.num_rows:  # kept beside the state; what partitions have of these groups ends up there
                self._cursor.register(HEAVY, self._aligned(_in_block(found, 0)))
                self.unseen_most = heavy.most * float(doubles(found.column(FAN_OUT))[0])
        for partitions, partial in zip(batch.tasks, partials, strict=True):
            rows = [self._leading.partitions[i] for i in partitions]
            self.unit_count += sum(p.unit_count for p in rows)
            if batch.by_block:
                stored = np.sum([p.block_rows for p in rows], axis=0)
                self.block_rows[:blocks] += stored.reshape(-1, blocks).sum(axis=0)
            else:
                partial = _in_block(partial, len(self.block_rows))
                self.block_rows = np.append(self.block_rows, sum(p.row_count for p in rows))
            pieces.append(self._aligned(partial))
        self._append(pa.concat_tables(pieces))
        if self._row_count * self._row_bytes > self._most_bytes:
            most = f"{int(self._most_bytes) >> 20} MiB"
            raise MemoryLimitError(f"what is kept takes over {most}; raise memory_limit, or group by less")

    def saved(self) -> pa.Table:
        """Return the partial rows, from which `restore` makes this state again."""
        if self._in_duckdb:
            return self._cursor.table(f"FROM {STATE}")
        return pa.table({}) if self.in_arrow is None else self.in_arrow

    def restore(self, rows: pa.Table, block_rows: NDArray[np.int64], folded: Iterable[MiniBatch]) -> None:
        """Become a state that was saved. This works only before the first fold."""
        assert not self._row_count, "a state that has folded something cannot become another"
        self.block_rows = block_rows
        partitions = (i for batch in folded for i in batch.partitions)
        self.unit_count = sum(self._leading.partitions[i].unit_count for i in partitions)
        self._append(rows.select(self._columns))

    def _aligned(self, partial: pa.Table) -> pa.Table:
        table = partial.select(self._columns)
        if BLOCK not in self._columns:
            return table
        place = self._columns.index(BLOCK)
        return table.set_column(place, BLOCK, table.column(place).cast(pa.int32()))

    def _append(self, rows: pa.Table) -> None:
        self._row_count += rows.num_rows
        self._row_bytes = max(self._row_bytes, rows.nbytes / max(rows.num_rows, 1))
        if self._in_duckdb:
            self._insert(rows)
        else:
            self.in_arrow = rows if self.in_arrow is None else pa.concat_tables([self.in_arrow, rows])
            if self._row_count <= ARROW_ROWS and self.in_arrow.nbytes <= ARROW_BYTES:
                self._cursor.register(STATE, self.in_arrow)
            else:
                self._cursor.unregister(STATE)
                with self._cursor.registered(partial=self.in_arrow):
                    self._cursor.run(f"CREATE TEMP TABLE {STATE} AS FROM partial")
                self.in_arrow, self._in_duckdb = None, True
        self._compact()

    def _insert(self, rows: pa.Table) -> None:
        with self._cursor.registered(partial=rows):
            self._cursor.run(f"INSERT INTO {STATE} FROM partial")

    def _compact(self) -> None:
        """Merge the rows of each group once their number has doubled, unless blocks need them apart."""
        grown = self._row_count > 2 * self._compacted_row_count
        merge = self._plan.compact_sql
        if not merge or not self._in_duckdb or not grown:
            return
        select = ", ".join(f"0::INTEGER AS {BLOCK}" if name == BLOCK else name for name in self._columns)
        self._cursor.run(f"CREATE OR REPLACE TEMP TABLE {STATE} AS SELECT {select} FROM ({merge})")
        [(count,)] = self._cursor.rows(f"SELECT count(*) FROM {STATE}")
        self._row_count = self._compacted_row_count = int(count)


def _in_block(partial: pa.Table, block: int) -> pa.Table:
    return partial.append_column(BLOCK, arrow(np.full(partial.num_rows, block, dtype=np.int32)))


# Measured, of a core: an estimate of however few rows; each partial row that it is made from; each row of the
# answers that SQL around them is computed from; each value of COUNT(DISTINCT) that a task returns, until the
# last answer is there; each value in a list; and what a query as a whole takes for each value in a list.
ESTIMATE_SECONDS = 0.02
STATE_ROW_SECONDS, ANSWER_ROW_SECONDS = 3e-7, 1e-5
DISTINCT_SECONDS, LISTED_SECONDS, WHOLE_LISTED_SECONDS = 1e-6, 3e-7, 3e-8
# A row that is known exactly costs less: it is joined, and nothing is estimated for it.
KNOWN_ROWS_PER_ROW = 5
# From so few rows an estimate is always made: from a state, and from answers. Each takes about 20 ms.
FEW_STATE_ROWS, FEW_ROWS = 50_000, 2_000
# From answers with more rows none is, unless the scan takes so long that one estimate is little of it.
MOST_ROWS = 100_000
# What all estimates of a query may take together: so long, and this share of what its scan takes.
ALL_SECONDS, ALL_SHARE = 1.0, 0.25
# What one may take of what was read since the last one; of a whole query that is there soon; and, where they
# are from listed values, of the whole query.
READ_SHARE, SOON_SHARE, LISTED_SHARE = 0.5, 0.12, 0.25
# One that takes more is made once this many times as much was read as at the last one. That is nearly twice:
# where mini-batches double the partitions, 1.99 times as many rows may be read.
GROWTH = 1.95
# The share of the rows after which a query does not run as a whole any more, as too much would be done twice.
# That of values is larger, since a table of few partitions begins with much of its rows.
DECIDED_AT, VALUES_DECIDED_AT = 0.1, 0.3
# It does between these shares where nothing is certified, from the third one where no row of totals counts.
HOPELESS_FROM, HOPELESS_TO, EMPTY_FROM = 0.1, 0.3, 0.01
# Of a scan that is worth running as a whole before its estimates end, where nothing needs them: for a row,
# mini-batches take 1.2 to 2.4 times what the whole does.
LEAST_SECONDS, MOST_SECONDS = SMALL_SECONDS, 1.2


class EstimateCosts:
    """Says which estimates of a query are worth what they cost, beside the query as a whole.

    scan_seconds: what reading its tables takes of a core.
    """

    def __init__(self, scan_seconds: float) -> None:
        self.scan_seconds = scan_seconds
        self._all_seconds = self._seconds_left = ALL_SECONDS + ALL_SHARE * scan_seconds
        self._newest_fraction = 0.0
        self._is_first = True
        self._has_certified = False

    def is_due(self, rows: int, fraction: float) -> bool:
        """Return whether an estimate from the state is due now. If so, it counts as made.

        Args:
            rows: the partial rows that it would be made from.
            fraction: the share of the table that was read, above 0.
        """
        read_seconds = self.scan_seconds * (fraction - self._newest_fraction)
        is_cheap = rows <= FEW_STATE_ROWS or rows * STATE_ROW_SECONDS <= READ_SHARE * read_seconds
        if not is_cheap and fraction < GROWTH * self._newest_fraction:
            return False
        self._newest_fraction = fraction
        return True

    def allow(self, rows: int) -> bool:
        """Return whether SQL around answers is computed now. If so, it counts as computed.

        rows: of the answers.
        """
        cost = rows * ANSWER_ROW_SECONDS
        if rows > FEW_ROWS and cost > self._seconds_left and not self._is_first:
            return False
        self._seconds_left -= cost
        self._is_first = False
        return True

    def are_too_many(self, rows_in_all: int, fraction: float = 0.0) -> bool:
        """Return whether answers that will have so many rows had better be computed as a whole."""
        most = max(MOST_ROWS, round(ALL_SHARE * self.scan_seconds / ANSWER_ROW_SECONDS))
        return (self._is_first or fraction <= DECIDED_AT) and rows_in_all > most

    def are_hopeless(self, certified: int, rows: float, fraction: float, target: float | None = None) -> bool:
        """Return whether no estimate is of use before the end, as far as it is seen.

        Where no row counts in a share f of the table, less than 3 / f of all do in 95 % of the cases. A total
        of n rows has a relative error of 1.96 / √n at least until nearly all are read. So it does not reach
        a target ε where 3 / f is less than (1.96 / ε)². An average may: its error depends on the spread.

        Args:
            certified: how many numbers of the newest estimate are certified.
            rows: how many it is from: those that were scanned and count. Infinity: it has more than totals.
            fraction: the share of the rows that was scanned.
            target: the relative error that is enough.
        """
        self._has_certified |= certified > 0
        empty_from = max(EMPTY_FROM, 3.0 * ((target or 0.05) / 1.96) ** 2)
        is_early = (HOPELESS_FROM if rows else empty_from) <= fraction <= HOPELESS_TO
        return is_early and not self._has_certified and self.scan_seconds >= LEAST_SECONDS

    def last_before_soon(self, fractions: Sequence[float]) -> int | None:
        """Return the last mini-batch to estimate from before a whole query that is there soon, else None.

        fractions: the share of the rows that was scanned after each mini-batch.
        """
        if not LEAST_SECONDS <= self.scan_seconds < MOST_SECONDS or len(fractions) < 3:
            return None
        return _last_within(SOON_SHARE * self.scan_seconds, self.scan_seconds, fractions)

    def last_of_values(self, fractions: Sequence[float], distinct: float, listed: float) -> int:
        """Return the last mini-batch to estimate from values, before the query runs as a whole.

        It is the last of all where all values cost no more than the estimates before a whole query may.

        Args:
            fractions: the share of the rows that was scanned after each mini-batch.
            distinct: the values of COUNT(DISTINCT) that all tasks return, about.
            listed: the values in lists at the end, about.
        """
        if distinct * DISTINCT_SECONDS > self._all_seconds:
            return 0
        most = LISTED_SHARE * (self.scan_seconds + listed * WHOLE_LISTED_SECONDS)
        if listed * LISTED_SECONDS <= most:
            return len(fractions) - 1
        return _last_within(most, self.scan_seconds + listed * LISTED_SECONDS, fractions)


def _last_within(most_seconds: float, all_seconds: float, fractions: Sequence[float]) -> int:
    """Return the last mini-batch up to which reading and estimating take no longer; 0 where none is."""
    costs = [share * all_seconds + (i + 1) * ESTIMATE_SECONDS for i, share in enumerate(fractions)]
    return max(0, sum(cost <= most_seconds for cost in costs) - 1)


@dataclass(frozen=True, slots=True)
class Values:
    """The values that an answer is computed from, at the end, about.

    Attributes:
        distinct: those that tasks return for COUNT(DISTINCT).
        listed: those in lists.
    """

    count: int
    distinct: float = 0.0
    listed: float = 0.0


def distinct_in_all(returned: int, fraction: float, values: int, tasks: int) -> float:
    """Return about how many values of COUNT(DISTINCT) all tasks return. Each returns a value of a group once.

    Args:
        returned: how many they have returned so far.
        fraction: the share of the rows that was scanned.
        values: how many there are, of all groups.
        tasks: how many the query has.
    """
    return min(returned / fraction, float(values * tasks))


def values_in_all(
    plan: MergePlan, cursor: Cursor, *, returned: int, listed: int, fraction: float, tasks: int
) -> Values:
    """Return about how many values an answer is computed from.

    Args:
        returned: the rows that tasks have returned so far.
        listed: the values in lists that they have returned.
        fraction: the share of the rows that was scanned.
        tasks: how many the query has.
    """
    in_lists = listed / fraction
    if not plan.columns.counts_distinct:
        return Values(round(in_lists), listed=in_lists)
    values = count_groups(plan, cursor, fraction, by_value=True).in_all
    distinct = distinct_in_all(returned, fraction, values, tasks)
    return Values(values + round(in_lists), distinct, in_lists)
