"""Which of DuckDB's types are numbers, by name and without their parameters."""

_SIGNED = ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "INT128", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINT", "UINTEGER", "UBIGINT", "UHUGEINT")
WHOLE_NUMBERS = frozenset((*_SIGNED, *_UNSIGNED))
FLOATS = frozenset(("FLOAT", "DOUBLE", "REAL"))
