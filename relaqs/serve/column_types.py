"""Which type of Postgres a column has: its OID, from DuckDB's name of the type."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_ANY_SIZE = -1


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type of Postgres, as a row description names it.

    Attributes:
        oid: its number, the same on every server.
        name: as pg_type has it.
        sql_name: as information_schema has it.
        size_bytes: of a binary value, -1 where values have different sizes.
        modifier: of a numeric its digits, -1 for all else.
        element: the type of the elements of an array, None for all else.
        array_oid: of arrays of it, 0 for none.
    """

    oid: int
    name: str
    sql_name: str
    size_bytes: int = _ANY_SIZE
    modifier: int = -1
    element: ColumnType | None = None
    array_oid: int = 0


BOOL = ColumnType(16, "bool", "boolean", 1, array_oid=1000)
BYTEA = ColumnType(17, "bytea", "bytea", array_oid=1001)
NAME = ColumnType(19, "name", "name", 64, array_oid=1003)
INT8 = ColumnType(20, "int8", "bigint", 8, array_oid=1016)
INT2 = ColumnType(21, "int2", "smallint", 2, array_oid=1005)
INT4 = ColumnType(23, "int4", "integer", 4, array_oid=1007)
TEXT = ColumnType(25, "text", "text", array_oid=1009)
OID = ColumnType(26, "oid", "oid", 4, array_oid=1028)
JSON = ColumnType(114, "json", "json", array_oid=199)
FLOAT4 = ColumnType(700, "float4", "real", 4, array_oid=1021)
FLOAT8 = ColumnType(701, "float8", "double precision", 8, array_oid=1022)
UNKNOWN = ColumnType(705, "unknown", "unknown", -2)
BPCHAR = ColumnType(1042, "bpchar", "character", array_oid=1014)
VARCHAR = ColumnType(1043, "varchar", "character varying", array_oid=1015)
DATE = ColumnType(1082, "date", "date", 4, array_oid=1182)
TIME = ColumnType(1083, "time", "time without time zone", 8, array_oid=1183)
TIMESTAMP = ColumnType(1114, "timestamp", "timestamp without time zone", 8, array_oid=1115)
TIMESTAMPTZ = ColumnType(1184, "timestamptz", "timestamp with time zone", 8, array_oid=1185)
INTERVAL = ColumnType(1186, "interval", "interval", 16, array_oid=1187)
NUMERIC = ColumnType(1700, "numeric", "numeric", array_oid=1231)
VOID = ColumnType(2278, "void", "void", 4)
UUID = ColumnType(2950, "uuid", "uuid", 16, array_oid=2951)

TYPES = (
    *(BOOL, BYTEA, NAME, INT8, INT2, INT4, TEXT, OID, JSON, FLOAT4, FLOAT8, UNKNOWN, BPCHAR, VARCHAR),
    *(DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID),
)

OIDS = ColumnType(1028, "_oid", "ARRAY", element=OID)

ARRAYS = {each.array_oid: each for each in TYPES if each.array_oid}
"""Types of elements by the OIDs of their arrays."""
_OF_LISTS = re.compile(r"(.*?)(?:\[\d*\])+", re.DOTALL)

# Postgres has no unsigned integers and none of 128 bits: the next type that holds all values stands for them.
_OF_DUCKDB = {
    "BOOLEAN": BOOL,
    **dict.fromkeys(("TINYINT", "SMALLINT", "UTINYINT"), INT2),
    **dict.fromkeys(("INTEGER", "INT", "USMALLINT"), INT4),
    **dict.fromkeys(("BIGINT", "UINTEGER"), INT8),
    **dict.fromkeys(("HUGEINT", "UBIGINT", "UHUGEINT", "DECIMAL"), NUMERIC),
    **dict.fromkeys(("FLOAT", "REAL"), FLOAT4),
    "DOUBLE": FLOAT8,
    **dict.fromkeys(("VARCHAR", "TEXT"), TEXT),
    "BLOB": BYTEA,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), TIMESTAMP),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"), TIMESTAMPTZ),
    **{each.name.upper(): each for each in (DATE, TIME, INTERVAL, UUID, JSON, OID)},
}


_OF_WORDS = {
    **dict.fromkeys(("int", "serial"), INT4),
    **dict.fromkeys(("float", "double"), FLOAT8),
    **dict.fromkeys(("decimal", "dec"), NUMERIC),
    **dict.fromkeys(("char", "nchar"), BPCHAR),
    **dict.fromkeys(("string", "citext"), TEXT),
    "timestamp": TIMESTAMP,
    "time": TIME,
    "jsonb": JSON,
}


def column_type(duckdb_type: str) -> ColumnType:
    """Return the type of Postgres for DuckDB's. Structs, maps and lists of them are JSON.

    An array of arrays has the type of one, as in Postgres. All else that is not known is text.
    """
    if (known := _OF_DUCKDB.get(duckdb_type)) is not None:
        return known
    if (decimal := _DECIMAL.fullmatch(duckdb_type)) is not None:
        digits, scale = map(int, decimal.groups())
        return replace(NUMERIC, modifier=(digits << 16 | scale) + 4)
    if duckdb_type.startswith(("STRUCT", "TUPLE", "MAP(", "UNION(")):
        return JSON
    if (listed := _OF_LISTS.fullmatch(duckdb_type)) is not None:
        element = column_type(listed[1])
        name, modifier = f"_{element.name}", element.modifier
        return ColumnType(element.array_oid, name, "ARRAY", modifier=modifier, element=element)
    return TEXT


# By what Postgres has: the type, and those that DuckDB may have in its place.
_FOR_OTHERS: dict[str, tuple[ColumnType, tuple[ColumnType, ...]]] = {
    "int4": (INT4, (INT8, NUMERIC)),
    "int8": (INT8, (NUMERIC,)),
    "numeric": (NUMERIC, (INT4, INT8)),
    "float4": (FLOAT4, (FLOAT8,)),
    "float8": (FLOAT8, (INT4, INT8)),
}


def in_postgres(found: ColumnType, kind: str | None) -> ColumnType:
    """Return the type of a column, given what DuckDB has and what Postgres has (`Meaning.kinds`).

    The sum of INTEGERs is a BIGINT in Postgres, that of REALs a REAL, and `extract` gives a NUMERIC.
    """
    wanted, others = _FOR_OTHERS.get(kind or "", (found, ()))
    return wanted if found in others else found


def parameter_oid(duckdb_type: str | None) -> int:
    """Return the OID for a parameter of DuckDB's type, which may be a list; of text where none is known."""
    if duckdb_type is None:
        return TEXT.oid
    duckdb_type = duckdb_type.upper()  # a type that DuckDB does not have, as oid, is as it was written
    if duckdb_type.endswith("[]"):
        return column_type(duckdb_type.removesuffix("[]")).array_oid or TEXT.oid
    return column_type(duckdb_type).oid


def type_oid(written: str) -> int:
    """Return the OID of a type as it is written in SQL, 0 for one that is not known here."""
    name = re.sub(r"\s+", " ", re.sub(r"\([^)]*\)", "", written)).strip().lower()
    element = name.removesuffix("[]").strip()
    found = next((each for each in TYPES if element in (each.name, each.sql_name)), _OF_WORDS.get(element))
    if found is None:
        return 0
    return found.array_oid if name.endswith("[]") else found.oid


def type_name(oid: int) -> str:
    """Return a type's name in SQL, "???" for one that is not known here."""
    if oid in ARRAYS:
        return f"{ARRAYS[oid].sql_name}[]"
    return next((each.sql_name for each in TYPES if each.oid == oid), "???")


def is_number(kind: ColumnType) -> bool:
    """Return whether a type is one of numbers, which an interval can be around."""
    return kind.oid in {each.oid for each in (INT2, INT4, INT8, NUMERIC, FLOAT4, FLOAT8)}
