"""What is seen of jobs while they really run, and the steps of the records that are made of it.

- `MeteredExecutor` remembers, of every job, what its tasks took and what its steps reported.
- `NotedPolicy` remembers what a policy planned, when, and how long it took to.
- From both it is computed who held which cores in each little span of a run, and what each step of a job
  gave: snapshots and meters of a query, losses of a training run.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_lab.records.query_run import Steps
from relaqs_lab.records.trace import Decisions, Outcome

from relaqs.executors import Executor
from relaqs.jobs.executor import Done, Stoppable
from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport, Task, TaskResult
from relaqs.queries.snapshot import Snapshot
from relaqs.sharing.view import Plan, Policy, View
from relaqs_tpch.truth import Truth, Verdict

if TYPE_CHECKING:
    from relaqs.training import TrainingStep


@dataclass(frozen=True, slots=True)
class Held:
    """For how long a task held its cores, and when, on `time.perf_counter`, it gave them back."""

    ended_at: float
    held_seconds: float
    cores: int


@dataclass(slots=True)
class StepMeter:
    """One step: its tasks, in the order they ended, and how far the result moved.

    Attributes:
        queued_at: when its tasks were queued, on `time.perf_counter`. NaN where it was not measured.
        cores: how many its tasks could use.
    """

    task_core_seconds: list[float] = field(default_factory=list)
    progress: float = math.nan
    queued_at: float = math.nan
    cores: int = 0
    held: list[Held] = field(default_factory=list)

    @property
    def core_seconds(self) -> float:
        return sum(self.task_core_seconds)

    @property
    def held_seconds(self) -> float:
        return sum(each.held_seconds for each in self.held)

    @property
    def ended_at(self) -> float:
        """When the last task ended. NaN where it was not measured."""
        return max((each.ended_at for each in self.held), default=math.nan)


class MeteredExecutor:
    """Passes everything on to another executor, and notes what comes back."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._steps: defaultdict[str, defaultdict[int, StepMeter]] = defaultdict(
            lambda: defaultdict(StepMeter)
        )

    def steps(self, job_id: str) -> dict[int, StepMeter]:
        """Return what is known of a job's steps, by their index."""
        with self._lock:
            return dict(self._steps[job_id])

    @property
    def capacity(self) -> int:
        return self._inner.capacity

    def enter(self, description: JobDescription, driver: Stoppable | None = None) -> None:
        self._inner.enter(description, driver)

    def submit(self, tasks: Sequence[Task], done: Done) -> None:
        cores = {task.key: task.cores for task in tasks}

        def metered(result: TaskResult) -> None:
            held = Held(time.perf_counter(), result.held_seconds, cores[result.key])
            with self._lock:
                step = self._steps[result.key.job][result.key.step]
                step.task_core_seconds.append(result.core_seconds)
                step.held.append(held)
            done(result)

        if tasks:
            with self._lock:
                step = self._steps[tasks[0].key.job][tasks[0].key.step]
                step.queued_at, step.cores = time.perf_counter(), sum(cores.values())
        self._inner.submit(tasks, metered)

    def report(self, job_id: str, report: StepReport) -> None:
        with self._lock:
            self._steps[job_id][report.step].progress = report.progress
        self._inner.report(job_id, report)

    def set_weight(self, job_id: str, weight: float) -> None:
        self._inner.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        self._inner.set_target(job_id, target)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        self._inner.set_waiting(job_id, is_waiting)

    def cancel(self, job_id: str) -> None:
        self._inner.cancel(job_id)

    def status(self) -> ClusterStatus:
        return self._inner.status()

    def close(self) -> None:
        self._inner.close()

    def describe(self) -> str:
        return self._inner.describe()


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan as it was made: when, what it took to make it, and the cores of each job by its id."""

    at_seconds: float
    decision_seconds: float
    cores: dict[str, float]


class NotedPolicy:
    """Plans as another policy does, and keeps the plans. now: the clock of `Planned.at_seconds`.

    A stopwatch of its own measures how long a plan took to make.
    """

    def __init__(self, inner: Policy, now: Callable[[], float] = time.perf_counter) -> None:
        self._inner = inner
        self._now = now
        self.plans: list[Planned] = []

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def decision_seconds(self) -> list[float]:
        return [plan.decision_seconds for plan in self.plans]

    def plan(self, view: View) -> Plan:
        started = time.perf_counter()
        plan = self._inner.plan(view)
        took_seconds = time.perf_counter() - started
        self.plans.append(Planned(self._now(), took_seconds, plan.cores_by_job()))
        return plan


SPAN_SECONDS = 0.05


def decisions_of(outcome: Outcome, held: Sequence[Sequence[Held]], started_at: float) -> Decisions:
    """Return which tasks held how many cores when, and how far each job was off at that moment.

    Args:
        held: the tasks of each job of the outcome.
        started_at: the run's beginning, on `time.perf_counter`.
    """
    decisions = Decisions()
    begins = np.arange(0.0, outcome.end_seconds, SPAN_SECONDS)
    begins = begins[begins < outcome.end_seconds]  # arange may round up to the end
    edges = np.append(begins, outcome.end_seconds)
    spans = np.diff(edges)
    cores = np.array([cores_in(tasks, started_at + edges) for tasks in held])
    errors = errors_at(outcome, begins)
    ends = outcome.arrival_seconds + outcome.completion_seconds
    is_present = (outcome.arrival_seconds[:, None] < edges[1:]) & (ends[:, None] > begins)
    for index in np.flatnonzero(is_present.any(axis=0)):
        present = is_present[:, index]
        decisions.add(
            float(begins[index]), float(spans[index]), errors[present, index], cores[present, index]
        )
    return decisions


def cores_in(tasks: Sequence[Held], edges_at: FloatArray) -> FloatArray:
    """Return how many cores these tasks held on average between each edge and the next, shape (edges − 1,).

    edges_at: rising, on `time.perf_counter`.
    """
    if not tasks:
        return np.zeros(len(edges_at) - 1)
    cores = np.array([each.cores for each in tasks], dtype=float)
    ended_at = np.array([each.ended_at for each in tasks])
    began_at = ended_at - np.array([each.held_seconds for each in tasks]) / cores
    changes = np.concatenate([cores, -cores])
    changed_at = np.concatenate([began_at, ended_at])
    order = np.argsort(changed_at, kind="stable")
    changed_at, holding = changed_at[order], changes[order].cumsum()
    taken = np.concatenate([[0.0], (holding[:-1] * np.diff(changed_at)).cumsum()])  # core-seconds until then
    return np.asarray(np.diff(np.interp(edges_at, changed_at, taken)) / np.diff(edges_at))


def errors_at(outcome: Outcome, at_seconds: FloatArray) -> FloatArray:
    """Return each job's true normalised error at each moment, 1 before its first result, (J, moments)."""
    errors = outcome.traces.error[outcome.trace]
    done = np.array([np.searchsorted(row, at_seconds, side="right") for row in outcome.step_seconds])
    newest = np.take_along_axis(errors, np.maximum(done - 1, 0), axis=1)
    return np.where(done > 0, newest, 1.0)


Meters = Mapping[int, StepMeter]


def steps_of_query(
    snapshots: Sequence[Snapshot], meters: Meters, truth: Truth, *, submitted_at: float = math.nan
) -> Steps:
    """Return a query's steps, one a snapshot. What steps without a snapshot took counts with the next one.

    submitted_at: when the query was, on `time.perf_counter`.
    """
    verdicts = [truth.verdict(snapshot) for snapshot in snapshots]
    last = [snapshot.batch - 1 for snapshot in snapshots]
    begins = [0, *(batch + 1 for batch in last[:-1])]
    within = [
        [meters[step] for step in range(begin, end + 1) if step in meters]
        for begin, end in zip(begins, last, strict=True)
    ]
    moved = [meters[step].progress if step in meters else math.nan for step in last]
    elapsed = [snapshot.elapsed_seconds for snapshot in snapshots]
    return _steps(
        work_done=[snapshot.fraction for snapshot in snapshots],
        quality=[snapshot.error for snapshot in snapshots],
        progress=[0.0 if math.isnan(each) else each for each in moved],
        elapsed_seconds=elapsed,
        core_seconds=[sum(meter.core_seconds for meter in each) for each in within],
        verdicts=verdicts,
        **_pipeline(within, elapsed, submitted_at),
    )


def steps_of_training(
    passes: Sequence[TrainingStep], meters: Meters, *, submitted_at: float = math.nan
) -> Steps:
    """Return a training run's steps, one a pass; the first look at the data counts with the first.

    submitted_at: when the run was, on `time.perf_counter`.
    """
    losses = np.array([step.loss for step in passes])
    taken = [step.core_seconds for step in passes]
    taken[0] += max(sum(meter.core_seconds for meter in meters.values()) - sum(taken), 0.0)
    change = np.abs(np.diff(losses, prepend=np.nan))
    largest = np.fmax.accumulate(change)
    moved = np.where(largest > 0, change / np.where(largest > 0, largest, 1.0), 0.0)
    above_least = [Verdict(float(loss), math.nan, 0, 0, 0) for loss in losses - losses.min()]
    looks = len(meters) - len(passes)  # steps before the first pass
    ordered = [meters[step] for step in sorted(meters)]
    within = [ordered[: looks + 1], *([meter] for meter in ordered[looks + 1 :])]
    elapsed = [step.elapsed_seconds for step in passes]
    return _steps(
        work_done=[float(count) for count in range(1, len(passes) + 1)],
        quality=losses.tolist(),
        progress=[1.0, *moved[1:].tolist()],
        elapsed_seconds=elapsed,
        core_seconds=taken,
        verdicts=above_least,
        **_pipeline(within, elapsed, submitted_at),
    )


def _pipeline(
    within: Sequence[Sequence[StepMeter]], elapsed_seconds: Sequence[float], submitted_at: float
) -> dict[str, Sequence[float]]:
    """Return how each step was worked off. within: the meters of the executor's steps that it is made of."""
    at = [submitted_at + seconds for seconds in elapsed_seconds]
    folds, before = [], -math.inf
    for meters, end in zip(within, at, strict=True):
        ended = max(meters[-1].ended_at, before) if meters else before
        between = sum(max(b.queued_at - a.ended_at, 0.0) for a, b in pairwise(meters))
        folds.append(max(end - ended, 0.0) + between)
        before = end
    return {
        "tasks": [float(max((meter.cores for meter in meters), default=0)) for meters in within],
        "held_seconds": [sum(meter.held_seconds for meter in meters) for meters in within],
        "queued_seconds": [meters[0].queued_at - submitted_at if meters else math.nan for meters in within],
        "fold_seconds": folds,
    }


def _steps(*, verdicts: Sequence[Verdict], **columns: Sequence[float]) -> Steps:
    return Steps(
        half_width=np.array([verdict.half_width for verdict in verdicts]),
        true_error=np.array([verdict.error for verdict in verdicts]),
        cells=np.array([verdict.cells for verdict in verdicts], dtype=np.float64),
        certified=np.array([verdict.certified for verdict in verdicts], dtype=np.float64),
        held=np.array([verdict.held for verdict in verdicts], dtype=np.float64),
        **{name: np.array(values, dtype=np.float64) for name, values in columns.items()},
    )
