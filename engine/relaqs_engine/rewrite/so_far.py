"""Aggregates that merge by themselves and have a value so far, but no estimate.

ANY_VALUE           the value that was found first stays
BOOL_AND, BOOL_OR   the least and the greatest truth value: bounds, as MIN and MAX are
BIT_AND, …          bit by bit
ARG_MIN, ARG_MAX    the value beside the extreme, and the extreme; any of them if several rows have it
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from relaqs_engine.plans.basis import Basis

# Adds a basis column: its kind, the aggregate, and the column beside it. Returns its name.
AddColumn = Callable[[Basis, exp.Expr, str | None], str]

_KINDS: dict[type[exp.Expr], Basis] = {
    exp.AnyValue: Basis.ANY_VALUE,
    exp.LogicalAnd: Basis.MIN,
    exp.LogicalOr: Basis.MAX,
    exp.BitwiseAndAgg: Basis.BIT_AND,
    exp.BitwiseOrAgg: Basis.BIT_OR,
    exp.BitwiseXorAgg: Basis.BIT_XOR,
}
_EXTREMES: dict[type[exp.Expr], tuple[Basis, Basis, type[exp.Expr]]] = {
    exp.ArgMin: (Basis.ARG_MIN, Basis.MIN, exp.Min),
    exp.ArgMax: (Basis.ARG_MAX, Basis.MAX, exp.Max),
}


def value_so_far(aggregate: exp.Expr, add: AddColumn) -> exp.Expr | None:
    """Return the aggregate's value over merged state, None where it is not one of these.

    Args:
        aggregate: the aggregate.
        add: adds a basis column, and returns its name.

    For example, ARG_MAX keeps the largest fare (b0) and the driver beside it (b1):

    >>> import sqlglot
    >>> added = []
    >>> def add(kind, each, beside):
    ...     added.append(f"{each.sql('duckdb')} beside {beside}")
    ...     return f"b{len(added) - 1}"
    >>> value_so_far(sqlglot.parse_one("arg_max(driver, fare)", dialect="duckdb"), add).sql()
    'b1'
    >>> print(*added, sep="; ")
    MAX(CASE WHEN NOT driver IS NULL THEN fare END) beside None; ARG_MAX(driver, fare) beside b0
    """
    if (kind := _KINDS.get(type(aggregate))) is not None:
        return exp.column(add(kind, aggregate, None))
    if (kinds := _EXTREMES.get(type(aggregate))) is None or aggregate.args.get("count"):
        return None
    beside, extreme, function = kinds
    # A row with a NULL value cannot be the extreme one.
    ranked = exp.case().when(aggregate.this.copy().is_(exp.null()).not_(), aggregate.expression.copy())
    return exp.column(add(beside, aggregate, add(extreme, function(this=ranked), None)))
