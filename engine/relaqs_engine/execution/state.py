"""The merged state of one query: partial rows for each group and replicate block.

A small state stays in Arrow, where appending costs nothing. A larger one moves to a DuckDB table that only
the cursor sees. Beyond its memory limit, DuckDB spills it to its temporary folder.

`count_groups`: how many groups a state has, and about how many there will be at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap import unseen_groups

from relaqs_engine.arrow_arrays import arrow, doubles
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.tasks import read_heavy, reads_outliers
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.aggregate import (
    BLOCK,
    FAN_OUT,
    HEAVY,
    OUTLIER_BLOCK,
    ROWS,
    STATE,
    VALUE,
    FoldedPlan,
    HeavyGroups,
    MergePlan,
)
from relaqs_engine.plans.schedule import MiniBatch


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The groups of one answer. seen: so far. in_all: at the end, about; too few rather than too many."""

    seen: int
    in_all: int


def count_groups(plan: MergePlan, cursor: Cursor, fraction: float, *, by_value: bool = False) -> GroupCount:
    """Return how many groups there are before HAVING and LIMIT.

    Args:
        plan: of the aggregation.
        cursor: sees its state.
        fraction: the share of the sampling units that was scanned.
        by_value: count each value of a group that COUNT(DISTINCT) counts.
    """
    keys = (*plan.columns.keys, VALUE) if by_value else plan.columns.keys
    if not keys:
        return GroupCount(1, 1)
    groups = f"SELECT sum({ROWS}) AS n FROM {STATE} GROUP BY {', '.join(keys)}"
    [(seen, once, twice, rows)] = cursor.rows(
        "SELECT count(*), count(*) FILTER (n = 1), count(*) FILTER (n = 2), coalesce(sum(n), 0)::BIGINT "
        f"FROM ({groups})"
    )
    is_local = plan.groups_are_local and not by_value
    in_all = seen / fraction if is_local else seen + unseen_groups(once, twice, rows, fraction)
    return GroupCount(seen, round(in_all))


# The most partial rows, and bytes (rows may hold lists), in Arrow. Beyond either, they move to DuckDB.
ARROW_ROWS = 50_000
ARROW_BYTES = 64 << 20


class PartialRows(Protocol):
    """What answers are estimated from: partial rows, which a cursor sees as `state`."""

    @property
    def block_rows(self) -> NDArray[np.int64]:
        """The rows scanned in each block, whether they match or not, shape (blocks,)."""
        ...

    @property
    def unit_count(self) -> int:
        """The sampling units scanned."""
        ...

    @property
    def in_arrow(self) -> pa.Table | None:
        """Return the partial rows, None once they are in DuckDB."""
        ...

    @property
    def unseen_most(self) -> float:
        """The most that a group which was not seen can total, once heavy groups were read; inf before."""
        ...


class GroupState:
    """Folds mini-batches. The first block_count blocks are stored in the data, then each task is one.

    The cursor sees the partial rows as `state`.

    Attributes:
        block_rows: the rows scanned in each block, whether they match or not, shape (blocks,).
        unit_count: the sampling units scanned.
        unseen_most: see `PartialRows`.
    """

    def __init__(self, plan: FoldedPlan, leading: Layout, cursor: Cursor) -> None:
        self._plan = plan
        self._leading = leading
        self._cursor = cursor
        self._columns = list(plan.state_columns)
        self._in_arrow: pa.Table | None = None
        self._in_duckdb = False
        self._row_count = 0
        self._compacted_row_count = 0
        self.unseen_most = np.inf
        self.unit_count = 0
        self.block_rows: NDArray[np.int64] = np.zeros(plan.block_count, dtype=np.int64)

    @property
    def row_count(self) -> int:
        return self._row_count

    @property
    def in_arrow(self) -> pa.Table | None:
        """Return the partial rows; None once they are in DuckDB."""
        return self._in_arrow

    def fold(self, batch: MiniBatch, partials: Sequence[pa.Table]) -> None:
        """Add a whole mini-batch: one partial table for each task, in task order (see `batch_sqls`)."""
        blocks = self._plan.block_count
        pieces = []
        if reads_outliers(self._plan, batch):
            outliers, *partials = partials
            pieces.append(self._aligned(_in_block(outliers, OUTLIER_BLOCK)))
        elif (heavy := read_heavy(self._plan, batch)) is not None:
            found, *partials = partials
            self._keep_heavy(heavy, found)
        for partitions, partial in zip(batch.tasks, partials, strict=True):
            rows = [self._leading.partitions[i] for i in partitions]
            self.unit_count += sum(p.unit_count for p in rows)
            if batch.by_block:
                stored = np.sum([p.block_rows for p in rows], axis=0)
                self.block_rows[:blocks] += stored.reshape(-1, blocks).sum(axis=0)
            else:
                partial = _in_block(partial, len(self.block_rows))
                self.block_rows = np.append(self.block_rows, sum(p.row_count for p in rows))
            pieces.append(self._aligned(partial))
        self._append(pa.concat_tables(pieces))

    def _keep_heavy(self, heavy: HeavyGroups, found: pa.Table) -> None:
        """Keep the heavy groups beside the state. What the partitions have of them ends up there as well."""
        if found.num_rows:
            self._cursor.register(HEAVY, self._aligned(_in_block(found, 0)))
            self.unseen_most = heavy.most * float(doubles(found.column(FAN_OUT))[0])

    def saved(self) -> pa.Table:
        """Return the partial rows, from which `restore` makes this state again."""
        if self._in_duckdb:
            return self._cursor.table(f"FROM {STATE}")
        return pa.table({}) if self._in_arrow is None else self._in_arrow

    def restore(self, rows: pa.Table, block_rows: NDArray[np.int64], folded: Iterable[MiniBatch]) -> None:
        """Become a state that was saved. This works only before the first fold."""
        assert not self._row_count, "a state that has folded something cannot become another"
        self.block_rows = block_rows
        partitions = (i for batch in folded for i in batch.partitions)
        self.unit_count = sum(self._leading.partitions[i].unit_count for i in partitions)
        self._append(rows.select(self._columns))

    def _aligned(self, partial: pa.Table) -> pa.Table:
        table = partial.select(self._columns)
        if BLOCK not in self._columns:
            return table
        place = self._columns.index(BLOCK)
        return table.set_column(place, BLOCK, table.column(place).cast(pa.int32()))

    def _append(self, rows: pa.Table) -> None:
        self._row_count += rows.num_rows
        if self._in_duckdb:
            self._insert(rows)
        else:
            self._in_arrow = rows if self._in_arrow is None else pa.concat_tables([self._in_arrow, rows])
            if self._row_count <= ARROW_ROWS and self._in_arrow.nbytes <= ARROW_BYTES:
                self._cursor.register(STATE, self._in_arrow)
            else:
                self._move_to_duckdb(self._in_arrow)
        self._compact()

    def _move_to_duckdb(self, rows: pa.Table) -> None:
        self._cursor.unregister(STATE)
        with self._cursor.registered(partial=rows):
            self._cursor.run(f"CREATE TEMP TABLE {STATE} AS FROM partial")
        self._in_arrow, self._in_duckdb = None, True

    def _insert(self, rows: pa.Table) -> None:
        with self._cursor.registered(partial=rows):
            self._cursor.run(f"INSERT INTO {STATE} FROM partial")

    def _compact(self) -> None:
        """Merge the rows of each group once their number has doubled, unless blocks need them apart."""
        grown = self._row_count > 2 * self._compacted_row_count
        merge = self._plan.compact_sql
        if not merge or not self._in_duckdb or not grown:
            return
        select = ", ".join(f"0::INTEGER AS {BLOCK}" if name == BLOCK else name for name in self._columns)
        self._cursor.run(f"CREATE OR REPLACE TEMP TABLE {STATE} AS SELECT {select} FROM ({merge})")
        [(count,)] = self._cursor.rows(f"SELECT count(*) FROM {STATE}")
        self._row_count = self._compacted_row_count = int(count)


def _in_block(partial: pa.Table, block: int) -> pa.Table:
    return partial.append_column(BLOCK, arrow(np.full(partial.num_rows, block, dtype=np.int32)))
