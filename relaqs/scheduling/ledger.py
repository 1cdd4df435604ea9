"""One job's page: what was described, reported and charged of it so far."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from relaqs_bootstrap.arrays import FloatArray

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.scheduling.usage import Usage
from relaqs.sharing.goals import AccuracySoFar, Stop
from relaqs.sharing.history import History, Observation
from relaqs.sharing.view import JobView, Kind

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
