"""Which column types hash equal values equally, so that layouts clustered on them can meet."""

from __future__ import annotations

import re

_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
)
_DECIMAL = re.compile(r"DECIMAL\(\d+,\s*(\d+)\)")


def hashed_type(type_text: str) -> str | None:
    """Return the DuckDB type a key is cast to before it is hashed, or None where it is hashed as it is.

    DuckDB hashes a number by how it is stored: FLOAT 1.5 and DOUBLE 1.5 differ, and so do equal DECIMALs of
    different widths. Integers of up to 64 bits hash equal as they are.
    """
    if type_text == "FLOAT":
        return "DOUBLE"
    if match := _DECIMAL.fullmatch(type_text):
        return f"DECIMAL(38,{match[1]})"
    return None


def key_family(type_text: str) -> str:
    """Return what two key types must share for equal values to fall into the same partition."""
    return "integer" if type_text in _INTEGERS else hashed_type(type_text) or type_text
