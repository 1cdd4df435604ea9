"""Which of DuckDB's types are numbers."""

from __future__ import annotations

import re

_SIGNED = ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "INT128", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINT", "UINTEGER", "UBIGINT", "UHUGEINT")
WHOLE_NUMBERS = frozenset((*_SIGNED, *_UNSIGNED))
FLOATS = frozenset(("FLOAT", "DOUBLE", "REAL"))
"""Names without their parameters."""

# BIGNUM is none of them: Arrow gets its bytes, and not a number.
_FLOAT = re.compile(r"\b(FLOAT|DOUBLE)\b")
_NUMBER = re.compile(r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DECIMAL\(.*\)|DOUBLE|FLOAT)$")


def is_number(duckdb_type: str) -> bool:
    """Whether a type, as DuckDB writes it, is one of numbers.

    >>> is_number("DECIMAL(9,2)"), is_number("INTEGER[]")
    (True, False)
    """
    return bool(_NUMBER.match(duckdb_type))


def has_floats(duckdb_type: str) -> bool:
    """Whether values of a type, as DuckDB writes it, are floats or may have floats in them.

    >>> has_floats("STRUCT(x DOUBLE)[]"), has_floats("DECIMAL(9,2)")
    (True, False)
    """
    return _FLOAT.search(duckdb_type) is not None


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}


def range_of(duckdb_type: str) -> tuple[float, float] | None:
    """Return the least and the greatest whole number of a type of up to 64 bits, None for other types.

    >>> range_of("SMALLINT"), range_of("UTINYINT"), range_of("DOUBLE")
    ((-32768.0, 32767.0), (0.0, 255.0), None)
    """
    if (bits := _BITS.get(duckdb_type)) is not None:
        return -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1
    bits = _BITS.get(duckdb_type.removeprefix("U"))
    return None if bits is None else (0.0, 2.0**bits - 1)
