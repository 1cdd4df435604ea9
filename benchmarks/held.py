"""How often the certified numbers of a query's snapshots hold, over many orders of reading one warehouse.

Every snapshot before the last is looked at. A group that the whole answer does not have is held by no
interval: certified, it is a miss. LIMIT is left out of the answer, for which groups come first is no number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import sqlglot
from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.execution.estimate import ApproximateColumn

from benchmarks.replay import rows_of
from benchmarks.tally import Coverage, FloatArray, Look, counts_of, coverage_of
from relaqs.queries.snapshot import Snapshot

NOWHERE = sys.float_info.max  # as a truth: in no interval


def without_limit(sql: str) -> str:
    """Return the query without its outermost LIMIT and the OFFSET beside it."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    tree.set("limit", None)
    tree.set("offset", None)
    return tree.sql("duckdb")


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """The exact numbers of an answer, by group. keys: positions of its other columns.

    rows: each group's place by its keys. values: shape (groups, columns), NaN where several rows have the
    same keys.
    """

    keys: tuple[int, ...]
    columns: tuple[ApproximateColumn, ...]
    rows: dict[tuple[object, ...], int]
    values: FloatArray

    @classmethod
    def of(cls, shown: Snapshot, answer: pa.Table) -> WholeAnswer:
        """Return the answer's numbers. shown: any snapshot of the query."""
        numbers = tuple(each for each in shown.columns if _is_number(answer.column(each.position).type))
        approximate = {column.position for column in shown.columns}
        keys = tuple(i for i in range(answer.num_columns) if i not in approximate)
        values = np.empty((answer.num_rows, len(numbers)))
        for i, column in enumerate(numbers):
            values[:, i] = doubles(answer.column(column.position))
        rows: dict[tuple[object, ...], int] = {}
        for i, key in enumerate(rows_of(answer, keys)):
            if rows.setdefault(key, i) != i:
                values[rows[key]] = np.nan
        return cls(keys, numbers, rows, values)

    def look(self, snapshot: Snapshot) -> Look:
        """Return what a snapshot says of its cells, beside the truth."""
        truth = np.full((len(snapshot), len(self.columns)), NOWHERE)
        for i, key in enumerate(rows_of(snapshot.table, self.keys)):
            if key in self.rows:
                truth[i] = self.values[self.rows[key]]
        low, high = np.empty_like(truth), np.empty_like(truth)
        certified = np.empty(truth.shape, dtype=bool)
        for i, column in enumerate(self.columns):
            low[:, i] = doubles(snapshot.table.column(column.low))
            high[:, i] = doubles(snapshot.table.column(column.high))
            certified[:, i] = snapshot.table.column(column.certified).to_pylist()
        return Look(truth, low, high, certified)


def coverage_over(runs: Sequence[Iterable[Snapshot]], answer: pa.Table) -> Coverage | None:
    """Return how often the certified cells of the runs' snapshots hold; None where there are no such cells.

    answer: the exact one, without LIMIT.
    """
    counts = []
    for run in runs:
        looks = [snapshot for snapshot in run if not snapshot.is_exact and snapshot.columns]
        if looks:
            whole = WholeAnswer.of(looks[0], answer)
            counts.append(np.sum([counts_of(whole.look(snapshot)) for snapshot in looks], axis=0))
    return coverage_of(np.stack(counts), layouts=1) if counts and counts[0].size else None


def _is_number(type_: pa.DataType) -> bool:
    return any(check(type_) for check in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
