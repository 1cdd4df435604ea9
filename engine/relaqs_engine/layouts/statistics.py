"""What is known of a written table's columns, found in one pass over its files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq

from relaqs_engine.duck import Cursor, list_literal, quote_name
from relaqs_engine.layouts.manifest import Column, Scalar

_PYTHON_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_PYTHON_VALUES = (*_PYTHON_NUMBERS, "FLOAT", "DOUBLE", "BOOLEAN", "DECIMAL")
_WITHOUT_ORDER = ("STRUCT", "MAP", "UNION", "VARIANT", "BLOB", "GEOMETRY", '"NULL"')
_LONGEST_TEXT = 256
"""Characters of the longest minimum or maximum kept: every client reads the manifest."""


def column_statistics(
    cursor: Cursor, files: Sequence[Path], columns: Sequence[tuple[str, str]], table: str = ""
) -> tuple[Column, ...]:
    """Return the statistics of the columns, given as (name, DuckDB type), over all files together.

    `table` stands for the files after FROM. By default the names of their folders say nothing about columns.
    """
    expressions = ", ".join(_expressions(name, type_text) for name, type_text in columns)
    table = table or f"read_parquet({list_literal([str(file) for file in files])}, hive_partitioning = false)"
    (values,) = cursor.rows(f"SELECT {expressions} FROM {table}")
    byte_counts = _byte_counts(files, [name for name, _ in columns])
    return tuple(
        Column(
            name=name,
            type=type_text,
            minimum=_scalar(values[4 * i]),
            maximum=_scalar(values[4 * i + 1]),
            null_count=values[4 * i + 2],
            distinct_count=values[4 * i + 3],
            byte_count=byte_counts[name],
        )
        for i, (name, type_text) in enumerate(columns)
    )


def _expressions(name: str, type_text: str) -> str:
    column = quote_name(name)
    low, high = f"min({column})", f"max({column})"
    if type_text.startswith(_WITHOUT_ORDER) or type_text.endswith("]"):
        low = high = "NULL"
    elif type_text.split("(")[0] not in _PYTHON_VALUES:
        low, high = f"{low}::VARCHAR", f"{high}::VARCHAR"
    return f"{low}, {high}, count(*) - count({column}), approx_count_distinct({column})"


def _scalar(value: int | float | str | Decimal | None) -> Scalar:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return None
    return value


def _byte_counts(files: Sequence[Path], names: Sequence[str]) -> Counter[str]:
    """Return the compressed bytes of each table column. A nested one is several in Parquet: a.b and a.c."""
    totals: Counter[str] = Counter()
    for file in files:
        footer = pq.read_metadata(file)
        paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
        owners = [_owner(path, names) for path in paths]
        for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
            for leaf, owner in enumerate(owners):
                totals[owner] += group.column(leaf).total_compressed_size
    return totals


def _owner(path: str, names: Sequence[str]) -> str:
    owners = [name for name in names if path == name or path.startswith(f"{name}.")]
    return max(owners, key=len, default=path)
