"""Types and names of SQL without data: DuckDB's own binder, over empty tables with the catalog's schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cached_property

from sqlglot.schema import MappingSchema

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime, Cursor, Database, DatabaseConfig, quote_name
from relaqs_engine.errors import SqlError
from relaqs_engine.sql.constants import (
    Parameters,
    at_one_moment,
    may_have_parameters,
    named_as_before,
    tells_the_time,
    with_values,
)
from relaqs_engine.sql.effort import Effort
from relaqs_engine.sql.types_by_name import TypesByName
from relaqs_engine.sql.written import WrittenSql

_MEMORY_LIMIT_BYTES = 256 << 20
_MOST_DESCRIBED = 1_000  # texts: a plan has about ten, and most of them hold no value of its parameters


class Binder:
    """Tells which columns a SELECT would give. It holds empty tables only, because planning never reads data.

    >>> from relaqs_engine.planning.example import CATALOG
    >>> Binder(CATALOG).describe("SELECT zone, avg(fare) AS mean FROM trips GROUP BY zone")
    [('zone', 'INTEGER'), ('mean', 'DOUBLE')]

    Attributes:
        civil_time: of the statements that it is asked about.
    """

    def __init__(self, catalog: Catalog, civil_time: CivilTime | None = None) -> None:
        """civil_time: of all statements that name no other. None: that of the process."""
        self._database = Database(
            DatabaseConfig(readable=(), memory_limit_bytes=_MEMORY_LIMIT_BYTES, civil_time=civil_time)
        )
        self._cursor: Cursor = self._database.cursor()
        self.civil_time = self._cursor.civil_time
        self.effort = Effort()
        self._described: dict[str, list[tuple[str, str]]] = {}
        self._types = TypesByName(catalog)
        self._column_names = frozenset(
            column.name.lower() for layout in catalog.tables.values() for column in layout.columns
        )
        for name, layout in catalog.tables.items():
            columns = ", ".join(f"{quote_name(column.name)} {column.type}" for column in layout.columns)
            self._cursor.run(f"CREATE TABLE {quote_name(name)} ({columns})")

    def at(self, civil_time: CivilTime | None) -> Binder:
        """Return this binder for statements by another zone and calendar. None: itself."""
        if civil_time in (None, self.civil_time):
            return self
        other = copy(self)
        other.civil_time = civil_time
        return other

    @contextmanager
    def spending(self, effort: Effort) -> Iterator[Binder]:
        """Yield this binder for one statement, with a cursor of its own, so that many can be planned at once.

        Args:
            effort: counts the cost of each call, and may end the planning between two calls.
        """
        own = copy(self)
        own.effort, own._cursor = effort, self._database.cursor(self.civil_time)
        try:
            yield own
        finally:
            own._cursor.close()

    def describe(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB type) of each output column. Raises SqlError where DuckDB would."""
        self.effort.spend(len(sql))
        if (found := self._described.get(sql)) is None:
            found = self._cursor.describe(sql)
            if len(self._described) >= _MOST_DESCRIBED:
                self._described.clear()
            self._described[sql] = found
        return found

    @cached_property
    def schema(self) -> MappingSchema:
        """Return the tables and columns as sqlglot looks them up, with a memory for one statement."""
        return self._types.schema()

    def with_constants(self, sql: str | WrittenSql, parameters: Parameters | None = None) -> WrittenSql:
        """Return the SQL with its parameters and the moment written as constants (see `sql/constants.py`).

        Its columns keep their names. Safe to call from any thread.
        """
        given = sql if isinstance(sql, WrittenSql) else WrittenSql(sql)
        if not (may_have_parameters(given.sql, parameters) or tells_the_time(given.sql)):
            return given
        with self.spending(self.effort) as own, given.placing():
            valued = with_values(given, parameters, own._cursor.typed_text)
            frozen = at_one_moment(valued, own._cursor.typed_texts_of, self._column_names)
            named = named_as_before(frozen, given.sql)
            if named is not frozen:
                try:
                    own.describe(frozen.sql)
                except SqlError:  # the planner says what is wrong with it, and where
                    return frozen
            return named

    def functions(self) -> frozenset[str]:
        """Return the names of DuckDB's scalar functions, aggregates and macros, in lower case."""
        rows = self._cursor.rows(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
            "WHERE function_type IN ('scalar', 'aggregate', 'macro')"
        )
        return frozenset(name for (name,) in rows)
