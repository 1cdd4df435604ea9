"""Tell which columns of a query over answers are keys, also through the derived tables between them."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from relaqs_engine.rewrite.draft import own_nodes

# Whether a column of a table (not of a derived table) has values that no estimate changes.
IsKey = Callable[[exp.Table, str], bool]


def is_key(item: exp.Expr, query: exp.Select, of_table: IsKey) -> bool:
    """Whether an expression is computed from keys alone, so that no estimate changes its value.

    Args:
        item: a qualified expression. Without any column it counts as a key.
        query: the SELECT that it is in.
        of_table: whether a column of a table (not of a derived table) is a key.

    >>> import sqlglot
    >>> query = sqlglot.parse_one("SELECT upper(d.k) AS k, d.n FROM (SELECT a.key AS k, a.n FROM a) AS d")
    >>> [is_key(item.unalias(), query, lambda table, name: name == "key") for item in query.expressions]
    [True, False]
    """
    if own_nodes(item, exp.AggFunc) or own_nodes(item, exp.Window) or item.find(exp.Query):
        return False
    sources = {source.alias_or_name: source for source in _sources(query)}
    if len(sources) == 1:
        sources[""] = next(iter(sources.values()))  # a look-up in a stage names columns without their table
    return all(
        _is_key_of(sources.get(column.table), column.name, of_table) for column in item.find_all(exp.Column)
    )


def _is_key_of(source: exp.Expr | None, name: str, of_table: IsKey) -> bool:
    if isinstance(source, exp.Table):
        return of_table(source, name)
    if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select):
        return False
    inner = source.this
    items = {item.alias_or_name.lower(): item.unalias() for item in inner.expressions}
    found = items.get(name.lower())
    return found is not None and is_key(found, inner, of_table)


def _sources(query: exp.Select) -> list[exp.Expr]:
    from_ = query.args.get("from_")
    return [from_.this, *(join.this for join in query.args.get("joins") or [])] if from_ else []
