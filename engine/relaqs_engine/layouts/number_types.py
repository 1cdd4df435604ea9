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
