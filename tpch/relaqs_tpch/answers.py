"""Whether two answers to one query are the same: integers and decimals identical, floats within 1e-9."""

from __future__ import annotations

import math

import pyarrow as pa

FLOAT_TOLERANCE = 1e-9  # relative: sums in another order


def difference(expected: pa.Table, found: pa.Table) -> str | None:
    """Return in words where an answer is not the expected one, in whatever order its rows are; or None."""
    if expected.schema.types != found.schema.types:
        return f"its types are {_listed(found)}, not {_listed(expected)}"
    if expected.num_rows != found.num_rows:
        return f"it has {found.num_rows} rows, not {expected.num_rows}"
    for position, row in enumerate(zip(_rows(expected), _rows(found), strict=True)):
        for name, right, wrong in zip(expected.column_names, *row, strict=True):
            if not _same(right, wrong):
                return f"{name} is {wrong!r}, not {right!r}, in sorted row {position}"
    return None


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows in an order that floats have the least say in: they may differ in the last digit."""
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(rows, key=lambda row: ([str(x) for x in row if not isinstance(x, float)], repr(row)))


def _listed(table: pa.Table) -> str:
    return ", ".join(map(str, table.schema.types))


def _same(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        both_nan = math.isnan(expected) and math.isnan(found)
        return both_nan or math.isclose(expected, found, rel_tol=FLOAT_TOLERANCE)
    return expected == found
