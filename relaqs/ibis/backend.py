"""The backend: what ibis asks of a database that is only read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import ibis.backends.sql.compilers as compilers
import ibis.common.exceptions as exceptions
import ibis.expr.operations as operations
import ibis.expr.schema
import ibis.expr.types as expressions
import pyarrow as pa
from ibis.backends import UrlFromPath
from ibis.backends.sql import SQLBackend
from ibis.expr.operations.udf import InputType
from relaqs_engine.duck import quote_name

import relaqs
from relaqs import dbapi
from relaqs.session import Session

if TYPE_CHECKING:
    import pandas
    from relaqs_engine.layouts.sources import TableSource

    from relaqs.queries.online_query import OnlineQuery


class Backend(SQLBackend, UrlFromPath):  # type: ignore[misc]  # ibis has no types
    """Tables of a session, as ibis has them. `ibis.relaqs.connect` makes one.

    Everything that ibis computes is exact. `online` gives a query that sharpens instead.

    Attributes:
        con: the session that answers.
    """

    name = "relaqs"
    compiler = compilers.duckdb.compiler
    supports_temporary_tables = False
    supports_python_udfs = False

    con: Session

    def do_connect(self, database: TableSource | None = None, **opening: Any) -> None:
        """Open a session.

        Args:
            database: as `relaqs.connect` takes it, such as the path of a warehouse.
            opening: the other arguments of `relaqs.connect`.
        """
        self.con = relaqs.connect(database, **opening)

    @classmethod
    def from_connection(cls, session: Session, /) -> Backend:
        """Return a backend over an open session."""
        backend = cls()
        backend._can_reconnect = False
        backend.con = session
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

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> con = Backend().connect("data", threads=1)
        >>> query = con.online(con.table("numbers").x.mean(), target="50%")
        >>> query.result().error <= 0.5
        True
        """
        return self.con.online_sql(self._sql(expr, params, None), **options)

    def list_tables(self, *, like: str | None = None, database: Any = None) -> list[str]:
        if database is not None:
            raise exceptions.UnsupportedOperationError(
                f"there is no database {database!r}: a session has tables, and no databases; leave it out"
            )
        return list(self._filter_with_like([*self.con.tables, *self.con.views], like))

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
        return expr.__pyarrow_result__(self._answer(self._sql(expr, params, limit)))

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
        from ibis.formats.pandas import PandasData
        from ibis.formats.pyarrow import PyArrowData

        schema = expr.as_table().schema()
        answer = self._answer(self._sql(expr, params, limit))
        columns = {  # an interval has months, which no duration of Arrow has: it becomes pandas' own
            name: answer[name] if kind.is_interval() else PyArrowData.convert_column(answer[name], kind)
            for name, kind in schema.items()
        }
        return expr.__pandas_result__(PandasData.convert_table(pa.table(columns).to_pandas(), schema))

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
        return str(self.compile(expr.as_table(), params=params, limit=limit))

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

    def _register_in_memory_table(self, op: operations.InMemoryTable) -> NoReturn:
        raise exceptions.UnsupportedOperationError(
            "a memtable cannot be added to a session; give it when you connect: "
            'ibis.relaqs.connect("warehouse", tables={"name": table})'
        )

    def _make_memtable_finalizer(self, name: str) -> None:
        return None

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise exceptions.UnsupportedOperationError(
            "nothing can be written through ibis; lay tables out with relaqs.shuffle, add rows with "
            "relaqs.append, and give views when you connect: views={…}"
        )

    create_table = create_view = drop_table = drop_view = _refused
    insert = upsert = truncate_table = rename_table = _refused
