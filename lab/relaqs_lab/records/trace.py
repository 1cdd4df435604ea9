"""Traces and outcomes: what one job does step by step, and what came of many jobs on one cluster.

A trace is of one job, whoever runs it and however many cores it gets. The simulator replays it. An outcome
is of many jobs, simulated or really run: their errors over time, and how soon each fell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.view import Kind


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """How a job's steps follow one another, beyond what their tasks cost. Arrays have shape (steps,).

    Args:
        tasks: how many tasks each step has. A task uses one core.
        fold_seconds: from the end of a step's last task to its result, on a thread of the job's own.
        start_seconds: from the job's arrival to its first task. For a query this is planning.

    Raises:
        ValueError: a step has no task, or a time is negative or unknown.
    """

    tasks: FloatArray
    fold_seconds: FloatArray
    start_seconds: float

    def __post_init__(self) -> None:
        if not (self.tasks >= 1).all():
            raise ValueError("a step has no task; every step needs one")
        seconds = np.append(self.fold_seconds, self.start_seconds)
        if not ((seconds >= 0) & np.isfinite(seconds)).all():
            raise ValueError(f"fold_seconds and start_seconds are {seconds}; they must be finite, 0 or more")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One job from its first step to its last, recorded or made up. Arrays have shape (steps,).

    Args:
        name: for people.
        kind: what the job is.
        work_done: in the job's unit (see `JobView`). It rises from step to step.
        quality: what the job reports after each step, an error or a loss. It is inf while unknown.
        true_error: how far the job really is from its end. It is what policies are measured by.
        core_seconds: how long each step holds cores.
        progress: by the result-delta metric, in [0, 1].
        pipeline: how steps follow one another. None: steps have unlimited parallelism and no fold time.

    Raises:
        ValueError: arrays do not fit together, or a step costs nothing.
    """

    name: str
    kind: Kind
    work_done: FloatArray
    quality: FloatArray
    true_error: FloatArray
    core_seconds: FloatArray
    progress: FloatArray
    pipeline: Pipeline | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.work_done), len(self.quality), len(self.true_error)}
        lengths |= {len(self.core_seconds), len(self.progress)}
        if self.pipeline is not None:
            lengths |= {len(self.pipeline.tasks), len(self.pipeline.fold_seconds)}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(
                f"trace {self.name!r} has columns of lengths {sorted(lengths)}; give one, above 0"
            )
        if not (np.diff(self.work_done, prepend=0.0) > 0).all():
            raise ValueError(f"the work_done of trace {self.name!r} does not rise from step to step")
        if not ((self.core_seconds > 0) & np.isfinite(self.core_seconds)).all():
            raise ValueError(f"trace {self.name!r} has a step without a cost; core_seconds must be above 0")
        if not ((self.true_error >= 0) & np.isfinite(self.true_error)).all():
            raise ValueError(f"trace {self.name!r} has a true_error that is not a number of at least 0")

    @property
    def steps(self) -> int:
        return len(self.work_done)

    @property
    def columns(self) -> tuple[FloatArray, ...]:
        """All numbers of the trace."""
        own = (self.work_done, self.quality, self.true_error, self.core_seconds, self.progress)
        flow = self.pipeline
        return own if flow is None else (*own, flow.tasks, flow.fold_seconds, np.array([flow.start_seconds]))

    @property
    def normalised_error(self) -> FloatArray:
        """The true error relative to the run's largest, shape (steps,): the same unit for every job."""
        largest = self.true_error.max()
        return self.true_error / largest if largest > 0 else np.zeros(self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class TraceTable:
    """T traces as arrays of shape (T, S). Behind a trace's last step they are padded.

    Attributes:
        steps: how many steps each trace has, shape (T,).
        start_seconds: from arrival to the first task, shape (T,).
        cost: core-seconds of each step.
        cost_to: core-seconds from the start to the end of each step, inf behind the last.
        tasks: of each step, inf where there is no pipeline.
        fold_seconds: of each step.
        work_to: the work done after each step.
        quality: what the job reports after each step.
        error: the normalised true error after each step.
        progress: after each step.
    """

    steps: IntArray
    start_seconds: FloatArray
    cost: FloatArray
    cost_to: FloatArray
    tasks: FloatArray
    fold_seconds: FloatArray
    work_to: FloatArray
    quality: FloatArray
    error: FloatArray
    progress: FloatArray

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> TraceTable:
        width = max(trace.steps for trace in traces)
        pipelines = [trace.pipeline or _endless(trace.steps) for trace in traces]
        return cls(
            steps=np.array([trace.steps for trace in traces], dtype=np.int64),
            start_seconds=np.array([each.start_seconds for each in pipelines]),
            cost=_padded([trace.core_seconds for trace in traces], width, 0.0),
            tasks=_padded([each.tasks for each in pipelines], width, 0.0),
            fold_seconds=_padded([each.fold_seconds for each in pipelines], width, 0.0),
            cost_to=_padded([trace.core_seconds.cumsum() for trace in traces], width, np.inf),
            work_to=_padded([trace.work_done for trace in traces], width, np.nan),
            quality=_padded([trace.quality for trace in traces], width, np.nan),
            error=_padded([trace.normalised_error for trace in traces], width, 0.0),
            progress=_padded([trace.progress for trace in traces], width, 0.0),
        )


def _endless(steps: int) -> Pipeline:
    return Pipeline(np.full(steps, np.inf), np.zeros(steps), 0.0)


def _padded(rows: Sequence[FloatArray], width: int, fill: float) -> FloatArray:
    table = np.full((len(rows), width), fill)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


LEVELS = np.arange(1, 21) / 20  # shares by which an error is reduced
GROUPS = ("worst third", "middle third", "best third")  # of the jobs, by their true error


class Decisions:
    """Who had how many cores when: the shares of the worst, the middle and the best third of the jobs."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []

    def add(self, at_seconds: float, span_seconds: float, errors: FloatArray, cores: FloatArray) -> None:
        """Note a plan that held for a while. errors, cores: of each job, shape (J,)."""
        thirds = np.array_split(np.argsort(-errors, kind="stable"), len(GROUPS))
        by_third = [float(cores[third].sum()) for third in thirds]
        self._rows.append((at_seconds, span_seconds, float(len(errors)), *by_third))

    @property
    def table(self) -> FloatArray:
        """The plans, shape (plans, 3 + GROUPS): when, for how long, for how many jobs, and cores by third."""
        return np.array(self._rows).reshape(-1, 3 + len(GROUPS))


def steps_for_good(traces: TraceTable, reductions: FloatArray) -> IntArray:
    """Return the step after which each trace's error stays reduced by so much, shape (T, levels)."""
    too_large = traces.error[:, :, None] > 1.0 - reductions + 1e-12
    behind = np.arange(too_large.shape[1])[None, :, None] + 1
    first = np.where(too_large, behind, 0).max(axis=1)
    return np.asarray(np.minimum(first, too_large.shape[1] - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """J jobs from arrival to end.

    A job's error is 1 until its first result. Then it is the true error relative to its run's largest, and 0
    at its end.

    Attributes:
        step_seconds: when each step ended, shape (J, S). NaN if it did not.
        trace: which row of `traces` has the errors of each job, shape (J,).
        end_seconds: when the run ended.
    """

    traces: TraceTable
    trace: IntArray
    arrival_seconds: FloatArray
    step_seconds: FloatArray
    end_seconds: float
    decisions: Decisions = field(default_factory=Decisions)

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def first_seconds(self) -> FloatArray:
        """Each job's time from arrival to its first result, shape (J,), NaN where there was none."""
        return self.step_seconds[:, 0] - self.arrival_seconds

    @property
    def completion_seconds(self) -> FloatArray:
        """Each job's time from arrival to its end, shape (J,), NaN where it did not end."""
        last = self.traces.steps[self.trace] - 1
        return self.step_seconds[np.arange(len(self)), last] - self.arrival_seconds

    def seconds_to(self, reductions: FloatArray) -> FloatArray:
        """Return each job's time from arrival until its error is reduced by so much for good, (J, levels).

        For good: an error that gets small by chance and grows again counts from when it stays small.
        """
        step = steps_for_good(self.traces, reductions)[self.trace]
        rows = np.arange(len(self))[:, None]
        return np.asarray(self.step_seconds[rows, step] - self.arrival_seconds[:, None])

    def error_seconds(self) -> FloatArray:
        """Return the integral of each job's error from its arrival to its end or that of the run, (J,)."""
        ends = np.where(np.isnan(self.step_seconds), self.end_seconds, self.step_seconds)
        begins = np.column_stack([self.arrival_seconds, ends[:, :-1]])
        errors = np.column_stack([np.ones(len(self)), self.traces.error[self.trace][:, :-1]])
        arrived = self.arrival_seconds < self.end_seconds
        lasting = np.where(arrived[:, None], np.maximum(ends - begins, 0.0), 0.0)
        return np.asarray((errors * lasting).sum(axis=1))

    def over_time(self, at_seconds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean error and the mean progress metric of the jobs that have arrived by then.

        at_seconds: shape (P,), rising; so are the results, NaN before the first job. A job that is over
        counts with error 0 and progress 0, one without a result with 1.
        """
        errors = self._mean_over_time(self.traces.error, at_seconds)
        progress = self.traces.progress.copy()
        progress[np.arange(len(progress)), self.traces.steps - 1] = 0.0
        return errors, self._mean_over_time(progress, at_seconds)

    def _mean_over_time(self, values: FloatArray, at_seconds: FloatArray) -> FloatArray:
        after = values[self.trace]
        changes = np.diff(after, axis=1, prepend=1.0)
        happened = ~np.isnan(self.step_seconds)
        times = np.concatenate([self.arrival_seconds, self.step_seconds[happened]])
        deltas = np.concatenate([np.ones(len(self)), changes[happened]])
        order = np.argsort(times, kind="stable")
        sums = np.concatenate([[0.0], deltas[order].cumsum()])
        total = sums[np.searchsorted(times[order], at_seconds, side="right")]
        arrived = np.searchsorted(np.sort(self.arrival_seconds), at_seconds, side="right")
        return np.where(arrived > 0, total / np.maximum(arrived, 1), np.nan)
