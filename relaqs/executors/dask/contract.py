"""What the fair queue needs of the Dask release it runs in, checked when it starts.

Dask promises none of it, and a release may change it; then credits are used, which need public parts alone.
"""

from __future__ import annotations

import inspect
import math
import re
from importlib.metadata import version
from typing import TYPE_CHECKING

import dask
import distributed
import distributed.scheduler
from dask.task_spec import Task as GraphTask
from distributed.collections import HeapSet

from relaqs.executors.dask.queue import JobQueue
from relaqs.scheduling.virtual_time import CREDIT_CORE_SECONDS

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

# In Dask's configuration, on the scheduler.
MECHANISM_SETTING = "relaqs.mechanism"  # "auto" or "credits"
CREDIT_SETTING = "relaqs.credit-core-seconds"  # see `FairShares`

_QUEUE_USE = re.compile(r"\bself\.queued\.(\w+)")
_TURN = "qts = self.queued.peek()"
_PINNED = "if ts.resource_restrictions or ts.worker_restrictions or ts.host_restrictions:"
_COUNTED = "len(ws.processing) - len(ws.long_running)"
_CHOSEN = "def decide_worker_rootish_queuing_enabled(self) -> WorkerState | None:"
_CHOSEN_FROM_QUEUE = "if ws := self.decide_worker_rootish_queuing_enabled():"
_ASKED_FIRST = "if not self.queued:"
_LOOKED_AGAIN = "def stimulus_queue_slots_maybe_opened(self, *, stimulus_id: str) -> None:"


def broken_contract(scheduler: Scheduler) -> str | None:
    """Return why the fair queue cannot be used on this scheduler, or None if it can."""
    if dask.config.get(MECHANISM_SETTING, "auto") == "credits":
        return f"Dask's setting {MECHANISM_SETTING} on the scheduler asks for it"
    if not isinstance(getattr(scheduler, "queued", None), HeapSet | JobQueue):
        return _changed("keeps its waiting tasks otherwise")
    if math.isinf(scheduler.WORKER_SATURATION):
        return (
            "distributed.scheduler.worker-saturation is inf, so no task waits on the scheduler; set it to 1.1"
        )
    try:
        source = inspect.getsource(distributed.scheduler)
    except OSError:
        return _changed("comes without its source, by which the rest is checked")
    return broken_source(source)


def chosen_credit() -> float:
    """Return what a job may be owed that did not ask, in core-seconds. Raises ValueError if it cannot be."""
    chosen = dask.config.get(CREDIT_SETTING, CREDIT_CORE_SECONDS)
    try:
        credit = float(chosen)
    except (TypeError, ValueError):
        credit = math.nan
    if not 0 <= credit < math.inf:
        raise ValueError(f"Dask's setting {CREDIT_SETTING} is {chosen!r}; give core-seconds, 0 or more")
    return credit


def broken_source(source: str) -> str | None:
    """Return what the source of distributed/scheduler.py lacks, or None."""
    if missing := {use for use in _QUEUE_USE.findall(source) if not hasattr(JobQueue, use)}:
        return _changed(f"asks its queue to {', '.join(sorted(missing))}")
    if _TURN not in source:
        return _changed("takes tasks from its queue otherwise")
    can_mark = "_data_producer" in inspect.signature(GraphTask).parameters
    if not can_mark or "run_spec.data_producer" not in source:
        return _changed("marks tasks that wait on it otherwise")
    return None


def broken_pinning(scheduler: Scheduler) -> str | None:
    """Return why gangs cannot run on this scheduler, or None if they can.

    A gang keeps others' tasks off its slots with two pinned tasks on each: they are not queued, and they
    count as work of their worker.
    """
    if (why := broken_contract(scheduler)) is not None:
        return why
    return broken_pinning_source(inspect.getsource(distributed.scheduler))


def broken_pinning_source(source: str) -> str | None:
    """Return what the source of distributed/scheduler.py lacks for gangs, or None."""
    if _PINNED not in source:
        return _changed("queues tasks that one worker must run")
    if _COUNTED not in source:
        return _changed("counts the tasks of a worker otherwise")
    return None


def broken_placing(scheduler: Scheduler) -> str | None:
    """Return why Dask's choice of workers cannot be replaced on this scheduler, or None if it can."""
    if (why := broken_contract(scheduler)) is not None:
        return why
    return broken_placing_source(inspect.getsource(distributed.scheduler))


def broken_placing_source(source: str) -> str | None:
    """Return what the source of distributed/scheduler.py lacks for `AbreastPlaces` and `Rooms`, or None."""
    if any(each not in source for each in (_CHOSEN, _CHOSEN_FROM_QUEUE, _ASKED_FIRST, _LOOKED_AGAIN)):
        return _changed("chooses the workers of waiting tasks otherwise")
    return None


def _changed(what: str) -> str:
    return f"distributed {version('distributed')} {what}"
