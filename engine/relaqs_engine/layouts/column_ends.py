"""The least and the greatest value of a column, found piece by piece while its rows are at hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc


def ends_of(values: pa.Array) -> pa.Array:
    """Return three values of the column's type: the least, the greatest, and NaN if it has one, else NULL.

    NULL are not values: without any other the first two are NULL as well. DuckDB takes NaN for the greatest
    number, Arrow takes it for none, so it has a place of its own.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary.take(pc.unique(values.indices).drop_null())
    numbers = _as_numbers(values)
    found = pc.min_max(numbers)
    nan = math.nan if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py() else None
    return pa.array([found["min"].as_py(), found["max"].as_py(), nan], numbers.type).view(values.type)


def _as_numbers(values: pa.Array) -> pa.Array:
    """Return decimals and times as the whole numbers they are stored as, whose order is the same."""
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    is_stored_in_64_bits = pa.types.is_timestamp(values.type) or pa.types.is_decimal64(values.type)
    return values.view(pa.int64()) if is_stored_in_64_bits else values
