"""The dialect: what SQLAlchemy asks of a database, answered by `relaqs.dbapi` and the session's tables.

SQLAlchemy's expressions become DuckDB's SQL, as PostgreSQL's but where the two differ. Columns of tables
get SQLAlchemy's types.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from relaqs_engine.duck import quote_name
from sqlalchemy import event, pool, types, util
from sqlalchemy.dialects.postgresql import INTERVAL
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGIdentifierPreparer, PGTypeCompiler
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import ArgumentError, NoSuchTableError
from sqlalchemy.sql import elements
from sqlalchemy.types import TypeEngine

import relaqs.dbapi

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


_DUCKDBS_OWN = {
    *("describe", "lambda", "lateral", "pivot", "pivot_longer", "pivot_wider", "qualify", "show"),
    *("summarize", "unpivot", "anti", "asof", "at", "by", "columns", "glob", "map", "positional", "semi"),
}  # words that DuckDB reserves and PostgreSQL does not


class QueryCompiler(PGCompiler):
    """Makes SELECTs. PostgreSQL's `~` finds a pattern anywhere, and DuckDB's matches the whole text."""

    def visit_regexp_match_op_binary(
        self, binary: elements.BinaryExpression[Any], operator: Any, **kw: Any
    ) -> str:
        flags = binary.modifiers["flags"] if binary.modifiers else None
        values = [binary.left, binary.right, *([] if flags is None else [elements.literal(flags)])]
        return f"regexp_matches({', '.join(self.process(value, **kw) for value in values)})"

    def visit_not_regexp_match_op_binary(
        self, binary: elements.BinaryExpression[Any], operator: Any, **kw: Any
    ) -> str:
        return f"NOT {self.visit_regexp_match_op_binary(binary, operator, **kw)}"

    def visit_bitwise_xor_op_binary(
        self, binary: elements.BinaryExpression[Any], operator: Any, **kw: Any
    ) -> str:
        return f"xor({self.process(binary.left, **kw)}, {self.process(binary.right, **kw)})"


class TypeCompiler(PGTypeCompiler):
    """Names types. DuckDB's FLOAT has 4 bytes, and its DECIMAL without digits rounds to three places."""

    def visit_FLOAT(self, type_: TypeEngine[Any], **kw: Any) -> str:  # noqa: N802
        return "DOUBLE"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        if type_.precision is None:
            return "DOUBLE"
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    def visit_DECIMAL(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        return self.visit_NUMERIC(type_, **kw)


class Quotes(PGIdentifierPreparer):
    """Quotes names that are words of DuckDB's SQL."""

    reserved_words = PGIdentifierPreparer.reserved_words | _DUCKDBS_OWN


_OF_A_CONNECTION = ("target", "within", "intervals")
_OPTIONS = {
    *_OF_A_CONNECTION,
    *("cluster", "threads", "memory_limit", "cache_directory", "policy", "result_limit"),
    *("background_layouts", "exact_below_seconds", "timezone"),
}
_KINDS = {"threads": int, "intervals": bool, "background_layouts": bool, "exact_below_seconds": float}


class RelaqsDialect(DefaultDialect):
    """Engines over one session each. Their connections are cheap, and share it until `engine.dispose()`.

    A statement's execution options `relaqs_target`, `relaqs_within` and `relaqs_intervals` take the place of
    what the URL says.

    >>> from sqlalchemy import create_engine, text
    >>> engine = create_engine("relaqs:///data?threads=1")
    >>> with engine.connect() as connection:
    ...     connection.execute(text("SELECT max(x) FROM numbers WHERE x < :most"), {"most": 500}).scalar()
    499
    """

    name = "relaqs"
    driver = "relaqs"
    default_paramstyle = "qmark"
    statement_compiler = QueryCompiler
    type_compiler_cls = TypeCompiler
    type_compiler = TypeCompiler  # the name in SQLAlchemy 1.4, which Superset has
    preparer = Quotes
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_sane_rowcount = False
    supports_views = True
    div_is_floordiv = False
    max_identifier_length = 1000
    _backslash_escapes = False  # PostgreSQL's compiler asks for it

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._shared: relaqs.dbapi.Connection | None = None
        self._opening = threading.Lock()

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return relaqs.dbapi

    @classmethod
    def dbapi(cls) -> ModuleType:  # type: ignore[override]  # the name in SQLAlchemy 1.4
        return relaqs.dbapi

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.QueuePool

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        dialect = engine.dialect
        assert isinstance(dialect, RelaqsDialect)
        event.listen(engine, "engine_disposed", dialect.close_session)

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of `relaqs.dbapi.connect`."""
        if url.host:
            raise ArgumentError(
                f"{url} names a server; for files write relaqs:///{url.host}, with three slashes"
            )
        options: dict[str, Any] = dict(url.query)
        for name in options.keys() - _OPTIONS:
            raise ArgumentError(f"there is no option {name!r}; the options are {', '.join(sorted(_OPTIONS))}")
        for name, kind in _KINDS.items():
            util.coerce_kw_type(options, name, kind)
        return ([url.database] if url.database else []), options

    def connect(self, *arguments: Any, **options: Any) -> Any:
        """Return a connection over the engine's session, which the first opens."""
        own = {name: options.pop(name) for name in _OF_A_CONNECTION if name in options}
        with self._opening:
            if self._shared is None or self._shared.is_closed:
                self._shared = relaqs.dbapi.connect(*arguments, **options)
            return relaqs.dbapi.connect(self._shared.session, **own)

    def close_session(self, engine: Engine) -> None:
        with self._opening:
            if self._shared is not None:
                self._shared.close()

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        options = {} if context is None else context.execution_options
        for name in _OF_A_CONNECTION:
            if f"relaqs_{name}" in options:
                setattr(cursor, name, options[f"relaqs_{name}"])
        cursor.execute(statement, parameters)

    def _no_savepoint(self, connection: Connection, name: str) -> None:
        """Do nothing: where nothing is written, there is nothing to go back to."""

    do_savepoint = do_rollback_to_savepoint = do_release_savepoint = _no_savepoint

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        return []

    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return [] if schema else list(_session(connection).tables)

    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return [] if schema else list(_session(connection).views)

    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        session = _session(connection)
        names = {name.lower() for name in (*session.tables, *session.views)}
        return schema is None and table_name.lower() in names

    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        if not self.has_table(connection, table_name, schema):
            raise NoSuchTableError(table_name if schema is None else f"{schema}.{table_name}")
        described = connection.exec_driver_sql(f"DESCRIBE {quote_name(table_name)}")
        return [
            {"name": row[0], "type": column_type(row[1]), "nullable": True, "default": None}
            for row in described
        ]

    def get_view_definition(
        self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        views = _session(connection).views
        if view_name not in views:
            raise NoSuchTableError(view_name)
        return views[view_name]

    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: Any = None, **kw: Any
    ) -> Any:
        return {"constrained_columns": [], "name": None}

    def _none(self, connection: Connection, table_name: str, schema: Any = None, **kw: Any) -> Sequence[Any]:
        """Return nothing: tables have no keys, constraints or indexes."""
        return []

    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = _none  # type: ignore[assignment]


def _session(connection: Connection) -> relaqs.Session:
    opened = connection.connection.dbapi_connection
    assert isinstance(opened, relaqs.dbapi.Connection)
    return opened.session
