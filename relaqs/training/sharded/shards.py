"""The shards of a run: which worker owns which rows of the parameters, and what an owner does with them.

Pure: nothing here sends, waits or reads a clock. The sums of a step may come in any order and more than once.
They are added in one order, the tree of `relaqs.training.passes`, once all are there. So the order changes no
bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_bootstrap.arrays import FloatArray

from relaqs.training.passes import in_pairs
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

    def rows_of(self, shard: int) -> slice:
        """Return the rows of one owner. Two owners differ by one row at most."""
        count = len(self.owners)
        return slice(self.rows * shard // count, self.rows * (shard + 1) // count)

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
        self, descent: ShardedDescent, rows: slice, version: int, state: ShardState, senders: int
    ) -> None:
        self.version = version
        self._descent = descent
        self._rows = rows
        self._senders = senders
        self._states = {version: state}
        self._pushed: dict[int, FloatArray] = {}  # of the newest version, by sender

    def state(self, version: int) -> ShardState | None:
        """Return a version, None where it is not there yet or no more."""
        return self._states.get(version)

    def values(self, version: int) -> FloatArray | None:
        """Return what COMP is given of a version, None as `state`."""
        state = self._states.get(version)
        return None if state is None else state[0]

    def push(self, sender: int, version: int, part: FloatArray, pace: tuple[float, ...]) -> bool:
        """Take one sender's part of the sums of a version in, and make the next version after the last one.

        Return False where that version is not there yet: then this owner has missed a step. What comes twice,
        or for a version that is over, changes nothing.
        """
        if version > self.version:
            return False
        if version < self.version:
            return True
        self._pushed.setdefault(sender, part)
        if len(self._pushed) == self._senders:
            parts = [self._pushed[sender] for sender in range(self._senders)]
            self._pushed = {}
            state = self._descent.update(self._states[version], in_pairs(parts, _sum), pace, self._rows)
            self._states[version + 1] = state
            self._states.pop(version + 1 - VERSIONS_KEPT, None)
            self.version = version + 1
        return True


def _sum(one: FloatArray, other: FloatArray) -> FloatArray:
    return one + other
