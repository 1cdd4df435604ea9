"""A cluster without workers: whatever is asked of it waits, and nobody would know for what."""

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
    """Tells clients whose jobs wait that there are no workers, each once until there are some.

    tell: shows a warning to all clients, in which one that has met it before shows it no second time.
    """

    def __init__(self, scheduler: Scheduler, tell: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._tell = tell
        self._since_seconds: float | None = None
        self._told: set[str] = set()

    def look(self, clients: Collection[str]) -> None:
        """Tell who waits for too long. To be called every second or so. clients: who have jobs."""
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
