"""Queries driven to their end in this process, beside plain DuckDB, and what any two answers must share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Database, DatabaseConfig
from relaqs_engine.errors import TooManyGroupsError
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate
from relaqs_engine.layouts.cache import Cache, CacheUse, Opening
from relaqs_engine.planning.exact import RowGroupRules, plan_whole
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.aggregate import FoldedPlan
from relaqs_engine.plans.plan import IntervalRequest, OnlinePlan
from relaqs_engine.sql.binder import Binder, Parameters

from relaqs.jobs.job import TaskResult
from relaqs.queries.jobs import Asked
from relaqs.queries.start import query_job
from tests.conftest import Oracle
from tests.engine.soundness import Tally, unsound
from tests.rows import rows_of

MEMORY_BYTES = 1 << 30
RELATIVE = 1e-9  # what two orders of adding doubles may differ by
ABSOLUTE = 1e-9  # where the terms cancel: the spread of a constant, a sum of signed numbers near 0


@dataclass(frozen=True, slots=True)
class World:
    """One warehouse, the databases that answer over it, and the oracle over the same data as it came."""

    catalog: Catalog
    binder: Binder
    config: DatabaseConfig
    states: Database
    oracle: Oracle
    row_groups: RowGroupRules | None = None

    @classmethod
    def open(cls, warehouse: Path, oracle: Oracle) -> World:
        catalog = Catalog.open(warehouse)
        config = DatabaseConfig(catalog.readable_directories, MEMORY_BYTES)
        states = Database(DatabaseConfig((), MEMORY_BYTES))
        return cls(catalog, Binder(catalog), config, states, oracle)

    @classmethod
    def of_files(cls, oracle: Oracle, cache: Path, rules: RowGroupRules, **files: Path) -> World:
        """Return plain files as tables, of which those that meet the rules are sampled by row groups."""
        catalog = Catalog.of_sources(files, Opening(CacheUse(Cache(cache))))
        config = DatabaseConfig((), MEMORY_BYTES, files=catalog.readable_files)
        return cls(
            catalog, Binder(catalog), config, Database(DatabaseConfig((), MEMORY_BYTES)), oracle, rules
        )

    def plan(self, sql: str, *, intervals: bool = True) -> OnlinePlan:
        return plan_query(sql, self.catalog, self.binder, intervals=intervals, row_groups=self.row_groups)

    def folded(self, sql: str, *, intervals: bool = True) -> FoldedPlan:
        """Return the plan of a query that folds into one state."""
        plan = self.plan(sql, intervals=intervals)
        assert isinstance(plan, FoldedPlan)
        return plan

    def estimates(
        self,
        plan: OnlinePlan,
        *,
        seed: int = 0,
        batches: int | None = None,
        request: IntervalRequest | None = None,
    ) -> Iterator[Estimate]:
        """Yield the estimate after each mini-batch, the exact answer last."""
        job = query_job(
            "test",
            plan,
            self.catalog,
            Asked(self.config, request or IntervalRequest(), seed, batches),
            state_cursor=self.states.cursor(),
            exact_config=self.config,
        )
        while (step := job.next_step()) is not None:
            results = [TaskResult(task.key, task.work.run(job.id), 0.0) for task in step.tasks]
            report = job.fold(step, results)
            if job.latest is not None:  # None while rows are decided anew
                yield job.latest
            if report.is_final:
                return
            if report.gives_up is not None:
                raise report.gives_up

    def last(self, sql: str, *, seed: int = 0, batches: int | None = None) -> pa.Table:
        """Return the query's last answer, its own columns alone."""
        *_, final = self.estimates(self.plan(sql), seed=seed, batches=batches)
        return own_columns(final)

    def check(
        self,
        sql: str,
        *,
        ordered: bool = False,
        seed: int = 0,
        batches: int | None = None,
        tally: Tally | None = None,
        params: Parameters | None = None,
    ) -> OnlinePlan:
        """Assert that every estimate is well formed and sound, and that the last is DuckDB's own answer.

        A query that turns out to have too many groups is run whole from there on, as in a session.
        """
        wanted = self.oracle.table(sql, params or None)
        plan = self.plan(self.binder.with_constants(sql, params).sql)
        estimates: list[Estimate] = []
        try:
            for estimate in self.estimates(plan, seed=seed, batches=batches):
                estimates.append(estimate)
        except TooManyGroupsError as error:
            estimates.extend(self.estimates(plan_whole(plan, plan.sql, self.catalog, str(error)), seed=seed))
        problems = [*difference(own_columns(estimates[-1]), wanted, ordered), *flaws(estimates)]
        problems += unsound(plan, estimates, tally or Tally())
        assert not problems, f"{sql}\n({plan.mode.value}, {plan.method.value})\n" + "\n".join(problems[:5])
        return plan


def own_columns(estimate: Estimate) -> pa.Table:
    """Return the columns of the query, without those of its intervals."""
    return estimate.table.select(list(range(len(estimate.columns))))


def difference(got: pa.Table, wanted: pa.Table, ordered: bool) -> Iterator[str]:
    """Yield what is different between two answers: schema, number of rows, the first unequal rows."""
    if not got.schema.equals(wanted.schema):
        yield f"schema: got {got.schema}\nwanted {wanted.schema}"
        return
    ours, theirs = rows_of(got), rows_of(wanted)
    if len(ours) != len(theirs):
        yield f"rows: got {len(ours)} {ours[:2]}, wanted {len(theirs)} {theirs[:2]}"
        return
    if not ordered:
        ours, theirs = sorted(ours, key=_rank), sorted(theirs, key=_rank)
    for our, their in zip(ours, theirs, strict=True):
        if not all(same(a, b) for a, b in zip(our, their, strict=True)):
            yield f"got {our}, wanted {their}"


def _rank(row: tuple[Any, ...]) -> tuple[str, ...]:
    """Order rows by what is exact in them first: doubles may differ in the last digit."""
    exact = ["" if isinstance(value, float) else repr(value) for value in row]
    return (*exact, *(f"{value:.6e}" for value in row if isinstance(value, float)))


def same(a: object, b: object) -> bool:
    """Whether two values are equal, doubles to the precision that any order of adding gives."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def flaws(estimates: Sequence[Estimate]) -> Iterator[str]:
    """Yield what is wrong with a run's estimates, whatever the query."""
    last = estimates[-1]
    if not last.is_exact or last.fraction != 1.0 or last.relative_error() != 0.0:
        yield f"the last estimate is exact {last.is_exact}, fraction {last.fraction}"
    scanned = 0.0
    for estimate in estimates:
        if not scanned < estimate.fraction:
            yield f"the fraction goes from {scanned} to {estimate.fraction}"
        scanned = estimate.fraction
        if not estimate.table.schema.equals(last.table.schema):
            yield f"the schema changes from {estimate.table.schema} to {last.table.schema}"
        if estimate.is_exact is not (estimate is last):
            yield f"at {scanned} is_exact is {estimate.is_exact}"
        shape = (estimate.table.num_rows, len(estimate.approximate))
        if not shape == estimate.values.shape == estimate.half_widths.shape == estimate.certified.shape:
            yield f"at {scanned} shapes are {shape} and {estimate.values.shape}"
        for place, column in enumerate(estimate.approximate):
            yield from _cell_flaws(estimate, place, column)
        yield from _reason_flaws(estimate)


def _reason_flaws(estimate: Estimate) -> Iterator[str]:
    """Yield where a number is not certified and has no reason, and reasons with names that nobody gave."""
    texts, which = estimate.reasons()
    if ((which > 0) & estimate.certified).any():
        yield f"at {estimate.fraction:.3f} certified cells have reasons, {texts}"
    known = np.isfinite(estimate.values) & ~estimate.certified
    if (known & (which == 0)).any():
        yield f"at {estimate.fraction:.3f} cells that are not certified have no reason"
    for text in texts:
        if re.search(r"\b(_\d+|_col_\d+|[bkvd]\d+|stream_\w+)\b", text):
            yield f"at {estimate.fraction:.3f} a reason has inner names: {text}"


def _cell_flaws(estimate: Estimate, place: int, column: ApproximateColumn) -> Iterator[str]:
    table, first = estimate.table, len(estimate.columns) + 3 * place
    if table.column_names[first : first + 3] != [column.low, column.high, column.certified]:
        yield f"interval columns {table.column_names} are not those of {column}"
        return
    positions = [i for i, name in enumerate(estimate.columns) if name == column.name]
    if len(positions) > 1:
        return  # which of several columns of one name it is cannot be told from outside
    columns = [table.column(i).to_pylist() for i in (positions[0], first, first + 1, first + 2)]
    for value, low, high, certified in zip(*columns, strict=True):
        where = (
            f"at {estimate.fraction:.3f} {column.name} = {value} in [{low}, {high}], certified {certified}"
        )
        if not _at_most(low, value) or not _at_most(value, high):
            yield f"{where}: outside its interval"
        if not isinstance(certified, bool):
            yield f"{where}: not true or false"
        elif (
            certified and not estimate.is_exact and value is not None and not (_finite(low) and _finite(high))
        ):
            yield f"{where}: certified without a finite interval"


def _at_most(low: Any, high: Any) -> bool:
    """Whether low <= high, as far as both are known. An estimate is rounded to its column's own type."""
    if low is None or high is None:
        return True
    slack = 0.5 if isinstance(low, int) or isinstance(high, int) else 0.0
    if isinstance(low, int | float | Decimal) and isinstance(high, int | float | Decimal):
        a, b = float(low), float(high)
        return math.isnan(a) or math.isnan(b) or a <= b + slack or math.isclose(a, b, rel_tol=RELATIVE)
    return not isinstance(low, str | bytes) or low <= high


def _finite(side: object) -> bool:
    return side is not None and (
        not isinstance(side, int | float | Decimal) or bool(np.isfinite(float(side)))
    )
