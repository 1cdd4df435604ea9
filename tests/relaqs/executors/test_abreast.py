"""Where the tasks of a step go that are to compute at the same time, with as much of Dask as that sees."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import distributed.scheduler
import pytest

from relaqs.executors.dask.placement import HEARD_SECONDS, AbreastPlaces
from relaqs.executors.dask.queue import PINNING, PLACING, lacking

A, B, QUERY = "relaqs-a", "relaqs-b", "relaqs-q"
ROOM = 2  # tasks of a worker: one runs, and one lies ready


@dataclass(eq=False)
class Worker:
    address: str
    nthreads: int = 1
    processing: set[Any] = field(default_factory=set)
    last_seen: float = field(default_factory=time.time)


@dataclass(eq=False)
class Waiting:
    key: Any
    priority: tuple[float, ...]


class Stealing:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def remove_key_from_stealable(self, task: Waiting) -> None:
        self.kept.append(task.key)


class Scheduler:
    """Tasks get workers by it as by Dask: the one of fewest tasks among those with room."""

    def __init__(self, *workers: Worker) -> None:
        self.running = list(workers)
        self.tasks: dict[Any, Waiting] = {}
        self.generation = 0
        self.extensions = {"stealing": Stealing()}
        self.looks = 0
        self.decide_worker_rootish_queuing_enabled: Callable[[], Worker | None] = self._least_busy
        self.places = AbreastPlaces(
            self,  # type: ignore[arg-type]  # as much of it as is asked
            lambda job: job in (A, B),
            lambda ask: ask(),
        )

    @property
    def idle_task_count(self) -> list[Worker]:
        return [worker for worker in self.running if len(worker.processing) < ROOM]

    def stimulus_queue_slots_maybe_opened(self, *, stimulus_id: str) -> None:
        self.looks += 1

    def _least_busy(self) -> Worker | None:
        return min(self.idle_task_count, key=lambda each: len(each.processing), default=None)

    def sent(self, job: str, step: int, count: int) -> list[Any]:
        """Take a step of a job in, whose tasks wait."""
        self.generation += 1
        keys = [(job, step, index) for index in range(count)]
        self.tasks |= {key: Waiting(key, (0, self.generation, key[2])) for key in keys}
        self.places.arrived(keys)
        return keys

    def placed(self, key: Any) -> str | None:
        """Return the address of the worker that a task gets now."""
        self.places.next_is(key)
        if (worker := self.decide_worker_rootish_queuing_enabled()) is None:
            return None
        worker.processing.add(key)
        self.places.moved(key, "processing")
        return worker.address

    def all_placed(self, keys: Sequence[Any]) -> list[str | None]:
        return [self.placed(key) for key in keys]

    def ended(self, keys: Sequence[Any]) -> None:
        for key in keys:
            for worker in self.running:
                worker.processing.discard(key)
            self.places.moved(key, "memory")


def test_the_tasks_of_a_step_go_to_a_core_each_where_dask_has_them_on_one_worker() -> None:
    one, other = Worker("one"), Worker("other", processing={"of another program"})
    scheduler = Scheduler(one, other)
    assert [scheduler._least_busy()] * 2 == [one] * 2  # it has room for two, and nothing to do
    assert scheduler.all_placed(scheduler.sent(A, 0, 2)) == ["one", "other"]


def test_a_task_goes_to_its_core_although_others_wait_there_and_a_core_is_free_elsewhere() -> None:
    one, other = Worker("one"), Worker("other")
    scheduler = Scheduler(one, other)
    before = scheduler.sent(A, 0, 2)
    assert scheduler.all_placed(before) == ["one", "other"]
    scheduler.ended(before)
    other.processing |= {"first", "second"}
    assert scheduler.all_placed(scheduler.sent(A, 1, 2)) == ["one", "other"]
    assert scheduler.looks == 1  # the core that is free may be given to another job


def test_a_step_begins_only_where_a_core_is_free() -> None:
    workers = [Worker(name, processing={f"{name} 1", f"{name} 2"}) for name in ("one", "other")]
    scheduler = Scheduler(*workers)
    keys = scheduler.sent(A, 0, 2)
    assert scheduler.all_placed(keys) == [None, None]
    workers[1].processing.pop()
    assert scheduler.all_placed(keys) == ["other", "one"]


def test_tasks_stay_with_their_worker_from_step_to_step_also_beside_one_task_more() -> None:
    scheduler = Scheduler(Worker("one"), Worker("other"))
    homes = scheduler.all_placed(keys := scheduler.sent(A, 0, 2))
    scheduler.ended(keys)
    for step, busy in enumerate(["one", "other"], start=1):
        worker = next(each for each in scheduler.running if each.address == busy)
        worker.processing.add("of another program")
        more = scheduler.sent(A, step, 3)  # the first one fetches the state
        assert scheduler.all_placed(more)[1:] == homes
        scheduler.ended(more)
        worker.processing.clear()


def test_a_worker_that_may_hang_gets_no_more_than_it_has_room_for() -> None:
    one, other, third = Worker("one"), Worker("other"), Worker("third")
    scheduler = Scheduler(one, other)
    keys = scheduler.sent(A, 0, 2)
    assert scheduler.all_placed(keys) == ["one", "other"]
    scheduler.ended(keys)
    scheduler.running.append(third)
    other.processing |= {"first", "second"}
    other.last_seen -= 2 * HEARD_SECONDS
    assert scheduler.all_placed(scheduler.sent(A, 1, 2)) == ["one", "third"]


def test_who_loses_a_worker_gets_one_that_is_nobodys() -> None:
    one, other, third = Worker("one"), Worker("other"), Worker("third")
    scheduler = Scheduler(one, other)
    keys = scheduler.sent(A, 0, 2)
    assert scheduler.all_placed(keys) == ["one", "other"]
    scheduler.ended(keys)
    scheduler.running = [other, third]
    third.processing.add("of another program")
    assert scheduler.all_placed(scheduler.sent(A, 1, 2)) == ["third", "other"]


def test_all_workers_get_the_steps_in_the_order_in_which_they_were_placed() -> None:
    scheduler = Scheduler(Worker("one", processing={"x", "y"}), Worker("other"))
    of_b, of_a = scheduler.sent(B, 0, 2), scheduler.sent(A, 0, 2)
    scheduler.all_placed([*of_a, *of_b])  # A's turn came first, though B was sent first
    for worker in scheduler.running:
        ours = [scheduler.tasks[key] for key in worker.processing if key in scheduler.tasks]
        assert [task.key[0] for task in sorted(ours, key=lambda task: task.priority)] == [A, B]


def test_nobody_steals_a_task_that_was_placed() -> None:
    scheduler = Scheduler(Worker("one"), Worker("other"))
    keys = scheduler.sent(A, 0, 2)
    scheduler.all_placed([*keys, *scheduler.sent(QUERY, 0, 2)])
    assert scheduler.extensions["stealing"].kept == keys


def test_others_and_steps_of_many_tasks_go_where_dask_has_them() -> None:
    one = Worker("one")
    scheduler = Scheduler(one, Worker("other", processing={"x", "y"}))
    assert scheduler.all_placed(scheduler.sent(QUERY, 0, 2)) == ["one", "one"]
    one.processing.clear()
    assert scheduler.all_placed(scheduler.sent(A, 0, 5)) == ["one", "one", None, None, None]


def test_a_job_that_has_left_is_forgotten() -> None:
    scheduler = Scheduler(Worker("one"), Worker("other"))
    keys = scheduler.sent(A, 0, 2)
    scheduler.places.left(A)
    scheduler.running[1].processing.add("of another program")
    assert scheduler.all_placed(keys) == ["one", "one"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "def decide_worker_rootish_queuing_enabled(self)",
            "def decide_worker_rootish_queuing_enabled(self, ts)",
        ),
        ("if ws := self.decide_worker_rootish_queuing_enabled():", "if ws := self.decide_worker(ts):"),
        ("def stimulus_queue_slots_maybe_opened(self, *,", "def stimulus_queue_slots_maybe_opened(self,"),
    ],
)
def test_a_release_that_chooses_otherwise_is_noticed(old: str, new: str) -> None:
    source = inspect.getsource(distributed.scheduler)
    assert lacking(PLACING, source) is None
    assert lacking(PINNING, source) is None
    said = lacking(PLACING, source.replace(old, new))
    assert said is not None
    assert said.endswith("chooses the workers of waiting tasks otherwise")
