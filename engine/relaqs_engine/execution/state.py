"""The merged state of one query: partial rows per group and replicate block, in a DuckDB table.

The table is private to the cursor, and spills to DuckDB's temporary folder beyond its memory limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relaqs_engine.duck import Cursor
from relaqs_engine.layouts.manifest import BLOCK_COUNT, Layout
from relaqs_engine.plan import BLOCK, ROWS, STATE, OnlinePlan
from relaqs_engine.schedule import MiniBatch


class GroupState:
    """Folds mini-batches. Blocks 0..63 are those stored in the data; each later task is one more block.

    block_rows: rows scanned of each block, shape (blocks,), over all partitions folded.
    """

    def __init__(self, plan: OnlinePlan, leading: Layout, cursor: Cursor) -> None:
        self._plan = plan
        self._leading = leading
        self._cursor = cursor
        self._exists = False
        self.block_rows: NDArray[np.float64] = np.zeros(BLOCK_COUNT)

    @property
    def scanned_rows(self) -> int:
        return int(self.block_rows.sum())

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch: one partial table per task, in task order."""
        for partitions, partial in zip(batch.tasks, partials, strict=True):
            rows = [self._leading.partitions[i] for i in partitions]
            if batch.by_block:
                self.block_rows[:BLOCK_COUNT] += np.sum([p.block_rows for p in rows], axis=0)
                self._insert(partial, BLOCK)
            else:
                self._insert(partial, str(len(self.block_rows)))
                self.block_rows = np.append(self.block_rows, float(sum(p.row_count for p in rows)))

    def _insert(self, partial: pa.Table, block: str) -> None:
        basis = [column.name for column in self._plan.basis]
        select = ", ".join([*self._plan.keys, f"{block} AS {BLOCK}", *basis, ROWS])
        into = f"INSERT INTO {STATE}" if self._exists else f"CREATE OR REPLACE TEMP TABLE {STATE} AS"
        if not self._exists:
            select = select.replace(f"{block} AS {BLOCK}", f"CAST({block} AS INTEGER) AS {BLOCK}")
        with self._cursor.registered(partial=partial):
            self._cursor.run(f"{into} SELECT {select} FROM partial")
        self._exists = True
