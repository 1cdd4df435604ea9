"""A cluster without workers: its jobs wait, and their users should know what for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

PATIENCE_SECONDS = 3.0  # workers that are started with the scheduler take one or two

logger = logging.getLogger("distributed.scheduler.relaqs")  # where operators look


class NoWorkersWarning(UserWarning):
    """Jobs wait on a cluster that has no workers; they go on by themselves once it has one."""


class Absence:
    """Tells each client with waiting jobs, once, that there are no workers. With new workers it begins anew.

    tell: shows a warning to all clients. A client that has shown it before does not show it again.
    """

    def __init__(self, scheduler: Scheduler, tell: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._tell = tell
        self._since_seconds: float | None = None
        self._told: set[str] = set()

    def look(self, clients: Collection[str]) -> None:
        """Tell the clients that wait for too long. Call it every second or so. clients: those with jobs."""
        if self._scheduler.workers or not clients:
            self._since_seconds = None
            self._told.clear()
            return
        now = time.monotonic()
        if self._since_seconds is None:
            self._since_seconds = now
        if now - self._since_seconds >= PATIENCE_SECONDS and not self._told.issuperset(clients):
            self._told.update(clients)
            address = self._scheduler.address
            text = (
                f"the cluster at {address} has no workers, and what runs there waits for one; start one by "
                f"`dask worker {address}`"
            )
            logger.warning(text)
            self._tell(text)
