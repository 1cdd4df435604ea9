"""Types and names of SQL without data: DuckDB's own binder, over empty tables with the catalog's schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cached_property

from sqlglot.schema import MappingSchema

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, Database, DatabaseConfig, quote_name
from relaqs_engine.sql.effort import Effort
from relaqs_engine.sql.types_by_name import TypesByName

_MEMORY_LIMIT_BYTES = 256 << 20


class Binder:
    """Tells which columns a SELECT would give. It holds empty tables only, because planning never reads data.

    >>> from relaqs_engine.planning.example import CATALOG
    >>> Binder(CATALOG).describe("SELECT zone, avg(fare) AS mean FROM trips GROUP BY zone")
    [('zone', 'INTEGER'), ('mean', 'DOUBLE')]
    """

    def __init__(self, catalog: Catalog) -> None:
        self._database = Database(DatabaseConfig(readable=(), memory_limit_bytes=_MEMORY_LIMIT_BYTES))
        self._cursor: Cursor = self._database.cursor()
        self.effort = Effort()
        self._types = TypesByName(catalog)
        for name, layout in catalog.tables.items():
            columns = ", ".join(f"{quote_name(column.name)} {column.type}" for column in layout.columns)
            self._cursor.run(f"CREATE TABLE {quote_name(name)} ({columns})")

    @contextmanager
    def spending(self, effort: Effort) -> Iterator[Binder]:
        """Yield this binder for one statement, with a cursor of its own, so that many can be planned at once.

        Args:
            effort: counts the cost of each call, and may end the planning between two calls.
        """
        own = copy(self)
        own.effort, own._cursor = effort, self._database.cursor()
        try:
            yield own
        finally:
            own._cursor.close()

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB type) of each output column. Raises SqlError where DuckDB would."""
        self.effort.spend(len(sql))
        return self._cursor.describe(sql)

    @cached_property
    def schema(self) -> MappingSchema:
        """Return the tables and columns as sqlglot looks them up, with a memory for one statement."""
        return self._types.schema()

    def functions(self) -> frozenset[str]:
        """Return the names of DuckDB's scalar functions, aggregates and macros, in lower case."""
        rows = self._cursor.rows(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
            "WHERE function_type IN ('scalar', 'aggregate', 'macro')"
        )
        return frozenset(name for (name,) in rows)
