"""What a placed policy is told of a run beside its parts: what its user wants, and how far it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.parts.view import PlacedJobs
from relaqs.sharing.goals import Stop

NO_DEADLINE_SECONDS = 24 * 3600.0  # ahead, of a run without one: MLFS draws none that is later (section 4.1)
FALL_PASSES = 5  # over which the mean fall of the loss is told
GAIN_SHARE = 0.1  # of all passes, over which the gain of accuracy is told


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run at one moment. Seconds are those of the monotonic clock. An iteration is a pass.

    Attributes:
        passes: how many are done, and how many there are at most.
        pass_seconds: how long turns last for one pass; 1.0 before the first has ended.
        device_seconds: the slots that it has held in turns, over time.
        losses: after each pass.
        accuracies: of the best model so far, after each pass; NaN where it is not measured.
    """

    description: JobDescription
    arrival_seconds: float
    weight: float
    passes: tuple[float, float]
    pass_seconds: float
    device_seconds: float
    losses: tuple[float, ...] = ()
    accuracies: tuple[float, ...] = ()

    def deadline_seconds(self, now_seconds: float) -> float:
        """Return when it should have ended. One without a deadline always has a day left."""
        if math.isinf(self.description.deadline_seconds):
            return now_seconds + NO_DEADLINE_SECONDS
        return self.arrival_seconds + self.description.deadline_seconds

    @property
    def loss_falls(self) -> tuple[float, float, float]:
        """By how much the loss fell in the last pass, in all, and in the mean of the last few."""
        if len(self.losses) < 2:
            return math.nan, math.nan, math.nan
        last = self.losses[-1]
        past = min(len(self.losses) - 1, FALL_PASSES)
        return self.losses[-2] - last, self.losses[0] - last, (self.losses[-1 - past] - last) / past

    @property
    def accuracy_gain(self) -> float:
        """The gain of accuracy, 0 at first, in the last tenth of all passes; NaN before so many are over."""
        window = math.ceil(GAIN_SHARE * self.passes[1])
        if len(self.accuracies) < window:
            return math.nan
        return self.accuracies[-1] - (0.0, *self.accuracies)[-1 - window]


class RunHistory:
    """Keeps what turns and passes of a run gave. What it keeps only grows, so any thread may read it."""

    def __init__(self, description: JobDescription, arrival_seconds: float) -> None:
        self.weight = description.weight
        self._passes = 0.0, 1.0
        self._description = description
        self._arrival_seconds = arrival_seconds
        self._seconds = self._device_seconds = 0.0
        self._losses: list[float] = []
        self._accuracies: list[float] = []

    def begin_turn(self, passes: tuple[int, int]) -> None:
        """Note how many passes are done before a turn, and how many the job makes at most."""
        self._passes = float(passes[0]), min(float(passes[1]), self._description.work_total)

    def turned(self, slots: int, seconds: float) -> None:
        """Note a turn on so many slots."""
        self._seconds += seconds
        self._device_seconds += slots * seconds

    def reported(self, report: StepReport) -> None:
        """Note the end of a pass. Only that has a loss."""
        if not math.isfinite(report.quality):
            return
        newest = math.nan if report.accuracy is None else report.accuracy.newest
        self._accuracies.append(float(np.fmax(newest, self._accuracies[-1] if self._accuracies else newest)))
        self._losses.append(report.quality)

    def facts(self) -> RunFacts:
        """Return what is known now."""
        losses = tuple(self._losses)
        return RunFacts(
            self._description,
            self._arrival_seconds,
            self.weight,
            self._passes,
            self._seconds / len(losses) if losses and self._seconds else 1.0,
            self._device_seconds,
            losses,
            tuple(self._accuracies),
        )


def placed_jobs(runs: Sequence[RunFacts], now_seconds: float) -> PlacedJobs:
    """Return the runs as a placed policy sees them."""

    def column(values: Sequence[float]) -> FloatArray:
        return np.array(values, dtype=np.float64)

    falls = column([each for run in runs for each in run.loss_falls]).reshape(-1, 3)
    goals = [run.description.goals for run in runs]
    return PlacedJobs(
        ids=tuple(run.description.id for run in runs),
        arrival_seconds=column([run.arrival_seconds for run in runs]),
        weight=column([run.weight for run in runs]),
        urgency=column([each.urgency for each in goals]),
        deadline_seconds=column([run.deadline_seconds(now_seconds) for run in runs]),
        iterations_done=column([run.passes[0] for run in runs]),
        iterations_most=column([run.passes[1] for run in runs]),
        iteration_seconds=column([run.pass_seconds for run in runs]),
        loss_fallen_last=falls[:, 0],
        loss_fallen=falls[:, 1],
        loss_fall_rate=falls[:, 2],
        accuracy=column([run.accuracies[-1] if run.accuracies else math.nan for run in runs]),
        accuracy_gain=column([run.accuracy_gain for run in runs]),
        accuracy_required=column([1.0 if math.isnan(each.accuracy) else each.accuracy for each in goals]),
        attained_device_seconds=column([run.device_seconds for run in runs]),
        may_stop=np.array([each.may_end(Stop.REQUIRED) for each in goals], dtype=np.bool_),
    )
