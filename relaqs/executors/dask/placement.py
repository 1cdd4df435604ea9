"""Where waiting tasks of a Dask cluster may start: within users' limits, and a step's each on its own core.

**Rooms.** No user has more cores than allowed, and none has all of them with queries that run as a whole
(`Rooms`).

**Abreast.** The tasks of a step that are to compute at the same time each go to a core of their own
(`AbreastPlaces`). An iteration of a job in shards waits for all of its workers. Dask gives a waiting task
to the worker with the fewest tasks. So both tasks of a step may go to one worker, while the other one
computes for another job. Then machines take the jobs in different orders, and both jobs wait for the
network at the same time.

**The rule.** Once a task of such a step has a worker, each other one gets a core that has none of the
step, even where that worker has work already. It waits there behind that work. The scheduler decides for
one step after another, and a worker takes the tasks that were placed in that order. So all workers compute
in one order, and no worker asks another one. A task goes to where the same one ran in the step before, if
it can, because the rows that it sums are kept there.

**Example.** Two workers of one core, A and B with two tasks a step. A's next step is sent while worker 1
computes for B, and worker 2 does nothing. Dask would let worker 2 have both tasks of A. Here worker 1 gets
its task of A next, and does it after B's.

Dask's choice is replaced, which is not public, and `queue.lacking` reads its source first. Dask
does not say for which task it chooses. So the plugin tells: it is the task that the queue gave last, or
that has just begun to wait.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relaqs.executors.dask.messages import job_of
from relaqs.executors.places import LIGHT_CORE_SECONDS, Held, Need, Places
from relaqs.jobs.job import JobDescription
from relaqs.sharing.view import Kind

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState


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
        look_again_in: has the scheduler's queue asked again after a number of seconds.
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
            name, job.user or job.client, job.user_cores_most, whole_seconds=whole_seconds, is_light=is_light
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
        ways = [self._has_thread, self._has_room]
        if places.may_have_spare(need) and need.is_long:  # shares a core as long: where none will be free
            ways += [self._will_be_free, self._has_spare]
        elif places.may_have_spare(need):  # it waits behind nothing there
            ways.insert(1, self._has_spare)
        return next(filter(None, map(self._emptiest, ways)), None)

    def _emptiest(self, has_room: Callable[[WorkerState], bool]) -> WorkerState | None:
        there = filter(has_room, self._scheduler.idle_task_count)
        return min(there, key=lambda worker: len(worker.processing) / worker.nthreads, default=None)

    def _has_thread(self, worker: WorkerState) -> bool:
        return len(worker.processing) < worker.nthreads

    def _has_room(self, worker: WorkerState) -> bool:
        return worker.address not in self._wholes or self._has_thread(worker)

    def _will_be_free(self, worker: WorkerState) -> bool:
        longs = (held.is_long(self._now_seconds) for held in self._wholes.get(worker.address, ()))
        return self._has_spare(worker) and not any(longs)

    def _has_spare(self, worker: WorkerState) -> bool:
        wholes = self._wholes.get(worker.address, ())
        others = len(worker.processing) - len(wholes)
        return others < worker.nthreads and all(
            held.slice_end_seconds <= self._now_seconds for held in wholes
        )


TASKS_PER_CORE = 2  # that a step has at most, to be placed: else its cores are busy with it in any case
HEARD_SECONDS = 3.0  # a worker that was not heard of for longer may hang, and gets no tasks beyond its room
STIMULUS = "relaqs-abreast"


@dataclass(slots=True)
class _PlacedStep:
    """The newest step of a job.

    Tasks go by their place from the end, which is 1 for the last one. So they keep it when a step has one
    more task before the others.

    Attributes:
        size: how many tasks were sent.
        workers: the addresses of those that have their worker in this step.
        before: the same in the step before.
    """

    step: int
    size: int = 0
    workers: dict[int, str] = field(default_factory=dict)
    before: dict[int, str] = field(default_factory=dict)


class AbreastPlaces:
    """Chooses workers in the place of Dask, for the steps of some jobs. All is called on the event loop.

    Args:
        scheduler: of the workers. Its choice is replaced.
        is_abreast: whether the tasks of a job's steps do best at the same time.
        soon: calls a function after the present event.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        is_abreast: Callable[[str], bool],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._scheduler = scheduler
        self._is_abreast = is_abreast
        self._soon = soon
        self._steps: dict[str, _PlacedStep] = {}
        self._placed = 0  # tasks so far
        self._upcoming: Any = None  # the key of the task that gets a worker next, where that is known
        self._choose_as_dask: Callable[[], WorkerState | None] = (
            scheduler.decide_worker_rootish_queuing_enabled
        )
        scheduler.decide_worker_rootish_queuing_enabled = self.choose  # type: ignore[method-assign]

    def arrived(self, keys: Iterable[Any]) -> None:
        """Note the tasks of a graph that was submitted, before they get their workers."""
        for key in keys:
            if (job := job_of(key)) is None or key[2] < 0 or not self._is_abreast(job):
                continue
            newest = self._steps.get(job)
            if newest is None or newest.step != key[1]:
                before = {} if newest is None else {**newest.before, **newest.workers}
                newest = self._steps[job] = _PlacedStep(key[1], before=before)
            newest.size = max(newest.size, key[2] + 1)

    def next_is(self, key: object) -> None:
        """Note which task gets a worker next."""
        self._upcoming = key

    def moved(self, key: object, finish: str) -> None:
        """Note that a task has another state."""
        self._upcoming = key if finish == "waiting" else None
        if finish == "processing":
            self._keep(key)

    def left(self, job: str) -> None:
        """A job is over."""
        self._steps.pop(job, None)

    def choose(self) -> WorkerState | None:
        """Return the worker of the task that comes next. None: it waits until a core is free."""
        found = self._place_of(self._upcoming)
        return self._choose_as_dask() if found is None else found

    def _place_of(self, key: Any) -> WorkerState | None:
        """Return where a task goes that is to be abreast. None: it is not, or its step has not begun."""
        if (job := job_of(key)) is None or (step := self._steps.get(job)) is None or step.step != key[1]:
            return None
        cores = sum(worker.nthreads for worker in self._scheduler.running)
        place = step.size - key[2]
        if not 0 < place <= step.size or place > cores or step.size > TASKS_PER_CORE * cores:
            return None
        has_begun = any(other != place for other in step.workers)
        if not has_begun and not self._scheduler.idle_task_count:
            return None
        taken = Counter(worker for other, worker in step.workers.items() if other != place)
        there = [
            worker
            for worker in self._scheduler.running
            if taken[worker.address] < worker.nthreads
            and not (self._is_full(worker) and time.time() - worker.last_seen > HEARD_SECONDS)
        ]
        if not there:
            return None
        kept_for = {worker for other, worker in step.before.items() if other != place}
        found = min(there, key=lambda worker: self._rank(worker, step.before.get(place), kept_for))
        step.workers[place] = found.address
        self._number(self._scheduler.tasks[key])
        if self._is_full(found):
            self._look_again()
        return found

    def _rank(self, worker: WorkerState, before: str | None, kept_for: Iterable[str]) -> tuple[float, ...]:
        """Return how good a worker is, the smallest first: its rows, then that it is nobody's, then cores."""
        return (
            worker.address != before,
            worker.address in kept_for,
            self._is_full(worker),
            len(worker.processing) / worker.nthreads,
        )

    def _is_full(self, worker: WorkerState) -> bool:
        return worker not in self._scheduler.idle_task_count

    def _number(self, task: TaskState) -> None:
        """Put a task behind all those that have a worker: it may have been sent before some of them."""
        assert task.priority is not None
        self._placed += 1
        task.priority = (task.priority[0], self._scheduler.generation, self._placed)

    def _look_again(self) -> None:
        """Let the queue be asked again: a core is free that was asked for, and another one was taken."""
        ask = self._scheduler.stimulus_queue_slots_maybe_opened
        self._soon(lambda: ask(stimulus_id=STIMULUS))

    def _keep(self, key: Any) -> None:
        """Let no other worker steal a task that was placed."""
        if (job := job_of(key)) is None or (step := self._steps.get(job)) is None:
            return
        if step.step == key[1] and step.size - key[2] in step.workers:
            stealing: Any = self._scheduler.extensions.get("stealing")
            if stealing is not None:
                stealing.remove_key_from_stealable(self._scheduler.tasks[key])
