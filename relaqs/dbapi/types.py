"""The types of an answer's columns: DuckDB's names of them, and the groups that PEP 249 puts types into."""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "string_view": "VARCHAR",
    "binary": "BLOB",
    "large_binary": "BLOB",
    "binary_view": "BLOB",
    "date32[day]": "DATE",
    "month_day_nano_interval": "INTERVAL",
    "null": "NULL",
}


class TypeGroup:
    """A group of types. A column's type code, a name such as "BIGINT", equals the group that it is in.

    >>> NUMBER == "DECIMAL(10,2)", NUMBER == "VARCHAR"
    (True, False)
    """

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypeGroup):
            return self._names == other._names
        return isinstance(other, str) and other.partition("(")[0] in self._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"TypeGroup({', '.join(map(repr, sorted(self._names)))})"


STRING = TypeGroup("VARCHAR", "UUID", "ENUM")
BINARY = TypeGroup("BLOB", "BIT")
NUMBER = TypeGroup(
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
)
DATETIME = TypeGroup(
    "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"
)
ROWID = TypeGroup()


def type_name(kind: pa.DataType) -> str:
    """Return DuckDB's name of a type that an answer's column has.

    >>> type_name(pa.int64()), type_name(pa.list_(pa.decimal128(10, 2)))
    ('BIGINT', 'DECIMAL(10,2)[]')
    """
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if pa.types.is_time(kind):
        return "TIME"
    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    if pa.types.is_map(kind):
        return f"MAP({type_name(kind.key_type)}, {type_name(kind.item_type)})"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{field.name} {type_name(field.type)}' for field in kind)})"
    if pa.types.is_fixed_size_list(kind):
        return f"{type_name(kind.value_type)}[{kind.list_size}]"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{type_name(kind.value_type)}[]"
    return _NAMES.get(str(kind), str(kind).upper())
