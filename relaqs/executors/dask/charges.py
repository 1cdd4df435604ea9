"""What the tasks that run now were charged in advance."""

from __future__ import annotations

from collections import Counter

from relaqs.scheduling.shares import FairShares


class Charges:
    """Tasks that were started and have not ended, by key: charged once at the start and once at the end.

    So a task that is started twice, ends twice, or whose end comes after its job's, does no harm.
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
            self.take(key, job, self._shares.start(job, in_turn=in_turn))

    def take(self, key: object, job: str, charged_core_seconds: float) -> None:
        """Note a start that was charged before its key was known."""
        self._open[key] = job, charged_core_seconds
        self._running[job] += 1

    def end(self, key: object, core_seconds: float | None) -> tuple[str, float] | None:
        """Return whose task has ended and its core-seconds: as measured, or, where None was, as charged.

        None if it was not running.
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
        """Forget what ran, e.g. because all workers were restarted; it is charged as it was in advance."""
        for key in list(self._open):
            self.end(key, None)
