"""Whether LIMIT has room for a row by the keys of ORDER BY, whatever groups were not seen yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from relaqs_bootstrap import most_unseen_groups
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.plans.names import BEFORE, BEFORE_ONCE, IS_FIRST


@dataclass(frozen=True, slots=True)
class Room:
    """The places of rows by the keys that order them, each of shape (rows,).

    Attributes:
        before: how many of the rows seen come before each or with it.
        before_once: how many of these were seen in one sampling unit at most.
        is_first: which rows no other can come before, but for one with the same keys in each grouping set.
    """

    before: FloatArray
    before_once: FloatArray
    is_first: BoolArray

    def fits(
        self, most: int, *, sets: int, fraction: float, confidence: float, all_are_seen: bool = False
    ) -> BoolArray:
        """Return which rows LIMIT surely lets through.

        Args:
            most: how many rows it lets through.
            sets: into how many rows one sampling unit may fall, the total of all left aside. The rows of one
                grouping set are seen independently of each other, and each set may have some that were not.
            fraction: the share of the table that was scanned.
            confidence: of the statement about all rows together.
            all_are_seen: whether no row is missing.

        Three rows, of which two were seen in one unit each. An eighth was scanned, so up to 53 are missing:

        >>> room = Room(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), np.array([False] * 3))
        >>> room.fits(50, sets=1, fraction=0.125, confidence=0.95).tolist()
        [True, True, False]
        """
        unseen = np.zeros(len(self.before))
        if not all_are_seen:
            tail = (1.0 - confidence) / 2.0 / max(1, sets)
            unseen = sets * most_unseen_groups(self.before_once.astype(np.int64), fraction, tail)
        fits: BoolArray = self.before + unseen <= most
        return fits | (self.is_first & (sets < most))


def room_of(point: pa.Table) -> Room | None:
    """Return the places in an estimate, None where it has none."""
    if BEFORE not in point.column_names:
        return None
    before, once, first = (doubles(point.column(name), null=0.0) for name in (BEFORE, BEFORE_ONCE, IS_FIRST))
    return Room(before, once, first > 0)
