"""The shards of a run: which worker owns which rows of the parameters, and what an owner does with them.

Pure: nothing here sends, waits or reads a clock. The sums of a step may come in any order and more than
once. They are added in one order, the tree of `relaqs.training.passes`. So the order changes no bit.

Between tasks a worker keeps parameters in memory, and beyond its budget in files. A file has no name and
holds one state. It is mapped while somebody reads it, and its space is free once the state is let go. So
what is mapped counts for the worker no longer than a task or a letter needs it. Source of the idea: Lee et
al., Harmony, ICDCS 2021, section IV-C, which spills parameters where all rows are spilled.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.executors.files import FOLDER_VARIABLE, local_folder
from relaqs.training.passes import PairTree
from relaqs.training.protocol import ShardedDescent, ShardState
from relaqs.training.row_cache import (
    KEPT,
    LIMIT_VARIABLE,
    SPILL,
    SpilledBlock,
    SpillFile,
    free_bytes,
    limit_bytes,
)
from relaqs.training.rows import Rows

SMALL_BYTES = 1 << 16  # of a state that is kept in memory in any case: a file would cost more

logger = logging.getLogger("relaqs.training")


class KeptState:
    """The arrays of a version: in memory, or in a file of their own.

    Args:
        folder: of the file. None: they stay in memory.

    Raises OSError where the file cannot be written.
    """

    def __init__(self, state: ShardState, folder: Path | None = None) -> None:
        self._state = None if folder is not None else state
        self._blocks: list[SpilledBlock] = []
        if folder is not None:
            file = SpillFile(folder, "parameters")
            for array in state:
                rows = Rows(np.ascontiguousarray(array), None)
                self._blocks.append(block := SpilledBlock(rows))
                block.write(file, rows)

    def arrays(self) -> ShardState:
        """Return them, not to be written into. Raises TornError where a file is damaged."""
        if self._state is not None:
            return self._state
        return tuple(block.rows(slice(0, len(block))).features for block in self._blocks)


class KeptStates:
    """What one worker keeps of parameters. Safe to use from any thread.

    >>> kept = KeptStates()
    >>> state = kept.keep((np.ones((2, 3)),), budget_bytes=1000)
    >>> state.arrays()[0].sum(), kept.memory_bytes
    (np.float64(6.0), 48)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory_bytes = self._disk_bytes = 0
        self._has_warned = False

    @property
    def memory_bytes(self) -> int:
        """What is in memory."""
        return self._memory_bytes

    @property
    def disk_bytes(self) -> int:
        """What is in files."""
        return self._disk_bytes

    def keep(self, state: ShardState, budget_bytes: int) -> KeptState:
        """Return the state as it is kept: in memory, if rows and parameters together are within the budget.

        Where no file can be written it is in memory as well, and a line in the log says so once.
        """
        byte_count = sum(array.nbytes for array in state)
        if byte_count <= SMALL_BYTES or self._fits(byte_count, budget_bytes) or limit_bytes() == 0:
            return self._counted(KeptState(state), memory_bytes=byte_count)
        try:
            return self._counted(KeptState(state, self._folder(byte_count)), disk_bytes=byte_count)
        except OSError as error:
            self._warn(error.strerror or str(error))
            return self._counted(KeptState(state), memory_bytes=byte_count)

    def _fits(self, byte_count: int, budget_bytes: int) -> bool:
        return self._memory_bytes + KEPT.byte_count + byte_count <= budget_bytes

    def _folder(self, byte_count: int) -> Path:
        """Return where so much may be written. Raises OSError where no more may be."""
        if (folder := local_folder()) is None:
            raise OSError(f"all folders for temporary files are in memory; set {FOLDER_VARIABLE}")
        limit = limit_bytes()
        if limit is not None and SPILL.byte_count + self._disk_bytes + byte_count > limit:
            raise OSError(f"{LIMIT_VARIABLE} is {limit / 1e9:.3g} GB, which is used up")
        if free_bytes(folder) < byte_count:
            raise OSError(f"the disk of {folder} is nearly full")
        return folder

    def _counted(self, kept: KeptState, *, memory_bytes: int = 0, disk_bytes: int = 0) -> KeptState:
        self._count(memory_bytes, disk_bytes)
        weakref.finalize(kept, self._count, -memory_bytes, -disk_bytes).atexit = False
        return kept

    def _count(self, memory_bytes: int, disk_bytes: int) -> None:
        with self._lock:
            self._memory_bytes += memory_bytes
            self._disk_bytes += disk_bytes

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("parameters in shards stay in memory, beyond their budget: %s", reason)


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
    """Some rows of the parameters at their owner, in their newest versions."""

    def __init__(
        self,
        descent: ShardedDescent,
        rows: slice,
        version: int,
        state: ShardState,
        senders: int,
        keep: Callable[[ShardState], KeptState] = KeptState,
    ) -> None:
        self.version = version
        self._descent = descent
        self._rows = rows
        self._keep = keep
        self._states = {version: keep(state)}
        self._senders = senders
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
        self._sums.hear(sender, part)
        if self._sums.is_whole:
            state = self._descent.update(self._states[version].arrays(), self._sums.total(), pace, self._rows)
            self._sums = PushedSums(self._senders, self._keep)
            self._states[version + 1] = self._keep(state)
            self._states.pop(version + 1 - VERSIONS_KEPT, None)
            self.version = version + 1
        return True


class PushedSums(PairTree[FloatArray]):
    """The sums of a step at one owner, added as they come, and in one order whatever comes first.

    Neighbours are added once both are there. So few wait, where they come about in their order.

    >>> sums = PushedSums(3, KeptState)
    >>> for sender in (2, 0, 0, 1):
    ...     sums.hear(sender, np.array([10.0**sender]))
    >>> sums.is_whole, sums.total().tolist()
    (True, [111.0])
    """

    def __init__(self, senders: int, keep: Callable[[ShardState], KeptState]) -> None:
        super().__init__(np.add)
        self._senders, self._keep = senders, keep
        self._heard: set[int] = set()

    @property
    def is_whole(self) -> bool:
        return len(self._heard) == self._senders

    def hear(self, sender: int, part: FloatArray) -> None:
        """Take a sender's part in, if it was not heard of before."""
        if sender not in self._heard:
            self._heard.add(sender)
            self.add(part, sender)

    def _put(self, value: FloatArray) -> KeptState:
        return self._keep((value,))

    def _taken(self, kept: KeptState) -> FloatArray:
        (found,) = kept.arrays()
        return found
