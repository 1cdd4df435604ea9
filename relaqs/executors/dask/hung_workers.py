"""Workers that keep tasks and do not run them: they hang, or Dask has paused them for lack of memory."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import dask
from dask.utils import parse_timedelta
from distributed import Status

from relaqs.executors.dask.names import job_of

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

SILENCE_SETTING = "relaqs.worker-silence"  # in Dask's configuration, on the scheduler: a time, or "inf"
SILENCE = "30s"  # a worker sends a heartbeat every half second, and no task of ours delays one for so long
AWAY_SECONDS = 5.0  # since the last look: the scheduler itself was stopped, and could hear no worker

logger = logging.getLogger("distributed.scheduler.relaqs")  # where operators look


class SilentWorkerWarning(UserWarning):
    """A worker that was silent, or started no task, was given up. Its tasks run elsewhere."""


class Silence:
    """Gives hung workers up, and tells all clients.

    Results are folded in order. So a query stalls while one of its tasks, or a result that was not fetched
    yet, sits on a hung worker. Dask gives up a silent worker after five minutes (`worker-ttl`), and a paused
    one never, unless another worker happens to take its tasks.

    A worker is given up only if all its tasks are ours. If it has no tasks, all results on it must be ours.
    A task of another program may hold a worker's interpreter for long; such a worker is left to Dask.

    Args:
        scheduler: the scheduler of these workers.
        tell: shows a warning to all clients.
    """

    def __init__(self, scheduler: Scheduler, tell: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._tell = tell
        self._most_seconds = chosen_silence()
        self._looked_seconds = self._since_seconds = time.time()  # Dask's clock of `last_seen`
        self._idle_since_seconds: dict[str, float] = {}  # of paused workers that run nothing
        self._restarts: dict[str, asyncio.Task[object]] = {}

    def look(self) -> None:
        """Give up the workers that were silent for too long. Call it every second or so."""
        now = time.time()
        if now - self._looked_seconds > AWAY_SECONDS:
            self._since_seconds = now
        self._looked_seconds = now
        self._restarts = {each: task for each, task in self._restarts.items() if not task.done()}
        self._idle_since_seconds = {
            address: self._idle_since_seconds.get(address, now)
            for address, worker in self._scheduler.workers.items()
            if worker.status is Status.paused and worker.processing and not worker.executing
        }
        for address, worker in self._scheduler.workers.items():
            tasks = worker.processing or worker.has_what
            is_ours = tasks and all(job_of(task.key) for task in tasks)
            if is_ours and address not in self._restarts and (why := self._complaint(worker, now)):
                self._give_up(address, why)

    def _complaint(self, worker: WorkerState, now: float) -> str | None:
        """Return why a worker must be given up, None if it need not be."""
        silent_seconds = now - max(worker.last_seen, self._since_seconds)
        idle_seconds = now - self._idle_since_seconds.get(worker.address, now)
        if silent_seconds > self._most_seconds:
            return (
                f"the worker at {worker.address} was not heard of for {silent_seconds:.0f} s and is given "
                "up; what it ran is run elsewhere. See whether it hangs or its machine is out of memory"
            )
        if idle_seconds > self._most_seconds:
            return (
                f"the worker at {worker.address} has been paused for want of memory for {idle_seconds:.0f} s "
                "and is given up; what waits there is run elsewhere. Give it a larger --memory-limit, or "
                "queries a smaller one: connect(memory_limit=…)"
            )
        return None

    def _give_up(self, address: str, text: str) -> None:
        logger.warning(text)
        self._tell(text)
        restart = self._scheduler.restart_workers(
            [address], wait_for_workers=False, on_error="return", stimulus_id=f"relaqs-silence-{time.time()}"
        )
        self._restarts[address] = asyncio.ensure_future(restart)


def chosen_silence() -> float:
    """Return for how many seconds a worker may be silent. Raises ValueError if the setting is no time."""
    chosen = dask.config.get(SILENCE_SETTING, SILENCE)
    seconds = math.inf if chosen == "inf" else parse_timedelta(chosen)
    if not seconds > 0:
        raise ValueError(f"Dask's setting {SILENCE_SETTING} is {chosen!r}; give a time as '30s', or 'inf'")
    return float(seconds)
