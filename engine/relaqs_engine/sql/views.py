"""What a query may name beside tables: views, and paths that tables were opened from.

- Views are named SELECTs. When a query is planned they are in its WITH (`expand_views`).
- A path after FROM becomes the name of the table that was opened from it (`with_tables_of_paths`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.duck import quote_name
from relaqs_engine.errors import RelaqsError, SqlError
from relaqs_engine.sql.edits import Edit, WrittenSql, statement_tokens
from relaqs_engine.sql.misread import check_reading
from relaqs_engine.sql.parse import DIALECT, is_cte_reference, parse_query
from relaqs_engine.sql.read import Effort, read_statements


def check_views(
    views: Mapping[str, str], tables: Iterable[str], left_out: Iterable[tuple[str, RelaqsError]] = ()
) -> None:
    """Raise SqlError unless each view is one SELECT over tables and earlier views, under a free name.

    left_out: tables that could not be opened, and the errors that are raised where a view reads them.
    """
    known = {name.lower(): name for name in tables}
    for name, sql in views.items():
        if name.lower() in known:
            raise SqlError(f"the view {name!r} has the name of a table or another view; rename it")
        try:
            check_reading(sql, parse_query(sql, known.values(), left_out=left_out).written)
        except SqlError as error:
            message = f"in the view {name!r}: {error.message}"
            raise SqlError(message, error.position, error.candidates) from None
        known[name.lower()] = name


def expand_views(sql: str, views: Mapping[str, str], effort: Effort | None = None) -> str:
    """Return the query with the views that it reads, and those that they read, at the start of its WITH.

    SQL that reads no view, or is not one SELECT, comes back as it is. Raises SqlError where it does not parse
    or is too large. `effort` counts what reading costs.
    """
    trees = read_statements(sql, effort or Effort())
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query):
        return sql
    wanted = _read_views(tree, views)
    if not wanted:
        return sql
    check_reading(sql, tree.sql(DIALECT, comments=False))
    _refuse_capture(tree, wanted)
    parts = [_expression(name, wanted[name]) for name in views if name in wanted]
    with_ = tree.args.get("with_")
    if with_ is None:
        tree.set("with_", exp.With(expressions=parts))
    else:
        with_.set("expressions", [*parts, *with_.expressions])
    return tree.sql(DIALECT)


def _read_views(tree: exp.Query, views: Mapping[str, str]) -> dict[str, exp.Query]:
    """Return the parsed views, by name, that the query reads directly or through other views."""
    names = {name.lower(): name for name in views}
    found: dict[str, exp.Query] = {}
    pending = [tree]
    while pending:
        for table in pending.pop().find_all(exp.Table):
            name = names.get(table.name.lower())
            if name is None or name in found or table.db or is_cte_reference(table):
                continue
            parsed = sqlglot.parse_one(views[name], dialect=DIALECT)
            assert isinstance(parsed, exp.Query)
            found[name] = parsed
            pending.append(parsed)
    return found


def _refuse_capture(tree: exp.Query, views: Mapping[str, exp.Query]) -> None:
    """Raise SqlError where the query's own WITH would change the meaning of what its views read."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return
    own = {cte.alias.lower() for cte in with_.expressions}
    read = {table.name.lower() for view in views.values() for table in view.find_all(exp.Table)}
    clashes = own & {name.lower() for name in views} | (own & read if with_.recursive else set())
    if clashes:
        name = min(clashes)
        raise SqlError(f"the query's WITH defines {name!r}, which a view that it reads means too; rename it")


def _expression(name: str, view: exp.Query) -> exp.CTE:
    return exp.CTE(this=view, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


_READERS = frozenset(
    {"read_csv", "read_csv_auto", "read_parquet", "parquet_scan", "read_json", "read_json_auto"}
)


def with_tables_of_paths(
    written: WrittenSql, table_of: Callable[[str], str | None], effort: Effort
) -> WrittenSql:
    """Return the statement with the names of tables in the place of the paths that they were opened from.

    A path is what DuckDB takes for one: a name in quotes after FROM or JOIN, or the only argument of
    `read_parquet`, `read_csv` or `read_json`. No file is looked for. A path that no table was opened from
    stays, and is refused where tables are checked. So is SQL that does not parse.

    Args:
        written: one statement.
        table_of: returns the table that was opened from a path, None where there is none.
        effort: counts what reading costs.

    >>> opened = {"trips.parquet": "trips"}.get
    >>> sql = "SELECT max(fare) FROM 'trips.parquet' JOIN read_csv('zones.csv') AS z USING (zone)"
    >>> print(with_tables_of_paths(WrittenSql(sql), opened, Effort()).sql)
    SELECT max(fare) FROM "trips" JOIN read_csv('zones.csv') AS z USING (zone)
    """
    try:
        trees = read_statements(written.sql, effort)
    except SqlError:
        return written  # the planner says what is wrong
    if len(trees) != 1:
        return written
    tokens = statement_tokens(written.sql)
    places = {token.start: place for place, token in enumerate(tokens)}
    edits = []
    for table in trees[0].find_all(exp.Table):
        begin = table.this.meta.get("start")
        if table.text("db") or begin not in places or is_cte_reference(table):
            continue
        path, end = _path_read(table.this, tokens[places[begin] : places[begin] + 4])
        if path is not None and (name := table_of(path)) is not None:
            edits.append(Edit(begin, end, quote_name(name)))
    return written.edited(sorted(edits, key=lambda edit: edit.begin))


def _path_read(table: exp.Expr, tokens: Sequence[Token]) -> tuple[str | None, int]:
    """Return the path that stands for a table, None for anything else, and where that ends in the SQL."""
    first, *others = tokens
    if isinstance(table, exp.Identifier):
        return (table.name if table.args.get("quoted") else None), first.end + 1
    kinds = [token.token_type for token in others]
    if first.text.lower() in _READERS and kinds == [TokenType.L_PAREN, TokenType.STRING, TokenType.R_PAREN]:
        return others[1].text, others[-1].end + 1
    return None, first.end + 1
