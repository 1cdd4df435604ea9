"""Accounts: what was described, reported and charged of each job so far, and what that lets it have.

An `Account` is one job's page. The policy sees it as a `JobView`, people see it as a `JobStatus`. A job's
`Usage` is how many cores it has used lately: a running mean of charged core-seconds a second, in which what
is older than a window of a second fades. Example: a job that was charged 0.5 core-seconds in each of the
last seconds has used half a core.

The jobs of a user who may have only so many cores share these by their weights (`cores_most_of`): of two
jobs with equal weight and a quota of 3 cores, each may be planned 1.5.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.sharing.division import fill_evenly
from relaqs.sharing.goals import AccuracySoFar, Stop
from relaqs.sharing.view import History, JobView, Kind, Observation

WINDOW_SECONDS = 1.0


class Usage:
    """A running mean of charged core-seconds a second, in which what is older than a window fades.

    since_seconds: when the job came. The mean of one that is younger than the window is over its own time, or
    most queries, which take a second, would be shown with half of what they use.
    """

    def __init__(self, since_seconds: float) -> None:
        self._since_seconds = since_seconds
        self._core_seconds = 0.0
        self._seen_seconds = since_seconds

    def add(self, core_seconds: float, now_seconds: float) -> None:
        """Note what a task took that ends now. It took at least as long, and was spread over that time."""
        self._core_seconds = self._faded(now_seconds) + _within_window(core_seconds)
        self._seen_seconds = now_seconds

    def cores(self, now_seconds: float, held_seconds: Iterable[float] = ()) -> float:
        """Return the mean. held_seconds: for how long each core is held by a task that has not ended yet."""
        seconds = _within_window(now_seconds - self._since_seconds)
        core_seconds = self._faded(now_seconds) + sum(map(_within_window, held_seconds))
        return core_seconds / seconds if seconds > 0 else 0.0

    def _faded(self, now_seconds: float) -> float:
        return self._core_seconds * math.exp(-(now_seconds - self._seen_seconds) / WINDOW_SECONDS)


def _within_window(seconds: float) -> float:
    """Return what has not faded of the last so many seconds: all of them if few, else a window."""
    return -WINDOW_SECONDS * math.expm1(-seconds / WINDOW_SECONDS)


KEPT_STEPS = 50  # for people; what curves are fitted to is History's to say


@dataclass(frozen=True, slots=True)
class StepAhead:
    """What the next step of a job is expected to do and to cost; as in `JobView`."""

    step_work: float = math.nan
    step_core_seconds: float = math.nan
    growth_core_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class QualityCurve:
    """The quality that lies ahead of a job: its row of `Curves`."""

    chosen: int
    parameters: FloatArray


@dataclass(slots=True)
class Account:
    """What is known of one job. curve: None until it is fitted to the newest reports."""

    description: JobDescription
    arrived_seconds: float
    weight: float
    target: float | None
    usage: Usage
    is_waiting: bool = True
    history: History = field(default_factory=History)
    ahead: StepAhead = StepAhead()
    curve: QualityCurve | None = None
    accuracy: AccuracySoFar | None = None
    attained_core_seconds: float = 0.0
    newest: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    _reported_core_seconds: float = 0.0

    @classmethod
    def of(cls, description: JobDescription, now_seconds: float) -> Account:
        return cls(description, now_seconds, description.weight, description.target, Usage(now_seconds))

    @property
    def work_done(self) -> float:
        return self.newest[-1][0] if self.newest else 0.0

    @property
    def is_new(self) -> bool:
        """Whether no step has told anything of its quality yet."""
        return self.history.count == 0

    def take(self, report: StepReport) -> None:
        """Note a folded step. One that says nothing, like a first look at training data, only costs."""
        self._reported_core_seconds += report.core_seconds
        self.accuracy = report.accuracy or self.accuracy
        trains = self.description.kind is Kind.TRAINING
        if trains and not math.isfinite(report.quality):
            return
        work = float(self.history.count + 1) if report.work_done is None else report.work_done
        observation = Observation(work, report.quality, report.core_seconds, report.progress)
        self.history = self.history.followed_by(observation)
        self.newest.append((work, report.quality))
        self.curve = None

    def charge(self, core_seconds: float, now_seconds: float) -> None:
        self.attained_core_seconds += core_seconds
        self.usage.add(core_seconds, now_seconds)

    def view(self, cores_most: float | None = None) -> JobView:
        """Return what a policy sees of the job. cores_most: less than its own, where its user has a quota."""
        described, goals = self.description, self.description.goals
        accuracy = self.accuracy or AccuracySoFar(math.nan)
        return JobView(
            id=described.id,
            kind=described.kind,
            arrival_seconds=self.arrived_seconds,
            weight=self.weight,
            history=self.history,
            cores_most=described.cores_most if cores_most is None else cores_most,
            work_total=described.work_total,
            step_work=self.ahead.step_work,
            step_core_seconds=self.ahead.step_core_seconds,
            growth_core_seconds=self.ahead.growth_core_seconds,
            spent_core_seconds=max(0.0, self.attained_core_seconds - self._reported_core_seconds),
            attained_core_seconds=self.attained_core_seconds,
            target=math.nan if self.target is None else self.target,
            deadline_seconds=self.arrived_seconds + described.deadline_seconds,
            urgency=goals.urgency,
            accuracy=accuracy.newest,
            accuracy_required=goals.accuracy,
            is_best=accuracy.is_best,
            work_needed=accuracy.work_needed,
            may_stop_best=goals.may_end(Stop.BEST),
            may_stop_required=goals.may_end(Stop.REQUIRED),
        )


def cores_most_of(accounts: Sequence[Account]) -> FloatArray:
    """Return how many cores each job may be planned, shape (J,): its own most, and its part of its user's.

    The jobs of a user who may have only so many share these by their weights.

    Args:
        accounts: of the jobs that ask for cores.
    """
    most = np.array([account.description.cores_most for account in accounts], dtype=np.float64)
    for user in {each.description.user for each in accounts if each.description.user_cores_most < math.inf}:
        rows = [row for row, account in enumerate(accounts) if account.description.user == user]
        together = min(accounts[row].description.user_cores_most for row in rows)
        weights = np.array([accounts[row].weight for row in rows])
        most[rows] = fill_evenly(together, weights, most[rows])
    return most
