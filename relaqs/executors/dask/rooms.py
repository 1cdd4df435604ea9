"""Where waiting tasks may start on a Dask cluster, so that no user has more cores than allowed, or all."""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from relaqs.executors.dask.messages import job_of
from relaqs.executors.places import LIGHT_CORE_SECONDS, Held, Need, Places
from relaqs.jobs.job import JobDescription
from relaqs.sharing.view import Kind

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState


class Rooms:
    """Which waiting task may start, and on which worker: `Places`, where the cores are those of a cluster.

    What runs as a whole leaves its worker's thread to others when it starts (`task.run_task`). So nothing
    waits behind it, and what it holds is counted here:

    - A worker with wholes takes other tasks for the threads that are left, and none in advance.
    - Where no worker has a thread left, one with wholes takes a task more, on a spare place, of whoever may
      have one (`Places`).

    Example, two workers of one thread. Eve asks for two long wholes, bob for one; then ann counts 25 rows:

    task              goes to     why
    eve's whole       worker 1
    eve's second one  nowhere     a user's long wholes leave a core
    bob's whole       worker 2
    ann's count       worker 1    beside eve's: the system shares the core

    Where nobody's cores are limited and no whole runs, workers are chosen as Dask does. All is called on the
    scheduler's event loop.

    Args:
        scheduler: of the workers. Its choice of workers is replaced.
        core_seconds_of: what a job was charged so far.
        look_again_in: has the scheduler's queue asked again after so many seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        core_seconds_of: Callable[[str], float],
        look_again_in: Callable[[float], None],
    ) -> None:
        self._scheduler = scheduler
        self._core_seconds_of = core_seconds_of
        self._look_again_in = look_again_in
        self._jobs: dict[str, JobDescription] = {}
        self._whole_seconds: defaultdict[str, dict[int, float]] = defaultdict(dict)  # by job and step
        self._held: dict[object, Held] = {}  # by the keys of tasks
        self._wholes: dict[str, list[Held]] = {}  # by the addresses of workers
        self._places: Places | None = None  # None: to be made anew
        self._upcoming: Any = None  # the key of the task that gets a worker next, where that is known
        self._spare: object = None  # the key of the task that was given a spare place last
        self._choose_as_dask: Callable[[], WorkerState | None] = (
            scheduler.decide_worker_rootish_queuing_enabled
        )
        scheduler.decide_worker_rootish_queuing_enabled = self.choose  # type: ignore[method-assign]

    def enter(self, job: JobDescription) -> None:
        """A job comes, and its tasks are its user's, or those of its client where nobody was named."""
        self._jobs[job.id] = job

    def left(self, job: str) -> None:
        """A job is over."""
        self._jobs.pop(job, None)
        self._whole_seconds.pop(job, None)

    def is_whole(self, job: str, step: int, seconds: float) -> None:
        """The task of this step runs as a whole. seconds: as `Task.whole_seconds` has it."""
        if job in self._jobs:
            self._whole_seconds[job][step] = seconds

    def next_is(self, key: object) -> None:
        """Note which task gets a worker next."""
        self._upcoming = key

    def moved(self, key: object, finish: str) -> None:
        """Note that a task has another state."""
        self._upcoming = key if finish == "waiting" else None
        if finish == "processing":
            self._start(key)
        elif self._held.pop(key, None) is not None:
            self._places = None
            if self._matters:
                self._look_again_in(0.0)  # for what waits for this user's cores, on any worker

    def clear(self) -> None:
        """Forget what ran, because all workers were restarted."""
        self._held.clear()
        self._places = None

    def may_any_start(self, keys: Sequence[object]) -> bool:
        """Return whether one of these tasks, the first of each job, may start now."""
        self._places = None  # time has passed
        is_open = not self._matters or not self._scheduler.running  # without workers all wait for one
        return is_open or any(map(self.may_start, keys))

    def may_start(self, key: object) -> bool:
        """Return whether a task may start now."""
        return not self._matters or self._room_for(self._need_of(key)) is not None

    def choose(self) -> WorkerState | None:
        """Return the worker of the task that comes next. None: it waits in the queue, which asks again."""
        if not self._matters:
            return self._choose_as_dask()
        if self._upcoming is None:
            return None
        found = self._room_for(self._need_of(self._upcoming))
        if found is not None and not self._has_room(found):
            self._spare = self._upcoming
        return found

    @property
    def _matters(self) -> bool:
        """Whether there are wholes, or users with a limit."""
        return bool(self._whole_seconds) or any(job.user_cores_most < math.inf for job in self._jobs.values())

    def _need_of(self, key: Any) -> Need:
        name = job_of(key)
        if name is None or (job := self._jobs.get(name)) is None:
            return Need(user="another program")
        whole_seconds = self._whole_seconds[name].get(key[1]) if name in self._whole_seconds else None
        is_light = job.kind in (Kind.QUERY, Kind.EXACT) and self._core_seconds_of(name) < LIGHT_CORE_SECONDS
        return Need(
            name,
            job.user or job.client,
            job.user_cores_most,
            whole_seconds=whole_seconds,
            is_light=is_light,
        )

    def _start(self, key: object) -> None:
        if key in self._held:
            return
        now_seconds = time.monotonic()
        held = self._held[key] = Held(self._need_of(key), now_seconds, is_spare=key == self._spare)
        self._places = None
        if held.need.whole_seconds is not None:  # then it may have company on its worker
            self._look_again_in(max(0.0, held.slice_end_seconds - now_seconds))

    def _at_present(self) -> Places:
        if self._places is None:
            cores = sum(worker.nthreads for worker in self._scheduler.running)
            self._now_seconds = time.monotonic()
            self._places = Places(cores, self._held.values(), self._now_seconds)
            self._wholes.clear()
            for key, held in self._held.items():
                task = self._scheduler.tasks.get(key)  # type: ignore[call-overload]
                if held.need.whole_seconds is not None and task is not None and task.processing_on:
                    self._wholes.setdefault(task.processing_on.address, []).append(held)
        return self._places

    def _room_for(self, need: Need) -> WorkerState | None:
        places = self._at_present()
        if not places.is_within_limits(need):
            return None
        if (usual := self._emptiest(self._has_room)) is not None:
            return usual
        return self._emptiest(self._has_spare) if places.may_have_spare(need) else None

    def _emptiest(self, has_room: Callable[[WorkerState], bool]) -> WorkerState | None:
        there = filter(has_room, self._scheduler.idle_task_count)
        return min(there, key=lambda worker: len(worker.processing) / worker.nthreads, default=None)

    def _has_room(self, worker: WorkerState) -> bool:
        return worker.address not in self._wholes or len(worker.processing) < worker.nthreads

    def _has_spare(self, worker: WorkerState) -> bool:
        wholes = self._wholes.get(worker.address, ())
        others = len(worker.processing) - len(wholes)
        return others < worker.nthreads and all(
            held.slice_end_seconds <= self._now_seconds for held in wholes
        )
