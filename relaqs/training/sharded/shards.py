"""The shards of a run: which worker owns which rows of the parameters, and what an owner does with them.

Pure: nothing here sends, waits or reads a clock. The sums of a step may come in any order and more than once.
They are added in one order, the tree of `relaqs.training.passes`. So the order changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.training.sharded.kept_states import InMemory, KeptState
from relaqs.training.sharded.protocol import ShardedDescent, ShardState

VERSIONS_KEPT = 2  # the newest, and the one before: a task whose worker died asks for that again


@dataclass(frozen=True, slots=True)
class ShardMap:
    """Who owns what. A new one, of a higher generation, takes its place when a worker is lost.

    Attributes:
        job: the id of the run.
        generation: 0, 1, 2, …
        owners: the addresses of workers. Each owns one range of neighbouring rows.
        rows, columns: the shape of the parameters.
        senders: how many tasks a step has. Each sends every owner its part of the sums.
        idle_seconds: after which a worker that was asked for nothing forgets the run: its driver has died.
        budget_bytes: what a worker may keep of rows and parameters in memory.

    >>> cut = ShardMap("a", 0, ("x", "y"), rows=5, columns=3, senders=4)
    >>> cut.rows_of(0), cut.rows_of(1), cut.byte_count
    (slice(0, 2, None), slice(2, 5, None), 120)
    """

    job: str
    generation: int
    owners: tuple[str, ...]
    rows: int
    columns: int
    senders: int
    idle_seconds: float = 60.0
    budget_bytes: int = 1 << 62

    def rows_of(self, shard: int) -> slice:
        """Return the rows of one owner. Two owners differ by one row at most."""
        count = len(self.owners)
        return slice(self.rows * shard // count, self.rows * (shard + 1) // count)

    def part_of(self, sums: FloatArray, shard: int) -> FloatArray:
        """Return what one owner needs of some sums: its own rows, and those that are shared below them."""
        own = sums[self.rows_of(shard)]
        return own if len(sums) == self.rows else np.concatenate([own, sums[self.rows :]])

    def turned(self, worker: str) -> list[int]:
        """Return the owners' positions, from the one after a worker on, and that worker last.

        >>> cut = ShardMap("a", 0, ("x", "y", "z"), rows=6, columns=1, senders=4)
        >>> cut.turned("x"), cut.turned("y"), cut.turned("no owner")
        ([1, 2, 0], [2, 0, 1], [0, 1, 2])
        """
        count = len(self.owners)
        first = self.owners.index(worker) + 1 if worker in self.owners else 0
        return [(first + each) % count for each in range(count)]

    @property
    def byte_count(self) -> int:
        """The bytes of all parameters."""
        return 8 * self.rows * self.columns


class Shard:
    """Some rows of the parameters at their owner, in their newest versions.

    >>> from relaqs.training.sharded.proximal import ProximalDescent
    >>> import numpy as np
    >>> one, none = np.ones(1), np.zeros(2)
    >>> descent = ProximalDescent(none[:1], one, None, none[:1], 2, 1.0, none, none, 1e-9)
    >>> shard = Shard(descent, slice(0, 2), 0, descent.first(slice(0, 2)), senders=2)
    >>> shard.push(1, 0, np.array([[2.0], [0.0]]), (1.0, 0.0)), shard.version
    (True, 0)
    >>> shard.push(0, 0, np.array([[4.0], [2.0]]), (1.0, 0.0)), shard.version
    (True, 1)
    >>> shard.values(1).ravel().tolist()
    [-3.0, -1.0]
    """

    def __init__(
        self,
        descent: ShardedDescent,
        rows: slice,
        version: int,
        state: ShardState,
        senders: int,
        keep: Callable[[ShardState], KeptState] = InMemory,
    ) -> None:
        self.version = version
        self._descent = descent
        self._rows = rows
        self._keep = keep
        self._states = {version: keep(state)}
        self._sums = PushedSums(senders, keep)  # of the newest version

    def state(self, version: int) -> ShardState | None:
        """Return a version, None where it is not there yet or no more. Raises TornError."""
        kept = self._states.get(version)
        return None if kept is None else kept.arrays()

    def values(self, version: int) -> FloatArray | None:
        """Return what COMP is given of a version, None as `state`."""
        state = self.state(version)
        return None if state is None else state[0]

    def push(self, sender: int, version: int, part: FloatArray, pace: tuple[float, ...]) -> bool:
        """Take one sender's part of the sums of a version in, and make the next version after the last one.

        Return False where that version is not there yet: then this owner has missed a step. What comes twice,
        or for a version that is over, changes nothing. Raises TornError.
        """
        if version > self.version:
            return False
        if version < self.version:
            return True
        self._sums.add(sender, part)
        if self._sums.is_whole:
            state = self._descent.update(self._states[version].arrays(), self._sums.total(), pace, self._rows)
            self._sums.clear()
            self._states[version + 1] = self._keep(state)
            self._states.pop(version + 1 - VERSIONS_KEPT, None)
            self.version = version + 1
        return True


class PushedSums:
    """The sums of a step at one owner, added as they come, and in one order whatever comes first.

    It is the tree of `relaqs.training.passes.in_pairs` over the senders. Neighbours are added once both are
    there. So few wait, where they come about in their order.

    >>> sums = PushedSums(3, InMemory)
    >>> for sender in (2, 0, 0, 1):
    ...     sums.add(sender, np.array([10.0**sender]))
    >>> sums.is_whole, sums.total().tolist()
    (True, [111.0])
    """

    def __init__(self, senders: int, keep: Callable[[ShardState], KeptState]) -> None:
        self._senders = senders
        self._keep = keep
        self._heard: set[int] = set()
        self._waiting: dict[tuple[int, int], KeptState] = {}  # by first sender and how many senders

    @property
    def is_whole(self) -> bool:
        return len(self._heard) == self._senders

    def add(self, sender: int, part: FloatArray) -> None:
        """Take a sender's part in, if it was not heard of before."""
        if sender in self._heard:
            return
        self._heard.add(sender)
        first, count = sender, 1
        while (other := self._waiting.pop((first ^ count, count), None)) is not None:
            (there,) = other.arrays()
            part = there + part if first & count else part + there
            first, count = first & ~count, 2 * count
        self._waiting[first, count] = self._keep((part,))

    def total(self) -> FloatArray:
        """Return the sums of all. A last one without a neighbour was waiting, as `in_pairs` says."""
        parts = [self._waiting[at].arrays()[0] for at in sorted(self._waiting)]
        found = parts.pop()
        while parts:
            found = parts.pop() + found
        return found

    def clear(self) -> None:
        self._heard.clear()
        self._waiting.clear()
