"""Types and names of SQL, without data: DuckDB's own binder over empty tables of the catalog's schema."""

from __future__ import annotations

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, Database, DatabaseConfig, quote_name

_MEMORY_LIMIT_BYTES = 256 << 20


class Binder:
    """Answers what columns a SELECT would give. Holds empty tables only: planning never reads data."""

    def __init__(self, catalog: Catalog) -> None:
        self._database = Database(DatabaseConfig(readable=(), memory_limit_bytes=_MEMORY_LIMIT_BYTES))
        self._cursor: Cursor = self._database.cursor()
        for name, layout in catalog.tables.items():
            columns = ", ".join(f"{quote_name(column.name)} {column.type}" for column in layout.columns)
            self._cursor.run(f"CREATE TABLE {quote_name(name)} ({columns})")

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB type) of each output column. Raises SqlError where DuckDB would."""
        return self._cursor.describe(sql)

    def functions(self) -> frozenset[str]:
        """Return the names of DuckDB's scalar and aggregate functions and macros, in lower case."""
        rows = self._cursor.rows(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
            "WHERE function_type IN ('scalar', 'aggregate', 'macro')"
        )
        return frozenset(name for (name,) in rows)
