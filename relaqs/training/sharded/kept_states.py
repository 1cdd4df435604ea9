"""Where a worker keeps parameters between tasks: in memory, and beyond its budget in files.

A file has no name and holds one state. It is mapped while somebody reads it, and its space is free once the
state is let go. So what is mapped counts for the worker no longer than a task or a letter needs it. Source of
the idea: Lee et al., Harmony, ICDCS 2021, section IV-C, which spills parameters where all rows are spilled.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

import numpy as np

from relaqs.executors.local_folder import FOLDER_VARIABLE, local_folder
from relaqs.training.blocks import SpilledBlock
from relaqs.training.kept import KEPT
from relaqs.training.rows import Rows
from relaqs.training.sharded.protocol import ShardState
from relaqs.training.spill import LIMIT_VARIABLE, SPILL, free_bytes, limit_bytes
from relaqs.training.spill_file import SpillFile

SMALL_BYTES = 1 << 16  # of a state that is kept in memory in any case: a file would cost more

logger = logging.getLogger("relaqs.training")


class KeptState(Protocol):
    """The arrays of a version, wherever they are."""

    def arrays(self) -> ShardState:
        """Return them, not to be written into. Raises TornError where a file is damaged."""
        ...


class InMemory:
    """A state that is kept as it is."""

    def __init__(self, state: ShardState) -> None:
        self._state = state

    def arrays(self) -> ShardState:
        return self._state


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
            return self._counted(InMemory(state), memory_bytes=byte_count)
        try:
            self._check_room(byte_count)
            return self._counted(_OnDisk(state), disk_bytes=byte_count)
        except OSError as error:
            self._warn(error.strerror or str(error))
            return self._counted(InMemory(state), memory_bytes=byte_count)

    def _fits(self, byte_count: int, budget_bytes: int) -> bool:
        return self._memory_bytes + KEPT.byte_count + byte_count <= budget_bytes

    def _check_room(self, byte_count: int) -> None:
        """Raise OSError where no more may be written."""
        if (folder := local_folder()) is None:
            raise OSError(f"all folders for temporary files are in memory; set {FOLDER_VARIABLE}")
        limit = limit_bytes()
        if limit is not None and SPILL.byte_count + self._disk_bytes + byte_count > limit:
            raise OSError(f"{LIMIT_VARIABLE} is {limit / 1e9:.3g} GB, which is used up")
        if free_bytes(folder) < byte_count:
            raise OSError(f"the disk of {folder} is nearly full")

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


class _OnDisk:
    """A state in a file of its own. Raises OSError where it cannot be written."""

    def __init__(self, state: ShardState) -> None:
        folder = local_folder()
        assert folder is not None
        file = SpillFile(folder, "parameters")
        self._blocks = []
        for array in state:
            rows = Rows(np.ascontiguousarray(array), None)
            block = SpilledBlock(rows)
            block.write(file, rows)
            self._blocks.append(block)

    def arrays(self) -> ShardState:
        return tuple(block.rows(slice(0, len(block))).features for block in self._blocks)
