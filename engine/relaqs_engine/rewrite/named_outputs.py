"""Names of outputs, each of one output: those without a name get one, and those of one name are told apart.

    SELECT q.v FROM (SELECT t.zone AS v, t.km AS v, count(*) FROM t GROUP BY ALL) AS q

The rules find an output by its name. DuckDB calls the second v of a derived table v_1, and takes the first
for v. The answer itself has the names that DuckDB's binder gives (`Draft.schema`), whatever they are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

from sqlglot import exp

from relaqs_engine.rewrite.draft import NotOnlineError, own_nodes, without_brackets
from relaqs_engine.rewrite.scopes import tables_of

_UNNAMED = "_col_"  # as sqlglot calls them
_BY_NAME = ("where", "group", "having", "qualify", "order", "distinct")


def with_named_outputs(tree: exp.Query) -> exp.Query:
    """Return a query, before its names are qualified, in which each output has a name of its own. In place.

    Raises NotOnlineError where it depends on DuckDB which of several outputs is meant.

    >>> import sqlglot
    >>> sql = "SELECT zone, count(*), km::TEXT, -km AS zone FROM t ORDER BY 4"
    >>> print(with_named_outputs(sqlglot.parse_one(sql, dialect="duckdb")).sql("duckdb").replace('"', ""))
    SELECT zone, COUNT(*) AS _col_1, CAST(km AS TEXT) AS _col_2, -km AS zone_1 FROM t ORDER BY 4
    """
    written = {each.name.lower() for each in tree.find_all(exp.Identifier)}
    prefix = next(each for i in count() if not _begins(each := "_" * i + _UNNAMED, written))
    for select in tree.find_all(exp.Select):
        for place, item in enumerate(list(select.expressions)):
            if not _is_named(item):
                item.replace(_named(item.copy(), f"{prefix}{place}"))
        _tell_apart(select)
    return tree


def _is_named(item: exp.Expr) -> bool:
    """Whether an output has a name of its own, or stands for several columns."""
    named = isinstance(without_brackets(item), exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Star)
    return named or item.find(exp.Columns, exp.UDTF, exp.Explode) is not None


def _begins(prefix: str, names: set[str]) -> bool:
    return any(name.startswith(prefix) for name in names)


def _named(item: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=item, alias=exp.to_identifier(name, quoted=True))


def with_columns_told_apart(tree: exp.Query, *, has_star_over_query: bool) -> exp.Query:
    """Return a qualified query in which no two columns that * stands for have one name. In place.

    What is asked for by its number is asked for by its name.

    Args:
        tree: the qualified query.
        has_star_over_query: see there, of the query before it was qualified.
    """
    for select in tree.find_all(exp.Select):
        if (names := _tell_apart(select)) and select is not tree and has_star_over_query:
            raise NotOnlineError(f"* stands for outputs of which two are called {min(names)}")
        _name_positions(select)
    return tree


def _name_positions(select: exp.Select) -> None:
    """Write the name of an output for its number in ORDER BY and DISTINCT ON. In place."""
    order, distinct = select.args.get("order"), select.args.get("distinct")
    asked = [ordered.this for ordered in order.expressions] if order else []
    if distinct is not None and (on := distinct.args.get("on")) is not None:
        asked += on.expressions
    for node in asked:
        if isinstance(node, exp.Literal) and node.is_int and not select.is_star:
            name = select.expressions[int(node.this) - 1].alias_or_name
            node.replace(exp.column(name, quoted=True))


def _tell_apart(select: exp.Select) -> frozenset[str]:
    """Give each output after the first of its name another one. Return the names that several had."""
    items = [item for item in select.expressions if not item.is_star and item.alias_or_name]
    names = [item.alias_or_name.lower() for item in items]
    several = frozenset(name for name, times in Counter(names).items() if times > 1)
    if not several:
        return several
    values = {(name, item.unalias()) for name, item in zip(names, items, strict=True)}
    unlike = {name for name, times in Counter(name for name, _ in values).items() if times > 1}
    if found := next((name for name in _asked_by_name(select) if name in unlike), None):
        raise NotOnlineError(f"two of its outputs are called {found}, and it names that")
    taken = set(names)
    for place, (item, name) in enumerate(zip(items, names, strict=True)):
        if name in names[:place]:
            fresh = next(each for i in count(1) if (each := f"{name}_{i}") not in taken)
            taken.add(fresh)
            item.replace(_named(item.unalias().copy(), fresh))
    return several


def _asked_by_name(select: exp.Select) -> Iterator[str]:
    """Yield the names of outputs that a SELECT orders and selects by, or the set operation it begins."""
    asking: exp.Expr | None = select
    while isinstance(asking, exp.Query):
        parts = _BY_NAME if isinstance(asking, exp.Select) else ("order",)
        for part in parts:
            for node in [asking.args[part]] if asking.args.get(part) else []:
                columns = (each for each in own_nodes(node, exp.Column) if isinstance(each, exp.Column))
                yield from (each.name.lower() for each in columns if not each.table)
        if isinstance(asking, exp.SetOperation) and asking.args.get("by_name"):
            yield from (item.alias_or_name.lower() for item in select.expressions)
        asking = asking.parent


def has_star_over_query(written: exp.Query) -> bool:
    """Whether * is an output of a SELECT that reads another query."""
    if not any(item.is_star for select in written.find_all(exp.Select) for item in select.expressions):
        return False
    ctes = {cte.alias.lower() for cte in written.find_all(exp.CTE)}
    return any(
        isinstance(table, exp.Subquery) or table.name.lower() in ctes
        for select in written.find_all(exp.Select)
        if any(item.is_star for item in select.expressions)
        for table in tables_of(select)
    )
