"""Workers that have just gone away. The scheduler may still try to connect to them."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

KEEP_SECONDS = 10.0  # so long after a worker's end, nothing begins to connect to it any more


class Departed:
    """Ends attempts to connect to workers that are gone.

    When Dask removes a worker, it ends the attempts that run. An attempt may begin an instant later, to fetch
    a result that the worker had. It goes on for half a minute, and all results asked for in the same message
    wait with it. On a cluster that loses a worker every few seconds, jobs would then stand still.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._until_seconds: dict[str, float] = {}  # by address, on the monotonic clock

    def note(self, address: str) -> None:
        """Note that a worker was removed."""
        self._until_seconds[address] = time.monotonic() + KEEP_SECONDS

    def look(self) -> None:
        """End the attempts that run now. Call it every second or so."""
        now = time.monotonic()
        self._until_seconds = {
            address: until
            for address, until in self._until_seconds.items()
            if until > now and address not in self._scheduler.workers
        }
        for address in self._until_seconds:
            self._scheduler.rpc.remove(address, reason="the worker is gone")
