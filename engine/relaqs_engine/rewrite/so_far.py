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
from relaqs_engine.sql.aggregates import Call, Merge
from relaqs_engine.sql.parse import DIALECT

# Adds a basis column: its kind, the aggregate, and the column beside it. Returns its name.
AddColumn = Callable[[Basis, exp.Expr, str | None], str]

_KINDS = {
    Merge.ANY: Basis.ANY_VALUE,
    Merge.MIN: Basis.MIN,
    Merge.MAX: Basis.MAX,
    Merge.BIT_AND: Basis.BIT_AND,
    Merge.BIT_OR: Basis.BIT_OR,
    Merge.BIT_XOR: Basis.BIT_XOR,
}
_EXTREMES: dict[Merge, tuple[Basis, Basis, type[exp.Expr]]] = {
    Merge.BESIDE_MIN: (Basis.ARG_MIN, Basis.MIN, exp.Min),
    Merge.BESIDE_MAX: (Basis.ARG_MAX, Basis.MAX, exp.Max),
}


def value_so_far(call: Call, add: AddColumn) -> exp.Expr:
    """Return the call's value over merged state.

    Args:
        call: of a function that merges by itself.
        add: adds a basis column, and returns its name.

    For example, ARG_MAX keeps the largest fare (b0) and the driver beside it (b1):

    >>> import sqlglot
    >>> from relaqs_engine.sql.aggregates import call_of
    >>> added = []
    >>> def add(kind, each, beside):
    ...     added.append(f"{each.sql('duckdb')} beside {beside}")
    ...     return f"b{len(added) - 1}"
    >>> call = call_of(sqlglot.parse_one("arg_max(driver, fare)", dialect="duckdb"))
    >>> value_so_far(call, add).sql()
    'b1'
    >>> print(*added, sep="; ")
    MAX(CASE WHEN NOT driver IS NULL THEN fare END) beside None; ARG_MAX(driver, fare) beside b0
    """
    if (kind := _KINDS.get(call.merge)) is not None:
        return exp.column(add(kind, type(call.node)(this=call.arguments[0].copy()), None))
    beside, extreme, function = _EXTREMES[call.merge]
    value, by = call.arguments
    # A row with a NULL value cannot be the extreme one.
    ranked = exp.case().when(value.copy().is_(exp.null()).not_(), by.copy())
    plain = type(call.node)(this=value.copy(), expression=by.copy())
    return exp.column(add(beside, plain, add(extreme, function(this=ranked), None)))


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


def first_or_last(call: Call) -> FirstOrLast:
    """Return how FIRST, LAST, or ANY_VALUE with an order, are computed.

    >>> import sqlglot
    >>> from relaqs_engine.sql.aggregates import call_of
    >>> call = call_of(sqlglot.parse_one("first(km ORDER BY fare DESC)", dialect="duckdb"))
    >>> found = first_or_last(call)
    >>> print(found.aggregate.sql("duckdb"), "merged by", found.order)
    FIRST({'v': km, 'o0': fare} ORDER BY fare DESC) merged by ('o0 DESC',)
    """
    kind = Basis.LAST if call.merge is Merge.LAST else Basis.FIRST
    (value,) = call.arguments
    fields = {"v": value, **{f"o{i}": each.this for i, each in enumerate(call.order)}}
    parts = [
        exp.PropertyEQ(this=exp.to_identifier(name), expression=each.copy()) for name, each in fields.items()
    ]
    struct: exp.Expr = exp.Struct(expressions=parts)
    if call.order:
        struct = exp.Order(this=struct, expressions=[each.copy() for each in call.order])
    function = exp.First if kind is Basis.FIRST else exp.Last
    is_known = exp.paren(value.copy()).is_(exp.null()).not_() if call.merge is Merge.ANY else None
    by_field = tuple(map(_by_field, range(len(call.order)), call.order))
    return FirstOrLast(kind, function(this=struct), by_field, is_known)


def _by_field(position: int, ordered: exp.Expr) -> str:
    by = ordered.copy()
    by.set("this", exp.column(f"o{position}"))
    return by.sql(DIALECT)
