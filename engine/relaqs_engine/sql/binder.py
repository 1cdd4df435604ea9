"""Types and names of SQL without data: DuckDB's own binder, over empty tables with the catalog's schema.

`TypesByName` has the types of the catalog's columns by the names that sqlglot compares. `Binder` asks
DuckDB for what it does not know.

The last part tells where an expression stands in what the user wrote, if it failed in the statement that
DuckDB ran. The two texts differ: the rewriter names tables in full, splits aggregates and writes constants
for parameters. But an expression over a row stays what it is. So DuckDB parses both texts, and the
expression that failed is looked for among those of the user.

>>> ran = Underlined("SELECT sum(CAST(trips.km AS INT)) AS b0 FROM trips", position=(1, 12), width=21)
>>> placed_in(ExpressionError("no number", ran=ran), "SELECT avg(fare),\\n  sum(km::INT) FROM trips").position
(2, 9)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import Any

from sqlglot import exp
from sqlglot.schema import MappingSchema, normalize_name

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime, Cursor, Database, DatabaseConfig, parse_tree, quote_name
from relaqs_engine.errors import ExpressionError, SqlError, Underlined
from relaqs_engine.sql.dialect import DIALECT
from relaqs_engine.sql.edits import WrittenSql, offset_of, position_of
from relaqs_engine.sql.parameters import (
    Parameters,
    at_one_moment,
    may_have_parameters,
    named_as_before,
    tells_the_time,
    with_values,
)
from relaqs_engine.sql.read import Effort


class TypesByName:
    """Knows the types of all columns. Names are normalized once, which takes 10 ms for 400 columns.

    >>> from relaqs_engine.planning.example import CATALOG
    >>> TypesByName(CATALOG).schema().column_names("Zones")
    ['zone', 'city']
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def schema(self) -> MappingSchema:
        """Return a new schema for one statement. It remembers each name that it is asked for."""
        schema = MappingSchema(dict(self._types), dialect=DIALECT, normalize=False)
        schema.normalize = True  # of the names that are looked up
        return schema

    @cached_property
    def _types(self) -> dict[str, object]:
        return {
            _normalized(name, is_table=True): {
                _normalized(column.name): column.type for column in layout.columns
            }
            for name, layout in self._catalog.tables.items()
        }


def _normalized(name: str, *, is_table: bool = False) -> str:
    """Return a name as it is compared. As text, sqlglot would read `delay ` as `delay`."""
    identifier = exp.to_identifier(name, quoted=True)
    return normalize_name(identifier, dialect=DIALECT, is_table=is_table).name


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
        """Return the SQL with its parameters and the moment written as constants (see `sql/parameters.py`).

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


_LOCATION, _LENGTH = "query_location", "query_location_length"  # in bytes
_NAMES_AND_PLACES = frozenset((_LOCATION, _LENGTH, "alias", "catalog", "schema"))

Node = dict[str, Any]


def placed_in(error: ExpressionError, sql: str) -> ExpressionError:
    """Return the error with the place of its expression in the SQL, without one where that cannot be told.

    Args:
        error: of a statement that DuckDB ran.
        sql: what the user wrote.
    """
    if error.ran is None or error.position is not None:
        return error
    try:
        begin = _begin(error.ran, sql)
    except RecursionError:  # one of the texts is nested very deeply
        return error
    return error if begin is None else error.at(position_of(sql, len(sql.encode()[:begin].decode())))


def _begin(ran: Underlined, sql: str) -> int | None:
    """Return at which byte of the SQL the expression begins that is underlined in a statement."""
    place = _byte(ran.sql, offset_of(ran.sql, ran.position))
    failed = [node for node in _nodes(parse_tree(ran.sql)) if node[_LOCATION] == place]
    failed.sort(key=lambda node: abs(int(node[_LENGTH]) - ran.width))
    own = list(_nodes(parse_tree(sql))) if failed else []
    for alike in (_as_it_is, _in_outline):
        for node in failed:
            wanted = alike(node)
            if wanted is not None and (found := next((each for each in own if alike(each) == wanted), None)):
                return int(found[_LOCATION])
    return None


@contextmanager
def placing_failures(sql: str) -> Iterator[None]:
    """Place the errors that a block raises about expressions of this SQL."""
    try:
        yield
    except ExpressionError as error:
        raise placed_in(error, sql) from error.__cause__


def _byte(text: str, offset: int | None) -> int:
    """Return where a character stands in bytes of UTF-8, as DuckDB counts."""
    return -1 if offset is None else len(text[:offset].encode())


def _nodes(tree: Any) -> Iterator[Node]:
    """Yield the expressions of a tree that have a place in its text, outer ones before those inside."""
    if isinstance(tree, dict):
        if isinstance(tree.get("class"), str) and _LOCATION in tree:
            yield tree
        for child in tree.values():
            yield from _nodes(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from _nodes(child)


def _as_it_is(node: Any) -> Any:
    """Return an expression without places, aliases, and the tables of its columns."""
    if isinstance(node, list):
        return [_as_it_is(child) for child in node]
    if isinstance(node, str):
        return node.lower()
    if not isinstance(node, dict):
        return node
    kept = {key: _as_it_is(child) for key, child in node.items() if key not in _NAMES_AND_PLACES}
    if names := kept.get("column_names"):
        kept["column_names"] = names[-1:]
    return kept


def _in_outline(node: Node) -> Any:
    """Return what is told of an expression that was written anew: its kind, its type, its columns."""
    columns = sorted(
        str(each["column_names"][-1]).lower() for each in _nodes(node) if each.get("column_names")
    )
    return (node["class"], node.get("type"), _as_it_is(node.get("type_expr")), columns) if columns else None
