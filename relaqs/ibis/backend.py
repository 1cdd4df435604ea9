"""The backend: what ibis asks of a database that is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import ibis.backends.sql.compilers as compilers
import ibis.common.exceptions as exceptions
import ibis.expr.operations as operations
import ibis.expr.schema
import ibis.expr.types as expressions
import pyarrow as pa
from ibis.backends import (
    CanCreateCatalog,
    CanCreateDatabase,
    HasCurrentCatalog,
    HasCurrentDatabase,
    UrlFromPath,
)
from ibis.backends.sql import SQLBackend
from ibis.expr.operations.udf import InputType
from ibis.formats.pyarrow import PyArrowData, PyArrowType
from relaqs_engine.duck import quote_name
from relaqs_engine.sql.dialect import DIALECT

import relaqs
from relaqs import dbapi
from relaqs.session import Session

if TYPE_CHECKING:
    import pandas
    from relaqs_engine.layouts.sources import TableSource

    from relaqs.queries.online_query import OnlineQuery


_CATALOG, _DATABASE = "relaqs", "main"
_MOST_WRITTEN_VALUES = (
    1000  # of a memtable that stands in the statement; a larger one is given to the session
)


class _AsAnswered(PyArrowData):  # type: ignore[misc]  # ibis has no types
    """Columns in the types that ibis expects, but for decimals that have more digits: these keep them."""

    @classmethod
    def convert_column(cls, column: Any, dtype: Any) -> Any:
        wanted = PyArrowType.from_ibis(dtype)
        if column.type == wanted:
            return column
        if pa.types.is_decimal(column.type) and pa.types.is_decimal(wanted):
            try:
                return column.cast(wanted)
            except pa.ArrowInvalid:
                return column
        if pa.types.is_floating(column.type) and pa.types.is_integer(wanted):
            return column.cast(wanted, safe=False)  # epoch_seconds, of moments with a fraction
        return super().convert_column(column, dtype)

    @classmethod
    def convert_scalar(cls, scalar: Any, dtype: Any) -> Any:
        return cls.convert_column(pa.chunked_array([[scalar.as_py()]], scalar.type), dtype)[0]

    @classmethod
    def convert_table(cls, table: pa.Table, schema: Any) -> pa.Table:
        columns = [cls.convert_column(table[name], kind) for name, kind in schema.items()]
        return pa.Table.from_arrays(columns, names=list(schema.names))


def _refusing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method with the signature of another, which writes."""

    @wraps(method, updated=())
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise exceptions.UnsupportedOperationError(
            "nothing can be written through ibis; lay tables out with relaqs.shuffle, add rows with "
            "relaqs.append, and give views when you connect: views={…}"
        )

    return refused


compilers.relaqs = compilers.duckdb  # the dialect's name in `ibis.to_sql` and `Table.sql`


class Backend(SQLBackend, UrlFromPath, HasCurrentCatalog, HasCurrentDatabase):  # type: ignore[misc]
    """Tables of a session, as ibis has them. `ibis.relaqs.connect` makes one.

    Everything that ibis computes is exact. `online` gives a query that sharpens instead. A small `memtable`
    stands in each statement. A large one, a file that is read, and what `cache` keeps are further tables of
    the session. Nothing is written.

    Attributes:
        con: the session that answers.
    """

    name = "relaqs"
    compiler = compilers.duckdb.compiler
    supports_temporary_tables = False
    supports_python_udfs = False

    con: Session
    _written: dict[str, str]  # small memtables as SELECTs, by name
    _files_read: set[str]  # names in lower case of the tables that files were read as

    def do_connect(self, database: TableSource | None = None, **opening: Any) -> None:
        """Open a session.

        Args:
            database: as `relaqs.connect` takes it, such as the path of a warehouse.
            opening: the other arguments of `relaqs.connect`.
        """
        self.con = relaqs.connect(database, **opening)
        self._written = {}
        self._files_read = set()

    @classmethod
    def from_connection(cls, session: Session, /) -> Backend:
        """Return a backend over an open session."""
        backend = cls()
        backend._can_reconnect = False
        backend.con = session
        backend._written = {}
        backend._files_read = set()
        return backend

    def disconnect(self) -> None:
        """Close the session."""
        self.con.close()

    @property
    def version(self) -> str:
        return str(relaqs.__version__)

    def online(
        self, expr: expressions.Expr, /, *, params: Mapping[Any, Any] | None = None, **options: Any
    ) -> OnlineQuery:
        """Start answering an expression, and return the handle of its query at once.

        Args:
            expr: a table, a column or a single value.
            params: values of `ibis.param`.
            options: the arguments of `Session.online_sql`, such as `target="5%"`.

        Raises:
            UnsupportedError: the query is refused.

        >>> con = Backend().connect("data", threads=1)
        >>> query = con.online(con.table("numbers").x.mean(), target="50%")
        >>> query.result().error <= 0.5
        True
        """
        return self.con.online_sql(self._sql(expr, params, None), **options)

    def list_tables(self, *, like: str | None = None, database: Any = None) -> list[str]:
        places = database if isinstance(database, tuple) else (database,)
        if not set(places) <= {None, _CATALOG, _DATABASE}:
            raise exceptions.UnsupportedOperationError(
                f"there is no database {database!r}: a session has one, {_DATABASE!r}; leave it out"
            )
        return list(self._filter_with_like([*self.con.tables, *self.con.views], like))

    @property
    def current_catalog(self) -> str:
        return _CATALOG

    @property
    def current_database(self) -> str:
        return _DATABASE

    def list_catalogs(self, *, like: str | None = None) -> list[str]:
        return list(self._filter_with_like([_CATALOG], like))

    def list_databases(self, *, like: str | None = None, catalog: str | None = None) -> list[str]:
        return list(self._filter_with_like([_DATABASE], like))

    def read_parquet(
        self, path: Any, /, *, table_name: str | None = None, **options: Any
    ) -> expressions.Table:
        """Return a table of Parquet files: a path, a folder, a glob, or a list of them."""
        return self._read(path, "read_parquet", table_name, options)

    def read_csv(self, path: Any, /, *, table_name: str | None = None, **options: Any) -> expressions.Table:
        """Return a table of CSV files: a path, a folder, a glob, or a list of them."""
        return self._read(path, "read_csv", table_name, options)

    def read_json(self, path: Any, /, *, table_name: str | None = None, **options: Any) -> expressions.Table:
        """Return a table of JSON files: a path, a folder, a glob, or a list of them."""
        return self._read(path, "read_json", table_name, options)

    def _read(self, path: Any, kind: str, name: str | None, options: Mapping[str, Any]) -> expressions.Table:
        if options:
            raise exceptions.UnsupportedOperationError(
                f"{kind} takes no options here, and {', '.join(options)} was given; read the file with "
                "DuckDB, and give what it answers to relaqs.connect(tables=…)"
            )
        name = name or ibis.util.gen_name(f"ibis_{kind}")
        paths = [str(each) for each in path] if isinstance(path, list | tuple) else str(path)
        self.con.add_table(paths, name, replace=name.lower() in self._files_read)
        self._files_read.add(name.lower())
        return self.table(name)

    def get_schema(
        self, table_name: str, *, catalog: str | None = None, database: str | None = None
    ) -> ibis.expr.schema.Schema:
        names = {name.lower() for name in self.list_tables(database=database or catalog)}
        if table_name.lower() not in names:
            raise exceptions.TableNotFound(table_name)
        return self._get_schema_using_query(quote_name(table_name))

    def to_pyarrow(
        self,
        expr: expressions.Expr,
        /,
        *,
        params: Mapping[Any, Any] | None = None,
        limit: int | str | None = None,
        **_: Any,
    ) -> Any:
        return expr.__pyarrow_result__(self._answer(self._sql(expr, params, limit)), data_mapper=_AsAnswered)

    def to_pyarrow_batches(
        self,
        expr: expressions.Expr,
        /,
        *,
        params: Mapping[Any, Any] | None = None,
        limit: int | str | None = None,
        chunk_size: int = 1_000_000,
        **_: Any,
    ) -> pa.RecordBatchReader:
        table = self.to_pyarrow(expr.as_table(), params=params, limit=limit)
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(chunk_size))

    def execute(
        self,
        expr: expressions.Expr,
        /,
        *,
        params: Mapping[Any, Any] | None = None,
        limit: int | str | None = None,
        **_: Any,
    ) -> pandas.DataFrame | pandas.Series[Any] | Any:
        import pandas
        from ibis.formats.pandas import PandasData

        schema = expr.as_table().schema()
        answer = self._answer(self._sql(expr, params, limit))
        columns = {  # an interval has months, which no duration of Arrow has: it becomes pandas' own
            name: answer[name] if kind.is_interval() else _AsAnswered.convert_column(answer[name], kind)
            for name, kind in schema.items()
        }
        frame = pa.table(columns).to_pandas()
        for name, column in columns.items():
            if pa.types.is_nested(column.type):  # pandas would make NaN of a NULL among whole numbers
                frame[name] = pandas.Series(column.to_pylist(), dtype=object)
        return expr.__pandas_result__(PandasData.convert_table(frame, schema))

    def to_json(self, expr: expressions.Table, /, path: str | Path, **options: Any) -> None:
        """Write the rows of an expression as a list of JSON objects. options: of `DataFrame.to_json`."""
        self.execute(expr).to_json(path, **{"orient": "records", **options})

    def raw_sql(self, query: Any, **_: Any) -> dbapi.Cursor:
        """Return a cursor of Python's database API that has answered one SELECT exactly."""
        text = query if isinstance(query, str) else query.sql(dialect=self.dialect)
        return dbapi.connect(self.con).execute(text)

    @contextmanager
    def _safe_raw_sql(self, query: Any, **_: Any) -> Iterator[dbapi.Cursor]:
        with self.raw_sql(query) as cursor:
            yield cursor

    def _sql(self, expr: expressions.Expr, params: Mapping[Any, Any] | None, limit: int | str | None) -> str:
        self._run_pre_execute_hooks(expr)
        sql = str(self.compile(expr.as_table(), params=params, limit=limit))
        named = {each.name for each in expr.op().find(operations.InMemoryTable)}
        written = [
            f"{quote_name(name)} AS ({self._written[name]})" for name in sorted(named & set(self._written))
        ]
        if not written:
            return sql
        rest = sql[len("WITH ") :] if sql.startswith("WITH ") else f" {sql}"
        return f"WITH {', '.join(written)}{', ' if sql.startswith('WITH ') else ''}{rest}"

    def _answer(self, sql: str) -> pa.Table:
        with self.con.online_sql(sql) as query:
            return query.result().estimate

    def _get_schema_using_query(self, query: str) -> ibis.expr.schema.Schema:
        described = self._answer(f"DESCRIBE {query}").to_pydict()
        columns = zip(described["column_name"], described["column_type"], strict=True)
        types = self.compiler.type_mapper
        return ibis.expr.schema.Schema({name: types.from_string(kind) for name, kind in columns})

    def _register_udfs(self, expr: expressions.Expr) -> None:
        for function in expr.op().find((operations.ScalarUDF, operations.AggUDF)):
            if function.__input_type__ is not InputType.BUILTIN:
                raise exceptions.UnsupportedOperationError(
                    f"{type(function).__name__} is a function of Python, which queries cannot call; use "
                    "DuckDB's functions, with ibis.udf.scalar.builtin where ibis has no name for one"
                )

    def _register_in_memory_table(self, op: operations.InMemoryTable) -> None:
        """Keep the rows of a memtable: few stand in each statement, many are a table of the session."""
        rows = op.data.to_pyarrow(op.schema)
        if rows.num_rows * rows.num_columns <= _MOST_WRITTEN_VALUES:
            self._written = {**self._written, op.name: self._values(rows, op.schema)}
        else:
            self.con.add_table(rows, op.name)

    def _values(self, rows: pa.Table, schema: Any) -> str:
        """Return a SELECT of rows that are written out."""
        kinds = list(schema.types)
        lines = [
            ", ".join(self._literal(value, kind) for value, kind in zip(row.values(), kinds, strict=True))
            for row in rows.to_pylist()
        ]
        if not lines:
            lines = [", ".join(self._literal(None, kind) for kind in kinds)]
        names = ", ".join(map(quote_name, schema.names))
        values = ", ".join(f"({line})" for line in lines)
        return f"SELECT * FROM (VALUES {values}) AS v({names}){'' if rows.num_rows else ' WHERE false'}"

    def _literal(self, value: Any, kind: Any) -> str:
        literal = self.compiler.to_sqlglot(
            ibis.null(kind) if value is None else ibis.literal(value, type=kind)
        )
        return str(literal.selects[0].unalias().sql(dialect=self.dialect))

    def _create_cached_table(self, name: str, expr: expressions.Table) -> expressions.Table:
        """Keep the rows of an expression in the session."""
        rows = self.to_pyarrow(expr)
        self.con.add_table(rows, name)
        return self.table(name)

    def _drop_cached_table(self, name: str) -> None:
        with suppress(relaqs.RelaqsError):  # the session may be closed by now
            self.con.remove_table(name)

    def _make_memtable_finalizer(self, name: str) -> None:
        return None

    def _transpile_sql(self, query: str, *, dialect: str | None = None) -> str:
        own = (None, DIALECT, self.dialect, self.name)
        return query if dialect in own else str(super()._transpile_sql(query, dialect=dialect))

    create_table, create_view = _refusing(SQLBackend.create_table), _refusing(SQLBackend.create_view)
    drop_table, drop_view = _refusing(SQLBackend.drop_table), _refusing(SQLBackend.drop_view)
    create_database = _refusing(CanCreateDatabase.create_database)
    drop_database = _refusing(CanCreateDatabase.drop_database)
    create_catalog = _refusing(CanCreateCatalog.create_catalog)
    drop_catalog = _refusing(CanCreateCatalog.drop_catalog)
    insert, upsert = _refusing(SQLBackend.insert), _refusing(SQLBackend.upsert)
    truncate_table = _refusing(SQLBackend.truncate_table)
    rename_table = _refusing(SQLBackend.rename_table)
