"""Questions of tools about the server itself, rewritten for DuckDB and answered from names and types alone.

    SELECT relname FROM pg_catalog.pg_class      →  SELECT relname FROM pg.pg_class
    SELECT 'trips'::regclass::oid                →  SELECT to_regclass('trips')
    SELECT current_database(), version()         →  SELECT 'relaqs', 'PostgreSQL 15.0 …'

Only the relations of `catalog.sql` and `empty_relations.txt` can be read, only known functions called, and
what could make anything of one row is guarded as in any query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import pyarrow as pa
from sqlglot import exp

from relaqs_engine.duck import UTC, CivilTime, Cursor, Database, DatabaseConfig, quote_name, quote_text
from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.postgres.arrays import one_row
from relaqs_engine.postgres.kinds import column_name
from relaqs_engine.postgres.meaning import RelaqsPostgres, fold_names
from relaqs_engine.postgres.wording import DATABASE, without_postgres_words
from relaqs_engine.sql.functions import allowed_functions, check_functions, guard_functions
from relaqs_engine.sql.parse import DIALECT, is_cte_reference
from relaqs_engine.sql.read import Effort, read_statements

_MEMORY_LIMIT_BYTES, _RESULT_LIMIT_BYTES = 256 << 20, 32 << 20
_FIRST_TABLE = 16384  # OIDs below are Postgres's own
_ROW_FUNCTIONS = (exp.Unnest, exp.GenerateSeries, exp.Explode)
_OF_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.CurrentVersion: "version",
    exp.CurrentDatabase: "current_database",
    exp.CurrentCatalog: "current_database",
    exp.CurrentSchema: "current_schema",
    exp.CurrentUser: "current_user",
    exp.CurrentRole: "current_user",
    exp.SessionUser: "current_user",
}
_WORDS = {
    "current_schema": "current_schema",
    "current_catalog": "current_database",
    "current_role": "current_user",
    "current_user": "current_user",
    "session_user": "current_user",
}
_OF_CONNECTION = {
    *("version", "current_database", "current_schema", "current_user", "current_setting", "pg_backend_pid"),
    "txid_current",
}
_LOOKED_UP = {
    "regclass": ("to_regclass", "name_of_class"),
    "regtype": ("to_regtype", "name_of_type"),
    "regnamespace": ("to_regnamespace", "name_of_namespace"),
    "regrole": ("to_regrole", "pg_get_userbyid"),
    **dict.fromkeys(
        ("regproc", "regprocedure", "regoper", "regoperator"), ("to_regproc", "name_of_function")
    ),
}
_RENAMED = {"json_build_object": "json_object", "json_build_array": "json_array", "btrim": "trim"}
_SAYS_NOTHING = re.compile(r"pg_(?:stat_)?get_\w+|pg_\w+_size|pg_tablespace_databases")
"""Functions about what is not here: relations without files, and objects that there are none of."""

_OF_TYPES = ("input", "output", "receive", "send", "modin", "modout", "analyze", "subscript")
_OF_EACH_ROW = {"tableoid": None, "xmin": 3, "xmax": 0, "cmin": 0, "cmax": 0}
"""Columns that all relations have beside their own: the relation's OID, and what wrote a row."""

_OWN_ACTIVITY = """
SELECT * FROM pg.pg_stat_activity UNION ALL BY NAME
SELECT pg_backend_pid() AS pid, current_user AS usename, current_database() AS datname,
    current_setting('application_name') AS application_name,
    'active' AS state, 'client backend' AS backend_type
"""
"""Whoever asks sees their own connection, and no other."""

_PLAIN_TYPES = {
    **dict.fromkeys(("oid", "xid"), "BIGINT"),
    **dict.fromkeys(("name", "char", "regconfig", "regdictionary", "pg_lsn", "inet"), "TEXT"),
    **dict.fromkeys(("int2vector", "oidvector", "oid[]", "int2[]", "xid[]"), "BIGINT[]"),
    **dict.fromkeys(("name[]", "char[]", "regtype[]", "regclass[]", "aclitem[]"), "TEXT[]"),
}


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of a table as Postgres has it. modifier: of a numeric its digits, else -1."""

    name: str
    type_oid: int
    modifier: int
    sql_type: str


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table that tools may see."""

    name: str
    row_count: int
    columns: tuple[ShownColumn, ...]


@dataclass(frozen=True, slots=True)
class ShownType:
    """A type that tools may see. array_oid: of arrays of it, 0 for none."""

    oid: int
    name: str
    sql_name: str
    size: int
    array_oid: int


class Metadata:
    """Answers what tools ask about tables, columns and types. It has no table's data.

    Args:
        tables: what there is to see.
        types: the types that columns may have.
        users: who may connect.
        settings: name → value, for pg_settings.
    """

    def __init__(
        self,
        tables: Sequence[ShownTable],
        types: Sequence[ShownType],
        users: Sequence[str],
        settings: Mapping[str, str],
    ) -> None:
        self._tables = frozenset(table.name.lower() for table in tables)
        limits = DatabaseConfig((), _MEMORY_LIMIT_BYTES, result_limit_bytes=_RESULT_LIMIT_BYTES)
        self._database = Database(limits)
        with_ddl = self._database.cursor()
        with_ddl.run(_resource("catalog.sql"))
        empty = [each for each in _relations() if each.columns]
        for each in empty:
            with_ddl.run(f"CREATE TABLE {each.name} ({', '.join(map(_declared, each.columns))})")
        _fill(with_ddl, tables, types, users, settings)
        self._relations = frozenset(
            f"{schema}.{name}"
            for schema, name in with_ddl.rows(
                "SELECT schema_name, table_name FROM duckdb_tables() UNION ALL "
                "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
            )
        )
        self.column_types: dict[str, dict[str, str]] = {}  # of its relations, by their names
        for name, column, type_ in with_ddl.rows(
            "SELECT table_name, lower(column_name), data_type FROM duckdb_columns() WHERE NOT internal"
        ):
            self.column_types.setdefault(name, {})[column] = type_
        self._functions = allowed_functions() | {
            name
            for (name,) in with_ddl.rows(
                "SELECT DISTINCT lower(function_name) FROM duckdb_functions() "
                "WHERE NOT internal AND function_type = 'macro'"
            )
        }
        self._own_functions = self._functions - allowed_functions()
        self._scalars = self._functions | _OF_CONNECTION | {"set_config", "current_catalog", "current_role"}
        with_ddl.close()

    def rewritten(self, sql: str, constant: Callable[[str, str], str | None]) -> str | None:
        """Return SQL for `table`, or None where the question is one about tables of the warehouse.

        Args:
            sql: one SELECT.
            constant: (function, argument) → what it gives in this connection, such as ("current_user", "")
                and ("current_setting", "search_path"). None where there is no such value.

        Raises:
            SqlError: it does not parse, or names a table or function that is not there.
            UnsupportedError: it reads tables of both kinds.
        """
        trees = read_statements(without_postgres_words(sql), Effort(), RelaqsPostgres)
        if len(trees) != 1 or not isinstance(trees[0], exp.Query):
            return None
        tree = trees[0]
        for select in tree.find_all(exp.Select):
            select.set("locks", None)
        for table in list(tree.find_all(exp.Table)):
            _as_relation(table, self._relations, self._scalars)
        others = [table.name for table in _tables(tree) if not self._place(table)]
        reads_own = any("." in self._qualified(table) for table in _tables(tree))
        if not reads_own and (others or not self._calls_own(tree)):
            return None
        if others and others[0].lower() in self._tables:
            raise UnsupportedError(
                f"a query about {others[0]} and about the server itself is not answered; ask one at a time"
            )
        if others:
            raise SqlError(f"there is no relation {others[0]} in the catalog of this server")
        return self._as_duckdb(tree, constant).sql(DIALECT)

    def cursor(self, timezone: str = UTC.zone) -> Cursor:
        """Return a cursor for one thread, on which the rewritten SQL is run.

        timezone: of the connection.
        """
        return self._database.cursor(CivilTime(timezone))

    def close(self) -> None:
        """Free the memory."""
        self._database.close()

    def _qualified(self, table: exp.Table) -> str:
        """Return the relation's name here, "" where it has none."""
        schema = {"information_schema": "info", "": "pg"}.get(table.db.lower(), table.db)
        name = f"{schema}.{table.name.lower()}"
        return name if name in self._relations else ""

    def _place(self, table: exp.Table) -> bool:
        return bool(self._qualified(table))

    def _calls_own(self, tree: exp.Expr) -> bool:
        """Whether a function is called that only the server itself has."""
        own = self._own_functions | _OF_CONNECTION | {"set_config", "current_schemas"}
        if any(isinstance(node, (*_OF_FUNCTIONS, exp.CurrentSchemas)) for node in tree.walk()):
            return True
        if any(_word(node) in _WORDS for node in tree.find_all(exp.Column)):
            return True
        if any(node.name.lower() in own for node in tree.find_all(exp.Anonymous)):
            return True
        return any(_looked_up(node) is not None for node in tree.find_all(exp.Cast))

    def _as_duckdb(self, tree: exp.Query, constant: Callable[[str, str], str | None]) -> exp.Expr:
        fold_names(tree)
        self._fill_columns_of_each_row(tree)
        _name_outputs(tree)
        for table in list(_tables(tree)):
            schema, _, name = self._qualified(table).partition(".")
            relation: exp.Expr = exp.table_(name, db=schema)
            own = _OWN_ACTIVITY if name == "pg_stat_activity" else None
            own = constant(name, "") if name == "pg_prepared_statements" else own
            if own is not None:
                relation = exp.Subquery(this=exp.maybe_parse(own, dialect=DIALECT))
            table.replace(_aliased(relation, table, table.alias or table.name))
        whole = (
            tree.transform(_with_operators_of_postgres)
            .transform(_without_postgres_types)
            .transform(lambda node: _constants(node, constant, self._functions))
        )
        check_functions(whole, self._functions)
        guard_functions(whole)
        return whole

    def _fill_columns_of_each_row(self, tree: exp.Expr) -> None:
        """Replace tableoid, xmin and the like by their values. In place."""
        for column in list(tree.find_all(exp.Column)):
            name = column.name.lower()
            if name not in _OF_EACH_ROW or (table := _source(column)) is None:
                continue
            if not (relation := self._qualified(table)):
                continue
            value = _OF_EACH_ROW[name]
            oids = {each.name: each.oid for each in _relations()}
            number = oids.get(relation, 0) if value is None else value
            literal = exp.Literal.number(number)
            column.replace(exp.alias_(literal, name) if isinstance(column.parent, exp.Select) else literal)


def answer(cursor: Cursor, sql: str) -> tuple[list[tuple[str, str]], pa.Table]:
    """Return the columns of rewritten SQL, names and DuckDB's types, and its rows."""
    return cursor.describe(sql), cursor.table(sql)


def _tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Yield what is read, without CTEs. Raises SqlError for a table function that may not be called."""
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            if table.db or not is_cte_reference(table):
                yield table
        elif not isinstance(table.this, _ROW_FUNCTIONS):
            text = table.this.sql(DIALECT)
            raise SqlError(f"{text} is a table function; only tables of the catalog can be read")


def _name_outputs(tree: exp.Expr) -> None:
    """Give the columns of each SELECT the names that they have in Postgres. In place."""
    for select in tree.find_all(exp.Select):
        for item in list(select.expressions):
            is_word = isinstance(item, exp.Column) and _word(item) in _WORDS
            if (name := _word(item) if is_word else column_name(item)) is not None:
                item.replace(exp.alias_(item.copy(), name, quoted=True))


def _source(column: exp.Expr) -> exp.Table | None:
    """Return the table that a column is of, by its alias; of those without one, the first that is read."""
    table = column.text("table").lower()
    select = column.find_ancestor(exp.Select)
    while select is not None:
        begin = select.args.get("from_") or select.args.get("from")
        sources = [begin.this] if begin is not None else []
        sources += [join.this for each in (select, *sources) for join in each.args.get("joins") or ()]
        for source in sources:
            if table in ("", source.alias_or_name.lower()):
                return source if isinstance(source, exp.Table) and not is_cte_reference(source) else None
        select = select.find_ancestor(exp.Select)
    return None


def _as_relation(table: exp.Table, relations: Collection[str], functions: Collection[str]) -> None:
    """Let a function that is read as a table be what DuckDB can read.

    pg_get_keywords() is a relation here, and so are functions whose rows would be about what there is none
    of. A function of one value is a table of one row. The name behind generate_series is also that of its
    column.
    """
    function = table.this
    if isinstance(function, exp.Anonymous) and f"pg.{function.name.lower()}" in relations:
        table.set("this", exp.to_identifier(function.name.lower()))
    elif isinstance(function, exp.Identifier) and _word(exp.Column(this=function.copy())) in _WORDS:
        if not table.db and not is_cte_reference(table):
            value = exp.alias_(exp.Column(this=function.copy()), table.alias or function.name)
            table.replace(exp.select(value).subquery(table.alias or function.name))
    elif isinstance(function, exp.GenerateSeries) and table.alias and not table.alias_column_names:
        columns = [exp.to_identifier(table.alias)]
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias), columns=columns))
    elif (rows := one_row(table, functions)) is not None:
        table.replace(rows)


def _aliased(relation: exp.Expr, before: exp.Table, alias: str) -> exp.Expr:
    for key in ("joins", "laterals", "pivots", "sample", "ordinality"):
        if before.args.get(key):
            relation.set(key, before.args[key])
    kept = before.args.get("alias")
    relation.set("alias", kept or exp.TableAlias(this=exp.to_identifier(alias)))
    return relation


def _looked_up(cast: exp.Cast) -> tuple[str, str] | None:
    """Return the functions for a cast to a type such as regclass: from a name, and from an OID."""
    return _LOOKED_UP.get(_type_name(cast))


def _type_name(cast: exp.Cast) -> str:
    return cast.to.sql("postgres").lower().strip('"')


def _with_operators_of_postgres(node: exp.Expr) -> exp.Expr:
    """Return what gives in DuckDB what an operator gives in Postgres."""
    if isinstance(node, exp.Div) and _is_whole(node.this) and _is_whole(node.expression):
        return exp.IntDiv(this=node.this, expression=node.expression)
    pattern = node.args.get("start") if isinstance(node, exp.Substring) else None
    if isinstance(pattern, exp.Literal) and pattern.is_string:
        group = exp.Literal.number(1 if "(" in pattern.name else 0)
        return exp.func("regexp_extract", node.this, pattern, group, dialect=DIALECT)
    if isinstance(node, exp.NEQ) and (of := node.expression).name.lower() == "all":
        values = of.expressions[0] if isinstance(of, exp.Anonymous) else of.this
        return exp.not_(exp.func("list_contains", values, node.this))
    if isinstance(node, exp.EQ | exp.NEQ):
        _compare_functions(node)
    return node


def _compare_functions(node: exp.Binary) -> None:
    """Compare the name of a function, "-" for none, with what Postgres compares with its OID. In place."""
    for function, other in ((node.this, node.expression), (node.expression, node.this)):
        if function.name.lower() not in _function_columns() or other.name.lower() in _function_columns():
            continue
        if isinstance(other, exp.Literal) and not other.is_string and other.name == "0":
            other.replace(exp.Literal.string("-"))
        elif isinstance(other, exp.Column):
            other.replace(exp.cast(other.copy(), "TEXT"))


def _without_postgres_types(node: exp.Expr) -> exp.Expr:
    if not isinstance(node, exp.Cast):
        return node
    name = _type_name(node)
    looked_up = _looked_up(node.this) if isinstance(node.this, exp.Cast) else None
    if name in ("text", "varchar", "name") and looked_up is not None:
        return exp.Anonymous(this=looked_up[1], expressions=[_oid(node.this)])
    if name.endswith("[]") and isinstance(node.this, exp.Literal) and node.this.name.startswith("{"):
        words = node.this.name.strip("{}")
        node.this.replace(exp.Literal.string(f"[{words}]"))
        return node
    if name in _PLAIN_TYPES:
        return _oid(node.this) if looked_up else exp.cast(node.this, _PLAIN_TYPES[name], dialect=DIALECT)
    if name not in _LOOKED_UP:
        return node
    if isinstance(node.this, exp.Literal):
        return _oid(node)
    return exp.Anonymous(this=_LOOKED_UP[name][1], expressions=[_oid(node)])


def _oid(cast: exp.Cast) -> exp.Expr:
    """Return the OID behind a cast to a type such as regclass, of a name or of an OID."""
    value = cast.this
    bare = value.unnest()
    if isinstance(bare, exp.Literal):
        is_name = bare.is_string and not bare.name.isdecimal()
    else:
        is_name = isinstance(bare, exp.DPipe | exp.Concat) or bare.name.lower() in ("quote_ident", "format")
    return exp.Anonymous(this=_LOOKED_UP[_type_name(cast)][0], expressions=[value]) if is_name else value


def _word(column: exp.Column) -> str:
    """Return a name without table and quotes in lower case, "" for others: it may be a word of Postgres."""
    has_more = column.table or not isinstance(column.this, exp.Identifier) or column.this.args.get("quoted")
    return "" if has_more else column.name.lower()


def _is_whole(node: exp.Expr) -> bool:
    """Whether a value is certainly a whole number: dividing two of them gives one, in Postgres."""
    if isinstance(node, exp.Literal):
        return node.is_int
    return isinstance(node, exp.Cast) and node.to.this in exp.DataType.INTEGER_TYPES


def _constants(
    node: exp.Expr, constant: Callable[[str, str], str | None], functions: Collection[str]
) -> exp.Expr:
    """Return what a function of the connection gives, in the place of its call.

    functions: those that are called. One that would say something about what is not here is NULL.
    """
    if isinstance(node, exp.CurrentSchemas):
        is_own = isinstance(node.this, exp.Boolean) and not node.this.this
        implied = [] if is_own else ["pg_catalog"]
        return exp.array(*map(exp.Literal.string, (*implied, "public")))
    name = _OF_FUNCTIONS.get(type(node), "")
    argument = ""
    if isinstance(node, exp.Anonymous):
        name, arguments = node.name.lower(), node.expressions
        argument = arguments[0].name if arguments else ""
        if name == "set_config":
            if argument.lower().startswith("relaqs."):
                raise UnsupportedError(f"set_config of {argument} is not served; use SET {argument} = …")
            return arguments[1] if len(arguments) > 1 else node
        if name in _RENAMED:
            return exp.Anonymous(this=_RENAMED[name], expressions=arguments)
        if name == "encode" and len(arguments) == 2:
            return exp.cast(arguments[0], "TEXT")
        if name == "age" and len(arguments) == 1:  # of a transaction
            return exp.Literal.number(1)
        if name not in functions and _SAYS_NOTHING.fullmatch(name):
            return exp.null()
    if isinstance(node, exp.Column):
        name = {**_WORDS, "user": "current_user"}.get(_word(node), "")
    if name not in _OF_CONNECTION:
        return node
    value = constant(name, argument)
    if name in ("pg_backend_pid", "txid_current") and value is not None:
        return exp.cast(exp.Literal.number(value), "INTEGER")
    return exp.null() if value is None else exp.Literal.string(value)


@cache
def _resource(name: str) -> str:
    return files("relaqs_engine.postgres").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Relation:
    """A relation of Postgres. columns: of one that is always empty; the others are in catalog.sql."""

    name: str
    oid: int
    columns: tuple[str, ...]


@cache
def _relations() -> tuple[_Relation, ...]:
    """Return the relations of the file: `schema.name@oid column column …`."""
    found = []
    for line in _resource("empty_relations.txt").splitlines():
        first, *columns = line.split()
        name, _, oid = first.partition("@")
        found.append(_Relation(name, int(oid or 0), tuple(columns)))
    return tuple(found)


@cache
def _function_columns() -> frozenset[str]:
    """Return the columns with names of functions, "-" for none. Tools compare them with 0, as OIDs."""
    empty = {name[:-1] for each in _relations() for name in each.columns if name.endswith("!")}
    return frozenset(empty | {"amhandler"} | {f"typ{end}" for end in _OF_TYPES})


def _declared(column: str) -> str:
    """Return a column of a table. `#` marks numbers, `%` fractions, `?` switches, `~` moments, `[]` lists."""
    name = column.rstrip("[]#?%~!")
    marks = {"#": "BIGINT", "%": "DOUBLE", "?": "BOOLEAN", "~": "TIMESTAMPTZ"}
    kind = next((kind for mark, kind in marks.items() if mark in column), "VARCHAR")
    return f"{quote_name(name)} {kind}{'[]' if column.endswith('[]') else ''}"


def _fill(
    cursor: Cursor,
    tables: Sequence[ShownTable],
    types: Sequence[ShownType],
    users: Sequence[str],
    settings: Mapping[str, str],
) -> None:
    shown = [(_FIRST_TABLE + i, each) for i, each in enumerate(tables)]
    _insert(cursor, "shown_table", [(oid, each.name, each.row_count) for oid, each in shown])
    columns = [
        (oid, place, column.name, column.type_oid, column.modifier, column.sql_type)
        for oid, each in shown
        for place, column in enumerate(each.columns, 1)
    ]
    _insert(cursor, "shown_column", columns)
    _insert(cursor, "shown_type", [(t.oid, t.name, t.sql_name, t.size, t.array_oid) for t in types])
    _insert(cursor, "shown_relation", [(each.oid, each.name) for each in _relations() if each.oid])
    _insert(cursor, "shown_user", [(10 + i, name) for i, name in enumerate(users)])
    _insert(cursor, "shown_setting", list(settings.items()))


def _insert(cursor: Cursor, table: str, rows: Collection[Sequence[int | str]]) -> None:
    if rows:
        written = (
            f"({', '.join(str(v) if isinstance(v, int) else quote_text(v) for v in row)})" for row in rows
        )
        cursor.run(f"INSERT INTO {table} VALUES {', '.join(written)}")


__all__ = ["DATABASE", "Metadata", "ShownColumn", "ShownTable", "ShownType", "answer"]
