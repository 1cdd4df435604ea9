"""Rule: find the estimated numbers that decide whether a group belongs to the answer.

HAVING compares estimates, so the distance to its threshold decides. For a plain total beside a constant
that is the total itself. For any other comparison it is the left side less the right side, compared with
0. ORDER BY an estimate with LIMIT ranks the groups, so their distances from each other decide. These
numbers are estimated like outputs, and not shown.

Of a ranking, `near_sql` finds the groups that HAVING leaves out for now. Such a group may still pass
HAVING later, and may then come before the groups that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import sqrt

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.manifest import is_number
from relaqs_engine.plans.aggregate import (
    DISTINCT_ESTIMATE,
    RIVALS,
    SCALE,
    SHARED_SCALE,
    Decider,
    MembershipRules,
)
from relaqs_engine.plans.plan import OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import Draft, conjuncts_of
from relaqs_engine.rewrite.outputs import averaged_time_in, plain_total, sign_of_column
from relaqs_engine.rewrite.render import attempted, merged_columns, valued
from relaqs_engine.rewrite.unbounded import chooses_by_estimates, jumps_and_bends
from relaqs_engine.sql.dialect import find_all
from relaqs_engine.sql.expressions import moves_in_steps, rounded, unfolded
from relaqs_engine.sql.parse import DIALECT

_COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.NEQ)


def decide_membership(draft: Draft) -> Draft:
    """Return the draft with its deciders, or with the note that membership stays open until the end.

    >>> sql = "SELECT zone, sum(km) AS s FROM trips GROUP BY 1 HAVING count(*) > 99 ORDER BY s DESC LIMIT 3"
    >>> for each in after(decide_membership, sql).membership.deciders:
    ...     print(each.value.estimate_sql, "is ranked" if each.ranks else f"{each.side} {each.threshold}")
    CAST(b1 AS DOUBLE) * scale above 99.0
    CAST(b0 AS DOUBLE) * scale is ranked
    """
    if draft.estimate_tree is None:
        return draft
    select = draft.select
    margins, ranking = [*_margins(draft)], [*_ranking(draft)]
    rules = MembershipRules(
        ranks_totals=_ranks_totals(draft),
        has_having=select.args.get("having") is not None,
        has_limit=select.args.get("limit") is not None or select.args.get("offset") is not None,
        most_rows=most_rows(select),
        first_by=tuple(_keys_of_order(draft)),
    )
    if None in margins or (None in ranking and rules.most_rows is None):
        return replace(draft, membership=replace(rules, is_opaque=True))
    ranked = [decider for decider in ranking if decider is not None]
    decided = replace(
        rules,
        deciders=(*(margin for margin in margins if margin is not None), *ranked),
        ranks_by_key=_ranks_by_key(draft) or None in ranking,
        shown_rows=int(select.args["limit"].expression.this) if ranked else None,
    )
    return replace(draft, membership=decided)


def most_rows(query: exp.Query) -> int | None:
    """Return how many rows LIMIT lets through. None without LIMIT, and with an OFFSET."""
    limit = query.args.get("limit")
    if limit is None or query.args.get("offset") is not None or not isinstance(limit.expression, exp.Literal):
        return None
    return int(limit.expression.this)


def _keys_of_order(draft: Draft) -> Iterator[str]:
    """Yield by which group keys the answer is ordered before any estimate is asked, in SQL."""
    tree = draft.estimate_tree
    assert tree is not None
    order = tree.args.get("order")
    for each in order.expressions if order else []:
        value = _written_out(tree, each.this)
        if _estimates(draft, value):
            return
        moved = each.copy()
        moved.set("this", value.copy())
        yield moved.sql(DIALECT)


def fixed_conditions(draft: Draft) -> Iterator[exp.Expr]:
    """Yield the conditions of HAVING that no estimate changes, such as a condition on a key."""
    for condition in _having(draft):
        if not _estimates(draft, condition):
            yield condition


def keep_numeric_deciders(draft: Draft, types: Mapping[str, str]) -> Draft:
    """Return the draft, its membership opaque where a decider is no number. Text has no distance."""
    rules = draft.membership
    values = ", ".join(decider.value.estimate_sql for decider in rules.deciders)
    if _are_numeric(draft, f"SELECT {values} FROM (SELECT {merged_columns(draft, types)})"):
        return draft
    opaque = replace(rules, deciders=(), is_opaque=True, ranks_by_key=False, shown_rows=None)
    return replace(draft, membership=opaque)


def _are_numeric(draft: Draft, sql: str) -> bool:
    try:
        return all(is_number(type_) for _, type_ in draft.binder.describe(sql))
    except SqlError:
        return False


def _having(draft: Draft) -> tuple[exp.Expr, ...]:
    assert draft.estimate_tree is not None
    having = draft.estimate_tree.args.get("having")
    return conjuncts_of(having.this if having else None)


def _margins(draft: Draft) -> Iterator[Decider | None]:
    """Yield what each condition of HAVING compares, None for a condition that is no comparison."""
    for condition in _having(draft):
        if not _estimates(draft, condition):
            continue
        if isinstance(condition, exp.Between):
            value, low, high = condition.this, condition.args["low"], condition.args["high"]
            yield _margin(draft, exp.GTE(this=value.copy(), expression=low.copy()))
            yield _margin(draft, exp.LTE(this=value.copy(), expression=high.copy()))
        elif isinstance(condition, _COMPARISONS):
            yield _margin(draft, condition)
        else:
            yield None


def _margin(draft: Draft, condition: exp.Expr) -> Decider | None:
    """Return what a comparison decides by: a total beside a constant, or else left side less right side."""
    left, right = condition.args["this"], condition.args["expression"]
    side = "above" if isinstance(condition, exp.GT | exp.GTE) else ""
    side = "below" if isinstance(condition, exp.LT | exp.LTE) else side
    if _constant(left) is not None:
        left, right, side = right, left, {"above": "below", "below": "above", "": ""}[side]
    left, right = _in_microseconds(draft, left, right)
    right, left = _in_microseconds(draft, right, left)
    constant, total = _constant(right), plain_total(left.unnest(), _names(draft))
    if constant is None or total is None:
        found = _decider(draft, left, less=right)
        return found and replace(found, passes=condition.sql(DIALECT), side=side)
    found = _decider(draft, left, total)
    return found and replace(found, threshold=constant, passes=condition.sql(DIALECT), side=side)


def _in_microseconds(draft: Draft, value: exp.Expr, other: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """Return an average of moments and a constant as numbers from its origin, other values as they are.

    DuckDB rounds such an average, which may have been rounded as a double before. So a microsecond decides
    nothing.
    """
    found = None if _estimates(draft, other) else averaged_time_in(value, draft)
    if found is None or found[1] > 1.0 or not isinstance(found[0].estimate.this, exp.Cast):
        return value, other
    average, zero = found[0], found[0].estimate.this
    moment = exp.func("epoch_us", exp.cast(other.copy(), zero.to.copy()))
    origin = exp.Literal.number(average.scale.origin_microseconds)
    return exp.Floor(this=average.number.copy()), exp.Sub(this=moment, expression=origin)


def _constant(value: exp.Expr) -> float | None:
    bare = value.unnest()
    return float(bare.this) if isinstance(bare, exp.Literal) and not bare.is_string else None


def _ranking(draft: Draft) -> Iterator[Decider | None]:
    """Yield what the answer is ranked by, where LIMIT cuts the ranking off."""
    assert draft.estimate_tree is not None
    values = _ranked_by(draft)
    estimated = [_estimates(draft, value) for value, _ in values]
    if not any(estimated):
        return
    value, descends = values[0]
    if not estimated[0] or draft.estimate_tree.args.get("offset"):
        yield None
        return
    value, _ = _in_microseconds(draft, value, exp.null())
    found = _decider(draft, value, plain_total(value.unnest(), _names(draft)))
    if found is None:
        yield None
        return
    # Two values are compared as if their errors were independent. How far they are rounded adds up.
    both = replace(found.value, rounding=sqrt(2.0) * found.value.rounding)
    yield replace(found, value=both, ranks=True, descends=descends)


def _ranked_by(draft: Draft) -> list[tuple[exp.Expr, bool]]:
    """Return what LIMIT takes the first groups by, and whether the largest come first."""
    tree = draft.estimate_tree
    assert tree is not None
    order = tree.args.get("order")
    if order is None or not tree.args.get("limit") or (not draft.keys and most_rows(tree)):
        return []  # without keys there is one row, which no order moves
    return [(_written_out(tree, each.this), bool(each.args.get("desc"))) for each in order.expressions]


def _written_out(tree: exp.Select, value: exp.Expr) -> exp.Expr:
    """Return what an output's name stands for."""
    if isinstance(value, exp.Column) and value.name[:1] == "e" and value.name[1:].isdigit():
        item: exp.Expr = tree.expressions[int(value.name[1:])]
        return item.unalias()
    return value


def _ranks_by_key(draft: Draft) -> bool:
    ranked_by = _ranked_by(draft)
    return bool(ranked_by) and not any(_estimates(draft, value) for value, _ in ranked_by)


def _ranks_totals(draft: Draft) -> bool:
    """Whether the ranking is by scaled totals.

    Scaling would put groups with few rows first, only because what was seen of them is multiplied.
    """
    scaled = {SCALE, DISTINCT_ESTIMATE}
    return any(
        column.name in scaled for value, _ in _ranked_by(draft) for column in find_all(value, exp.Column)
    )


def _estimates(draft: Draft, expression: exp.Expr) -> bool:
    """Whether anything but group keys occurs in the expression."""
    keys = {f"k{i}" for i in range(len(draft.keys))}
    return any(not column.table and column.name not in keys for column in find_all(expression, exp.Column))


def _names(draft: Draft) -> set[str]:
    return {column.name for column in draft.basis}


def _decider(
    draft: Draft, value: exp.Expr, total: str | None = None, *, less: exp.Expr | None = None
) -> Decider | None:
    """Return the decider, None where its value is no estimate with a standard error.

    That error may say too little of a value that chooses by an estimate, jumps, or bends near zero: of 228
    rows that were certain of `HAVING avg(y) / avg(x) < 20` all left. So it is never certified.

    Args:
        total: the column, where the value is a plain total.
        less: what the value is compared with.
    """
    basis = {column.name: column for column in (*draft.basis, *draft.shared_basis)}
    keys = {f"k{i}" for i in range(len(draft.keys))}
    value = value.unnest().copy()
    whole = value if less is None else _less(value, less.unnest())
    used = {column.name for column in find_all(whole, exp.Column)} - keys - {SCALE, SHARED_SCALE}
    if not used <= {name for name, column in basis.items() if column.is_additive}:
        return None
    sql = whole.sql(DIALECT)
    if total is not None:
        return Decider(OutputColumn("", OutputKind.ESTIMATE, "DOUBLE", sql, total=total), ranks=False)
    before, rounding = rounded(value)
    if less is not None:
        other, further = rounded(less)
        before, rounding = _less(before, other), rounding + further
    straight, folds = unfolded(before, lambda column: sign_of_column(column, basis))
    why = "it moves in steps" if moves_in_steps(straight) else next(jumps_and_bends(straight, basis), "")
    output = OutputColumn(
        *("", OutputKind.ESTIMATE, "DOUBLE", sql),
        unrounded_sql="" if straight == whole else straight.sql(DIALECT),
        folds=folds,
        rounding=rounding,
        never_certified="it chooses by an estimate" if chooses_by_estimates(straight, basis) else why,
    )
    return Decider(output, ranks=False)


def _less(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Sub(this=exp.paren(left.copy()), expression=exp.paren(right.copy()))


def near_sql(draft: Draft) -> str:
    """Return the query of the groups that fail HAVING so far, those nearest to its thresholds first.

    It has the columns of the estimate. It is "" where nothing is ranked, or where no estimate decides.

    >>> from relaqs_engine.rewrite.unbounded import check_kept_values
    >>> sql = "SELECT zone, avg(km) AS a FROM trips GROUP BY 1 HAVING count(*) > 99 ORDER BY a DESC LIMIT 3"
    >>> print(shown(near_sql(after(check_kept_values, sql))))
    SELECT ... WHERE (TRY((CAST(b2 AS DOUBLE) * scale) > 99)) IS NOT TRUE)
    ORDER BY greatest(CASE WHEN TRY((CAST(b2 AS DOUBLE) * scale) > 99) THEN 0.0
                      ELSE abs(d0 - (99.0)) END) NULLS FIRST LIMIT 500
    """
    rules = draft.membership
    margins = [(i, each) for i, each in enumerate(rules.deciders) if not each.ranks]
    if rules.ranking is None or not margins or (tree := attempted(draft.estimate_tree)) is None:
        return ""
    fails = f"({tree.args['having'].this.sql(DIALECT)}) IS NOT TRUE"
    fixed = (condition.sql(DIALECT) for condition in fixed_conditions(draft))
    gaps = (
        f"CASE WHEN TRY({each.passes}) THEN 0.0 ELSE abs({_shown(i, each.value)} - ({each.threshold!r})) END"
        for i, each in margins
    )
    groups = valued(draft, tree, " AND ".join([fails, *fixed]), estimated=True)
    return f"{groups} ORDER BY greatest({', '.join(gaps)}) NULLS FIRST LIMIT {RIVALS}"


def _shown(place: int, value: OutputColumn) -> str:
    """Return a decider's value as HAVING compares it, in SQL."""
    return f"TRY({value.estimate_sql})" if value.unrounded_sql else f"d{place}"
