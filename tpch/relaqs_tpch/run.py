"""Measures jobs one at a time, each alone on all cores: `relaqs tpch run`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_engine.errors import RelaqsError
from relaqs_lab.records.query_run import QueryRun

from relaqs.executors import ThreadExecutor
from relaqs.queries.options import QueryOptions
from relaqs.session import Session
from relaqs.sharing.view import Kind
from relaqs_tpch.exact import ExactDuckDB, difference
from relaqs_tpch.measuring import MeteredExecutor, steps_of_query, steps_of_training
from relaqs_tpch.truth import Truth
from relaqs_tpch.warehouse import MOST_STEPS, Warehouse, query, training_job


class WrongAnswerError(RelaqsError):
    """The last snapshot is not what plain DuckDB answers."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is to be measured: query number, or algorithm, by name; the seed; which repetition."""

    name: str
    seed: int
    run: int

    @property
    def number(self) -> int | None:
        """The query's number, None for a training algorithm."""
        return int(self.name[1:]) if self.name[0] == "Q" and self.name[1:].isdigit() else None


class Bench:
    """A session and plain DuckDB over one warehouse, with as many threads each. A context manager."""

    def __init__(self, warehouse: Warehouse, threads: int, circumstances: Mapping[str, Any]) -> None:
        self._warehouse = warehouse
        self._threads = threads
        self._circumstances = circumstances
        self._executor = MeteredExecutor(ThreadExecutor(threads))
        self._session: Session = warehouse.session(self._executor, is_embedded=True)
        self._duckdb = ExactDuckDB(warehouse.catalog.tables, threads)
        self._warm: set[str] = set()

    def measure(self, wanted: Sequence[Measurement]) -> Iterator[QueryRun]:
        """Yield the record of each measurement. A query is run once before, which is not recorded."""
        for each in wanted:
            if each.number is not None and each.name not in self._warm:
                self._warm.add(each.name)
                self._measured(each)
            yield self._measured(each)

    def _measured(self, each: Measurement) -> QueryRun:
        return self._trained(each) if each.number is None else self._queried(each, each.number)

    def _queried(self, each: Measurement, number: int) -> QueryRun:
        sql = query(number)
        # There and back again: a machine that slows down meanwhile slows both alike.
        exact = self._duckdb.answer(sql) if each.run % 2 else None
        core_started = time.process_time()
        plan = self._session.plan(sql)
        submitted_at = time.perf_counter()
        running = self._session.start(plan, QueryOptions(seed=each.seed))
        snapshots = list(running)
        running.wait()
        core_seconds = time.process_time() - core_started
        exact = exact or self._duckdb.answer(sql)
        if (wrong := difference(exact.table, snapshots[-1].estimate)) is not None:
            raise WrongAnswerError(f"{each.name} in {self._warehouse.folder}: {wrong}; please report it")
        return self._record(
            each,
            kind=Kind.QUERY if plan.is_estimated else Kind.EXACT,
            mode=plan.mode.value,
            steps=steps_of_query(
                snapshots,
                self._executor.steps(running.id),
                Truth(plan, exact.table),
                submitted_at=submitted_at,
            ),
            core_seconds=core_seconds,
            duckdb_seconds=exact.seconds,
            equals_duckdb=True,
        )

    def _trained(self, each: Measurement) -> QueryRun:
        core_started, submitted_at = time.process_time(), time.perf_counter()
        running = self._session.train(training_job(each.name, each.seed), max_steps=MOST_STEPS)
        running.result()
        return self._record(
            each,
            kind=Kind.TRAINING,
            mode="training",
            steps=steps_of_training(
                running.steps, self._executor.steps(running.id), submitted_at=submitted_at
            ),
            core_seconds=time.process_time() - core_started,
            duckdb_seconds=float("nan"),
            equals_duckdb=True,
        )

    def _record(self, each: Measurement, **measured: Any) -> QueryRun:
        return QueryRun(
            name=each.name,
            data=self._warehouse.contents,
            scale=self._warehouse.scale,
            seed=each.seed,
            run=each.run,
            threads=self._threads,
            circumstances=self._circumstances,
            **measured,
        )

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *raised: object) -> None:
        self._session.close()
        self._duckdb.close()
