"""The desk: which jobs there are, who gets how many cores, and whose task starts next.

Every place of execution has one desk and asks it. The threads of this process drive theirs under a lock
(`relaqs/executors/threads.py`); a Dask scheduler's plugin drives one on its event loop
(`relaqs/executors/dask/plugin.py`). The desk has no clock, no thread and no queue: the time is an
argument, and the caller says which jobs have tasks waiting.

A desk has two books, and each measured core-second goes into both.

- The *accounts* (`Allocator`) hold what each job reported, what it was charged and what its user asked
  for. The policy sees them, and answers with a plan: cores for each job.
- The *turns* (`FairShares`) hold a virtual clock for each job. They turn the plan into an order of tasks.

One round at a desk: `enter` the jobs. When a plan of the `accounts` is due, `share_out`. Ask `turns.next`
whose task starts, and say `turns.start`. When the task ends, settle its turn and charge its account. When
its step is folded, report that to the accounts. The whole way is drawn in
docs/internals/journey-of-a-core-second.md.

**Accounts.** An `Account` is one job's page: what was described, reported and charged of it so far. The
policy sees it as a `JobView`, people see it as a `JobStatus`. A job's `Usage` is how many cores it has
used lately: a running mean of charged core-seconds a second, in which what is older than a window of a
second fades. Example: a job that was charged 0.5 core-seconds in each of the last seconds has used half a
core.

The jobs of a user who may have only so many cores share these by their weights (`cores_most_of`): of two
jobs with equal weight and a quota of 3 cores, each may be planned 1.5.

**Forecasts.** `refresh` fits the curve of quality over work, and the cost of the next step, of all
accounts that reported anything new since they were fitted. All are fitted at once, as columns of arrays:
the cost of a fit is that of its calls, not that of its jobs. The next step does as much work as the last
one, and costs what a unit of work has cost lately: a constant, as in SLAQ (Zhang et al., SoCC 2017), or
the thesis's line where costs grow.

`job_statuses` is the same for people: each job's state, its use of cores, and the curve that is expected
of it.

Several sessions of a cluster may ask for a policy each. The first one holds until its session ends
(`Wishes`).
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Generic, Protocol, TypeVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.jobs.job import (
    ClusterStatus,
    Curve,
    JobDescription,
    JobState,
    JobStatus,
    StepReport,
    check_weight,
)
from relaqs.policies.fair import WeightedFair
from relaqs.prediction.ahead import constant_cost, line_cost
from relaqs.prediction.curves import Curves, Series
from relaqs.scheduling.virtual_time import CREDIT_CORE_SECONDS, FairShares
from relaqs.sharing.division import fill_evenly
from relaqs.sharing.outlook import QUALITY_FAMILIES, fit_quality_curves, is_predictable
from relaqs.sharing.view import (
    AccuracySoFar,
    History,
    Jobs,
    JobView,
    Kind,
    Observation,
    Plan,
    Policy,
    Stop,
    View,
)


class Named(Protocol):
    """A policy of either kind: for cores or for slots."""

    @property
    def name(self) -> str: ...


AnyPolicy = TypeVar("AnyPolicy", bound=Named)


@dataclass(frozen=True, slots=True)
class _Wish(Generic[AnyPolicy]):
    client: str
    policy: AnyPolicy


class Wishes(Generic[AnyPolicy]):
    """The policies that open sessions asked for. The first one holds until its session ends.

    A session without a wish follows the others. The default holds while no session has a wish.
    """

    def __init__(self, default: AnyPolicy) -> None:
        self._default = default
        self._wishes: dict[str, _Wish[AnyPolicy]] = {}  # by session, the oldest first

    @property
    def in_force(self) -> AnyPolicy:
        return next((wish.policy for wish in self._wishes.values()), self._default)

    def ask(self, session: str, client: str, policy: AnyPolicy) -> None:
        """Take a wish in if it is the first, or agrees with the policy that holds; else pass it over."""
        if not self._wishes or policy.name == self.in_force.name:
            self._wishes.setdefault(session, _Wish(client, policy))

    def end_session(self, session: str) -> None:
        self._wishes.pop(session, None)

    def end_client(self, client: str) -> None:
        self._wishes = {each: wish for each, wish in self._wishes.items() if wish.client != client}


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


EPOCH_SECONDS = 0.5


class Allocator:
    """Keeps the accounts of all jobs, and asks the policy who gets how many cores.

    Every `now_seconds` is on one clock that never goes back, the caller's. Of a job that is not (or no more)
    here nothing is noted, without complaint: messages about it may come late. Not thread-safe: its owner
    holds a lock. epoch_seconds: how long a plan holds while nobody comes, goes or changes.
    """

    def __init__(self, policy: Policy, *, epoch_seconds: float = EPOCH_SECONDS) -> None:
        self._policy = policy
        self._epoch_seconds = epoch_seconds
        self._accounts: dict[str, Account] = {}
        self._charged: dict[Kind, float] = {}  # core-seconds, with those of jobs that are over
        self._plan = Plan((), np.zeros(0), 0.0)
        self._planned_seconds = -math.inf
        self._planned_cores = 0.0
        self._has_changed = False

    @property
    def policy(self) -> Policy:
        """Who gets how much. Another one counts from the next plan on, which is then due."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        self._has_changed = True

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._accounts

    def __len__(self) -> int:
        return len(self._accounts)

    def enter(self, description: JobDescription, now_seconds: float) -> None:
        """Take a job in. One that is here already, and registers again, keeps its account."""
        if description.id not in self._accounts:
            self._accounts[description.id] = Account.of(description, now_seconds)
            self._has_changed = True

    def leave(self, job_id: str) -> None:
        self._has_changed |= self._accounts.pop(job_id, None) is not None

    def report(self, job_id: str, report: StepReport) -> None:
        """Note what a folded step gave. The first that tells a job's quality calls for a new plan."""
        if (account := self._accounts.get(job_id)) is not None:
            was_new = account.is_new
            account.take(report)
            self._has_changed |= was_new and not account.is_new

    def charge(self, job_id: str, core_seconds: float, now_seconds: float) -> None:
        """Note what a task that has ended was measured to take."""
        if (account := self._accounts.get(job_id)) is not None:
            account.charge(core_seconds, now_seconds)
            kind = account.description.kind
            self._charged[kind] = self._charged.get(kind, 0.0) + core_seconds

    def set_weight(self, job_id: str, weight: float) -> None:
        def change(account: Account) -> None:
            account.weight = check_weight(weight)

        self._change(job_id, change)

    def set_target(self, job_id: str, target: float | None) -> None:
        """Change the error or loss the job may stop at."""

        def change(account: Account) -> None:
            account.target = target

        self._change(job_id, change)

    def set_most(self, job_id: str, cores: float) -> None:
        """Change how many cores the job can use at once."""

        def change(account: Account) -> None:
            account.description = replace(account.description, cores_most=cores)

        self._change(job_id, change)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        """Say whether the job asks for cores at all; a paused one does not."""

        def change(account: Account) -> None:
            account.is_waiting = is_waiting

        self._change(job_id, change)

    def attained_core_seconds(self, job_id: str) -> float:
        """Return what a job was charged so far."""
        account = self._accounts.get(job_id)
        return 0.0 if account is None else account.attained_core_seconds

    def is_due(self, now_seconds: float, capacity_cores: float) -> bool:
        """Return whether there should be a new plan: the epoch is over, or something has changed."""
        return (
            self._has_changed
            or now_seconds - self._planned_seconds >= self._epoch_seconds
            or capacity_cores != self._planned_cores
        )

    def plan(self, now_seconds: float, capacity_cores: float) -> Plan:
        """Return who gets how many of the cores until the next plan; every job that asks is in it."""
        asking = [account for account in self._accounts.values() if account.is_waiting]
        if len(asking) > 1 or (asking and not _is_work_conserving(self._policy)):
            self._plan = self._plan_of(self._view(asking, now_seconds, capacity_cores))
        else:
            cores = np.minimum(cores_most_of(asking), capacity_cores)
            self._plan = Plan(tuple(each.description.id for each in asking), cores, capacity_cores)
        self._planned_seconds, self._planned_cores = now_seconds, capacity_cores
        self._has_changed = False
        return self._plan

    def status(
        self, now_seconds: float, capacity_cores: float, running: Mapping[str, Sequence[float]] | None = None
    ) -> ClusterStatus:
        """Return how every job stands, the oldest first.

        running: the jobs of which tasks run now; of each, for how many seconds each of its cores is held.
        """
        accounts = list(self._accounts.values())
        jobs = job_statuses(accounts, self._plan.cores_by_job(), now_seconds, running or {})
        charged = {KIND_WORDS[kind]: seconds for kind, seconds in self._charged.items()}
        return ClusterStatus(now_seconds, capacity_cores, self._policy.name, jobs, charged)

    def _view(self, asking: list[Account], now_seconds: float, capacity_cores: float) -> View:
        refresh(asking)
        most = cores_most_of(asking).tolist()
        return View(
            time_seconds=now_seconds,
            capacity_cores=capacity_cores,
            jobs=Jobs.of([account.view(cores) for account, cores in zip(asking, most, strict=True)]),
            epoch_seconds=self._epoch_seconds,
            curves=curves_of(asking),
        )

    def _plan_of(self, view: View) -> Plan:
        """Return the policy's plan. One that fails, a user's own perhaps, must not stop the cores."""
        try:
            plan = self._policy.plan(view)
            if not isinstance(plan, Plan):
                raise TypeError(f"it returned {plan!r} instead of a relaqs.policies.Plan")
            return plan
        except Exception as error:
            warnings.warn(
                f"policy {self._policy.name!r} failed ({error!r}); cores are shared by weight meanwhile",
                RuntimeWarning,
                stacklevel=2,
            )
            return WeightedFair().plan(view)

    def _change(self, job_id: str, change: Callable[[Account], None]) -> None:
        if (account := self._accounts.get(job_id)) is not None:
            change(account)
            self._has_changed = True


def _is_work_conserving(policy: Policy) -> bool:
    """Return whether the class that plans says so. Who inherits and plans otherwise says it anew."""
    planner: type = next((each for each in type(policy).__mro__ if "plan" in vars(each)), object)
    return bool(vars(planner).get("is_work_conserving", False))


class Desk:
    """Accounts and turns of the jobs that share some cores. Not thread-safe: its owner holds a lock.

    Every `now_seconds` is on one clock of the caller's that never goes back. A call about a job that has not
    entered, or has left, changes nothing: messages about it may come late.

    Attributes:
        accounts: what each job reported and was charged, and the policy.
        turns: whose task starts next.

    Args:
        credit_core_seconds: see `FairShares`.
    """

    def __init__(self, policy: Policy, *, credit_core_seconds: float = CREDIT_CORE_SECONDS) -> None:
        self.turns = FairShares(credit_core_seconds=credit_core_seconds)
        self.accounts = Allocator(policy)
        self._plan = Plan((), np.zeros(0), 0.0)
        self._stopped: set[str] = set()  # jobs that a plan has stopped and that have not left

    @property
    def plan(self) -> Plan:
        """The plan in force; an empty one before the first."""
        return self._plan

    def __contains__(self, job_id: str) -> bool:
        return job_id in self.accounts

    def __len__(self) -> int:
        return len(self.accounts)

    def enter(self, description: JobDescription, now_seconds: float) -> None:
        """Take a job in. A job that is here already, and registers again, keeps its account and its turn."""
        self.turns.enter(description.id)
        self.accounts.enter(description, now_seconds)

    def leave(self, job_id: str) -> None:
        """Forget a job."""
        self.turns.leave(job_id)
        self.rest(job_id)

    def rest(self, job_id: str) -> None:
        """Close a job's account and keep its turn: its tasks may come back at any time, unannounced."""
        self.accounts.leave(job_id)
        self._stopped.discard(job_id)

    def share_out(self, now_seconds: float, capacity_cores: float) -> tuple[str, ...]:
        """Make a plan and carry it into the turns. Return the jobs that it stops, each of them once.

        The caller asks the drivers of these jobs to stop.
        """
        self._plan = self.accounts.plan(now_seconds, capacity_cores)
        self.turns.set_shares(self._plan.cores_by_job())
        stops = tuple(
            job for job in dict.fromkeys(self._plan.stops) if job in self and job not in self._stopped
        )
        self._stopped.update(stops)
        return stops


LEAST_STEP_WORK = 1e-9
LEAST_CORE_SECONDS = 1e-6  # of steps too quick to measure


def refresh(accounts: Sequence[Account]) -> None:
    """Look ahead for the accounts whose reports are newer than their curves; the others keep theirs."""
    stale = [account for account in accounts if account.curve is None]
    new, reported = [each for each in stale if each.is_new], [each for each in stale if not each.is_new]
    for account in new:
        account.curve = _curve_before_reports(account.description.kind)
    if reported:
        _look_at_costs(reported)
        for account, curve in zip(reported, _fitted([each.view() for each in reported]), strict=True):
            account.curve = curve


def _fitted(jobs: Sequence[JobView]) -> list[QualityCurve]:
    curves = fit_quality_curves(Jobs.of(jobs))
    return [QualityCurve(int(c), row) for c, row in zip(curves.chosen, curves.parameters, strict=True)]


@cache
def _curve_before_reports(kind: Kind) -> QualityCurve:
    """Return the curve of a job that has reported nothing: it depends on the kind alone."""
    [curve] = _fitted([JobView("new", kind, arrival_seconds=0.0)])
    return curve


def curves_of(accounts: Sequence[Account]) -> Curves:
    """Return the curves of accounts that are up to date, in their order."""
    fitted = [account.curve for account in accounts if account.curve is not None]
    assert len(fitted) == len(accounts), "refresh the accounts first"
    chosen = np.array([curve.chosen for curve in fitted], dtype=np.int64)
    parameters = np.stack([curve.parameters for curve in fitted])
    return Curves(QUALITY_FAMILIES, chosen, parameters)


def _look_at_costs(accounts: Sequence[Account]) -> None:
    newest = np.stack([account.history.newest for account in accounts])
    counts = np.array([account.history.count for account in accounts])
    totals = np.array([account.description.work_total for account in accounts])
    grows = np.array([account.description.costs_grow for account in accounts])
    steps = steps_ahead(newest[:, :, 0], newest[:, :, 2], counts, totals, grows)
    for account, step in zip(accounts, steps.tolist(), strict=True):
        account.ahead = StepAhead(*step)


def steps_ahead(
    work: FloatArray, core_seconds: FloatArray, counts: IntArray, totals: FloatArray, grows: BoolArray
) -> FloatArray:
    """Return work, core-seconds and growth of the core-seconds of each job's next step, shape (J, 3).

    work, core_seconds: of the steps so far, shape (J, W), oldest first, NaN where there are fewer. counts: of
    all steps; totals: the work at the end; grows: whether costs grow; shape (J,). The next step does as much
    as the last one, or what is left. Its cost is what a unit of work has cost lately, times its work: a
    constant, SLAQ's c·S over the same rows S each time, or the thesis's line where costs grow.
    """
    before = np.concatenate([np.full((len(work), 1), np.nan), work[:, :-1]], axis=1)
    is_first = np.arange(work.shape[1]) == work.shape[1] - counts[:, None]
    made = work - np.where(is_first, 0.0, before)
    step_work = np.maximum(np.minimum(made[:, -1], totals - work[:, -1]), LEAST_STEP_WORK)
    rates = Series.of(work, core_seconds / np.where(made > 0, made, np.nan))
    slope, offset = line_cost(rates)
    rate = np.where(grows, offset + slope * (work[:, -1] + step_work), constant_cost(rates))
    cost = np.where(np.isfinite(rate), rate, 0.0) * step_work
    growth = np.where(grows, slope * step_work**2, 0.0)
    return np.stack([step_work, np.maximum(cost, LEAST_CORE_SECONDS), growth], axis=1)


AHEAD_POINTS = 16
AHEAD_FACTOR = 2.0  # how far ahead a job without an end is shown: to so many times its work

KIND_WORDS = {Kind.QUERY: "query", Kind.TRAINING: "training", Kind.EXACT: "exact", Kind.FOREIGN: "foreign"}


def job_statuses(
    accounts: Sequence[Account],
    shares: Mapping[str, float],
    now_seconds: float,
    running: Mapping[str, Sequence[float]],
) -> tuple[JobStatus, ...]:
    """Return the jobs' statuses, in the order of the accounts. shares: planned cores by job, 0 if absent.

    running: as in `Allocator.status`.
    """
    if not accounts:
        return ()
    from relaqs.policies.ordered import remaining_core_seconds

    refresh(accounts)
    curves = curves_of(accounts)
    jobs = Jobs.of([account.view() for account in accounts])
    left = remaining_core_seconds(View(now_seconds, 0.0, jobs, curves=curves)).tolist()
    work = _work_ahead(jobs)
    ahead = np.stack([work, curves.at(work)], axis=2)
    is_known = is_predictable(jobs)
    return tuple(
        _status(
            account,
            now_seconds,
            state=_state(account, account.description.id in running),
            used_cores=account.usage.cores(now_seconds, running.get(account.description.id, ())),
            share_cores=shares.get(account.description.id, 0.0),
            core_seconds_left=_known(left[row]) if account.ahead.step_core_seconds > 0 else None,
            predicted=tuple(map(tuple, ahead[row].tolist())) if is_known[row] else (),
        )
        for row, account in enumerate(accounts)
    )


def _work_ahead(jobs: Jobs) -> FloatArray:
    """Return evenly spaced work from now to the end, or to twice of now, shape (J, AHEAD_POINTS)."""
    done = jobs.work_done
    end = np.where(np.isfinite(jobs.work_total), jobs.work_total, AHEAD_FACTOR * done)
    return np.linspace(done, np.maximum(end, done), AHEAD_POINTS, axis=1)


def _status(
    account: Account,
    now_seconds: float,
    *,
    state: JobState,
    used_cores: float,
    share_cores: float,
    core_seconds_left: float | None,
    predicted: Curve,
) -> JobStatus:
    described = account.description
    return JobStatus(
        id=described.id,
        name=described.name,
        kind=KIND_WORDS[described.kind],
        state=state,
        client=described.client,
        weight=account.weight,
        arrived_seconds_ago=now_seconds - account.arrived_seconds,
        share_cores=share_cores,
        used_cores=used_cores,
        quality=account.newest[-1][1] if account.newest else None,
        target=account.target,
        work_done=account.work_done,
        work_total=_known(described.work_total),
        attained_core_seconds=account.attained_core_seconds,
        core_seconds_left=core_seconds_left,
        history=tuple(account.newest),
        predicted=predicted,
        user=described.user,
        deadline_seconds_left=_known(account.arrived_seconds + described.deadline_seconds - now_seconds),
        urgency=described.goals.urgency,
        accuracy=None if account.accuracy is None else account.accuracy.newest,
        accuracy_required=_known(described.goals.accuracy),
    )


def _state(account: Account, is_running: bool) -> JobState:
    if not account.is_waiting:
        return "paused"
    return "running" if is_running or account.attained_core_seconds > 0 else "waiting"


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
