"""What really ran on a Dask cluster, seen from its scheduler: every task, every plan, and what was asked."""

# mypy: disable-error-code="misc"
# distributed is typed in part only.

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed import SchedulerPlugin
from distributed.protocol import pickle

from relaqs.executors.dask.messages import job_of
from relaqs.executors.dask.plugin import RelaqsPlugin, core_seconds_of

NAME = "relaqs-observer"
ASKING = ("queued", "processing")  # states of Dask in which a task wants a core


@dataclass(frozen=True, slots=True)
class Ran:
    """One task that has ended. Times are those of the epoch; core_seconds: as it was charged."""

    job: str
    worker: str
    start_seconds: float
    end_seconds: float
    core_seconds: float


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and when it began to hold. cores: by job."""

    at_seconds: float
    cores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Asked:
    """How many tasks of a job there were from some moment on, waiting or running."""

    at_seconds: float
    job: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many tasks waited on the scheduler from some moment on."""

    at_seconds: float
    tasks: int


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything, in the order it happened."""

    runs: tuple[Ran, ...]
    plans: tuple[Planned, ...]
    asked: tuple[Asked, ...]
    waiting: tuple[Waiting, ...]


class Observer(SchedulerPlugin):
    """Writes down what Dask says. It is registered after ReLAQS' own plugin, and reads its plan."""

    name = NAME
    idempotent = True

    async def start(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._runs: list[Ran] = []
        self._plans: list[Planned] = []
        self._asked: list[Asked] = []
        self._tasks: Counter[str] = Counter()
        self._waiting: list[Waiting] = []
        self._last_plan: object = None

    def transition(self, key: Any, start: str, finish: str, *args: Any, **told: Any) -> None:
        now = time.time()
        self._note_plan(now)
        waiting = len(self._scheduler.queued)
        if not self._waiting or self._waiting[-1].tasks != waiting:
            self._waiting.append(Waiting(now, waiting))
        if (job := job_of(key)) is not None:
            self._note_asked(now, job, (finish in ASKING) - (start in ASKING))
            if start == "processing" and finish == "memory":
                self._note_run(job, told)

    def _note_asked(self, now: float, job: str, more: int) -> None:
        if more:
            self._tasks[job] += more
            self._asked.append(Asked(now, job, self._tasks[job]))

    def _note_plan(self, now: float) -> None:
        relaqs = self._scheduler.plugins.get(RelaqsPlugin.name)
        if relaqs is not None and relaqs.plan is not self._last_plan:
            self._last_plan = relaqs.plan
            self._plans.append(Planned(now, relaqs.plan.cores_by_job()))

    def _note_run(self, job: str, told: Mapping[str, Any]) -> None:
        busy = [each for each in told["startstops"] if each["action"] == "compute"]
        core_seconds = core_seconds_of(told)
        if busy and core_seconds is not None:
            self._runs.append(Ran(job, told["worker"], busy[0]["start"], busy[-1]["stop"], core_seconds))

    def observed(self) -> Observed:
        return Observed(tuple(self._runs), tuple(self._plans), tuple(self._asked), tuple(self._waiting))


def observed(dask_scheduler: Any) -> bytes:
    """Return what the observer has seen so far, pickled. To be run on the scheduler."""
    seen: bytes = pickle.dumps(dask_scheduler.plugins[NAME].observed())
    return seen
