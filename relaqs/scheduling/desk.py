"""The desk: which jobs there are, who gets how many cores, and whose task starts next.

Every place of execution has one desk and asks it. The threads of this process drive theirs under a lock
(`relaqs/executors/threads.py`); a Dask scheduler's plugin drives one on its event loop
(`relaqs/executors/dask/plugin.py`). The desk has no clock, no thread and no queue: the time is an argument,
and the caller says which jobs have tasks waiting.

A desk keeps two books, and each measured core-second goes into both.

- The *accounts* (`Allocator`) hold what each job reported, what it was charged and what its user asked for.
  The policy sees them, and answers with a plan: cores for each job.
- The *turns* (`FairShares`) hold a virtual clock for each job. They turn the plan into an order of tasks.

One round at a desk: `enter` the jobs. When a plan `is_due`, `share_out`. Ask `turns.next` whose task starts,
and say `turns.start`. When the task ends, settle its turn and `charge` its account. When its step is folded,
`report` that. The whole way is drawn in docs/internals/journey-of-a-core-second.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relaqs.jobs.job import ClusterStatus, JobDescription, StepReport
from relaqs.scheduling.allocator import Allocator
from relaqs.scheduling.shares import CREDIT_CORE_SECONDS, FairShares
from relaqs.sharing.plan import Plan
from relaqs.sharing.policy import Policy


class Desk:
    """Accounts and turns of the jobs that share some cores. Not thread-safe: its owner holds a lock.

    Every `now_seconds` is on one clock of the caller's that never goes back. A call about a job that has not
    entered, or has left, changes nothing: messages about it may come late.

    Example: two jobs share two cores, one with three times the other's weight.

    >>> from relaqs.policies import WeightedFair
    >>> desk = Desk(WeightedFair())
    >>> desk.enter(JobDescription("heavy", weight=3.0), now_seconds=0.0)
    >>> desk.enter(JobDescription("light"), now_seconds=0.0)
    >>> desk.is_due(0.0, capacity_cores=2.0)
    True
    >>> desk.share_out(0.0, capacity_cores=2.0)
    ()
    >>> desk.plan.cores_by_job()
    {'heavy': 1.5, 'light': 0.5}
    >>> job = desk.turns.next(["heavy", "light"])
    >>> charged = desk.turns.start(job)
    >>> desk.turns.settle(job, charged, core_seconds=0.06)
    >>> desk.charge(job, 0.06, now_seconds=0.06)
    >>> job, desk.turns.next(["heavy", "light"])
    ('heavy', 'light')

    Args:
        policy: who gets how many cores.
        credit_core_seconds: see `FairShares`.
    """

    def __init__(self, policy: Policy, *, credit_core_seconds: float = CREDIT_CORE_SECONDS) -> None:
        self.turns = FairShares(credit_core_seconds=credit_core_seconds)
        self._accounts = Allocator(policy)
        self._plan = Plan((), np.zeros(0), 0.0)
        self._stopped: set[str] = set()  # jobs that a plan has stopped and that have not left

    @property
    def policy(self) -> Policy:
        """Who gets how much. Another policy counts from the next plan on, which is then due."""
        return self._accounts.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._accounts.policy = policy

    @property
    def plan(self) -> Plan:
        """The plan in force; an empty one before the first."""
        return self._plan

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._accounts

    def __len__(self) -> int:
        return len(self._accounts)

    def enter(self, description: JobDescription, now_seconds: float) -> None:
        """Take a job in. A job that is here already, and registers again, keeps its account and its turn."""
        self.turns.enter(description.id)
        self._accounts.enter(description, now_seconds)

    def leave(self, job_id: str) -> None:
        """Forget a job."""
        self.turns.leave(job_id)
        self.rest(job_id)

    def rest(self, job_id: str) -> None:
        """Close a job's account and keep its turn: its tasks may come back at any time, unannounced."""
        self._accounts.leave(job_id)
        self._stopped.discard(job_id)

    def report(self, job_id: str, report: StepReport) -> None:
        """Note what a folded step gave. The first report of a job's quality calls for a new plan."""
        self._accounts.report(job_id, report)

    def charge(self, job_id: str, core_seconds: float, now_seconds: float) -> None:
        """Note in the job's account what a task took that has ended. Its turn is settled in `turns`."""
        self._accounts.charge(job_id, core_seconds, now_seconds)

    def set_weight(self, job_id: str, weight: float) -> None:
        """Change how much the job counts. Raises ValueError for what is no weight."""
        self._accounts.set_weight(job_id, weight)

    def set_target(self, job_id: str, target: float | None) -> None:
        """Change the error or loss the job may stop at."""
        self._accounts.set_target(job_id, target)

    def set_most(self, job_id: str, cores: float) -> None:
        """Change how many cores the job can use at once."""
        self._accounts.set_most(job_id, cores)

    def set_waiting(self, job_id: str, is_waiting: bool) -> None:
        """Say whether the job asks for cores at all. A paused job does not."""
        self._accounts.set_waiting(job_id, is_waiting)

    def is_due(self, now_seconds: float, capacity_cores: float) -> bool:
        """Return whether there should be a new plan: the epoch is over, or something has changed."""
        return self._accounts.is_due(now_seconds, capacity_cores)

    def share_out(self, now_seconds: float, capacity_cores: float) -> tuple[str, ...]:
        """Make a plan and carry it into the turns. Return the jobs that it stops, each of them once.

        The caller asks the drivers of these jobs to stop.
        """
        self._plan = self._accounts.plan(now_seconds, capacity_cores)
        self.turns.set_shares(self._plan.cores_by_job())
        stops = tuple(
            job for job in dict.fromkeys(self._plan.stops) if job in self and job not in self._stopped
        )
        self._stopped.update(stops)
        return stops

    def status(
        self, now_seconds: float, capacity_cores: float, running: Mapping[str, Sequence[float]]
    ) -> ClusterStatus:
        """Return how every job stands, the oldest first. running: as in `Allocator.status`."""
        return self._accounts.status(now_seconds, capacity_cores, running)
