"""Laying tables out on several threads: the engine's functions, given a pool of threads of this process."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial, wraps
from itertools import islice
from typing import ParamSpec, TypeVar

from relaqs_engine import layouts
from relaqs_engine.errors import naming
from relaqs_engine.layouts import Layout, Table
from relaqs_engine.layouts.assignment import Spread
from relaqs_engine.layouts.growth import appendable
from relaqs_engine.layouts.sources import TableSource

P = ParamSpec("P")
Piece = TypeVar("Piece")
Made = TypeVar("Made")
_AHEAD = 2
"""Items under way for each thread, so that none waits while a result is taken."""


@contextmanager
def on_threads(count: int | None = None) -> Iterator[Spread]:
    """Give threads to lay tables out on. count: how many; by default one for each core."""
    threads = count or os.cpu_count() or 1
    with ThreadPoolExecutor(threads, thread_name_prefix="relaqs-layout") as pool:
        yield partial(_spread, pool, _AHEAD * threads)


def _spread(
    pool: ThreadPoolExecutor,
    most_ahead: int,
    work: Callable[[Piece], Made],
    items: Iterable[Piece],
    most: int,
) -> Generator[Made, None, None]:
    """Yield what the work makes of each item, in order; at the end nothing is under way. See `Spread`."""
    waiting, under_way = iter(items), deque[Future[Made]]()
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
        wait(under_way)


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
