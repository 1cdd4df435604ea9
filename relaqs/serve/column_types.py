"""Which type of Postgres a column has: its OID, from DuckDB's name of the type."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """

    oid: int
    name: str
    sql_name: str
    size_bytes: int = _ANY_SIZE
    modifier: int = -1
    element: ColumnType | None = None


BOOL = ColumnType(16, "bool", "boolean", 1)
BYTEA = ColumnType(17, "bytea", "bytea")
NAME = ColumnType(19, "name", "name", 64)
INT8 = ColumnType(20, "int8", "bigint", 8)
INT2 = ColumnType(21, "int2", "smallint", 2)
INT4 = ColumnType(23, "int4", "integer", 4)
TEXT = ColumnType(25, "text", "text")
OID = ColumnType(26, "oid", "oid", 4)
JSON = ColumnType(114, "json", "json")
FLOAT4 = ColumnType(700, "float4", "real", 4)
FLOAT8 = ColumnType(701, "float8", "double precision", 8)
UNKNOWN = ColumnType(705, "unknown", "unknown", -2)
BPCHAR = ColumnType(1042, "bpchar", "character")
VARCHAR = ColumnType(1043, "varchar", "character varying")
DATE = ColumnType(1082, "date", "date", 4)
TIME = ColumnType(1083, "time", "time without time zone", 8)
TIMESTAMP = ColumnType(1114, "timestamp", "timestamp without time zone", 8)
TIMESTAMPTZ = ColumnType(1184, "timestamptz", "timestamp with time zone", 8)
INTERVAL = ColumnType(1186, "interval", "interval", 16)
NUMERIC = ColumnType(1700, "numeric", "numeric")
VOID = ColumnType(2278, "void", "void", 4)
UUID = ColumnType(2950, "uuid", "uuid", 16)

TYPES = (
    *(BOOL, BYTEA, NAME, INT8, INT2, INT4, TEXT, OID, JSON, FLOAT4, FLOAT8, UNKNOWN, BPCHAR, VARCHAR),
    *(DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID),
)

OIDS = ColumnType(1028, "_oid", "ARRAY", element=OID)

# The OIDs of arrays, with the types of their elements.
ARRAYS = {
    199: JSON,
    1000: BOOL,
    1001: BYTEA,
    1003: NAME,
    1005: INT2,
    1007: INT4,
    1009: TEXT,
    1014: BPCHAR,
    1015: VARCHAR,
    1016: INT8,
    1021: FLOAT4,
    1022: FLOAT8,
    1028: OID,
    1115: TIMESTAMP,
    1182: DATE,
    1183: TIME,
    1185: TIMESTAMPTZ,
    1187: INTERVAL,
    1231: NUMERIC,
    2951: UUID,
}
_ARRAY_OIDS = {kind.oid: oid for oid, kind in ARRAYS.items()}
_OF_LISTS = re.compile(r"(.*?)(?:\[\d*\])+", re.DOTALL)

# Postgres has no unsigned integers and none of 128 bits: the next type that holds all values stands for them.
_OF_DUCKDB = {
    "BOOLEAN": BOOL,
    "TINYINT": INT2,
    "SMALLINT": INT2,
    "INTEGER": INT4,
    "BIGINT": INT8,
    "HUGEINT": NUMERIC,
    "UTINYINT": INT2,
    "USMALLINT": INT4,
    "UINTEGER": INT8,
    "UBIGINT": NUMERIC,
    "UHUGEINT": NUMERIC,
    "FLOAT": FLOAT4,
    "DOUBLE": FLOAT8,
    "VARCHAR": TEXT,
    "BLOB": BYTEA,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_S": TIMESTAMP,
    "TIMESTAMP_MS": TIMESTAMP,
    "TIMESTAMP_NS": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ,
    "INTERVAL": INTERVAL,
    "UUID": UUID,
    "JSON": JSON,
    # Further names that a cast in the SQL may have.
    "INT": INT4,
    "OID": OID,
    "REAL": FLOAT4,
    "TEXT": TEXT,
    "DECIMAL": NUMERIC,
    "TIMESTAMPTZ": TIMESTAMPTZ,
}


_OF_WORDS = {
    **dict.fromkeys(("int", "serial"), INT4.oid),
    **dict.fromkeys(("float", "double"), FLOAT8.oid),
    **dict.fromkeys(("decimal", "dec"), NUMERIC.oid),
    **dict.fromkeys(("char", "nchar"), BPCHAR.oid),
    **dict.fromkeys(("string", "citext"), TEXT.oid),
    "timestamp": TIMESTAMP.oid,
    "time": TIME.oid,
    "jsonb": JSON.oid,
}


def column_type(duckdb_type: str) -> ColumnType:
    """Return the type of Postgres for DuckDB's. Structs, maps and lists of them are JSON.

    An array of arrays has the type of one, as in Postgres. All else that is not known is text.

    >>> [column_type(each).name for each in ("BIGINT", "STRUCT(a INTEGER)[]", "BIT", "DATE[]", "DOUBLE[3][]")]
    ['int8', 'json', 'text', '_date', '_float8']
    """
    if (known := _OF_DUCKDB.get(duckdb_type)) is not None:
        return known
    if (decimal := _DECIMAL.fullmatch(duckdb_type)) is not None:
        digits, scale = map(int, decimal.groups())
        return ColumnType(NUMERIC.oid, NUMERIC.name, NUMERIC.sql_name, modifier=(digits << 16 | scale) + 4)
    if duckdb_type.startswith(("STRUCT", "TUPLE", "MAP(", "UNION(")):
        return JSON
    if (listed := _OF_LISTS.fullmatch(duckdb_type)) is not None:
        element = column_type(listed[1])
        return ColumnType(
            _ARRAY_OIDS[element.oid], f"_{element.name}", "ARRAY", modifier=element.modifier, element=element
        )
    return TEXT


def parameter_oid(duckdb_type: str | None) -> int:
    """Return the OID for a parameter of DuckDB's type, which may be a list. Where none is known it is text.

    >>> parameter_oid("INTEGER"), parameter_oid("INTEGER[]"), parameter_oid("oid[]"), parameter_oid(None)
    (23, 1007, 1028, 25)
    """
    if duckdb_type is None:
        return TEXT.oid
    duckdb_type = duckdb_type.upper()  # a type that DuckDB does not have, as oid, is as it was written
    if duckdb_type.endswith("[]"):
        element = column_type(duckdb_type.removesuffix("[]"))
        return _ARRAY_OIDS.get(element.oid, TEXT.oid)
    return column_type(duckdb_type).oid


def type_oid(written: str) -> int:
    """Return the OID of a type as it is written in SQL, 0 for one that is not known here.

    >>> type_oid("int"), type_oid("timestamp with time zone"), type_oid("text[]"), type_oid("money")
    (23, 1184, 1009, 0)
    """
    name = re.sub(r"\s+", " ", re.sub(r"\([^)]*\)", "", written)).strip().lower()
    element = name.removesuffix("[]").strip()
    found = next((each.oid for each in TYPES if element in (each.name, each.sql_name)), None)
    oid = found or _OF_WORDS.get(element, 0)
    if not name.endswith("[]"):
        return oid
    return _ARRAY_OIDS.get(oid, 0)


def is_number(kind: ColumnType) -> bool:
    """Return whether a type is one of numbers, which an interval can be around."""
    return kind.oid in {each.oid for each in (INT2, INT4, INT8, NUMERIC, FLOAT4, FLOAT8)}
