"""Move aggregates below a UNION ALL, so that each of its branches is an aggregation of its own.

    SELECT k, avg(v) FROM (SELECT k, v FROM a UNION ALL SELECT k, v FROM b) GROUP BY k

A join with other tables goes below as well, because the rows of a branch join without those of the others. So
does WHERE. What is left above adds up the branches' sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from relaqs_engine.rewrite.above import Above
from relaqs_engine.rewrite.draft import own_nodes, relates_all_rows
from relaqs_engine.rewrite.grouping import group_keys

MOST_BRANCHES = 16
_UNION = "relaqs_union"


def below_union(query: exp.Select, types_of: Callable[[exp.Query], Sequence[str]]) -> exp.Select | None:
    """Return an aggregation over a UNION ALL as one over the branches' aggregates. None where it is not one.

    Args:
        query: its outputs are group keys and aggregates.
        types_of: gives the types of a query's columns.

    >>> import sqlglot
    >>> rows = "SELECT a.k AS k, a.v AS v FROM a UNION ALL SELECT b.j AS j, b.w AS w FROM b"
    >>> sql = f"SELECT u.k AS zone, AVG(u.v) AS mean FROM ({rows}) AS u GROUP BY u.k"
    >>> found = below_union(sqlglot.parse_one(sql, dialect="duckdb"), lambda query: ["INTEGER", "INTEGER"])
    >>> print(found.sql("duckdb", pretty=True).replace('"', ""))
    SELECT
      relaqs_union.key_0 AS zone,
      (
        SUM(relaqs_union.value_0) / NULLIF(SUM(relaqs_union.value_1), 0)
      ) AS mean
    FROM (
      SELECT
        u.k AS key_0,
        SUM(u.v) AS value_0,
        COUNT(u.v) AS value_1
      FROM (
        SELECT
          a.k AS k,
          a.v AS v
        FROM a
      ) AS u
      GROUP BY
        u.k
      UNION ALL
      SELECT
        u.k AS key_0,
        SUM(u.v) AS value_0,
        COUNT(u.v) AS value_1
      FROM (
        SELECT
          b.j AS k,
          b.w AS v
        FROM b
      ) AS u
      GROUP BY
        u.k
    ) AS relaqs_union
    GROUP BY
      relaqs_union.key_0
    """
    union = _union_of(query)
    if union is None:
        return None
    branches = _branches(union.this)
    if not branches or len(branches) > MOST_BRANCHES:
        return None
    keys, sets = group_keys(query)
    above = Above(keys[:-1] if sets else keys, _UNION, may_be_empty=bool(sets))
    items = [exp.alias_(above.visit(item.unalias()), item.alias, quoted=True) for item in query.expressions]
    merged = exp.Select(expressions=items)
    for part in ("group", "having"):
        if (value := query.args.get(part)) is not None:
            merged.set(part, above.visit(value))
    if above.partials is None:
        return None
    names, types = union.this.named_selects, types_of(union.this)
    inner = [
        _aggregated(query, union, _with_names(branch, names, types_of(branch), types), above)
        for branch in branches
    ]
    both: exp.Query = inner[0]
    for branch in inner[1:]:
        both = exp.union(both, branch, distinct=False, copy=False)
    return merged.from_(exp.Subquery(this=both, alias=exp.TableAlias(this=exp.to_identifier(_UNION))))


def _union_of(query: exp.Select) -> exp.Subquery | None:
    """Return the first UNION ALL of the FROM whose rows join without those of the others, None if none do."""
    from_ = query.args.get("from_")
    joins: list[exp.Join] = query.args.get("joins") or []
    if from_ is None or any(_needs_all_rows(join) for join in joins):
        return None
    kept = [from_.this, *(join.this for join in joins if not join.side)]
    return next((source for source in kept if _is_union(source)), None)


def _needs_all_rows(join: exp.Join) -> bool:
    return (
        bool(join.method) or join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "CROSS", "OUTER")
    )


def _is_union(source: exp.Expr) -> bool:
    if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Union):
        return False
    alias = source.args.get("alias")
    return not (alias and alias.columns) and not source.args.get("sample") and not source.args.get("pivots")


def _branches(query: exp.Expr) -> list[exp.Select]:
    """Return the branches of a UNION ALL, an empty list where one of them is not made of single rows."""
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    if isinstance(query, exp.Select):
        return [] if _relates_rows(query) else [query]
    whole = any(query.args.get(part) for part in ("distinct", "by_name", "order", "limit", "offset"))
    if not isinstance(query, exp.Union) or whole:
        return []
    left, right = _branches(query.this), _branches(query.expression)
    return left + right if left and right else []


def _relates_rows(select: exp.Select) -> bool:
    several = (exp.AggFunc, exp.UDTF, exp.Explode)
    if any(own_nodes(item, kind) for item in select.expressions for kind in several):
        return True
    grouped = any(select.args.get(part) for part in ("group", "having", "distinct"))
    sources = [select.args.get("from_"), *(join.this for join in select.args.get("joins") or [])]
    of_groups = any(source is not None and source.find(exp.Group, exp.AggFunc) for source in sources)
    return grouped or of_groups or relates_all_rows(select)


def _with_names(
    branch: exp.Select, names: Sequence[str], own: Sequence[str], types: Sequence[str]
) -> exp.Select:
    """Return the branch with the names of the first one's columns, and the types of the whole union's."""
    branch = branch.copy()
    items = []
    for item, name, type_, common in zip(branch.expressions, names, own, types, strict=True):
        value = item.unalias()
        items.append(exp.alias_(value if type_ == common else exp.cast(value, common), name, quoted=True))
    branch.set("expressions", items)
    return branch


def _aggregated(query: exp.Select, union: exp.Subquery, branch: exp.Select, above: Above) -> exp.Select:
    """Return the branch's part of the aggregation: its keys and partials, with the query's joins and WHERE.

    The branch comes first in FROM, where a derived table with joins of its own can be taken apart.
    """
    inner = exp.Select(expressions=above.outputs())
    joins, first = [join.copy() for join in query.args.get("joins") or []], query.args["from_"].this.copy()
    if (where := query.args.get("where")) is not None:
        inner.set("where", where.copy())
    if own := next((join for join in joins if join.this == union), None):
        joins.remove(own)
        joins.insert(0, exp.Join(this=first))
        inner = inner.where(own.args.get("on"), copy=False)
    inner.set("from_", exp.From(this=exp.Subquery(this=branch, alias=union.args["alias"].copy())))
    inner.set("joins", joins)
    if above.keys:
        inner.set("group", exp.Group(expressions=[key.copy() for key in above.keys]))
    return inner
