"""Where the tasks of a step go that are to compute at the same time: each to a core of its own.

**Why.** An iteration of a job in shards waits for all of its workers. Dask gives a waiting task to the worker
with the fewest tasks. So both tasks of a step may go to one worker, while the other one computes for another
job. Then machines take the jobs in different orders, and both jobs wait for the network at the same time.

**The rule.** Once a task of such a step has a worker, each other one gets a core that has none of the step,
even where that worker has work already. It waits there behind that work. The scheduler decides for one step
after another, and a worker takes the tasks that were placed in that order. So all workers compute in one
order, and no worker asks another one. A task goes to where the same one ran in the step before, if it can,
because the rows that it sums are kept there.

**Example.** Two workers of one core, A and B with two tasks a step. A's next step is sent while worker 1
computes for B, and worker 2 does nothing. Dask would let worker 2 have both tasks of A. Here worker 1 gets
its task of A next, and does it after B's.

Dask's choice is replaced, which is not public, and `contract.broken_placing` reads its source first. Dask
does not say for which task it chooses. So the plugin tells: it is the task that the queue gave last, or that
has just begun to wait.
"""

# mypy: allow-untyped-calls
# distributed is typed in part only.

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relaqs.executors.dask.messages import job_of

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

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
