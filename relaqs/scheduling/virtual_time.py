"""Whose task starts next: the job that has had the fewest core-seconds for its planned share.

**The idea.** A plan says "job A gets 1.5 cores, job B 0.5". Tasks cannot be cut to fit that: each one
runs to its end on one core. So each job has a clock of its own, its *virtual time*. It advances by

    measured core-seconds / planned cores

with each task. The next task is always one of the job whose clock is furthest behind. In the long run the
clocks stay together, and then the core-seconds are in the ratio of the plan, whatever the tasks cost.

**Example.** Each task takes 0.06 core-seconds. A's clock advances by 0.06 / 1.5 = 0.04 a task, B's by
0.06 / 0.5 = 0.12. Starting from 0, with ties in the order of arrival:

    task starts    A     B     A     A     A     B     ...
    A's clock    0.04  0.04  0.08  0.12  0.16  0.16
    B's clock    0.00  0.12  0.12  0.12  0.12  0.24

From then on B gets one task in four: 0.5 of 2 cores.

**What makes it more than a division.**

- *Charged in advance.* The cost of a task is known at its end, and several cores ask at once. So a task is
  charged its job's mean when it starts, and the difference when it ends. Else all cores would take tasks
  of the same job, because its clock stands still until the first of them ends.
- *A change of plan.* A lead in virtual time means something else under another share. So a change keeps
  the core-seconds that the job is ahead or behind, and converts them with the new share.
- *Newcomers* begin at the present virtual time: the clock of the job whose turn it last was. They owe
  nothing and are owed nothing, and are served next.
- *A stream of newcomers* could keep all others waiting so, and the present would stand still. So it
  follows the mean clock of the jobs that run or wait, `HEAD_START_SECONDS` behind it: this is all that a
  newcomer is ahead of those that have waited.
- *A job that comes back* after it had nothing to run is owed `credit_core_seconds` at most, whatever its
  idle time was. This is the depth of SLAQ's token bucket, into which tokens fall at the planned share.
- *A share of 0* means: only when no other job asks. A core never idles beside waiting work.

`FairQueue` is the same with a queue: the waiting tasks of each job in one process, and the turns of the
jobs. `Charges` keeps what each task that runs on a cluster was charged in advance.

Pure: no clock and no thread lives here. The caller of `FairShares` says which jobs have work, and asks
who is next. Decisions and measurements: docs/decisions/0010-sharing-cores.md,
docs/decisions/0012-fair-queue-in-dask.md, docs/decisions/0053-newcomers-have-a-bounded-head-start.md.
Source: Waldspurger, Weihl 1995, Stride Scheduling; Goyal, Vin, Cheng 1996, Start-time Fair Queueing, for
the present virtual time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar


class Charges:
    """Tasks that were started and have not ended, by key. Each is charged at its start and at its end, once.

    So it does no harm when Dask starts a task twice, ends it twice, or ends it after its job has left.
    """

    def __init__(self, shares: FairShares) -> None:
        self._shares = shares
        self._open: dict[object, tuple[str, float]] = {}
        self._running: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def running(self, job: str) -> int:
        return self._running[job]

    def running_jobs(self) -> set[str]:
        return set(self._running)

    def start(self, key: object, job: str, *, in_turn: bool) -> None:
        """Charge a task that starts. in_turn: see `FairShares.start`."""
        if key not in self._open:
            self._open[key] = job, self._shares.start(job, in_turn=in_turn)
            self._running[job] += 1

    def end(self, key: object, core_seconds: float | None) -> tuple[str, float] | None:
        """Return the job of a task that has ended and its core-seconds; None if the task was not running.

        core_seconds: as measured. None: it was not measured, and the charge in advance counts.
        """
        if (started := self._open.pop(key, None)) is None:
            return None
        job, charged = started
        self._running[job] -= 1
        if not self._running[job]:
            del self._running[job]
        took = charged if core_seconds is None else core_seconds
        self._shares.settle(job, charged, took)
        return job, took

    def clear(self) -> None:
        """Forget what ran, e.g. because all workers were restarted. The charge in advance counts."""
        for key in list(self._open):
            self.end(key, None)


# The most that an idle job may be owed: one short task. Measured: with 0.1, short queries, which ask now and
# then, exceed their shares (an error of 6.8 points in a second). With 0.02 the error is 3.2 points.
CREDIT_CORE_SECONDS = 0.02
FIRST_TASK_CORE_SECONDS = 0.05  # assumed for a job's tasks until one is measured
LEAST_CORE_SECONDS = 1e-4  # charged for a task too quick to measure: no turn is free
NEWEST_SHARE = 0.2  # of the newest measurement in the running mean of a job's tasks
HEAD_START_SECONDS = 0.5  # of virtual time: seconds by the wall, while the plan shares out all cores


@dataclass(slots=True)
class _Account:
    """One job's clock.

    Attributes:
        share: in cores.
        virtual_seconds: the clock.
        arrival: how many jobs had entered before.
        task_core_seconds: the running mean of its tasks.
        running: how many of its tasks run.
    """

    share: float
    virtual_seconds: float
    arrival: int
    task_core_seconds: float = FIRST_TASK_CORE_SECONDS
    running: int = 0


class FairShares:
    """The virtual clocks of the jobs that share cores. Not thread-safe.

    Args:
        credit_core_seconds: the most that a job is owed for a time in which it had too few tasks.
    """

    def __init__(self, *, credit_core_seconds: float = CREDIT_CORE_SECONDS) -> None:
        self._credit_core_seconds = credit_core_seconds
        self._accounts: dict[str, _Account] = {}
        self._now_virtual_seconds = 0.0
        self._mean_virtual_seconds = 0.0  # of all jobs that run or wait, by their shares
        self._arrivals = 0
        self._asking: frozenset[str] = frozenset()  # the last time that somebody asked who is next

    def __contains__(self, job: str) -> bool:
        return job in self._accounts

    def jobs(self) -> list[str]:
        return list(self._accounts)

    def enter(self, job: str, share: float = 1.0) -> None:
        """Start the job's clock at the present. The clock of a job that is here already stays as it is."""
        if job not in self._accounts:
            self._accounts[job] = _Account(share, self._now_virtual_seconds, self._arrivals)
            self._arrivals += 1

    def leave(self, job: str) -> None:
        self._accounts.pop(job, None)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Change the planned cores of some jobs. Jobs that are not here are passed over."""
        for job, share in shares.items():
            if (account := self._accounts.get(job)) is not None and share != account.share:
                ahead_core_seconds = (account.virtual_seconds - self._now_virtual_seconds) * account.share
                owed = ahead_core_seconds / share if share > 0 else 0.0
                account.share, account.virtual_seconds = share, self._now_virtual_seconds + owed

    def wake(self, job: str) -> None:
        """Note that a job asks again after it had nothing waiting: it keeps its credit at most.

        This holds while tasks of it run, too: a job with too few tasks for its share could have had more.
        """
        account = self._accounts[job]
        if account.share > 0:
            oldest = self._now_virtual_seconds - self._credit_core_seconds / account.share
            account.virtual_seconds = max(account.virtual_seconds, oldest)

    def next(self, asking: Iterable[str]) -> str | None:
        """Return whose task starts next, None where no job asks. Every job that asks has entered."""
        self._asking = frozenset(asking)
        return min(self._asking, key=self._turn, default=None)

    def in_order(self, asking: Iterable[str]) -> list[str]:
        """Return the jobs that ask, in the order in which their turns come. Every one has entered."""
        self._asking = frozenset(asking)
        return sorted(self._asking, key=self._turn)

    def _turn(self, job: str) -> tuple[bool, float, int]:
        account = self._accounts[job]
        return account.share <= 0, account.virtual_seconds, account.arrival

    def start(self, job: str, *, in_turn: bool = True) -> float:
        """Note that a task of the job starts, and return the core-seconds it is charged in advance.

        Args:
            job: the task's job.
            in_turn: the job was next, or none waited. False: the task passed waiting jobs by. Its job may be
                far ahead then, so the present, at which newcomers begin, does not move there.
        """
        account = self._accounts[job]
        if account.share > 0 and in_turn:
            self._now_virtual_seconds = max(self._now_virtual_seconds, account.virtual_seconds)
        account.running += 1
        self._charge(account, account.task_core_seconds)
        return account.task_core_seconds

    def settle(self, job: str, charged_core_seconds: float, core_seconds: float) -> None:
        """Charge what a task took in place of its advance charge, unless the job has left."""
        if (account := self._accounts.get(job)) is not None:
            core_seconds = max(core_seconds, LEAST_CORE_SECONDS)
            self._charge(account, core_seconds - charged_core_seconds)
            account.task_core_seconds += NEWEST_SHARE * (core_seconds - account.task_core_seconds)
            account.running -= 1

    def _charge(self, account: _Account, core_seconds: float) -> None:
        """Advance a job's clock, and the mean. Without a share it is by the core-seconds, later forgiven."""
        account.virtual_seconds += core_seconds / (account.share or 1.0)
        if (shares := self._shares_in_use()) > 0:
            mean = max(self._mean_virtual_seconds, self._now_virtual_seconds) + core_seconds / shares
            self._mean_virtual_seconds = mean
            self._now_virtual_seconds = max(self._now_virtual_seconds, mean - HEAD_START_SECONDS)

    def _shares_in_use(self) -> float:
        """Return the shares of the jobs that run or wait, in cores together."""
        return sum(
            account.share
            for job, account in self._accounts.items()
            if account.running > 0 or job in self._asking
        )


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Grant(Generic[Item]):
    """An item that was given a core. charged_core_seconds: put on its job's account in advance."""

    job: str
    item: Item
    charged_core_seconds: float


class FairQueue(Generic[Item]):
    """The waiting items of many jobs, each job's in order. `FairShares` says which job is next.

    A job's first item builds what its other items share, e.g. its hoisted tables. Until that item has ended,
    the job's other items do not start while another job has work: they would only hold a core and wait.

    Not thread-safe: its owner holds a lock.
    """

    def __init__(self, shares: FairShares | None = None) -> None:
        self._shares = FairShares() if shares is None else shares
        self._waiting: dict[str, deque[Item]] = {}
        self._begun: set[str] = set()  # jobs whose first item has started
        self._preparing: set[str] = set()  # of these, the jobs without an item that has ended

    def enter(self, job: str, share: float = 1.0) -> None:
        """Let the job queue items. share: in cores, until a plan gives another."""
        self._shares.enter(job, share)

    def add(self, job: str, items: Iterable[Item]) -> None:
        """Queue items behind the job's others. Raises ValueError if the job has not entered."""
        if job not in self._shares:
            raise ValueError(f"job {job!r} has not entered; call enter with its description first")
        if job not in self._waiting:
            self._shares.wake(job)
        self._waiting.setdefault(job, deque()).extend(items)

    def pop(self, may_start: Callable[[Item], bool] = lambda item: True) -> Grant[Item] | None:
        """Take the next item of the job whose turn it is, or None where nothing waits that may start.

        may_start: is asked of the first item of each job.
        """
        asking = [job for job, items in self._waiting.items() if may_start(items[0])]
        prepared = [job for job in asking if job not in self._preparing]
        chosen = prepared or asking
        if (job := self._shares.next(chosen)) is None:
            return None
        in_turn = len(chosen) == len(self._waiting)
        if job not in self._begun:
            self._begun.add(job)
            self._preparing.add(job)
        waiting = self._waiting[job]
        turn = Grant(job, waiting.popleft(), self._shares.start(job, in_turn=in_turn))
        if not waiting:
            del self._waiting[job]
        return turn

    def settle(self, turn: Grant[Item], core_seconds: float) -> None:
        """Charge what the item took instead of what was charged in advance."""
        self._shares.settle(turn.job, turn.charged_core_seconds, core_seconds)
        self._preparing.discard(turn.job)

    def first(self) -> list[Item]:
        """Return the first item that waits of each job."""
        return [items[0] for items in self._waiting.values()]

    def drop(self, job: str) -> None:
        """Forget the job and its waiting items."""
        self._shares.leave(job)
        self._waiting.pop(job, None)
        self._begun.discard(job)
        self._preparing.discard(job)

    def jobs(self) -> list[str]:
        return self._shares.jobs()
