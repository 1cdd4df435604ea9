"""On which side of zero the values of an expression may lie. A static fact: it does not change while reading.

It tells what an error is relative to: where values cross zero, the size of a value near it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from functools import reduce
from math import inf

from sqlglot import exp

from relaqs_engine.sql.aggregates import call_of


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

_AS_ITS_ARGUMENT = (*(exp.Paren, exp.Alias, exp.Nullif, exp.Round, exp.Floor, exp.Ceil, exp.Mod, exp.Window),)
_OF_LAW = {"plus": Sign.POSITIVE}
_HIGHEST_POWER = 3.0
_WIDEST = 0.6
_FEW = 3.0
_NEVER_NEGATIVE = (exp.Sqrt, exp.Abs, exp.Exp)
# Window functions that take the value of another row, or a default where there is none.
NEIGHBOURS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)


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
    if isinstance(expression, NEIGHBOURS):
        default = expression.args.get("default")
        return sign(expression.this) | (Sign.NONE if default is None else sign(default))
    if (call := call_of(expression)) is not None:
        is_as_argument = call.law.value == "argument" and len(call.arguments) in call.law.arguments
        return sign(call.arguments[0]) if is_as_argument else _OF_LAW.get(call.law.value, Sign.EITHER)
    if isinstance(expression, _NEVER_NEGATIVE):
        return Sign.POSITIVE
    return sign(expression.this) if isinstance(expression, _AS_ITS_ARGUMENT) else Sign.EITHER


def bends(node: exp.Expr, of_column: SignOfColumn, *, alone: bool = False) -> bool:
    """Whether a function of estimates may bend sharply within their errors, since an estimate may be near 0.

    Its error bars then say too little: they take it for a straight line. It is so for what is divided by such
    an estimate, for the product of two of them, their roots, logarithms and powers. EXP and powers beyond 3
    bend everywhere. Where they are the whole value, and so `alone`, the width of the interval tells how much
    (`widest_certified`).

    >>> import sqlglot
    >>> def of_signs(sql):
    ...     tree = sqlglot.parse_one(sql, dialect="duckdb")
    ...     return bends(tree, lambda column: Sign.EITHER if column.name == "gain" else Sign.POSITIVE)
    >>> of_signs("gain / nullif(paid, 0)"), of_signs("paid / gain"), of_signs("gain * gain")
    (False, True, True)
    """
    match node:
        case exp.Div():
            return may_vanish(node.right, of_column)
        case exp.Mul():
            return may_vanish(node.left, of_column) and may_vanish(node.right, of_column)
        case exp.Sqrt() | exp.Cbrt() | exp.Ln():
            return may_vanish(node.this, of_column)
        case exp.Log():  # of one argument it has no base
            return any(
                may_vanish(each, of_column) for each in (node.this, node.expression) if each is not None
            )
        case exp.Exp():
            return not alone
        case exp.Pow():
            by = node.expression.unnest()
            is_low = isinstance(by, exp.Literal) and not by.is_string and float(by.this) <= _HIGHEST_POWER
            return not (is_low or alone) or may_vanish(node.this, of_column)
    return False


def widest_certified(value: exp.Expr) -> float:
    """Return how wide the interval of a value may be, half of its width relative to it, to be certified.

    EXP and powers multiply errors. With a relative error of s, the interval of a straight line holds where
    the error z of its argument has −1.96·s < exp(−z·s) − 1 < 1.96·s. At 1.96·s = 0.6 that is so in 93.6 % of
    the cases.

    >>> import sqlglot
    >>> [widest_certified(sqlglot.parse_one(sql, dialect="duckdb")) for sql in ("exp(x / n)", "1 + exp(x)")]
    [0.6, inf]
    """
    return _WIDEST if isinstance(value.unnest(), exp.Exp | exp.Pow) else inf


def may_vanish(expression: exp.Expr, of_column: SignOfColumn) -> bool:
    """Whether an estimate may be close to zero, however many rows it is made of.

    Sums of values with either sign may be, and so may differences, but for that of a count and 3 at most, as
    in a variance. A total of values that are never negative is not, once some of its rows were read.

    >>> import sqlglot
    >>> def vanishes(sql):
    ...     tree = sqlglot.parse_one(sql, dialect="duckdb")
    ...     return may_vanish(tree, lambda column: Sign.EITHER if column.name == "gain" else Sign.POSITIVE)
    >>> vanishes("nullif(sum(paid), 0)"), vanishes("n - 1"), vanishes("sum(gain)"), vanishes("paid - given")
    (False, False, True, True)
    """

    def vanishes(*nodes: exp.Expr) -> bool:
        return any(may_vanish(node, of_column) for node in nodes)

    bare = expression.unnest()
    match bare:
        case exp.Literal():
            return False
        case exp.Sub():
            return not _is_few(bare.right.unnest()) or vanishes(bare.left)
        case exp.Add():
            return sign_of(bare, of_column) is Sign.EITHER
        case exp.Mul() | exp.Div():
            return vanishes(bare.left, bare.right)
        case exp.Cast() | exp.Neg() | exp.Nullif() | exp.Sqrt() | exp.Pow() | exp.Abs() | exp.Round():
            return vanishes(bare.this)
    return sign_of(bare, of_column) is Sign.EITHER


def _is_few(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) <= _FEW


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
