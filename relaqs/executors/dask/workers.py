"""Workers that are not there for their tasks, and what a scheduler keeps too long of those that were.

- They hang, or Dask has paused them for lack of memory (`Silence`): their tasks go to others.
- There is none (`Absence`): jobs wait, and their users should know what for.
- They have just gone away (`Departed`): the scheduler may still try to connect to them.
- Work is over (`PastSpans`): Dask keeps a record of it for ever, which is forgotten here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import dask
from dask.utils import parse_timedelta
from distributed import Status

from relaqs.executors.dask.messages import KEY_PREFIX, job_of

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState
    from distributed.spans import Span

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


PATIENCE_SECONDS = 3.0  # workers that are started with the scheduler take one or two


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


KEEP_SECONDS = 10.0  # so long after a worker's end, nothing begins to connect to it any more
DEFAULT_SPAN = "default"
KEPT_SPANS = 20  # the newest, which Dask's own pages show


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


class PastSpans:
    """Forgets old spans of our jobs.

    Dask begins a `Span` when work comes after a time without work. It keeps each span for ever, with its
    groups of tasks. One query costs the scheduler some 10 kB in this way, and a scheduler runs for months.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._known = scheduler.extensions.get("spans")
        self._stand_in: Span | None = None

    def look(self) -> None:
        """Forget the spans that are over, except the newest. Call it every second or so."""
        if self._known is None:
            return
        old = self._known.spans_search_by_name[DEFAULT_SPAN,][:-KEPT_SPANS]
        over = {span.id: span for span in old if span.done and _is_ours(span)}
        if not over:
            return
        if self._stand_in is None:
            self._stand_in = next(iter(over.values()))
        for span in over.values():
            span.groups.clear()
            self._known.spans[span.id] = self._stand_in  # a late heartbeat of a worker may name it
        for spans in (
            self._known.root_spans,
            self._known.spans_search_by_name[DEFAULT_SPAN,],
            self._known.spans_search_by_tag[DEFAULT_SPAN],
        ):
            spans[:] = [span for span in spans if span.id not in over]


def _is_ours(span: Span) -> bool:
    return all(str(group.name).startswith(KEY_PREFIX) for group in span.groups)
