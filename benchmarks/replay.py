"""One query over one table, its parts aggregated once and then folded in as many orders as wanted.

The parts are the partitions of a layout, or the row groups of a plain file.

Everything but the order of reading is the product's own: the plan's SQL makes the partial aggregates, its
schedule says which partitions are folded when, its state folds them and its estimator makes the intervals. A
task's partial is the concatenation of its partitions': rows of equal group and block add up in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, Database, DatabaseConfig, quote_name
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import Estimator
from relaqs_engine.execution.refined import RefinedAnswer
from relaqs_engine.execution.row_group_estimates import certain_sql, sample_sql
from relaqs_engine.execution.state import (
    GroupState,
    leading_stream,
    outlier_task,
    own_schedule,
    partial_task,
    scheduled_batches,
)
from relaqs_engine.layouts.manifest import Layout, StoredFile
from relaqs_engine.layouts.row_groups import MOST_DRAWN, RowGroupTable
from relaqs_engine.planning.exact import RowGroupRules
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.aggregate import BLOCK, MergePlan
from relaqs_engine.plans.composite import FIRST_DRAWN, RefinedPlan, SampledThenExact
from relaqs_engine.plans.plan import IntervalRequest, Method, MiniBatch, OnlinePlan, OutputKind, spread_order
from relaqs_engine.sql.binder import Binder

from benchmarks.tally import FloatArray, Look
from relaqs.executors.row_group_files import RowGroupFileSystem

MEMORY_LIMIT_BYTES = 2 << 30
_WHOLE = ""
_ESTIMATED = (OutputKind.ESTIMATE, OutputKind.QUANTILE, OutputKind.DISTINCT)
_NEAR = 0.2  # of a share of the table: by how much what is read may differ from it
_PLANNED_ABOVE_SECONDS = 1e-5  # so small files are drawn from, too, and what they are joined with is not


class Replay:
    """A query's partial aggregates over every partition of a layout, ready to be folded in any order.

    share_needed: of the rows, for which heads are read first where there are such. None: as is predicted.
    """

    def __init__(self, sql: str, catalog: Catalog, share_needed: float | None = None) -> None:
        self._catalog = catalog
        plan = self.planned(sql, catalog)
        self.plan = plan = plan if share_needed is None else plan.predicted(share_needed)
        self._read = Database(DatabaseConfig(catalog.readable_directories, MEMORY_LIMIT_BYTES))
        self._reading = cursor = self._read.cursor()
        self._parts = _parts(self.plan)
        for hoist in {hoist.name: hoist for part in self._parts.values() for hoist in part.hoists}.values():
            cursor.run(f"CREATE TABLE {quote_name(hoist.name)} AS {hoist.sql}")
        self._partials: dict[tuple[str, bool, tuple[StoredFile, ...]], pa.Table] = {}
        self._outliers = _outliers(plan, catalog, cursor)
        self._states = Database(DatabaseConfig((), MEMORY_LIMIT_BYTES))

    @staticmethod
    def planned(sql: str, catalog: Catalog) -> MergePlan | RefinedPlan:
        """Return the plan of a query. Raises SystemExit where it has no error bars."""
        plan = plan_query(sql, catalog, Binder(catalog))
        has_bars = plan.method is not Method.NONE or any(
            output.kind is OutputKind.DISTINCT for output in plan.outputs
        )
        if not has_bars or not isinstance(plan, MergePlan | RefinedPlan):
            raise SystemExit(f"the query has no error bars: {'; '.join(plan.reasons)}\n{sql}")
        return plan

    def _partial_of(self, part: str, number: int, catalog: Catalog, *, by_block: bool) -> pa.Table:
        """Return a part's partial aggregates of a partition: made when first asked for."""
        files = leading_stream(self.plan, catalog).partitions[number].files
        of = (part, by_block, files)
        if of not in self._partials:
            task = partial_task(self._parts[part], catalog, (number,), by_block=by_block)
            self._partials[of] = self._reading.table(task.sql)
        return self._partials[of]

    def batches(self, seed: int) -> tuple[MiniBatch, ...]:
        """Return the mini-batches of the query with this seed."""
        return self._schedule(seed)[1]

    def _schedule(self, seed: int) -> tuple[Catalog, tuple[MiniBatch, ...]]:
        """Return the mini-batches, and the catalog by which they number partitions."""
        if isinstance(self.plan, MergePlan):
            return own_schedule(self.plan, self._catalog, seed)
        return self._catalog, scheduled_batches(self.plan, self._catalog, seed)

    def estimates(
        self, seed: int, request: IntervalRequest, wanted: Callable[[int], bool] = lambda index: True
    ) -> Iterator[tuple[int, Estimate]]:
        """Yield (mini-batch, estimate) where wanted, before the last mini-batch, which is exact."""
        return self._after_each(*self._schedule(seed), request, wanted)

    def _after_each(
        self,
        catalog: Catalog,
        batches: Sequence[MiniBatch],
        request: IntervalRequest,
        wanted: Callable[[int], bool],
    ) -> Iterator[tuple[int, Estimate]]:
        cursor = self._states.cursor()
        fold, estimate = self._folding(catalog, cursor, request)
        for batch in batches[:-1]:
            fold(batch)
            if wanted(batch.index) and (found := estimate()) is not None:
                yield batch.index, found
        cursor.close()

    def looks(
        self, seed: int, shares: Sequence[float], request: IntervalRequest
    ) -> Iterator[tuple[float, Estimate]]:
        """Yield (share, estimate) after the mini-batch that is nearest to each share of the table.

        Where none is near, as in small tables late in a query, a mini-batch is cut in two.
        """
        catalog, batches = self._schedule(seed)
        leading = leading_stream(self.plan, catalog)
        batches = cut_at(batches, shares, leading)
        nearest = nearest_batches(batches, tuple(shares), leading)
        for index, estimate in self._after_each(catalog, batches, request, nearest.__contains__):
            for share in (s for s, batch in zip(shares, nearest, strict=True) if batch == index):
                yield share, estimate

    def _folding(
        self, catalog: Catalog, cursor: Cursor, request: IntervalRequest
    ) -> tuple[Callable[[MiniBatch], None], Callable[[], Estimate | None]]:
        """Return what folds a mini-batch, and what estimates after it. Refined plans decide no row early."""
        leading = leading_stream(self.plan, catalog)
        if isinstance(self.plan, MergePlan):
            state = GroupState(self.plan, leading, cursor)
            estimator = Estimator(self.plan, leading, state, cursor, request)
            return lambda batch: state.fold(batch, self._results(_WHOLE, batch, catalog)), estimator.estimate
        answer = RefinedAnswer(self.plan, leading, cursor, request)
        stages = [stage.name for stage in self.plan.stages]

        def fold(batch: MiniBatch) -> None:
            answer.fold_stages(batch, {name: self._results(name, batch, catalog) for name in stages})
            answer.fold_kept(batch, self._results(_WHOLE, batch, catalog))

        return fold, answer.estimate

    def _results(self, part: str, batch: MiniBatch, catalog: Catalog) -> list[pa.Table]:
        """Return what each task of a mini-batch would return for a part of the plan."""
        partial = self._partial_of
        results = [
            pa.concat_tables([partial(part, number, catalog, by_block=batch.by_block) for number in task])
            for task in batch.tasks
        ]
        return [*self._outliers, *results] if batch.index == 0 else results

    def close(self) -> None:
        self._reading.close()
        self._read.close()
        self._states.close()


class NothingDrawn(SystemExit):
    """A file has too few row groups for any of the shares."""


class RowGroupReplay:
    """A query's partial aggregates over every row group of a plain file, ready to be drawn in any order.

    Each share of the row groups has a plan of its own, which draws the number nearest to it. FIRST_DRAWN are
    drawn at least, and at most as many as there are blocks. Shares that no such number is near are left out.
    """

    def __init__(self, sql: str, catalog: Catalog, shares: Sequence[float]) -> None:
        binder = Binder(catalog)
        count = len(self.planned(sql, catalog, binder, shares[0]).groups)
        can_be = [share for share in shares if _is_near(_can_be_drawn(share, count), share, count)]
        plans = {share: self.planned(sql, catalog, binder, share) for share in can_be}
        near = {share: plan for share, plan in plans.items() if _draws(plan, share)}
        self.shares = tuple(near)
        if not near:
            raise NothingDrawn(
                f"no share of {shares} is near a number of row groups that can be drawn\n{sql}"
            )
        self.plan = next(iter(near.values()))
        self._plans = near
        config = DatabaseConfig(
            catalog.readable_directories, MEMORY_LIMIT_BYTES, files=catalog.readable_files
        )
        database = Database(config)
        database.serve(RowGroupFileSystem(config.files))
        cursor = database.cursor()
        self._partials = {share: _of_row_groups(plan, cursor) for share, plan in near.items()}
        database.close()
        self._states = Database(DatabaseConfig((), MEMORY_LIMIT_BYTES))

    @staticmethod
    def planned(sql: str, catalog: Catalog, binder: Binder, share: float) -> SampledThenExact:
        """Return the plan that draws about this share. Raises SystemExit where it has no error bars."""
        rules = RowGroupRules(1, _PLANNED_ABOVE_SECONDS, FIRST_DRAWN + 1, share)
        plan = plan_query(sql, catalog, binder, row_groups=rules)
        if not isinstance(plan, SampledThenExact):
            raise SystemExit(f"the query has no error bars: {'; '.join(plan.reasons)}\n{sql}")
        return plan

    def looks(
        self, seed: int, shares: Sequence[float], request: IntervalRequest
    ) -> Iterator[tuple[float, Estimate]]:
        """Yield (share, estimate) of each share that a number of row groups is near to."""
        for share in (share for share in shares if share in self._plans):
            cursor = self._states.cursor()
            yield share, self._drawn(share, seed, cursor, request)
            cursor.close()

    def _drawn(self, share: float, seed: int, cursor: Cursor, request: IntervalRequest) -> Estimate:
        """Return the estimate from the row groups that are drawn with this seed."""
        plan, (partials, certain) = self._plans[share], self._partials[share]
        order = spread_order(len(plan.groups), plan.sizes, seed)
        block = pc.index_in(partials.column(BLOCK).cast(pa.int64()), value_set=pa.array(order, pa.int64()))
        place = partials.column_names.index(BLOCK)
        mine = partials.set_column(place, BLOCK, block).filter(pc.is_valid(block))
        table = plan.drawn(seed)
        state = GroupState(plan.sample, table, cursor)
        state.fold(MiniBatch(0, (tuple(range(len(order))),), by_block=True), [*certain, mine])
        return Estimator(plan.sample, table, state, cursor, request).estimate()

    def close(self) -> None:
        self._states.close()


def _can_be_drawn(share: float, count: int) -> float:
    """Return the number of row groups nearest to a share of them that can be drawn."""
    return min(max(share * count, FIRST_DRAWN), MOST_DRAWN)


def _is_near(drawn: float, share: float, count: int) -> bool:
    return abs(drawn - share * count) <= max(_NEAR * share * count, 1.0)


def _draws(plan: SampledThenExact, share: float) -> bool:
    """Whether a plan draws about this share of the row groups, and not all of them."""
    count, drawn = len(plan.groups), plan.sizes[-1]
    return _is_near(drawn, share, count) and drawn < count


def _of_row_groups(plan: SampledThenExact, cursor: Cursor) -> tuple[pa.Table, list[pa.Table]]:
    """Return the partial aggregates of row groups: of those that are drawn from, and of those read anyhow."""
    for hoist in plan.sample.hoists:
        cursor.run(f"CREATE OR REPLACE TABLE {quote_name(hoist.name)} AS {hoist.sql}")
    assert isinstance(plan.part, RowGroupTable)
    partials, certain = cursor.table(sample_sql(plan.sample, plan.groups, 0)), plan.part.certain
    return partials, [cursor.table(certain_sql(plan.sample, certain))] if certain else []


def _parts(plan: MergePlan | RefinedPlan) -> dict[str, MergePlan]:
    """Return what is aggregated per partition: the query itself, or its kept rows and its stages."""
    if isinstance(plan, MergePlan):
        return {_WHOLE: plan}
    return {_WHOLE: plan.outer.kept, **{stage.name: stage.plan for stage in plan.stages}}


def _outliers(plan: MergePlan | RefinedPlan, catalog: Catalog, cursor: Cursor) -> list[pa.Table]:
    """Return the partial aggregates of the outlier index, if the plan reads it."""
    if isinstance(plan, MergePlan) and plan.partial.outlier_sql:
        return [cursor.table(outlier_task(plan, catalog).sql)]
    return []


def nearest_batches(
    batches: tuple[MiniBatch, ...], fractions: tuple[float, ...], leading: Layout | None = None
) -> tuple[int, ...]:
    """Return for each fraction the mini-batch, before the last, after which the scan is nearest to it.

    leading: the table with the rows that count. None: each partition has as many.
    """
    shares = list(accumulate(sum(_shares(batch, leading)) for batch in batches))
    known = [share / shares[-1] for share in shares[:-1]]
    return tuple(min(range(len(known)), key=lambda i: abs(known[i] - f)) for f in fractions)


def cut_at(
    batches: tuple[MiniBatch, ...], shares: Sequence[float], leading: Layout | None = None
) -> tuple[MiniBatch, ...]:
    """Return the mini-batches, cut in two at each share of the rows that no end of one is near.

    leading: the table with the rows that count. None: each partition has as many.
    """
    ends = list(accumulate(len(batch.partitions) for batch in batches))
    read = [0.0, *accumulate(share for batch in batches for share in _shares(batch, leading))]
    read = [each / read[-1] for each in read]
    far = {
        min(range(len(read)), key=lambda i: abs(read[i] - share))
        for share in shares
        if min(abs(read[end] - share) for end in ends[:-1]) > _NEAR * share
    }
    found: list[MiniBatch] = []
    for batch, begin, end in zip(batches, (0, *ends), ends, strict=False):
        cuts = [0, *sorted(cut - begin for cut in far if begin < cut < end), end - begin]
        for first, last in pairwise(cuts):
            found.append(MiniBatch(len(found), _tasks_within(batch, first, last), batch.by_block))
    return tuple(found)


def _shares(batch: MiniBatch, leading: Layout | None) -> list[int]:
    """Return the rows of each partition of a mini-batch, in their order."""
    return [1 if leading is None else leading.partitions[i].row_count for i in batch.partitions]


def _tasks_within(batch: MiniBatch, first: int, last: int) -> tuple[tuple[int, ...], ...]:
    """Return what its tasks have of the partitions from one place in a mini-batch to another."""
    begins = [0, *accumulate(len(task) for task in batch.tasks)]
    parts = (
        task[max(first - begin, 0) : max(last - begin, 0)]
        for begin, task in zip(begins, batch.tasks, strict=False)
    )
    return tuple(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact answer. keys, columns: names of the group keys and of the estimated columns.

    groups: row of each group's key values. values: shape (groups, columns).
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    groups: dict[tuple[object, ...], int]
    values: FloatArray

    @classmethod
    def of(cls, plan: OnlinePlan, answer: pa.Table) -> Truth:
        """Return the truth from the answer of plain DuckDB to the plan's query."""
        keys = tuple(output.name for output in plan.outputs if output.kind is OutputKind.KEY)
        columns = tuple(output.name for output in plan.outputs if output.kind in _ESTIMATED)
        values = np.stack([doubles(answer.column(name)) for name in columns], axis=1)
        return cls(keys, columns, {key: i for i, key in enumerate(rows_of(answer, keys))}, values)

    def look(self, estimate: Estimate) -> tuple[NDArray[np.int64], Look]:
        """Return which groups an estimate shows, and what it says of their cells."""
        groups = np.array([self.groups[key] for key in rows_of(estimate.table, self.keys)], dtype=np.int64)
        named = {column.name: column for column in estimate.approximate}
        chosen = [named[name] for name in self.columns]
        low = [doubles(estimate.table.column(column.low)) for column in chosen]
        high = [doubles(estimate.table.column(column.high)) for column in chosen]
        sure = [estimate.table.column(column.certified).to_numpy() for column in chosen]
        return groups, Look(
            self.values[groups], np.stack(low, axis=1), np.stack(high, axis=1), np.stack(sure, axis=1)
        )


def rows_of(table: pa.Table, names: Sequence[str | int]) -> list[tuple[object, ...]]:
    """Return the table's rows as tuples of these columns, by name or position; empty ones of no columns."""
    if not names:
        return [()] * table.num_rows
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
