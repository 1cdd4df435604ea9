"""Which column types hash equal values equally. Layouts clustered on them can meet."""

from __future__ import annotations

import re

_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
)
_DECIMAL = re.compile(r"DECIMAL\(\d+,\s*(\d+)\)")


def hashed_type(type_text: str) -> str | None:
    """Return the DuckDB type that a key is cast to before it is hashed, None where it is hashed as it is.

    DuckDB hashes a number by how it is stored. FLOAT 1.5 and DOUBLE 1.5 hash differently, and so do equal
    DECIMALs of different widths. Integers of up to 64 bits hash alike as they are.
    """
    if type_text == "FLOAT":
        return "DOUBLE"
    if match := _DECIMAL.fullmatch(type_text):
        return f"DECIMAL(38,{match[1]})"
    return None


def key_family(type_text: str) -> str:
    """Return what two key types must have in common so that equal values fall into the same partition.

    >>> key_family("INTEGER") == key_family("BIGINT"), key_family("INTEGER") == key_family("VARCHAR")
    (True, False)
    """
    return "integer" if type_text in _INTEGERS else hashed_type(type_text) or type_text
