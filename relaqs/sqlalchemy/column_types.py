"""SQLAlchemy's types of the columns that tables have."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import types
from sqlalchemy.dialects.postgresql import INTERVAL

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_TYPES: dict[str, types.TypeEngine[Any]] = {
    "BOOLEAN": types.Boolean(),
    "TINYINT": types.SmallInteger(),
    "UTINYINT": types.SmallInteger(),
    "SMALLINT": types.SmallInteger(),
    "USMALLINT": types.Integer(),
    "INTEGER": types.Integer(),
    "UINTEGER": types.BigInteger(),
    "BIGINT": types.BigInteger(),
    "UBIGINT": types.Numeric(20, 0),
    "HUGEINT": types.Numeric(38, 0),
    "FLOAT": types.REAL(),
    "DOUBLE": types.Float(53),
    "VARCHAR": types.String(),
    "UUID": types.String(),
    "BLOB": types.LargeBinary(),
    "DATE": types.Date(),
    "TIME": types.Time(),
    "TIMESTAMP": types.DateTime(),
    "TIMESTAMP_S": types.DateTime(),
    "TIMESTAMP_MS": types.DateTime(),
    "TIMESTAMP_NS": types.DateTime(),
    "TIMESTAMP WITH TIME ZONE": types.DateTime(timezone=True),
    "INTERVAL": INTERVAL(),
}


def column_type(name: str) -> types.TypeEngine[Any]:
    """Return SQLAlchemy's type for DuckDB's name of one, NullType where it has none.

    >>> column_type("DECIMAL(10,2)"), column_type("BIGINT[]")
    (Numeric(precision=10, scale=2), ARRAY(BigInteger()))
    """
    if name.endswith("[]"):
        return types.ARRAY(column_type(name.removesuffix("[]")))
    if decimal := _DECIMAL.fullmatch(name):
        return types.Numeric(int(decimal[1]), int(decimal[2]))
    if name.startswith("ENUM("):
        return types.String()
    return _TYPES.get(name, types.NullType())
