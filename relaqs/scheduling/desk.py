"""The desk: which jobs there are, who gets how many cores, and whose task starts next.

Every place of execution has one desk and asks it. The threads of this process drive theirs under a lock
(`relaqs/executors/threads.py`); a Dask scheduler's plugin drives one on its event loop
(`relaqs/executors/dask/plugin.py`). The desk has no clock, no thread and no queue: the time is an argument,
and the caller says which jobs have tasks waiting.

A desk has two books, and each measured core-second goes into both.

- The *accounts* (`Allocator`) hold what each job reported, what it was charged and what its user asked for.
  The policy sees them, and answers with a plan: cores for each job.
- The *turns* (`FairShares`) hold a virtual clock for each job. They turn the plan into an order of tasks.

One round at a desk: `enter` the jobs. When a plan of the `accounts` is due, `share_out`. Ask `turns.next`
whose task starts, and say `turns.start`. When the task ends, settle its turn and charge its account. When its
step is folded, report that to the accounts. The whole way is drawn in
docs/internals/journey-of-a-core-second.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport, check_weight
from relaqs.policies.weighted_fair import WeightedFair
from relaqs.scheduling.accounts import Account, cores_most_of
from relaqs.scheduling.forecast import KIND_WORDS, curves_of, job_statuses, refresh
from relaqs.scheduling.virtual_time import CREDIT_CORE_SECONDS, FairShares
from relaqs.sharing.plan import Plan, Policy
from relaqs.sharing.view import Jobs, Kind, View

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
        if asking:
            self._plan = self._plan_of(self._view(asking, now_seconds, capacity_cores))
        else:
            self._plan = Plan((), np.zeros(0), capacity_cores)
        self._planned_seconds, self._planned_cores = now_seconds, capacity_cores
        self._has_changed = False
        return self._plan

    def status(
        self,
        now_seconds: float,
        capacity_cores: float,
        running: Mapping[str, Sequence[float]] | None = None,
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


class Desk:
    """Accounts and turns of the jobs that share some cores. Not thread-safe: its owner holds a lock.

    Every `now_seconds` is on one clock of the caller's that never goes back. A call about a job that has not
    entered, or has left, changes nothing: messages about it may come late.

    Example: two jobs share two cores, one with three times the other's weight.

    >>> from relaqs.policies import WeightedFair
    >>> desk = Desk(WeightedFair())
    >>> desk.enter(JobDescription("heavy", weight=3.0), now_seconds=0.0)
    >>> desk.enter(JobDescription("light"), now_seconds=0.0)
    >>> desk.accounts.is_due(0.0, capacity_cores=2.0)
    True
    >>> desk.share_out(0.0, capacity_cores=2.0)
    ()
    >>> desk.plan.cores_by_job()
    {'heavy': 1.5, 'light': 0.5}
    >>> job = desk.turns.next(["heavy", "light"])
    >>> charged = desk.turns.start(job)
    >>> desk.turns.settle(job, charged, core_seconds=0.06)
    >>> desk.accounts.charge(job, 0.06, now_seconds=0.06)
    >>> job, desk.turns.next(["heavy", "light"])
    ('heavy', 'light')

    Attributes:
        accounts: what each job reported and was charged, and the policy.
        turns: whose task starts next.

    Args:
        policy: who gets how many cores.
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
