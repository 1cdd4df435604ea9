"""About which share of the joined rows meets the conditions, guessed from what is known of the columns.

Values are taken to lie evenly between a column's ends, each as often as the others. Such a guess decides
nothing but what a query is predicted to cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import isfinite, prod

from sqlglot import exp

from relaqs_engine.bounds.dates import ColumnLookup, day_bounds
from relaqs_engine.bounds.values import value_bounds

_UPWARD, _DOWNWARD = (exp.GT, exp.GTE), (exp.LT, exp.LTE)


def share_kept(conditions: Iterable[exp.Expr], column_of: ColumnLookup) -> float:
    """Return about which share of the rows meets all conditions. One that is not understood keeps all.

    >>> from relaqs_engine.planning.example import after
    >>> from relaqs_engine.rewrite.sources import choose_streams
    >>> def share(condition):
    ...     draft = after(choose_streams, f"SELECT count(*) FROM trips WHERE {condition}")
    ...     return round(share_kept(draft.conjuncts, draft.column_of), 4)
    >>> share("zone = 7"), share("zone IN (7, 8)"), share("comment LIKE '%a%'")
    (0.004, 0.008, 1.0)
    >>> share("driver > 20000 AND driver <= 30000")
    0.2
    """
    outside: defaultdict[exp.Expr, float] = defaultdict(float)  # of each value that is compared
    kept = 1.0
    for condition in conditions:
        for value, share in _shares_outside(condition, column_of):
            outside[value] += share
        kept *= _share_named(condition, column_of)
    return kept * prod(max(0.0, 1.0 - share) for share in outside.values())


def values_named(condition: exp.Expr, column: exp.Column) -> int:
    """Return how many values a condition such as `x IN (1, 2)` leaves to a column, 0 where it names none."""
    if isinstance(condition, exp.EQ) and column in (condition.left, condition.right):
        return int(isinstance(condition.left, exp.Literal) or isinstance(condition.right, exp.Literal))
    is_list = isinstance(condition, exp.In) and condition.this == column and not condition.args.get("query")
    return len(condition.expressions) if is_list else 0


def _share_named(condition: exp.Expr, column_of: ColumnLookup) -> float:
    """Return the share of the values that a condition names, 1 where it names none."""
    for column in condition.find_all(exp.Column):
        known = column_of(column)
        if known is not None and known.distinct_count and (named := values_named(condition, column)):
            return min(1.0, named / known.distinct_count)
    return 1.0


def _shares_outside(condition: exp.Expr, column_of: ColumnLookup) -> list[tuple[exp.Expr, float]]:
    """Return each value that is compared with a constant, and the share of its range that fails."""
    if isinstance(condition, exp.Between):
        sides = ((condition.args["low"], exp.GTE), (condition.args["high"], exp.LTE))
        return [
            found
            for end, kind in sides
            for found in _shares_outside(kind(this=condition.this, expression=end), column_of)
        ]
    if not isinstance(condition, (*_UPWARD, *_DOWNWARD)):
        return []
    left, right = condition.left.unnest(), condition.right.unnest()
    is_turned = left.find(exp.Column) is None
    value, constant = (right, left) if is_turned else (left, right)
    within, ends = _ends(value, column_of), _ends(constant, column_of)
    if within is None or ends is None or constant.find(exp.Column) or within[0] >= within[1]:
        return []
    below = (sum(ends) / 2 - within[0]) / (within[1] - within[0])
    below = min(1.0, max(0.0, below))
    return [(value, below if isinstance(condition, _UPWARD) != is_turned else 1.0 - below)]


def _ends(expression: exp.Expr, column_of: ColumnLookup) -> tuple[float, float] | None:
    """Return between which ends a number lies, or a moment in days. None where that is not known."""
    ends = value_bounds(expression, column_of).ends or day_bounds(expression, column_of).ends
    return ends if ends is not None and all(map(isfinite, ends)) else None
