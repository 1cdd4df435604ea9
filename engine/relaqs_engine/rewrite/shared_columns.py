"""A column that USING shares is the left table's, unless a RIGHT or FULL JOIN can leave that one NULL."""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.rewrite.draft import own_nodes, revive_rows


def shared_columns_as_left(tree: exp.Query) -> exp.Query:
    """Return a qualified query with the left column in the place of each COALESCE that stands for USING.

    Without it, `GROUP BY zone` and `z.zone` would be two things. Changes the tree in place.

    >>> import sqlglot
    >>> joined = "zones AS z LEFT JOIN trips AS t ON z.zone = t.zone"
    >>> tree = sqlglot.parse_one(f"SELECT COALESCE(z.zone, t.zone) AS zone FROM {joined}")
    >>> shared_columns_as_left(tree).sql()
    'SELECT z.zone AS zone FROM zones AS z LEFT JOIN trips AS t ON z.zone = t.zone'
    """
    for select in list(tree.find_all(exp.Select)):
        joins = select.args.get("joins") or []
        if joins and not revive_rows(joins):
            _replace_shared(select, joins)
    return tree


def _replace_shared(select: exp.Select, joins: list[exp.Join]) -> None:
    equal: set[tuple[exp.Expr, exp.Expr]] = set()
    for join in joins:
        _replace(join, equal)
        on = join.args.get("on")
        for condition in on.flatten() if isinstance(on, exp.And) else [on]:
            if isinstance(condition, exp.EQ) and condition.expression.name == condition.this.name:
                equal.add((condition.this.copy(), condition.expression.copy()))
    for part in list(select.iter_expressions()):
        _replace(part, equal)


def _replace(part: exp.Expr, equal: set[tuple[exp.Expr, exp.Expr]]) -> None:
    for choice in own_nodes(part, exp.Coalesce):
        left = choice.this
        if isinstance(left, exp.Column) and all((left, each) in equal for each in choice.expressions):
            choice.replace(left.copy())
