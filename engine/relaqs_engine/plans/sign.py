"""On which side of zero the values of an expression may lie. A static fact: it does not change while reading.

It tells what an error is relative to: where values cross zero, the size of a value near it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from functools import reduce

from sqlglot import exp


class Sign(IntFlag):
    """The sides of zero that are possible. NONE: neither, the value is zero or NULL."""

    NONE = 0
    POSITIVE = 1
    NEGATIVE = 2
    EITHER = 3

    @property
    def flipped(self) -> Sign:
        return Sign((self & 1) << 1 | self >> 1)


SignOfColumn = Callable[[exp.Column], Sign]

_AS_ITS_ARGUMENT = (
    *(exp.Paren, exp.Alias, exp.Nullif, exp.Round, exp.Floor, exp.Ceil, exp.Mod),
    *(exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.Window),
)
_NEVER_NEGATIVE = (exp.Sqrt, exp.Abs, exp.Exp, exp.Count, exp.Stddev, exp.Variance)


def sign_of_bounds(lowest: float | None, highest: float | None) -> Sign:
    """Return the sign of values between two bounds, each None where it is not known."""
    negative = Sign.NONE if lowest is not None and lowest >= 0.0 else Sign.NEGATIVE
    positive = Sign.NONE if highest is not None and highest <= 0.0 else Sign.POSITIVE
    return negative | positive


def sign_of(expression: exp.Expr, of_column: SignOfColumn) -> Sign:
    """Return the possible signs of an expression's values. What is not known here may have either."""

    def sign(node: exp.Expr) -> Sign:
        return sign_of(node, of_column)

    match expression:
        case exp.Column():
            return of_column(expression)
        case exp.Null():
            return Sign.NONE
        case exp.Literal():
            return _of_literal(expression)
        case exp.Cast():
            return sign(expression.this) if _is_numeric(expression) else Sign.EITHER
        case exp.Neg():
            return sign(expression.this).flipped
        case exp.Add():
            return sign(expression.left) | sign(expression.right)
        case exp.Sub():
            return sign(expression.left) | sign(expression.right).flipped
        case exp.Mul() | exp.Div() | exp.IntDiv():
            return _of_product(sign(expression.left), sign(expression.right))
        case exp.Case() | exp.Coalesce() | exp.Greatest() | exp.Least():
            return reduce(Sign.__or__, map(sign, _alternatives(expression)), Sign.NONE)
    if isinstance(expression, _NEVER_NEGATIVE):
        return Sign.POSITIVE
    return sign(expression.this) if isinstance(expression, _AS_ITS_ARGUMENT) else Sign.EITHER


def _of_literal(literal: exp.Literal) -> Sign:
    if literal.is_string:
        return Sign.EITHER
    return Sign.POSITIVE if float(literal.this) else Sign.NONE


def _is_numeric(cast: exp.Cast) -> bool:
    return cast.to.this in exp.DataType.NUMERIC_TYPES


def _of_product(left: Sign, right: Sign) -> Sign:
    same = right if left & Sign.POSITIVE else Sign.NONE
    opposite = right.flipped if left & Sign.NEGATIVE else Sign.NONE
    return same | opposite


def _alternatives(expression: exp.Expr) -> list[exp.Expr]:
    """Return the expressions one of which the value is."""
    if isinstance(expression, exp.Case):
        branches = [branch.args["true"] for branch in expression.args["ifs"]]
        return [*branches, *filter(None, [expression.args.get("default")])]
    return [expression.this, *expression.expressions]
