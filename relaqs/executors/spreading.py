"""Work that is spread over the processes of a cluster, as the tasks of one job."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic

from relaqs_engine.layouts.assignment import Item, Made

from relaqs.jobs.executor import Executor, wait_pieces
from relaqs.jobs.job import JobDescription, Task, TaskKey, TaskResult
from relaqs.sharing.view import Kind

_AHEAD = 2
"""Tasks under way for each core, so that none waits while a result is taken."""
_LEAVING_SECONDS = 20.0
"""For the tasks that run when no more results are wanted: what they write must not outlive their folder."""


@dataclass(frozen=True, slots=True)
class ItemWork(Generic[Item, Made]):
    """A task that applies a function to one item. Both can be pickled."""

    work: Callable[[Item], Made]
    item: Item

    def run(self, owner: str) -> Made:
        return self.work(self.item)


@dataclass(frozen=True, slots=True)
class OnExecutor:
    """A `Spread` over the cores of an executor. Each call is a job beside others. name: for people."""

    executor: Executor
    name: str

    def __call__(
        self, work: Callable[[Item], Made], items: Iterable[Item], most: int
    ) -> Generator[Made, None, None]:
        """Yield what the work makes of each item, in the order of the items. See `Spread`."""
        job, came = uuid.uuid4().hex[:12], queue.SimpleQueue[TaskResult]()
        waiting, results = enumerate(items), dict[int, TaskResult]()
        sent = taken = 0
        self.executor.enter(JobDescription(job, Kind.EXACT, name=self.name))
        try:
            while True:
                free = min(most, _AHEAD * max(1, self.executor.capacity)) - (sent - taken)
                tasks = [
                    Task(TaskKey(job, i, 0), ItemWork(work, item))
                    for i, item in islice(waiting, max(free, 0))
                ]
                for task in tasks:  # each is a step, so that they run in their order
                    self.executor.submit([task], came.put)
                sent += len(tasks)
                if taken == sent:
                    return
                while taken not in results:
                    result = _next(came)
                    results[result.key.step] = result
                taken += 1
                yield _value_of(results.pop(taken - 1))
        finally:
            _drain(came, sent - taken - len(results))
            self.executor.cancel(job)


def _next(came: queue.SimpleQueue[TaskResult]) -> TaskResult:
    """Wait for the next result, in pieces, so that a ctrl-C is noticed."""
    for seconds in wait_pieces():
        with suppress(queue.Empty):
            return came.get(timeout=seconds)
    raise AssertionError("waits for as long as it takes")


def _value_of(result: TaskResult) -> Any:
    if result.error is not None:
        raise result.error
    return result.value


def _drain(came: queue.SimpleQueue[TaskResult], count: int) -> None:
    """Wait until no task is at work, but not for ever: the cluster may be gone."""
    with suppress(queue.Empty):
        for _ in range(count):
            came.get(timeout=_LEAVING_SECONDS)
