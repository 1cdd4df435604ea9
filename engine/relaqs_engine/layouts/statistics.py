"""What is known of a written table's columns: found in one pass over its files, or while it was written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import IntArray

from relaqs_engine.duck import Cursor, parquet_rows, quote_name
from relaqs_engine.layouts.manifest import Column, Scalar

_PYTHON_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_PYTHON_VALUES = (*_PYTHON_NUMBERS, "FLOAT", "DOUBLE", "BOOLEAN", "DECIMAL")
_WITHOUT_ORDER = ("STRUCT", "MAP", "UNION", "VARIANT", "BLOB", "GEOMETRY", '"NULL"')
NEARLY_ALL = 0.8
"""Distinct values are counted to a few percent, so this share of the rows counts as all different."""

_LONGEST_TEXT = 256
"""Characters of the longest minimum or maximum kept: every client reads the manifest."""


class SeenValues:
    """What was seen of the values while rows were laid out: each column's ends, and how many are NULL."""

    def __init__(self) -> None:
        self._ends: list[pa.RecordBatch] = []
        self._null_counts = np.zeros(0, dtype=np.int64)

    def add(self, ends: pa.RecordBatch, null_counts: IntArray) -> None:
        """Take in some rows. ends: a column each, as `ends_of` gives them. null_counts: of each column."""
        self._ends.append(ends)
        self._null_counts = null_counts + (self._null_counts if self._null_counts.size else 0)

    def extremes(self, cursor: Cursor, columns: Sequence[tuple[str, str]]) -> list[Extremes]:
        """Return the extremes of the columns, given as (name, DuckDB type)."""
        ends = pa.Table.from_batches(self._ends)
        with cursor.registered(relaqs_ends=ends):
            (values,) = cursor.rows(f"SELECT {_listed(_ends, columns)} FROM relaqs_ends")
        nulls = self._null_counts.tolist()
        return [Extremes(values[2 * i], values[2 * i + 1], nulls[i]) for i in range(len(columns))]


@dataclass(frozen=True, slots=True)
class Extremes:
    """Of a column: the least and the greatest value as the database returns them, and how many are NULL."""

    minimum: Any
    maximum: Any
    null_count: int


def column_statistics(
    cursor: Cursor,
    files: Sequence[Path],
    columns: Sequence[tuple[str, str]],
    table: str = "",
    *,
    keys_exactly: bool = False,
) -> tuple[Column, ...]:
    """Return the statistics of the columns, given as (name, DuckDB type), over all files together.

    Args:
        cursor: of a DuckDB that may read the files.
        files: of Parquet.
        columns: of the table.
        table: stands for the files after FROM. By default the names of their folders say nothing about
            columns.
        keys_exactly: whether values are counted exactly where nearly all are different.
    """
    table = table or parquet_rows(files)
    (values,) = cursor.rows(f"SELECT {_listed(_expressions, columns)}, count(*) FROM {table}")
    extremes = [Extremes(*values[4 * i : 4 * i + 3]) for i in range(len(columns))]
    distinct = [int(values[4 * i + 3]) for i in range(len(columns))]
    found = described(files, columns, extremes, distinct)
    return _with_keys_counted(cursor, found, table, values[-1]) if keys_exactly else found


def _with_keys_counted(
    cursor: Cursor, columns: Sequence[Column], table: str, row_count: int
) -> tuple[Column, ...]:
    """Return the columns, the values counted of those in which nearly all are different."""
    filled = {each.name: row_count - each.null_count for each in columns}
    keys = [each.name for each in columns if each.distinct_count >= NEARLY_ALL * filled[each.name] > 0]
    counted = dict(zip(keys, _counted(cursor, keys, table), strict=True))
    return tuple(
        replace(each, distinct_count=counted[each.name], is_counted=True) if each.name in counted else each
        for each in columns
    )


def _counted(cursor: Cursor, names: Sequence[str], table: str) -> Sequence[int]:
    """Return how many different values columns have."""
    if not names:
        return ()
    counts = ", ".join(f"count(DISTINCT {quote_name(name)})" for name in names)
    (found,) = cursor.rows(f"SELECT {counts} FROM {table}")
    return [int(count) for count in found]


def described(
    files: Sequence[Path],
    columns: Sequence[tuple[str, str]],
    extremes: Sequence[Extremes],
    distinct_counts: Sequence[int],
) -> tuple[Column, ...]:
    """Return the columns, given as (name, DuckDB type), with what is known of each."""
    byte_counts = column_bytes(files, [name for name, _ in columns])
    return tuple(
        Column(
            name=name,
            type=type_text,
            minimum=_scalar(ends.minimum),
            maximum=_scalar(ends.maximum),
            null_count=ends.null_count,
            distinct_count=distinct_count,
            byte_count=byte_counts[name],
        )
        for (name, type_text), ends, distinct_count in zip(columns, extremes, distinct_counts, strict=True)
    )


def _listed(sql_of: Callable[[str, str], str], columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(sql_of(name, type_text) for name, type_text in columns)


def _expressions(name: str, type_text: str) -> str:
    column = quote_name(name)
    return f"{_ends(name, type_text)}, count(*) - count({column}), approx_count_distinct({column})"


def _ends(name: str, type_text: str) -> str:
    """Return SQL of the least and the greatest value."""
    column = quote_name(name)
    low, high = f"min({column})", f"max({column})"
    if type_text.startswith(_WITHOUT_ORDER) or type_text.endswith("]"):
        low = high = "NULL"
    elif type_text.split("(")[0] not in _PYTHON_VALUES:
        low, high = f"{low}::VARCHAR", f"{high}::VARCHAR"
    return f"{low}, {high}"


def _scalar(value: int | float | str | Decimal | None) -> Scalar:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return None
    return value


def column_bytes(files: Sequence[Path], names: Sequence[str]) -> Counter[str]:
    """Return the compressed bytes of each table column. A nested one is several in Parquet: a.b and a.c."""
    import pyarrow.parquet as pq  # 30 ms, and a question about plain files needs no byte counts

    totals: Counter[str] = Counter()
    own = frozenset(names)
    for file in files:
        footer = pq.read_metadata(file)
        paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
        owners = [path if path in own else _owner(path, names) for path in paths]
        for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
            for leaf, owner in enumerate(owners):
                totals[owner] += group.column(leaf).total_compressed_size
    return totals


def _owner(path: str, names: Sequence[str]) -> str:
    owners = [name for name in names if path.startswith(f"{name}.")]
    return max(owners, key=len, default=path)
