"""Workers that went away just now, to which the scheduler may still try to connect."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

KEEP_SECONDS = 10.0  # after a worker's end nobody begins to connect to it


class Departed:
    """Ends attempts to connect to workers that are gone.

    Dask ends those that run when it removes a worker. One that begins an instant later, to fetch a result
    that the worker had, tries for half a minute, and all results asked for in the same message wait with it.
    Meanwhile the next worker may die: jobs would stand still on a cluster that loses one every few seconds.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._until_seconds: dict[str, float] = {}  # by address, on the monotonic clock

    def note(self, address: str) -> None:
        """Take in that a worker was removed."""
        self._until_seconds[address] = time.monotonic() + KEEP_SECONDS

    def look(self) -> None:
        """End the attempts of now. To be called every second or so."""
        now = time.monotonic()
        self._until_seconds = {
            address: until
            for address, until in self._until_seconds.items()
            if until > now and address not in self._scheduler.workers
        }
        for address in self._until_seconds:
            self._scheduler.rpc.remove(address, reason="the worker is gone")
