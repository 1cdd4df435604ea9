"""A table's rows as Python tuples, to compare with what DuckDB fetches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows as tuples. Works where two columns have one name."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
