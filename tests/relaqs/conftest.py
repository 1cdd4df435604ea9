"""Sessions with a cache of the test's own, and a job that is no query: the mean of numbers in partitions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate
from relaqs_engine.plans.aggregate import MergePlan, MergeTexts, PartialQuery, StateColumns
from relaqs_engine.plans.plan import OutputColumn, OutputKind

import relaqs
from relaqs.executors import ThreadExecutor
from relaqs.jobs.executor import Stopwatch
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.queries.online_query import OnlineQuery, Publisher
from relaqs.queries.options import QueryOptions, asking_user
from relaqs.queries.start import query_description
from tests.relaqs.sessions import Connect

NUMBERS = np.random.default_rng(7).gamma(2.0, 3.0, size=(40, 50))
PLAN = MergePlan(
    sql="SELECT avg(x) AS mean FROM numbers",
    outputs=(OutputColumn("mean", OutputKind.ESTIMATE, "DOUBLE", ""),),
    reasons=(),
    partial=PartialQuery(""),
    columns=StateColumns(),
    texts=MergeTexts(""),
)


class Gate:
    """Lets the tasks of so many more partitions through, in their order, or all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: float = 0

    def let(self, partitions: float = float("inf")) -> None:
        with self._changed:
            self._open += partitions
            self._changed.notify_all()

    def enter(self, partition: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: partition < self._open, timeout=20):
                raise TimeoutError(f"the test never let partition {partition} through")


@dataclass(frozen=True)
class SumWork:
    """Returns the sum, the sum of squares and the count of one partition. fails: raises instead."""

    partition: int
    gate: Gate
    fails: bool

    def run(self, owner: str) -> tuple[float, float, int]:
        self.gate.enter(self.partition)
        if self.fails:
            raise ZeroDivisionError("this partition is broken")
        rows = NUMBERS[self.partition]
        return float(rows.sum()), float((rows**2).sum()), len(rows)


@dataclass
class MeanJob:
    """One partition a step, and the 95 % interval of a mean without replacement."""

    gate: Gate
    id: str = "mean"
    fails_at: int | None = None
    latest: Estimate | None = None
    batch_count: int = len(NUMBERS)
    folded: int = 0
    fractions: tuple[float, ...] = tuple((i + 1) / len(NUMBERS) for i in range(len(NUMBERS)))
    _sums: list[tuple[float, float, int]] = field(default_factory=list)
    _issued: int = 0

    def next_step(self) -> Step | None:
        if self._issued == self.batch_count:
            return None
        index = self._issued
        self._issued += 1
        work = SumWork(index, self.gate, index == self.fails_at)
        return Step(index, (Task(TaskKey(self.id, index, 0), work),))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        for result in results:
            assert isinstance(result.value, tuple)
            self._sums.append(result.value)
        self.latest = _estimate(self._sums)
        return StepReport(
            step.index, self.latest.relative_error(), self.latest.fraction, 0.0, self.latest.is_exact
        )

    def close(self) -> None: ...


def _estimate(sums: Sequence[tuple[float, float, int]]) -> Estimate:
    total, squares, rows = (sum(each) for each in zip(*sums, strict=True))
    mean, fraction = total / rows, rows / NUMBERS.size
    half = 1.96 * ((1 - fraction) * (squares / rows - mean**2) / rows) ** 0.5
    table = pa.table(
        {"mean": [mean], "mean_low": [mean - half], "mean_high": [mean + half], "mean_certified": [True]}
    )
    return Estimate(
        table=table,
        columns=("mean",),
        approximate=(ApproximateColumn("mean", "mean_low", "mean_high", "mean_certified", 0),),
        fraction=fraction,
        is_exact=rows == NUMBERS.size,
        values=np.array([[mean]]),
        half_widths=np.array([[half]]),
        doubts=np.array([[0]]),
    )


@pytest.fixture
def gate() -> Gate:
    return Gate()


Start = Callable[..., OnlineQuery]


@pytest.fixture
def start(gate: Gate) -> Iterator[Start]:
    """Starts a MeanJob as a query on two threads, with its options as keywords."""
    executor = ThreadExecutor(2)
    clock = iter(range(1, 10_000))

    class Counted(Stopwatch):
        """A second passes between two looks."""

        def seconds(self) -> float:
            return float(next(clock))

    def begin(*, fails_at: int | None = None, **options: object) -> OnlineQuery:
        job = MeanJob(gate, fails_at=fails_at)
        chosen = QueryOptions(**options)  # type: ignore[arg-type]
        publisher = Publisher(job, PLAN, chosen, Counted(), executor)
        description = query_description(job.id, PLAN, chosen, asking_user(), exact_cores=1)
        query = OnlineQuery(publisher, job, executor, description, timeout=chosen.timeout)
        query.start()
        return query

    yield begin
    gate.let()
    executor.close()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    """Opens sessions of two threads that share a cache. What a test leaves open is closed after it."""
    opened: weakref.WeakSet[relaqs.Session] = weakref.WeakSet()  # some tests forget their sessions

    def connect(data: Any = None, **options: Any) -> relaqs.Session:
        session = relaqs.connect(data, cache_directory=tmp_path / "cache", threads=2, **options)
        opened.add(session)
        return session

    yield connect
    for session in list(opened):
        session.close()
