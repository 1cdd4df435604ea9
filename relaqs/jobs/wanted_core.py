"""Whether another task waits for the core that a task runs on. A long task may end early for it.

Example: a gang's turn lasts half a second, and ends with its next step where a query's task waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOOK: ContextVar[Callable[[], bool]] = ContextVar("look", default=lambda: False)


def is_core_wanted() -> bool:
    """Return whether a task waits behind the one that calls this. Where that is not known: False.

    >>> is_core_wanted()
    False
    >>> with core_wanted_by(lambda: True):
    ...     is_core_wanted()
    True
    """
    return _LOOK.get()()


@contextmanager
def core_wanted_by(look: Callable[[], bool]) -> Iterator[None]:
    """Let the tasks that this thread runs meanwhile know whether others wait. look: says it, at no cost."""
    before = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(before)
