"""Aggregates that merge by themselves and have a value so far, but no estimate.

ANY_VALUE           the value that was found first stays
BOOL_AND, BOOL_OR   the least and the greatest truth value: bounds, as MIN and MAX are
BIT_AND, …          bit by bit
FIRST, LAST         of all rows, in the order that they ask for; else any row, the same for all of them
ARG_MIN, ARG_MAX    the value beside the extreme, and the extreme; any of them if several rows have it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.plans.basis import Basis
from relaqs_engine.sql.parse import DIALECT

_FIRST_OR_LAST: dict[type[exp.Expr], Basis] = {exp.First: Basis.FIRST, exp.Last: Basis.LAST}

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


@dataclass(frozen=True, slots=True)
class FirstOrLast:
    """FIRST or LAST of a struct, with the value as field v and what it is ordered by as o0, o1, …

    Attributes:
        kind: FIRST or LAST.
        aggregate: the aggregate over the struct.
        order: ORDER BY over the struct's fields.
        condition: what rows must meet beside its FILTER, None where all count.
    """

    kind: Basis
    aggregate: exp.Expr
    order: tuple[str, ...]
    condition: exp.Expr | None


def first_or_last(aggregate: exp.Expr) -> FirstOrLast | None:
    """Return how FIRST, LAST, or ANY_VALUE with an order, are computed. None where it is none of these.

    >>> import sqlglot
    >>> found = first_or_last(sqlglot.parse_one("first(km ORDER BY fare DESC)", dialect="duckdb"))
    >>> print(found.aggregate.sql("duckdb"), "merged by", found.order)
    FIRST({'v': km, 'o0': fare} ORDER BY fare DESC) merged by ('o0 DESC',)
    """
    value, ordered = aggregate.this, []
    if isinstance(value, exp.Order):
        value, ordered = value.this, value.expressions
    is_any = isinstance(aggregate, exp.AnyValue) and bool(ordered)
    kind = Basis.FIRST if is_any else _FIRST_OR_LAST.get(type(aggregate))
    if kind is None or not isinstance(value, exp.Expr) or isinstance(value, exp.Distinct):
        return None
    fields = {"v": value, **{f"o{i}": each.this for i, each in enumerate(ordered)}}
    parts = [
        exp.PropertyEQ(this=exp.to_identifier(name), expression=each.copy()) for name, each in fields.items()
    ]
    struct: exp.Expr = exp.Struct(expressions=parts)
    if ordered:
        struct = exp.Order(this=struct, expressions=[each.copy() for each in ordered])
    function = exp.First if kind is Basis.FIRST else exp.Last
    condition = exp.paren(value.copy()).is_(exp.null()).not_() if is_any else None
    return FirstOrLast(
        kind, function(this=struct), tuple(map(_by_field, range(len(ordered)), ordered)), condition
    )


def _by_field(position: int, ordered: exp.Expr) -> str:
    by = ordered.copy()
    by.set("this", exp.column(f"o{position}"))
    return by.sql(DIALECT)
