"""Aggregates that merge by themselves and have a value so far, but no estimate.

ANY_VALUE           the first value found stays
BOOL_AND, BOOL_OR   the least and the greatest truth value: bounds, as MIN and MAX are
BIT_AND, …          bit by bit
ARG_MIN, ARG_MAX    the value beside the extreme, which is kept too. Where several rows have it, any of theirs
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
    """Return the aggregate's value over merged state, or None where it is none of these."""
    if (kind := _KINDS.get(type(aggregate))) is not None:
        return exp.column(add(kind, aggregate, None))
    if (kinds := _EXTREMES.get(type(aggregate))) is None or aggregate.args.get("count"):
        return None
    beside, extreme, function = kinds
    # A row whose value is NULL has no say in which row is the extreme one.
    ranked = exp.case().when(aggregate.this.copy().is_(exp.null()).not_(), aggregate.expression.copy())
    return exp.column(add(beside, aggregate, add(extreme, function(this=ranked), None)))
