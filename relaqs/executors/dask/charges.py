"""The tasks that run on the cluster now, and what each of them was charged in advance."""

from __future__ import annotations

from collections import Counter

from relaqs.scheduling.virtual_time import FairShares


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
            self.take(key, job, self._shares.start(job, in_turn=in_turn))

    def take(self, key: object, job: str, charged_core_seconds: float) -> None:
        """Note a start that was charged before its key was known."""
        self._open[key] = job, charged_core_seconds
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
