"""Whose turn it is, by virtual time: measured core-seconds divided by the planned share.

Source: Waldspurger, Weihl 1995, Stride Scheduling; Goyal, Vin, Cheng 1996, Start-time Fair Queueing, for the
clock. Pure: no clock of its own, no thread, no queue; the caller knows what waits, and asks who is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# What a job that asks again may be owed: a short task. With 0.1, jobs that ask now and then, as short queries
# do, got so much more than planned that seconds were off by 6.8 points instead of 3.2.
CREDIT_CORE_SECONDS = 0.02
FIRST_TASK_CORE_SECONDS = 0.05  # taken for a job's task until one was measured
LEAST_CORE_SECONDS = 1e-4  # charged for tasks too quick to measure: a turn is never free
NEWEST_SHARE = 0.2  # of the newest measurement in the running mean of a job's tasks


@dataclass(slots=True)
class _Account:
    """share: in cores; with 0 it is served when nobody else asks. running: tasks started, not ended."""

    share: float
    virtual_seconds: float
    running: int = 0
    task_core_seconds: float = FIRST_TASK_CORE_SECONDS


class FairShares:
    """Accounts of jobs that share cores; next is the job with the least virtual time.

    A task is charged its job's mean when it starts, so that tasks started together spread over the jobs, and
    what it really took when it ends. A change of share keeps what a job is ahead or behind, in core-seconds.
    credit_core_seconds: what a job may be owed that did not ask for its share, being idle or short of tasks:
    the depth of SLAQ's token bucket, into which tokens fall at the planned share. Not thread-safe.
    """

    def __init__(self, *, credit_core_seconds: float = CREDIT_CORE_SECONDS) -> None:
        self._credit_core_seconds = credit_core_seconds
        self._accounts: dict[str, _Account] = {}
        self._now_virtual_seconds = 0.0

    def __contains__(self, job: str) -> bool:
        return job in self._accounts

    def jobs(self) -> list[str]:
        return list(self._accounts)

    def enter(self, job: str, share: float = 1.0) -> None:
        """Open an account that owes nothing and is owed nothing. One that is open stays as it is."""
        self._accounts.setdefault(job, _Account(share, self._now_virtual_seconds))

    def leave(self, job: str) -> None:
        self._accounts.pop(job, None)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Change the shares of jobs that have accounts; the others keep theirs."""
        for job, share in shares.items():
            if (account := self._accounts.get(job)) is not None and share != account.share:
                ahead_core_seconds = (account.virtual_seconds - self._now_virtual_seconds) * account.share
                owed = ahead_core_seconds / share if share > 0 else 0.0
                account.share, account.virtual_seconds = share, self._now_virtual_seconds + owed

    def wake(self, job: str) -> None:
        """Say that a job asks again of which nothing waited: it may claim its credit, and no more.

        Also while tasks of it run: one that had too few for its share has not been denied it.
        """
        account = self._accounts[job]
        if account.share > 0:
            oldest = self._now_virtual_seconds - self._credit_core_seconds / account.share
            account.virtual_seconds = max(account.virtual_seconds, oldest)

    def next(self, asking: Iterable[str]) -> str | None:
        """Return whose task starts next, or None where nobody asks. Every job asking has an account."""
        order = [(self._accounts[job].share <= 0, self._accounts[job].virtual_seconds, job) for job in asking]
        return min(order)[2] if order else None

    def start(self, job: str, *, in_turn: bool = True) -> float:
        """Note that a task of the job starts, and return the core-seconds it is charged in advance.

        in_turn: the job was next, or nobody waited; not a task that passed by those who wait, whose job may
        be far ahead: newcomers are not to begin there.
        """
        account = self._accounts[job]
        account.running += 1
        if account.share > 0 and in_turn:
            self._now_virtual_seconds = max(self._now_virtual_seconds, account.virtual_seconds)
        _charge(account, account.task_core_seconds)
        return account.task_core_seconds

    def settle(self, job: str, charged_core_seconds: float, core_seconds: float) -> None:
        """Charge what a task took instead of what it was charged in advance, unless the job has left."""
        if (account := self._accounts.get(job)) is not None:
            account.running -= 1
            core_seconds = max(core_seconds, LEAST_CORE_SECONDS)
            _charge(account, core_seconds - charged_core_seconds)
            account.task_core_seconds += NEWEST_SHARE * (core_seconds - account.task_core_seconds)


def _charge(account: _Account, core_seconds: float) -> None:
    """A job without a share takes turns by the core-seconds alone; they are forgiven once it has a share."""
    account.virtual_seconds += core_seconds / (account.share or 1.0)
