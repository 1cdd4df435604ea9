"""Which of DuckDB's types are numbers."""

from __future__ import annotations

import re

_SIGNED = ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "INT128", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINT", "UINTEGER", "UBIGINT", "UHUGEINT")
WHOLE_NUMBERS = frozenset((*_SIGNED, *_UNSIGNED))
FLOATS = frozenset(("FLOAT", "DOUBLE", "REAL"))
"""Names without their parameters."""

# BIGNUM is none of them: Arrow gets its bytes, and not a number.
_NUMBER = re.compile(r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DECIMAL\(.*\)|DOUBLE|FLOAT)$")


def is_number(duckdb_type: str) -> bool:
    """Whether a type, as DuckDB writes it, is one of numbers.

    >>> is_number("DECIMAL(9,2)"), is_number("INTEGER[]")
    (True, False)
    """
    return bool(_NUMBER.match(duckdb_type))
