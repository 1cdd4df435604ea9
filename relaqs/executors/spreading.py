"""Laying tables out on several cores: by threads of this process, or by tasks of one job on a cluster."""

from __future__ import annotations

import os
import queue
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from itertools import islice
from typing import Any, Generic, ParamSpec

from relaqs_engine import layouts
from relaqs_engine.errors import naming
from relaqs_engine.layouts import Layout, Table
from relaqs_engine.layouts.assignment import Item, Made, Spread
from relaqs_engine.layouts.growth import appendable
from relaqs_engine.layouts.sources import TableSource

from relaqs.jobs.executor import Executor, wait_pieces
from relaqs.jobs.job import JobDescription, Task, TaskKey, TaskResult
from relaqs.sharing.view import Kind

P = ParamSpec("P")
_AHEAD = 2
"""Items under way for each core, so that none waits while a result is taken."""
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


@contextmanager
def on_threads(count: int | None = None) -> Iterator[Spread]:
    """Give threads to lay tables out on. count: how many; by default one for each core."""
    threads = count or os.cpu_count() or 1
    with futures.ThreadPoolExecutor(threads, thread_name_prefix="relaqs-layout") as pool:
        yield partial(_spread, pool, _AHEAD * threads)


def _spread(
    pool: futures.ThreadPoolExecutor,
    most_ahead: int,
    work: Callable[[Item], Made],
    items: Iterable[Item],
    most: int,
) -> Generator[Made, None, None]:
    """Yield what the work makes of each item, in order; at the end nothing is under way. See `Spread`."""
    waiting, under_way = iter(items), deque[futures.Future[Made]]()
    try:
        while True:
            free = min(most, most_ahead) - len(under_way)
            under_way.extend(pool.submit(work, item) for item in islice(waiting, free))
            if not under_way:
                return
            made = under_way[0].result()
            under_way.popleft()
            yield made
    finally:
        for future in under_way:
            future.cancel()
        futures.wait(under_way)


def _with_threads(lay_out: Callable[P, Layout]) -> Callable[P, Layout]:
    """Return a function of the engine that lays a table out, on as many threads as it is asked to use."""

    @wraps(lay_out)
    def on_its_threads(*args: P.args, **kwargs: P.kwargs) -> Layout:
        threads = kwargs.get("threads")
        spreading = on_threads(threads if isinstance(threads, int) else None)
        with naming("laying the table out"), spreading as spread:
            return lay_out(*args, **{"spread": spread, **kwargs})  # type: ignore[arg-type]

    return on_its_threads


shuffle = _with_threads(layouts.shuffle)
append = _with_threads(layouts.append)


def append_to(layout: Table, source: TableSource, batch: str) -> Layout:
    """Return the layout of a session's table after rows were added to it. batch: a name for them, or ""."""
    return append(source, appendable(layout), batch=batch)
