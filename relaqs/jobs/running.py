"""The jobs of one session that are not over yet, also those whose handle nothing refers to any more."""

from __future__ import annotations

import time
import weakref
from typing import Protocol


class Joinable(Protocol):
    """What is asked of a runner."""

    @property
    def id(self) -> str: ...

    def stop(self) -> None: ...

    def wait(self, timeout_seconds: float | None = None) -> bool: ...


class RunningJobs:
    """Knows the runners of the jobs that run. As long as one does, their owner is kept alive.

    Example: `relaqs.connect("warehouse").online_sql(sql).result()` drops the session at once. It must not be
    collected before the query is done, since closing it would stop the query.
    """

    def __init__(self, owner: object) -> None:
        self._owner = weakref.ref(owner)
        self._runners: dict[str, tuple[Joinable, object]] = {}
        self._is_closed = False

    @property
    def owner(self) -> object:
        """The owner, for what must keep it alive before its job runs; None once it was collected."""
        return self._owner()

    def register(self, runner: Joinable) -> None:
        """Note a job that is about to start. One that comes after `close` is stopped."""
        self._runners[runner.id] = runner, self._owner()
        if self._is_closed:
            runner.stop()

    def forget(self, job_id: str) -> None:
        """Note that a job is over."""
        self._runners.pop(job_id, None)

    def close(self, timeout_seconds: float) -> bool:
        """Stop all of them, wait for them that long, and return whether all are over."""
        self._is_closed = True
        runners = [runner for runner, _ in list(self._runners.values())]  # jobs end meanwhile
        for runner in runners:
            runner.stop()
        deadline = time.monotonic() + timeout_seconds
        ends = [runner.wait(max(0.0, deadline - time.monotonic())) for runner in runners]
        return all(ends)
