"""From a snapshot to what a page shows of it: rows of cells, as many as a person can use."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from relaqs_engine.arrow_arrays import python_values

from relaqs import Snapshot
from relaqs_dashboards.wire import Answer, AnswerColumn, Cell

MOST_ROWS = 1_000
LONGEST_TEXT = 500
_LARGEST_WHOLE = 2**53  # beyond it JavaScript's numbers skip some


def answer_of(
    snapshot: Snapshot, kinds: Mapping[int, str], *, ranked: bool, most_rows: int = MOST_ROWS
) -> Answer:
    """Return the first rows of the snapshot. kinds: of the query's columns, by position."""
    shown = snapshot.table.slice(0, most_rows)
    names = snapshot.table.column_names
    own_count = snapshot.table.num_columns - 3 * len(snapshot.columns)
    sides = {column.position: own_count + 3 * i for i, column in enumerate(snapshot.columns)}
    columns, cells = [], []
    for i in range(own_count):
        type_ = column_type(shown.schema.field(i).type)
        columns.append(AnswerColumn(names[i], kinds.get(i, "key"), type_))
        values = _cells(shown.column(i))
        if i in sides:
            triple = [_cells(shown.column(sides[i] + side)) for side in range(3)]
            values = [list(cell) for cell in zip(values, *triple, strict=True)]
        cells.append(values)
    left_out = snapshot.table.num_rows - shown.num_rows
    rows = [list(row) for row in zip(*cells, strict=True)]
    return Answer(tuple(columns), rows, ranked, left_out or None)


def column_type(type_: pa.DataType) -> str:
    """Return number, text, date, timestamp or bool."""
    if pa.types.is_boolean(type_):
        return "bool"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_date(type_):
        return "date"
    return "timestamp" if pa.types.is_timestamp(type_) else "text"


def _cells(column: pa.ChunkedArray) -> list[Cell]:
    return [_cell(value) for value in python_values(column)]


def _cell(value: Any) -> Cell:
    """Return what JSON has for a value. Whole numbers and decimals that a double cannot hold become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_WHOLE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
