"""Work that is spread over threads of the caller: this package starts none of its own.

Whoever lays tables out on several cores hands in a `Spread` (`relaqs/laying_out.py` has one over a pool of
threads). Without it, everything runs on the calling thread, and every byte that is written is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


class Spread(Protocol):
    """Runs the same work on many items, on as many threads as there are."""

    def __call__(
        self, work: Callable[[Item], Made], items: Iterable[Item], most: int
    ) -> Generator[Made, None, None]:
        """Yield what the work makes of each item, in the order of the items.

        An error of an item is raised in its turn. Once the generator is closed, no item is being worked on.

        Args:
            work: must be safe to run on several items at once.
            items: are taken one after another, as they are needed.
            most: how many items may be worked on or finished and not yet yielded; at least 1.
        """
        ...


def in_turn(
    work: Callable[[Item], Made], items: Iterable[Item], most: int = 1
) -> Generator[Made, None, None]:
    """Yield what the work makes of each item, on the calling thread."""
    for item in items:
        yield work(item)
