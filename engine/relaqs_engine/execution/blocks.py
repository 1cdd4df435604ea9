"""Sums per group and block of the groups shown. Error bars are made of them.

While the state is in Arrow, they are added up in numpy, in a fraction of a millisecond. A DuckDB statement
takes two to six milliseconds, most of them to parse and bind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_engine.arrow_arrays import arrow, arrow_booleans, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.cells import ShownGroups, own_columns
from relaqs_engine.execution.state import PartialRows
from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import BLOCK, OUTLIER_BLOCK, ROWS, STATE

# Types whose values are equal in Arrow exactly where they are in SQL: no floats (NaN, −0), nothing nested.
_SAME_EQUALITY = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)


_MOST_CODES = 1 << 62  # combinations of key values that an integer can number


@dataclass(frozen=True, slots=True)
class BlockSums:
    """Additive sums for each pair (group, block) that has rows, each pair once.

    Attributes:
        group: the group of each pair.
        block: the block of each pair.
        sums: shape (pairs, columns).
        rows: the joined rows of each pair, shape (pairs,).
    """

    group: IntArray
    block: IntArray
    sums: FloatArray
    rows: FloatArray


def block_sums(plan: MergePlan, groups: ShownGroups, state: PartialRows, cursor: Cursor) -> BlockSums:
    """Return the sums per block of the shown groups."""
    rows = state.in_arrow
    shown = None if rows is None else group_of_rows(groups.keys, rows.select(groups.keys.column_names))
    if rows is None or shown is None:
        return _in_duckdb(plan, groups, cursor)
    return _in_numpy(plan, groups, rows, shown)


def group_of_rows(groups: pa.Table, rows: pa.Table) -> IntArray | None:
    """Return for each row the number of the group with its keys, or −1. None where Arrow cannot tell.

    Args:
        groups: one row of keys for each group, all different.
        rows: the same columns. NULL equals NULL.
    """
    code, group_code = np.zeros(rows.num_rows, dtype=np.int64), np.zeros(groups.num_rows, dtype=np.int64)
    known, combinations = np.ones(rows.num_rows, dtype=bool), 1
    for mine, theirs in zip(groups.columns, rows.columns, strict=True):
        if mine.type != theirs.type or not any(same(mine.type) for same in _SAME_EQUALITY):
            return None
        values = pc.unique(mine)
        place = integers(pc.index_in(theirs, value_set=values), null=-1)
        known &= place >= 0
        code = code * len(values) + place
        group_code = group_code * len(values) + integers(pc.index_in(mine, value_set=values))
        combinations *= len(values)
    if combinations > _MOST_CODES:
        return None
    order = np.argsort(group_code)
    place = np.searchsorted(group_code[order], code)
    group = np.append(order, -1)[np.where(known, place, len(order))]
    return np.where(np.append(group_code, -1)[group] == code, group, -1)


def _in_numpy(plan: MergePlan, groups: ShownGroups, rows: pa.Table, group: IntArray) -> BlockSums:
    block = integers(rows.column(BLOCK))
    shown = (group >= 0) & (block != OUTLIER_BLOCK)
    rows, group, block = rows.filter(arrow_booleans(shown)), group[shown], block[shown]
    blocks = int(block.max(initial=0)) + 1
    pairs, pair = np.unique(group * blocks + block, return_inverse=True)
    columns = own_columns(plan)
    sums = np.empty((len(pairs), len(columns)))
    for i, column in enumerate(columns):
        sums[:, i] = np.bincount(pair, _additive(column, columns, groups.means[group], rows), len(pairs))
    counts = np.bincount(pair, doubles(rows.column(ROWS)), len(pairs)).astype(np.float64)
    return BlockSums(pairs // blocks, pairs % blocks, sums, counts)


def _additive(
    column: BasisColumn, columns: Sequence[BasisColumn], grand: FloatArray, rows: pa.Table
) -> FloatArray:
    """Return what each partial row adds to the column: 0 where it is NULL, which is a sum of nothing.

    `grand` is the mean of the row's group where a column is a MEAN, shape (rows, columns).
    """
    values = doubles(rows.column(column.name), null=0.0)
    if not column.is_moment:
        return values
    count = doubles(rows.column(str(column.count_of)), null=0.0)
    product = count
    with np.errstate(invalid="ignore", over="ignore"):
        for mean in column.means:
            place = next(i for i, each in enumerate(columns) if each.name == mean)
            away = doubles(rows.column(mean), null=0.0) - grand[:, place]
            product = product * np.where(count > 0.0, away, 0.0)
        return product if column.kind is Basis.MEAN else values + product


def _in_duckdb(plan: MergePlan, groups: ShownGroups, cursor: Cursor) -> BlockSums:
    columns = own_columns(plan)
    shown = groups.keys.append_column("g", arrow(np.arange(len(groups.rows))))
    for i, column in enumerate(columns):
        if column.kind is Basis.MEAN:
            shown = shown.append_column(f"grand_{column.name}", arrow(groups.means[:, i]))
    same = (
        " AND ".join(f"{STATE}.{key} IS NOT DISTINCT FROM shown.{key}" for key in plan.columns.keys) or "true"
    )
    values = ", ".join([f"sum({ROWS})", *(f"sum({column.additive_sql})" for column in columns)])
    with cursor.registered(shown=shown):
        table = cursor.table(
            f"SELECT g, r, {values} FROM {STATE} JOIN shown ON {same} "
            f"WHERE r <> {OUTLIER_BLOCK} GROUP BY g, r"
        )
    rows, *sums = (doubles(column, null=0.0) for column in table.columns[2:])
    return BlockSums(integers(table.column(0)), integers(table.column(1)), np.stack(sums, axis=1), rows)
