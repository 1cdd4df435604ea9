"""From text to one checked SELECT over tables and views of the catalog. Everything else is refused here.

**What a query may name beside tables.** Views are named SELECTs. They are put into the WITH of the tree that
was read (`expand_views` does so with a text). A path after FROM becomes the name of the table that was opened
from it (`with_tables_of_paths`).

**A query may be far larger than its text.** A name of three letters may stand for a query that names
another one twice, and so on: 500 characters can stand for 2³⁰ tables. So `check_expansion` counts what the
rules and DuckDB's binder would write out, CTEs, aliases and stars, or a little more. Each part is counted
once, however often it is named, so counting itself stays cheap.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from relaqs_engine.duck import quote_name
from relaqs_engine.errors import RelaqsError, SqlError
from relaqs_engine.sql.aggregate_laws import mark_aggregates
from relaqs_engine.sql.binder import check_reading
from relaqs_engine.sql.dialect import DIALECT as DIALECT
from relaqs_engine.sql.dialect import find_all, find_first
from relaqs_engine.sql.functions import READERS, check_functions, guard_functions, of_a_file
from relaqs_engine.sql.read import (
    Edit,
    Effort,
    WrittenSql,
    check_text,
    check_tree,
    read_statements,
    statement_tokens,
    too_large,
    tree_of,
)
from relaqs_engine.sql.statements import select_for_pivots

MOST_NODES = 60_000
MOST_TABLES = 100
MOST_CTES = 100
MOST_LEVELS = 40
MOST_COLUMNS = 3000

Columns = Mapping[str, int]  # from a name in lower case to the number of nodes that it stands for


@dataclass(frozen=True, slots=True)
class _Written:
    """A query or table as it is when written out.

    Attributes:
        nodes: how many nodes its tree has.
        tables: how many tables it reads.
        levels: how many SELECTs are inside or upon each other.
        columns: its columns, and how many nodes each stands for.
    """

    nodes: int = 1
    tables: int = 1
    levels: int = 0
    columns: Columns = field(default_factory=dict)


def check_expansion(tree: exp.Query, tables: Mapping[str, Iterable[str]]) -> None:
    """Raise SqlError for a query that stands for too much.

    Args:
        tables: the names of the catalog's columns, by table.

    Seven CTEs, each naming the one before twice, stand for 2⁷ tables:

    >>> tables = {"trips": ["fare"]}
    >>> doubled = ", ".join(f"c{i + 1} AS (SELECT 1 FROM c{i}, c{i} AS again)" for i in range(7))
    >>> sql = f"WITH c0 AS (SELECT fare FROM trips), {doubled} SELECT count(*) FROM c7"
    >>> check_expansion(sqlglot.parse_one(sql), tables)
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: the query comes to 128 tables with its WITH, views, aliases and stars
    written out; ...
    """
    known = {
        name.lower(): _Written(columns={column.lower(): 1 for column in columns})
        for name, columns in tables.items()
    }
    if (ctes := sum(1 for _ in find_all(tree, exp.CTE))) > MOST_CTES:
        raise too_large(
            f"the query has {ctes:,} names in its WITHs and views", MOST_CTES, "put some together"
        )
    _query(tree, known, {})


def _query(query: exp.Expr, known: Mapping[str, _Written], outer: Columns) -> _Written:
    known = _with_ctes(query, known, outer)
    if isinstance(query, exp.SetOperation):
        sides = [_query(query.args[side], known, outer) for side in ("this", "expression")]
        rest = [part for name, part in query.args.items() if name not in ("this", "expression", "with_")]
        ends = [_expression(each, known, outer) for part in rest for each in _nodes_of(part)]
        return _checked(_together([*sides, *ends], dict(sides[0].columns), levels=0))
    if isinstance(query, exp.Subquery):
        return _source(query, known, outer)
    if isinstance(query, exp.Select):
        return _select(query, known, outer)
    return _Written(nodes=sum(1 for _ in query.walk()))


def _with_ctes(query: exp.Expr, known: Mapping[str, _Written], outer: Columns) -> Mapping[str, _Written]:
    """Return the meaning of each name below the query."""
    with_ = query.args.get("with_")
    if with_ is None:
        return known
    scope = dict(known)
    for cte in with_.expressions:
        name = cte.alias.lower()
        inside = {**scope, name: _Written()} if with_.recursive else scope
        body = _query(cte.this, inside, outer)
        scope[name] = _renamed(body, cte.args.get("alias"))
    return scope


def _select(select: exp.Select, known: Mapping[str, _Written], outer: Columns) -> _Written:
    sources: list[_Written] = []
    visible: dict[str, int] = dict(outer)
    from_ = select.args.get("from_")
    laterals = select.args.get("laterals") or []
    joins = select.args.get("joins") or []
    for item in [*([from_.this] if from_ else []), *(join.this for join in joins), *laterals]:
        for each in _flat(item):
            source = _source(each, known, visible)
            sources.append(source)
            _offer(visible, source.columns)
    conditions = [
        part for join in joins for name in ("on", "using") for part in _nodes_of(join.args.get(name))
    ]
    width = sum(len(source.columns) for source in sources)
    star = max(width, 1) + sum(sum(source.columns.values()) for source in sources)
    items, columns = _items(select, known, visible, star, sources)
    rest = [
        part
        for name, value in select.args.items()
        if name not in ("from_", "joins", "laterals", "expressions", "with_", "kind", "hint")
        for part in _nodes_of(value)
    ]
    parts = [_expression(part, known, visible, star) for part in (*conditions, *rest)]
    _check_columns(select, width)
    return _checked(_together([*sources, *items, *parts], columns, levels=1))


def _flat(item: exp.Expr) -> Iterable[exp.Expr]:
    """Yield a source and the ones that are joined to it inside parentheses."""
    yield item
    for join in item.args.get("joins") or []:
        yield from _flat(join.this)


def _items(
    select: exp.Select,
    known: Mapping[str, _Written],
    visible: dict[str, int],
    star: int,
    sources: list[_Written],
) -> tuple[list[_Written], dict[str, int]]:
    """Return the SELECT's items, and what its columns stand for. What comes after an alias can see it."""
    items: list[_Written] = []
    columns: dict[str, int] = {}
    for item in select.expressions:
        written = _expression(item, known, visible, star)
        items.append(written)
        if isinstance(item, exp.Star) or item.is_star:
            for source in sources:
                _offer(columns, source.columns)
        elif name := item.alias_or_name.lower():
            columns[name] = max(written.nodes, columns.get(name, 0))
        if item.alias:
            visible.setdefault(item.alias.lower(), written.nodes)
    return items, columns


def _source(item: exp.Expr, known: Mapping[str, _Written], outer: Columns) -> _Written:
    """Return what one relation of a FROM stands for."""
    if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
        found = known.get(item.name.lower(), _Written())
        return _renamed(found, item.args.get("alias"))
    if isinstance(item, exp.Subquery):
        inner = _query(item.this, known, outer)
        return _renamed(inner, item.args.get("alias"))
    if isinstance(item, exp.Lateral):
        return _source(item.this, known, outer)
    return _together([_expression(item, known, outer)], {}, levels=0, tables=1)


def _expression(root: exp.Expr, known: Mapping[str, _Written], visible: Columns, star: int = 1) -> _Written:
    """Return what an expression stands for, together with the queries inside it."""
    nodes = tables = levels = 0
    for node in root.walk(prune=lambda node: isinstance(node, exp.Query | exp.Column)):
        nodes += 1
        if isinstance(node, exp.Query):
            inner = _query(node, known, visible)
            nodes, tables, levels = nodes + inner.nodes, tables + inner.tables, max(levels, inner.levels)
        elif isinstance(node, exp.Column):
            nodes += star if isinstance(node.this, exp.Star) else visible.get(node.name.lower(), 1)
        elif isinstance(node, exp.Columns | exp.Star) and not isinstance(node.parent, exp.Count):
            nodes += star
    return _checked(_Written(nodes, tables, levels))


def _together(parts: list[_Written], columns: Columns, *, levels: int, tables: int = 0) -> _Written:
    return _Written(
        1 + sum(part.nodes for part in parts),
        tables + sum(part.tables for part in parts),
        levels + max((part.levels for part in parts), default=0),
        columns,
    )


def _renamed(written: _Written, alias: exp.Expr | None) -> _Written:
    """Return it with the column names of `AS t(a, b)`."""
    names = [each.name.lower() for each in alias.args.get("columns") or []] if alias is not None else []
    if not names:
        return written
    largest = max(written.columns.values(), default=1)
    return _Written(
        written.nodes, written.tables, written.levels, {**written.columns, **dict.fromkeys(names, largest)}
    )


def _offer(visible: dict[str, int], columns: Columns) -> None:
    for name, nodes in columns.items():
        visible[name] = max(nodes, visible.get(name, 0))


def _nodes_of(value: object) -> list[exp.Expr]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, exp.Expr)]


def _check_columns(select: exp.Select, width: int) -> None:
    count = sum(
        max(width, 1) if item.is_star or find_first(item, exp.Columns) else 1 for item in select.expressions
    )
    if count > MOST_COLUMNS:
        raise too_large(f"a SELECT has {count:,} columns", MOST_COLUMNS, "name those that you need")


def _checked(written: _Written) -> _Written:
    for count, most, what in (
        (written.nodes, MOST_NODES, "names, values and operators"),
        (written.tables, MOST_TABLES, "tables"),
    ):
        if count > most:
            raise too_large(
                f"the query comes to {count:,} {what} with its WITH, views, aliases and stars written out",
                most,
                "name each part once, or ask for the parts one by one",
            )
    if written.levels > MOST_LEVELS:
        raise SqlError(
            f"the query has {written.levels} SELECTs inside or upon each other; up to {MOST_LEVELS} are "
            "accepted: put some of them together"
        )
    return written


# sqlglot warns where it keeps a statement as text; such statements are refused here, with an error.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_MOST_NAMED = 20  # tables in an error
_MOST_QUOTED = 40  # characters of a statement in an error
_FILES = "give its file to connect, as in relaqs.connect(tables={'trips': 'trips.duckdb'})"
_SETTINGS = "give settings to connect, as in relaqs.connect(…, threads=2, memory_limit='2GB')"
_INSTEAD = {
    "ATTACH": _FILES,
    "COPY": "`relaqs sql --output FILE` writes an answer to a file, and to_arrow() gives it as a table",
    "CREATE": "name a SELECT by WITH, or by relaqs.connect(…, views={'late': 'SELECT …'})",
    "EXPLAIN": "`relaqs explain`, or explain(sql) of the session, says how a query is answered",
    "INSERT": "`relaqs append`, or append of the session, adds rows to a table that is laid out",
    "PRAGMA": _SETTINGS,
    "RESET": _SETTINGS,
    "SET": _SETTINGS,
    "USE": _FILES,
}
"""What to do instead of a statement that is refused."""
_DIGITS = re.compile(r"\d+")
_TABLE_FUNCTIONS = (exp.Unnest, exp.GenerateSeries, exp.ExplodingGenerateSeries, exp.Explode)

_AFTER_BRACKETS = {
    "with_": ("with_",),
    "order": ("order", "limit", "offset"),
    "limit": ("limit", "offset"),
    "offset": ("limit", "offset"),
}
"""The clauses that may follow a query in brackets, and what it must not have inside of them then."""
_OF_QUERIES = {"all": exp.All, "array": None, "exists": exp.Exists, "some": exp.Any}
"""What takes a query in brackets. ARRAY(SELECT …) is a call for sqlglot, and stays one."""


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """One SELECT (or set operation) that passed all checks.

    Attributes:
        sql: its text, with the views that it reads at the start of its WITH.
        tables: the catalog's names of the tables that it reads.
        asked: the text without views, as the user wrote it.
        written: what is written from the tree of that. `check_reading` compares the two.
    """

    sql: str
    tree: exp.Query
    tables: frozenset[str]
    asked: str
    written: str

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Raise errors about `sql` without their places where those are not in what the user wrote."""
        try:
            yield
        except SqlError as error:
            if self.sql != self.asked:
                raise SqlError(error.message, None, error.candidates) from None
            raise


def parse_query(
    sql: str,
    known_tables: Iterable[str],
    effort: Effort | None = None,
    left_out: Iterable[tuple[str, RelaqsError]] = (),
    views: Mapping[str, str] | None = None,
) -> ParsedQuery:
    """Return the checked query. Raises SqlError, with the position where that is known.

    Args:
        known_tables: the names in the catalog. They are compared without case.
        effort: counts what reading costs.
        left_out: tables that could not be opened, and the errors that are raised where they are read.
        views: name → SELECT, which `check_views` found right.

    >>> parsed = parse_query("SELECT avg(Fare) FROM Trips", known_tables=["trips"])
    >>> parsed.tables
    frozenset({'trips'})
    >>> parse_query("SELECT fare FROM trip", known_tables=["trips"])
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: there is no table trip in the catalog, which has: trips; at line 1, column
    18; did you mean 'trips'?
    >>> parse_query("DELETE FROM trips", known_tables=["trips"])
    Traceback (most recent call last):
    relaqs_engine.errors.SqlError: only SELECT is accepted, this is DELETE
    """
    tree = _single_select(sql, effort or Effort())
    written = tree.sql(DIALECT, comments=False)
    asked = sql
    if views and _put_in_views(tree, views):
        sql = tree.sql(DIALECT)
        check_text(sql)
        check_tree(tree)
    _select_what_is_described(tree)
    _unpack_columns(tree)
    _select_from_values(tree)
    _take_in_what_follows_brackets(tree)
    _read_calls_of_queries(tree)
    _take_joins_out_of_brackets(tree)
    _order_by_all(tree)
    _leave_out_the_schema(tree)
    if find_first(tree, exp.Pivot) is not None:
        select_for_pivots(tree)
    _refuse_statements(tree)
    check_functions(tree)
    mark_aggregates(tree)
    guard_functions(tree)
    names = {name.lower(): name for name in known_tables}
    errors = {name.lower(): error for name, error in left_out}
    tables = frozenset(_check_tables(tree, names, errors))
    return ParsedQuery(sql, tree, tables, asked, written)


def _single_select(sql: str, effort: Effort) -> exp.Query:
    statements = read_statements(sql, effort)
    if not statements:
        raise SqlError("the SQL is empty; give one SELECT")
    if len(statements) > 1:
        raise SqlError(f"{len(statements)} statements were given; give one SELECT at a time")
    tree = _out_of_brackets(statements[0])
    if not isinstance(tree, exp.Query):
        raise _no_select(tree, sql)
    return tree


def _out_of_brackets(tree: exp.Expr) -> exp.Expr:
    """Return a query without brackets around all of it. What follows them, as ORDER BY, is its own."""
    while isinstance(tree, exp.Subquery):
        if not _take_in(tree):
            raise SqlError(
                "the query in brackets has a clause of its own that those after the brackets would follow; "
                "write SELECT * FROM (…) AS q before ORDER BY and LIMIT, and all CTEs in one WITH"
            )
        tree = tree.this
    return tree


def _take_in_what_follows_brackets(tree: exp.Query) -> None:
    """Write `FROM ((SELECT a FROM t LIMIT 1))` for `FROM ((SELECT a FROM t) LIMIT 1)`. In place."""
    for brackets in reversed(list(find_all(tree, exp.Subquery))):
        _take_in(brackets)


def _take_in(brackets: exp.Subquery) -> bool:
    """Give a query in brackets the clauses after them, where it has none before these. Return whether so."""
    inner, after = brackets.this, [name for name in _AFTER_BRACKETS if brackets.args.get(name)]
    if not isinstance(inner, exp.Query) or any(
        inner.args.get(name) for each in after for name in _AFTER_BRACKETS[each]
    ):
        return not after
    for name in after:
        inner.set(name, brackets.args[name].pop())
    return True


def _no_select(tree: exp.Expr, sql: str) -> SqlError:
    if isinstance(tree, exp.Condition | exp.Alias):  # such as a name, or two: SELEC, SAVEPOINT a
        return SqlError(
            f"{sql.strip()[:_MOST_QUOTED]!r} is no SELECT; begin with SELECT or FROM, as in FROM trips"
        )
    kind = ((tree.name or tree.key) if isinstance(tree, exp.Command) else tree.key).upper()
    instead = f"; {_INSTEAD[kind]}" if kind in _INSTEAD else ""
    return SqlError(f"only SELECT is accepted, this is {kind}{instead}")


def _select_what_is_described(tree: exp.Query) -> None:
    """Write `SELECT * FROM t` for the `t` of a DESCRIBE or SUMMARIZE inside of a SELECT. In place."""
    for node in list(find_all(tree, exp.Describe, exp.Summarize)):
        if isinstance(node.this, exp.Table | exp.Values):
            node.set("this", exp.select("*").from_(node.this.copy()))


def _leave_out_the_schema(tree: exp.Query) -> None:
    """Write `t` for `main.t`, the name with DuckDB's schema, where no CTE is called so. In place."""
    shadowing = {cte.alias.lower() for cte in find_all(tree, exp.CTE)}
    for node in list(find_all(tree, exp.Table, exp.Column)):
        name = node.table if isinstance(node, exp.Column) else node.name
        if node.text("db").lower() == "main" and not node.text("catalog") and name.lower() not in shadowing:
            node.set("db", None)


def _unpack_columns(tree: exp.Query) -> None:
    """Write `*COLUMNS(…)` for `UNPACK(COLUMNS(…))`, which is the same. In place."""
    for call in list(find_all(tree, exp.Anonymous)):
        if call.name.lower() == "unpack" and len(call.expressions) == 1:
            (columns,) = call.expressions
            if isinstance(columns, exp.Columns):
                columns.set("unpack", True)
                call.replace(columns)


def _read_calls_of_queries(tree: exp.Query) -> None:
    """Write ALL, ARRAY, EXISTS and SOME of a query for what sqlglot takes for a function of one. In place.

    Such as x > ALL ((SELECT 1) UNION SELECT 2), EXISTS(VALUES (1)) and EXISTS((SELECT 1)).
    """
    for call in list(find_all(tree, exp.Anonymous)):
        name, given = call.name.lower(), call.expressions
        if name not in _OF_QUERIES or len(given) != 1 or (query := _query_in(given[0])) is None:
            continue
        if (kind := _OF_QUERIES[name]) is None:
            call.set("expressions", [query])
        else:
            call.replace(kind(this=query))


def _query_in(argument: exp.Expr) -> exp.Query | None:
    """Return the query that a call has for its argument, None where it is another value.

    What follows a query in brackets there is for sqlglot the ORDER BY and LIMIT of the argument.
    """
    query, after = argument, dict[str, exp.Expr]()
    while isinstance(query, exp.Order | exp.Limit) and isinstance(query.this, exp.Expr):
        after["order" if isinstance(query, exp.Order) else "limit"] = query
        query = query.this
    if after and isinstance(query, exp.Subquery) and _is_plain_item(query):
        for name, part in after.items():
            part.set("this", None)
            query.set(name, part)
        _take_in(query)
    while isinstance(query, exp.Subquery) and _is_plain_item(query):
        query = query.this
    if isinstance(query, exp.Values):
        return exp.select("*").from_(query)
    return query if isinstance(query, exp.Query) and not isinstance(query, exp.Subquery) else None


def _select_from_values(tree: exp.Query) -> None:
    """Write `((SELECT * FROM (VALUES (1)) AS v(x)) AS v)` for `((VALUES (1)) AS v(x))`. In place.

    sqlglot takes the VALUES in such brackets for the name of a table.
    """
    for table in list(find_all(tree, exp.Table)):
        values, alias = table.this, table.args.get("alias")
        if isinstance(values, exp.Values) and not any(table.args.get(name) for name in ("sample", "pivots")):
            name = exp.TableAlias(this=alias.this.copy()) if alias else None
            values.set("alias", alias)
            query = exp.select("*").from_(values, copy=False)
            table.replace(exp.Subquery(this=query, alias=name, joins=table.args.get("joins")))


def _take_joins_out_of_brackets(tree: exp.Query) -> None:
    """Write `FROM (a JOIN b ON p) JOIN c` without brackets, and `a JOIN (b JOIN c ON p) ON q`. In place.

    The first is what the text means without them. The second is a JOIN b ON TRUE JOIN c ON p AND q, where
    all are inner joins. sqlglot puts joins into the brackets before them, as in FROM (FROM t) JOIN u.
    """
    for start in list(find_all(tree, exp.From)):
        query = start.parent
        while isinstance(query, exp.Select) and isinstance(brackets := start.this, exp.Subquery):
            if brackets.alias:
                break
            joins = brackets.args.pop("joins", None) or ()
            if _is_plain_item(brackets.this):
                start.set("this", brackets.this)
                joins = (*(brackets.this.args.pop("joins", None) or ()), *joins)
            query.set("joins", [*joins, *(query.args.get("joins") or ())])
            if start.this is brackets:
                break
    for select in find_all(tree, exp.Select):
        joins = select.args.get("joins") or []
        if any(_is_inner(join) and join.this.args.get("joins") for join in map(_without_brackets, joins)):
            select.set("joins", [each for join in joins for each in _one_by_one(join)])


def _is_plain_item(node: exp.Expr) -> bool:
    """Whether a node may stand in FROM without the brackets around it."""
    is_item = isinstance(node, exp.Table | exp.Subquery)
    return is_item and not any(node.args.get(name) for name in _AFTER_BRACKETS)


def _without_brackets(join: exp.Join) -> exp.Join:
    """Return a join with the table that it joins, or the joined tables, out of their brackets. In place."""
    while isinstance(brackets := join.this, exp.Subquery) and not brackets.alias:
        if brackets.args.get("joins") or not _is_plain_item(brackets.this):
            break
        join.set("this", brackets.this)
    return join


def _one_by_one(join: exp.Join) -> list[exp.Join]:
    """Return inner joins that say the same as a join with joined tables; itself where they are outer ones."""
    inside = [_without_brackets(each) for each in join.this.args.get("joins") or ()]
    if not inside or not _is_inner(join) or not all(map(_is_inner, inside)):
        return [join]
    join.this.set("joins", None)
    first = exp.Join(this=join.this, on=exp.true())
    last = inside[-1]
    conditions = [each for each in (last.args.get("on"), join.args.get("on")) if each is not None]
    if conditions:
        last.set("kind", None)
        last.set("on", exp.and_(*conditions, copy=False))
    return [first, *(each for inner in inside for each in _one_by_one(inner))]


def _is_inner(join: exp.Join) -> bool:
    """Whether a join is a comma, CROSS JOIN, or JOIN … ON."""
    return not (join.method or join.side or join.args.get("using")) and join.kind in ("", "INNER", "CROSS")


def _order_by_all(tree: exp.Query) -> None:
    """Write ORDER BY ALL for ORDER BY *, which is the same. In place."""
    for ordered in find_all(tree, exp.Ordered):
        if isinstance(ordered.this, exp.Star) and not any(ordered.this.args.values()):
            ordered.set("this", exp.var("ALL"))


def _refuse_statements(tree: exp.Query) -> None:
    """Refuse what hides inside a SELECT and is more than a query."""
    forbidden = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Pragma, exp.Set, exp.Attach, exp.Copy)
    for node in tree.walk():
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, forbidden):
            raise SqlError(f"only SELECT is accepted, the query contains {node.key.upper()}")
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            raise SqlError(
                f"{node.sql(DIALECT)} calls a function with a dot; write the function first, such as "
                "upper(x) for x.upper()"
            )
        if isinstance(node, exp.Describe | exp.Summarize) and not isinstance(node.this, exp.Query):
            raise SqlError(
                f"inside a SELECT, {node.key.upper()} takes a table or a SELECT, as in SUMMARIZE trips"
            )
        if isinstance(node, exp.Pivot) and _has_columns_of_data(node):
            raise SqlError(
                "which columns this PIVOT gives depends on the data; name its values, as in "
                "PIVOT t ON x IN ('a', 'b') USING sum(y)"
            )
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise SqlError(f"the query has a parameter ({node.sql(DIALECT)}); give its value with params")


def _has_columns_of_data(pivot: exp.Pivot) -> bool:
    """Whether DuckDB would read the table to learn which columns there are. Planning never does that."""
    if pivot.args.get("unpivot"):
        return False
    return not pivot.args.get("fields") and any(not isinstance(on, exp.In) for on in pivot.expressions)


def _check_tables(
    tree: exp.Query, names: dict[str, str], left_out: Mapping[str, RelaqsError]
) -> Iterable[str]:
    """Yield the catalog's name of each table that is read. Names of CTEs are not tables."""
    for table in find_all(tree, exp.Table):
        if not isinstance(table.this, exp.Identifier):
            if isinstance(table.this, _TABLE_FUNCTIONS):
                continue
            text = table.this.sql(DIALECT) if table.this else "ROWS FROM"
            raise SqlError(f"{text} is a table function; only tables of the catalog can be read")
        if table.db.lower() in ("", "recurring") and is_cte_reference(table):  # recurring.t: all rows so far
            continue
        if table.db or table.name.lower() not in names:
            why = left_out.get(table.name.lower())
            raise _unknown_table(table, names) if why is None else copy(why)
        yield names[table.name.lower()]


def is_cte_reference(table: exp.Table) -> bool:
    """Whether an unqualified table name means a CTE in scope."""
    return referenced_cte(table) is not None


def referenced_cte(table: exp.Table) -> exp.CTE | None:
    """Return the CTE that an unqualified table name means, or None. A CTE sees only the CTEs before it.

    With WITH RECURSIVE a CTE also sees itself, if it is a UNION. Otherwise its own name means what it means
    outside.
    """
    name = table.name.lower()
    node: exp.Expr = table
    inside: exp.CTE | None = None
    while node.parent is not None:
        node = node.parent
        if isinstance(node, exp.CTE):
            inside = node
        elif isinstance(node, exp.Query) and (with_ := node.args.get("with_")) is not None:
            for cte in with_.expressions:
                recursive = with_.recursive and isinstance(cte.this, exp.SetOperation)
                if cte is inside and not recursive:
                    break
                if cte.alias.lower() == name:
                    found: exp.CTE = cte
                    return found
    return None


def _unknown_table(table: exp.Table, names: dict[str, str]) -> SqlError:
    if table.name.lower() == "show" and not table.this.args.get("quoted"):
        shown_words = f"SHOW {table.alias}".strip()
        return SqlError(
            f"{shown_words} cannot be read here; there are (SHOW TABLES) and "
            f"(DESCRIBE {min(names.values(), default='t')})",
            _position(table.this),
        )
    shown = table.sql(DIALECT, comments=False, identify=False).split(" AS ")[0]
    if table.db.lower() == "main" and not table.catalog and table.name.lower() in names:
        said = f"{shown} cannot be read where WITH calls something {table.name}; give that another name"
        return SqlError(said, _position(table.this))
    ends = [name for name in names if name.endswith(f"_{table.name.lower()}")]  # schema_name, as of a.t
    close = list(dict.fromkeys([*ends, *get_close_matches(table.name.lower(), names, n=3, cutoff=0.5)]))[:3]
    known, instead = sorted(names.values()), of_a_file(table.name, names.values())
    return SqlError(
        f"there is no table {shown} in the catalog, which has: {_listed(known)}{instead and '; ' + instead}",
        _position(table.this),
        tuple(names[name] for name in close),
    )


def _listed(tables: list[str]) -> str:
    """Return the tables' names, and how files are read as one table where these may be parts of one."""
    known = ", ".join(tables[:_MOST_NAMED]) or "none"
    if len(tables) > _MOST_NAMED:
        known += f" and {len(tables) - _MOST_NAMED} more"
    elif len({_DIGITS.sub("", name) for name in tables}) == len(tables):
        return known
    return f"{known}; to read files as one table, give a pattern, as in 'data/*.parquet'"


def _position(identifier: exp.Expr) -> tuple[int, int] | None:
    line, column = identifier.meta.get("line"), identifier.meta.get("col")
    if line is None or column is None:
        return None
    # sqlglot notes the column of a token's last character.
    return int(line), max(1, int(column) - len(identifier.name) + 1)


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
    written = tree.sql(DIALECT, comments=False)
    if not _put_in_views(tree, views):
        return sql
    check_reading(sql, written)
    return tree.sql(DIALECT)


def _put_in_views(tree: exp.Query, views: Mapping[str, str]) -> bool:
    """Put the views that a query reads, and those that they read, at the start of its WITH. False: none."""
    wanted = _read_views(tree, views)
    if not wanted:
        return False
    _refuse_capture(tree, wanted)
    parts = [_as_cte(name, wanted[name]) for name in views if name in wanted]
    with_ = tree.args.get("with_")
    if with_ is None:
        tree.set("with_", exp.With(expressions=parts))
    else:
        with_.set("expressions", [*parts, *with_.expressions])
    return True


def _read_views(tree: exp.Query, views: Mapping[str, str]) -> dict[str, exp.Query]:
    """Return the parsed views, by name, that the query reads directly or through other views."""
    names = {name.lower(): name for name in views}
    found: dict[str, exp.Query] = {}
    pending = [tree]
    while pending:
        for table in find_all(pending.pop(), exp.Table):
            name = names.get(table.name.lower())
            if name is None or name in found or table.db or is_cte_reference(table):
                continue
            found[name] = _view(views[name]).copy()
            pending.append(found[name])
    return found


@lru_cache(maxsize=256)
def _view(sql: str) -> exp.Query:
    """Return the tree of a view without places, which would not be in the text of who reads it."""
    tree = tree_of(sql)
    assert isinstance(tree, exp.Query)
    for node in tree.walk():
        for place in ("line", "col", "start", "end"):
            node.meta.pop(place, None)
    return tree


def _refuse_capture(tree: exp.Query, views: Mapping[str, exp.Query]) -> None:
    """Raise SqlError where the query's own WITH would change the meaning of what its views read."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return
    own = {cte.alias.lower() for cte in with_.expressions}
    read = {table.name.lower() for view in views.values() for table in find_all(view, exp.Table)}
    clashes = own & {name.lower() for name in views} | (own & read if with_.recursive else set())
    if clashes:
        name = min(clashes)
        raise SqlError(f"the query's WITH defines {name!r}, which a view that it reads means too; rename it")


def _as_cte(name: str, view: exp.Query) -> exp.CTE:
    return exp.CTE(this=view, alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))


def with_tables_of_paths(
    written: WrittenSql, table_of: Callable[[str | tuple[str, ...]], str | None], effort: Effort
) -> WrittenSql:
    """Return the statement with the names of tables in the place of what they were opened from.

    That is a path, as DuckDB takes it: a name in quotes after FROM or JOIN, or the only argument of
    `read_parquet`, `read_csv` or `read_json`; or a name in a DuckDB file, as schema.name. No file is looked
    for. What no table was opened from stays, and is refused where tables are checked. So is SQL that does not
    parse.

    Args:
        written: one statement.
        table_of: returns the table that was opened from a path or such a name, None where there is none.
        effort: counts what reading costs.
    """
    try:
        trees = read_statements(written.sql, effort)
    except SqlError:
        return written  # the planner says what is wrong
    if len(trees) != 1:
        return written
    tokens = statement_tokens(written.sql)
    places = {token.start: place for place, token in enumerate(tokens)}
    edits, opened = [], list[str]()
    for table in find_all(trees[0], exp.Table):
        begin = table.this.meta.get("start") if table.this else None  # ROWS FROM has no name
        if table.text("db") or begin not in places or is_cte_reference(table):
            continue
        path, end = _path_read(table.this, tokens[places[begin] : places[begin] + 4])
        if path is not None and (name := table_of(path)) is not None:
            edits.append(Edit(begin, end, quote_name(name)))
            opened += [] if table.alias else [name]
    edits += _without_schemas(trees[0], table_of, opened)
    return written.edited(sorted(edits, key=lambda edit: edit.begin))


def _without_schemas(
    tree: exp.Expr, table_of: Callable[[tuple[str, ...]], str | None], opened: Sequence[str]
) -> Iterator[Edit]:
    """Yield edits of what has a schema before its name, and of columns with both before theirs.

    A table without an alias keeps its own name as one, unless the statement calls something else so. Then it
    is called as in the catalog: `a.t.x` beside another `t` becomes `a_t.x`. SqlError where a column `t.x`
    may be of either. opened: tables without an alias that the statement opens by a path.
    """
    ctes = {cte.alias.lower() for cte in find_all(tree, exp.CTE)}
    columns = [_in_lower_case(column.parts) for column in find_all(tree, exp.Column)]
    full, bare = {parts[:-1] for parts in columns if len(parts) > 2}, {parts[0] for parts in columns}
    told = {name.lower(): name for parts in full if (name := table_of(parts))}
    called = {(name.lower(), "") for name in opened}  # what it calls tables, and the catalog's names of them
    called |= {(alias.name.lower(), "") for alias in find_all(tree, exp.TableAlias)}
    named, alone = [], dict[str, exp.Table]()
    for table in find_all(tree, exp.Table):
        own, is_cte = table.name.lower(), not table.db and is_cte_reference(table)
        name = table_of(_in_lower_case(table.parts)) if table.db else None if is_cte else told.get(own)
        if not table.alias:
            called.add((own, "" if is_cte else (name or own).lower()))
        if name and (table.db or not table.alias):
            named.append((table, name))
            alone |= {} if table.alias else {name: table}
    known: dict[str, str] = {}  # by what each table is called in the end; those of `main` choose last
    for name, table in sorted(alone.items(), key=lambda each: each[0].lower() == each[1].name.lower()):
        own, names = table.name.lower(), [own for own, _ in called]
        if names.count(own) > 1 and name.lower() not in names and not bare & {own, name.lower()}:
            known[name] = name
            called = called - {(own, name.lower())} | {(name.lower(), "")}
        elif names.count(own) == 1 or all(parts[-1] != own for parts in full):
            known[name] = table.name
        else:
            text = table.sql(DIALECT)
            raise SqlError(f"the statement calls several tables {own}; rename one, as in {text} AS its_{own}")
    for table, name in named:
        is_item = isinstance(table.parent, exp.From | exp.Join | exp.Subquery) and not table.alias
        alias = f" AS {quote_name(known[name])}" if is_item and known[name] != name else ""
        if name.lower() not in ctes:
            yield Edit(table.parts[0].meta["start"], table.this.meta["end"] + 1, quote_name(name) + alias)
    for column in find_all(tree, exp.Column):
        *before, _ = column.parts
        if len(before) > 1 and (found := table_of(_in_lower_case(before))) in known:
            yield Edit(before[0].meta["start"], before[-1].meta["end"] + 1, quote_name(known[found]))


def _in_lower_case(parts: Sequence[exp.Expr]) -> tuple[str, ...]:
    return tuple(part.name.lower() for part in parts)


def _path_read(table: exp.Expr, tokens: Sequence[Token]) -> tuple[str | None, int]:
    """Return the path that stands for a table, None for anything else, and where that ends in the SQL."""
    first, *others = tokens
    if isinstance(table, exp.Identifier):
        return (table.name if table.args.get("quoted") else None), first.end + 1
    kinds = [token.token_type for token in others]
    if first.text.lower() in READERS and kinds == [TokenType.L_PAREN, TokenType.STRING, TokenType.R_PAREN]:
        return others[1].text, others[-1].end + 1
    return None, first.end + 1
