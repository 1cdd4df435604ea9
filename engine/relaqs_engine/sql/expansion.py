"""How large a query is once everything that it names is written out: CTEs, aliases and stars.

A name of three letters may stand for a query that names another one twice, and so on. In this way 500
characters can stand for 2³⁰ tables. Counted is what the rules and DuckDB's binder would write out, or a
little more. Each part is counted once, however often it is named, so counting itself stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.sql.size import too_large

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
        tree: the query.
        tables: the names of the catalog's columns, by table.

    Seven CTEs, each naming the one before twice, stand for 2⁷ tables:

    >>> import sqlglot
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
    if (ctes := sum(1 for _ in tree.find_all(exp.CTE))) > MOST_CTES:
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
    count = sum(max(width, 1) if item.is_star or item.find(exp.Columns) else 1 for item in select.expressions)
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
