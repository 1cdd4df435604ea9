"""One timed run of a query, online or by plain DuckDB: wall seconds, and the process's core-seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from relaqs_engine.catalog import Catalog
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_tpch.measuring import MeteredExecutor

from benchmarks.plain_duckdb import PlainDuckDB
from relaqs.executors import ThreadExecutor
from relaqs.memory import machine_memory_bytes
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot
from relaqs.session import Session

CERTIFIED_FROM = 0.1  # of the rows scanned: where the share of certified cells is taken


@dataclass(frozen=True, slots=True)
class OnlineRun:
    """Seconds since the query was submitted until the first estimate, ±5 %, ±1 % and the exact answer.

    An error that no estimate reached is reached by the exact answer. core_seconds: of the whole process;
    task_core_seconds: of it, in tasks. The rest is folds, estimates and what surrounds them. certified_share:
    of the approximate cells, in the first snapshot after CERTIFIED_FROM of the rows; None where it has none.
    estimates: how many snapshots came before the exact one.
    """

    first_seconds: float
    within_5_seconds: float
    within_1_seconds: float
    exact_seconds: float
    core_seconds: float
    task_core_seconds: float
    tasks: int
    batches: int
    answer: pa.Table
    certified_share: float | None = None
    estimates: int = 0

    @property
    def other_core_seconds(self) -> float:
        return self.core_seconds - self.task_core_seconds


@dataclass(frozen=True, slots=True)
class PlainRun:
    """Seconds plain DuckDB took for the answer, and core-seconds of the process."""

    seconds: float
    core_seconds: float
    answer: pa.Table


class OnlineSession:
    """A session on threads of this process whose tasks are metered. A context manager."""

    def __init__(self, warehouse: Path, threads: int) -> None:
        self._executor = MeteredExecutor(ThreadExecutor(threads))
        self._session = Session(
            Catalog.open(warehouse),
            {},
            self._executor,
            memory_limit_bytes=machine_memory_bytes() // 2,
            exact_threads=threads,
        )

    def run(self, sql: str, *, intervals: bool = True) -> OnlineRun:
        """Answer a query to its exact end."""
        started = time.process_time()
        query = self._session.submit(sql, QueryOptions(), intervals=intervals)
        snapshots = list(query)
        query.wait()
        core_seconds = time.process_time() - started

        def first_within(error: float) -> float:
            return next(s.elapsed_seconds for s in snapshots if s.error <= error)

        last, steps = snapshots[-1], self._executor.steps(query.id).values()
        return OnlineRun(
            first_seconds=snapshots[0].elapsed_seconds,
            within_5_seconds=first_within(0.05),
            within_1_seconds=first_within(0.01),
            exact_seconds=last.elapsed_seconds,
            core_seconds=core_seconds,
            task_core_seconds=sum(step.core_seconds for step in steps),
            tasks=sum(len(step.task_core_seconds) for step in steps),
            batches=last.batch,
            answer=last.estimate,
            certified_share=_certified_share(snapshots),
            estimates=len(snapshots) - 1,
        )

    def plan(self, sql: str) -> OnlinePlan:
        """Return how a query is answered."""
        return self._session.plan(sql)

    def snapshots(self, sql: str, seed: int) -> list[Snapshot]:
        """Answer a query to its exact end, reading in the order of this seed; return all it showed."""
        return list(self._session.submit(sql, QueryOptions(seed=seed)))

    def __enter__(self) -> OnlineSession:
        return self

    def __exit__(self, *raised: object) -> None:
        self._session.close()


def _certified_share(snapshots: Sequence[Snapshot]) -> float | None:
    seen = next(snapshot for snapshot in snapshots if snapshot.fraction >= CERTIFIED_FROM)
    marks = [mark for column in seen.columns for mark in seen.table[column.certified].to_pylist()]
    return sum(marks) / len(marks) if marks and not seen.is_exact else None


def in_turns(sides: Sequence[Callable[[], None]], rounds: int) -> None:
    """Run each side once a round, there and back again: a machine that slows down slows all alike."""
    for turn in range(rounds):
        for side in sides if turn % 2 == 0 else reversed(sides):
            side()


def run_plain(duckdb: PlainDuckDB, sql: str) -> PlainRun:
    """Answer a query with plain DuckDB, as a whole."""
    started, core_started = time.perf_counter(), time.process_time()
    answer = duckdb.table(sql)
    return PlainRun(time.perf_counter() - started, time.process_time() - core_started, answer)
