"""A trace: what one job does step by step, whoever runs it and however many cores it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
