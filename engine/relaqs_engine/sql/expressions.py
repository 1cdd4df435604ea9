"""What is known of the value of a SQL expression, by what is known of its columns.

Each question about an expression is answered from its columns up, by an element of a lattice:

    Ranges       between which ends do its values lie?         how much can one row add to a sum
    Durations    the same of an INTERVAL, in days
    Signs        on which side of zero?                        may a comparison with 0 change
    KeptSigns    which side of zero does it keep to?           what is an error relative to
    Vanishing    may an estimate of it come near zero?         may it be a divisor
    Steps        how far does rounding move it at most?        how far is the interval widened
    Totals       is it a sum over rows?                        what may groups change that were not met yet
    Trusts       how far can an estimate of it be trusted?     has it an interval, and when

`Question` is the one visitor: it asks a column itself, and for any other node the row of its function in
`TABLE`. What is one of several values (CASE, IF, COALESCE, GREATEST) is the join of theirs. The last three
are of estimates, and are in `rewrite/smoothness.py`.

**Where a new function is added**: one row in `TABLE`. It says how the value moves, between which ends it
lies, its sign, whether it vanishes, where it bends and how far it rounds. What a row leaves out is not known.
A function without a row may be anything, and may jump. The table of aggregates is in `aggregates.py`.

**Rounding.** For an output that is rounded, the bars are computed for the value before, and then widened
by how far rounding may move it, since a rounded value moves in steps:

    round(avg(fare), 2)  is  avg(fare), at most 0.005 away
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntFlag
from functools import reduce
from math import inf
from typing import Any, Generic, TypeVar

from sqlglot import exp

from relaqs_engine.bounds import (
    DAYS_OF_ROUNDING,
    UNKNOWN,
    Bounds,
    ColumnLookup,
    counted_days,
    date_part,
    day_bounds,
    has_zone,
    hull,
    is_never_null,
    power,
    remainder,
    type_name,
)
from relaqs_engine.layouts.manifest import FLOATS, WHOLE_NUMBERS, DerivedColumn
from relaqs_engine.sql.aggregate_laws import call_of
from relaqs_engine.sql.dialect import find_all, find_first

T = TypeVar("T")


class Sign(IntFlag):
    """The sides of zero that are possible. NONE: neither, the value is zero or NULL."""

    NONE = 0
    POSITIVE = 1
    NEGATIVE = 2
    EITHER = 3

    @property
    def flipped(self) -> Sign:
        return Sign((self & 1) << 1 | self >> 1)


def sign_of_bounds(lowest: float | None, highest: float | None) -> Sign:
    """Return the sign of values between two bounds, each None where it is not known."""
    negative = Sign.NONE if lowest is not None and lowest >= 0.0 else Sign.NEGATIVE
    positive = Sign.NONE if highest is not None and highest <= 0.0 else Sign.POSITIVE
    return negative | positive


class Motion(Enum):
    """How a value moves where what it is computed from moves a little."""

    SMOOTH = "along a curve: error bars follow it where it does not bend"
    KINKS = "as far, but it may turn round"
    STEPS = "in steps, by rounding"
    CHOOSES = "as one of several values, or from one to another"
    JUMPS = "anywhere"


class Question(ABC, Generic[T]):
    """A question about the value of an expression. Called with one, it gives the answer."""

    def __call__(self, expression: exp.Expr) -> T:
        while isinstance(expression, exp.Paren | exp.Alias):
            expression = expression.this
        return self.of_column(expression) if isinstance(expression, exp.Column) else self.of(expression)

    @abstractmethod
    def of_column(self, column: exp.Column) -> T: ...

    @abstractmethod
    def of(self, node: exp.Expr) -> T:
        """Return the answer for a function, a number or NULL."""

    def join(self, answers: Iterable[T]) -> T:
        """Return the answer for a value that is one of those with these answers.

        A question that looks at CASE and its like by itself, and not by their row of the table, has no such
        answer.
        """
        raise NotImplementedError(f"{type(self).__name__} looks at choices by itself")


class Ranges(Question[Bounds]):
    """Bounds of the values that are not NULL. column_of: gives a column's statistics, None if not known.

    >>> bounds = Ranges(lambda column: CATALOG.table("trips").column(column.name))
    >>> bounds(sqlglot.parse_one("CASE WHEN km > 1 THEN fare / 2 ELSE 0 END"))
    Bounds(lowest=0.0, highest=475.0)
    >>> bounds(sqlglot.parse_one("CAST(fare AS INTEGER)"))
    Bounds(lowest=2.0, highest=950.0)
    >>> bounds(sqlglot.parse_one("length(comment)"))
    Bounds(lowest=None, highest=None)
    """

    def __init__(self, column_of: ColumnLookup) -> None:
        self.column_of = column_of

    def of_column(self, column: exp.Column) -> Bounds:
        known = self.column_of(column)
        if known is None:
            return UNKNOWN
        return _TRUTH if known.type == "BOOLEAN" else Bounds(_number(known.minimum), _number(known.maximum))

    def of(self, node: exp.Expr) -> Bounds:
        return function_of(node).range(node, self)

    def join(self, answers: Iterable[Bounds]) -> Bounds:
        return hull(list(answers))

    def is_whole(self, expression: exp.Expr) -> bool:
        """Whether the expression has a type of whole numbers."""
        expression = expression.unnest()
        if isinstance(expression, exp.Column):
            column = self.column_of(expression)
            return column is not None and column.type in WHOLE_NUMBERS
        if isinstance(expression, exp.Cast):
            return type_name(expression) in WHOLE_NUMBERS
        return isinstance(expression, exp.Literal) and expression.is_int


class Durations(Ranges):
    """Bounds of an INTERVAL in days, where a month has 30: of a - b, to_minutes(n), sums of such."""

    def of_column(self, column: exp.Column) -> Bounds:
        return UNKNOWN

    def of(self, node: exp.Expr) -> Bounds:
        numbers = Ranges(self.column_of)
        if isinstance(node, exp.Sub):
            ends = [day_bounds(side, self.column_of) for side in (node.expression, node.this)]
            if UNKNOWN not in ends:  # one may have a zone, and the other the session's
                return (ends[1] - ends[0]).widened(
                    2.0 if has_zone(node, self.column_of) else DAYS_OF_ROUNDING
                )
        if isinstance(node, exp.Add | exp.Sub) or function_of(node).motion is Motion.CHOOSES:
            return super().of(node)
        if isinstance(node, exp.Mul):
            sides = node.this.unnest(), node.expression.unnest()
            length, times = sides if isinstance(sides[0], exp.Interval) else reversed(sides)
            return self(length) * numbers(times)
        days, count = counted_days(node)
        return UNKNOWN if days is None or count is None else numbers(count) * Bounds.exactly(days)


SignOfColumn = Callable[[exp.Column], Sign]


class Signs(Question[Sign]):
    """On which side of zero the values may lie. It does not change while reading."""

    def __init__(self, of_column: SignOfColumn) -> None:
        self._of_column = of_column

    def of_column(self, column: exp.Column) -> Sign:
        return self._of_column(column)

    def of(self, node: exp.Expr) -> Sign:
        return function_of(node).sign(node, self)

    def join(self, answers: Iterable[Sign]) -> Sign:
        return reduce(Sign.__or__, answers, Sign.NONE)


class KeptSigns(Signs):
    """On which side of zero an estimate stays, away from zero: as a sum does of values that are on that side.

    What folds at zero keeps no sign unless its argument does: no value of abs(avg(gain)) is negative, but its
    truth may be 0, which the relative error of an estimate says nothing of.
    """

    def of(self, node: exp.Expr) -> Sign:
        match node:
            case exp.Abs() | exp.Sqrt() if self(node.this) is Sign.EITHER:
                return Sign.EITHER
            case exp.IntDiv() | exp.Mod():
                return Sign.EITHER
        return super().of(node)


class Vanishing(Question[bool]):
    """Whether an estimate may be close to zero, however many rows it is made of.

    Sums of values with either sign may be, and so may differences, but for that of a number of rows and 3 at
    most, as in a variance. A total of values that are never negative is not, once some of its rows were read.

    Args:
        of_column: on which sides of zero a column may lie.
        counts: whether a column is a number of rows.
    """

    def __init__(self, of_column: SignOfColumn, counts: Callable[[exp.Column], bool]) -> None:
        self.signs, self.counts = KeptSigns(of_column), counts

    def of_column(self, column: exp.Column) -> bool:
        return self.signs(column) is Sign.EITHER

    def of(self, node: exp.Expr) -> bool:
        return function_of(node).vanishes(node, self)


@dataclass(frozen=True, slots=True)
class Function:
    """A row of the table: what a function does to numbers.

    Attributes:
        motion: how its value moves with its arguments.
        range: the bounds of its value.
        sign: the signs of its value.
        vanishes: whether an estimate of its value may come near zero.
        bends: whether it bends sharply within the errors of its arguments, so that a straight line says too
            little. The last argument: whether it is the whole value.
        step: the most that it moves its first argument by rounding, None where it does not round. The last
            argument: the type of what is rounded, "" where it is not known.
        widest: how wide its interval may be, half of its width relative to it, to be certified.
    """

    motion: Motion = Motion.JUMPS
    range: Callable[[exp.Expr, Ranges], Bounds] = lambda node, ask: date_part(
        node, ask.column_of, Durations(ask.column_of)
    )
    sign: Callable[[exp.Expr, Signs], Sign] = lambda node, ask: _sign_of_aggregate(node, ask)
    vanishes: Callable[[exp.Expr, Vanishing], bool] = lambda node, ask: ask.signs(node) is Sign.EITHER
    bends: Callable[[exp.Expr, Vanishing, bool], bool] = lambda node, vanishes, alone: False
    step: Callable[[exp.Expr, str], float | None] = lambda node, from_type: None
    widest: float = inf


def alternatives(node: exp.Expr) -> list[exp.Expr]:
    """Return the expressions one of which the value is, if it is not NULL: of CASE, COALESCE and the like."""
    match node:
        case exp.Case():
            found = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
        case exp.If():
            found = [node.args.get("true"), node.args.get("false")]
        case _:
            found = [node.this, *node.expressions]
    return [each for each in found if each is not None and not isinstance(each.unnest(), exp.Null)]


def conditions_of(choice: exp.Expr) -> list[exp.Expr]:
    """Return by what a CASE or IF itself chooses."""
    if isinstance(choice, exp.If):
        return [choice.this]
    asked, branches = choice.this, choice.args["ifs"]
    if asked is None:
        return [branch.this for branch in branches]
    return [exp.EQ(this=asked.copy(), expression=branch.this.copy()) for branch in branches]


def conditions_in(expression: exp.Expr) -> list[exp.Expr]:
    """Return by what all CASEs and IFs in an expression choose."""
    choices = (each for each in find_all(expression, exp.Case, exp.If) if each.arg_key != "ifs")
    return [condition for choice in choices for condition in conditions_of(choice)]


def asked_in_turn(coalesce: exp.Expr) -> tuple[list[exp.Expr], exp.Expr]:
    """Return the arguments of COALESCE that may be NULL, and the one that is taken then."""
    *asked, last = [coalesce.this, *coalesce.expressions]
    return asked, last


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a linear function: what is multiplied, by what number, and how that is written behind."""

    value: exp.Expr
    factor: float = 1.0
    written: str = ""


def terms_of(node: exp.Expr) -> list[Term] | None:
    """Return the terms that a value is the sum of, None where it is no linear function without a constant."""
    match node:
        case exp.Cast():
            return [Term(node.this)]
        case exp.Neg():
            return [Term(node.this, -1.0)]
        case exp.Add():
            return [Term(node.left), Term(node.right)]
        case exp.Sub():
            return [Term(node.left), Term(node.right, -1.0)]
        case exp.Mul() if (number := number_of(node.right)) is not None:
            return [Term(node.left, number, f" * {node.right.sql()}")]
        case exp.Div() if number := number_of(node.right):
            return [Term(node.left, 1.0 / number, f" / {node.right.sql()}")]
    return None


def number_of(value: exp.Expr) -> float | None:
    """Return the number that a value is written as, None where it is another expression."""
    bare = value.unnest()
    return float(bare.this) if isinstance(bare, exp.Literal) and not bare.is_string else None


_DECIMAL = re.compile(r"DECIMAL\(\d+,\s*(\d+)\)")
_MOST_DECIMALS = 300


def cast_step(cast: exp.Expr, from_type: str = "") -> float | None:
    """Return the most that a cast to a number moves it, None where the cast is to something else.

    Args:
        from_type: the type of what is cast, as DuckDB writes it. "" where that is not known.
    """
    name = type_name(cast)
    if name in FLOATS:
        return 0.0
    if name not in WHOLE_NUMBERS and name != "DECIMAL":
        return None
    digits = [int(part.name) for part in cast.args["to"].expressions]
    decimals = 0 if name in WHOLE_NUMBERS else digits[1] if len(digits) > 1 else 0 if digits else 3
    given = _decimals(from_type)
    return 0.0 if given is not None and given <= decimals else 0.5 * 10.0**-decimals


def _decimals(type_text: str) -> int | None:
    """Return how many decimals the numbers of a type have, None where that is not known."""
    if type_text in WHOLE_NUMBERS:
        return 0
    found = _DECIMAL.match(type_text)
    return int(found[1]) if found else None


def _step_of_cast(cast: exp.Expr, from_type: str) -> float | None:
    """Return how far a cast rounds. TRY_CAST gives NULL for a number that is too large for its type."""
    loses_large = isinstance(cast, exp.TryCast) and type_name(cast) not in FLOATS
    return None if loses_large else cast_step(cast, from_type)


def _step_of_round(call: exp.Expr, _: str) -> float | None:
    decimals = call.args.get("decimals")
    number = 0.0 if decimals is None else Ranges(lambda _: None)(decimals).only_value
    return None if number is None or abs(number) > _MOST_DECIMALS else 0.5 * 10.0**-number


def _step_to_whole(call: exp.Expr, _: str) -> float | None:
    return 1.0 if call.args.get("decimals") is None else None


def rounding_step(value: exp.Expr, from_type: str = "") -> float | None:
    """Return how far the outermost function rounds, None where it does not round."""
    return function_of(value).step(value, from_type)


_TRUTH = Bounds(0.0, 1.0)
_INTEGER_RANGES = {
    "TINYINT": Bounds(-(2.0**7), 2.0**7),
    "SMALLINT": Bounds(-(2.0**15), 2.0**15),
    "UTINYINT": Bounds(0.0, 2.0**8),
    "USMALLINT": Bounds(0.0, 2.0**16),
}
_ROUNDING = 1e-9
_HIGHEST_POWER = 3.0
_WIDEST = 0.6
_FEW = 3.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# Rules of the table. Those of any question first, then those of ranges, of signs, of vanishing and of bends.


def _argument(node: exp.Expr, ask: Question[T]) -> T:
    return ask(node.this)


def _one_of(node: exp.Expr, ask: Question[T]) -> T:
    return ask.join([ask(each) for each in alternatives(node)])


def _first(change: Callable[[Bounds], Bounds]) -> Callable[[exp.Expr, Ranges], Bounds]:
    return lambda node, ask: change(ask(node.this))


def _both(combine: Callable[[Bounds, Bounds], Bounds]) -> Callable[[exp.Expr, Ranges], Bounds]:
    return lambda node, ask: combine(ask(node.this), ask(node.expression))


def _to_whole(function: Callable[[float], float]) -> Callable[[exp.Expr, Ranges], Bounds]:
    def bounds(node: exp.Expr, ask: Ranges) -> Bounds:
        is_whole = rounding_step(node) is not None
        return ask(node.this).rising(lambda value: float(function(value))) if is_whole else UNKNOWN

    return bounds


def _always(answer: T) -> Callable[[exp.Expr, Any], T]:
    return lambda node, ask: answer


def _logarithm(base: Bounds, value: Bounds) -> Bounds:
    """Return the bounds of log_base(value), for a base that is one number above 1."""
    number = base.only_value
    if number is None or number <= 1.0 or not value.is_nonnegative:  # of minus infinity it is NaN
        return UNKNOWN
    return value.rising(lambda x: math.log(x, number))


def _log(call: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of LOG(x), to the base 10, and of LOG(base, x)."""
    if call.args.get("expression") is None:
        return _logarithm(Bounds.exactly(10.0), ask(call.this))
    return _logarithm(ask(call.this), ask(call.expression))


def _raised(base: Bounds, exponent: Bounds) -> Bounds:
    return UNKNOWN if exponent.only_value is None else power(base, exponent.only_value)


def _square_root(bounds: Bounds) -> Bounds:
    """Return the bounds of SQRT, which is not a number below 0."""
    return bounds.rising(math.sqrt) if bounds.is_nonnegative else UNKNOWN


def _wave(bounds: Bounds) -> Bounds:
    """Return the bounds of SIN and COS. Of NaN they are NaN."""
    return UNKNOWN if bounds.ends is None else Bounds.within(1.0)


def _integer_division(dividend: Bounds, divisor: Bounds) -> Bounds:
    """Return the bounds of a // b. Dividing by 0 gives NULL, so only a divisor near 0 makes them unknown."""
    return (dividend / divisor).widened(1.0)


def _rounded(call: exp.Expr, ask: Ranges) -> Bounds:
    step = rounding_step(call)
    return UNKNOWN if step is None else ask(call.this).widened(step)


def _cast(cast: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of a cast to a number. A cast only rounds the value, or fails."""
    name, inner, step = type_name(cast), ask(cast.this), cast_step(cast)
    if name == "BOOLEAN":
        return _TRUTH
    if step is None:
        return UNKNOWN
    if name not in WHOLE_NUMBERS:
        return inner.widened(step)
    limits = _INTEGER_RANGES.get(name, UNKNOWN)
    low, high = inner.lowest, inner.highest
    return Bounds(
        limits.lowest if low is None else float(math.floor(low + step - _ROUNDING)),
        limits.highest if high is None else float(math.ceil(high - step + _ROUNDING)),
    )


def _extreme(call: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of LEAST or GREATEST. They ignore NULLs: only what is never NULL surely counts."""
    found = _one_of(call, ask)
    for sure in (e for e in (call.this, *call.expressions) if is_never_null(e, ask.column_of)):
        one = ask(sure)
        found = found.clipped(None, one.highest) if isinstance(call, exp.Least) else found.clipped(one.lowest)
    return found


def _first_that_is_not_null(call: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of COALESCE, whose arguments count up to the first one that is never NULL."""
    values = alternatives(call)
    sure = (i for i, each in enumerate(values, 1) if is_never_null(each, ask.column_of))
    return ask.join([ask(each) for each in values[: next(sure, None)]])


def _numbers_among(call: exp.Expr) -> list[float]:
    """Return the arguments of a call that are written out as numbers, and are never NULL."""
    written = (part for part in (call.this, *call.expressions) if is_never_null(part, lambda _: None))
    values = (Ranges(lambda _: None)(part).only_value for part in written)
    return [value for value in values if value is not None]


def _nullif(call: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of NULLIF(x, y). A whole number that is at least 0, and is not 0, is at least 1."""
    found = ask(call.this)
    may_be_more = found.highest is None or found.highest >= 1.0
    is_without_zero = number_of(call.expression) == 0.0 and found.lowest == 0.0
    return found.clipped(1.0) if is_without_zero and may_be_more and ask.is_whole(call.this) else found


def _product(product: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of a product. If both factors are the same, they are those of a square."""
    left, right = ask(product.this), ask(product.expression)
    return power(left, 2.0) if product.this.unnest() == product.expression.unnest() else left * right


def _quotient(quotient: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of a quotient. A sum divided by how many rows it has is as large as they are."""
    of_ends = ask(quotient.this) / ask(quotient.expression)
    return of_ends.and_also(_by_rows(quotient.this, _divisor(quotient.expression), ask))


def _divisor(value: exp.Expr) -> exp.Expr:
    """Return what is divided by, where it is not zero and not rounded."""
    value = value.unnest()
    of_zero = isinstance(value, exp.Nullif) and number_of(value.expression) == 0.0
    return _divisor(value.this) if of_zero or _is_cast_to_double(value) else value


def _by_rows(dividend: exp.Expr, divisor: exp.Expr, ask: Ranges) -> Bounds:
    """Return what is known of two columns of one row, the first of them times a number, divided."""
    dividend = dividend.unnest()
    if isinstance(dividend, exp.Mul):
        for value, factor in ((dividend.left, dividend.right), (dividend.right, dividend.left)):
            if (number := number_of(factor)) is not None:
                return _by_rows(value, divisor, ask) * Bounds.exactly(number)
    if _is_cast_to_double(dividend):
        return _by_rows(dividend.this, divisor, ask)
    if not isinstance(dividend, exp.Column) or not isinstance(divisor, exp.Column):
        return UNKNOWN
    known, name = ask.column_of(dividend), divisor.name.lower()
    of_one_row = dividend.table == divisor.table
    quotients = known.quotients if of_one_row and isinstance(known, DerivedColumn) else ()
    return next((Bounds(each.lowest, each.highest) for each in quotients if each.by == name), UNKNOWN)


def _is_cast_to_double(value: exp.Expr) -> bool:
    return isinstance(value, exp.Cast) and value.to.is_type(exp.DType.DOUBLE)


def _difference(difference: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of a difference of numbers, or of two dates, whose difference is a number of days."""
    found = ask(difference.this) - ask(difference.expression)
    if found != UNKNOWN:
        return found
    return day_bounds(difference.this, ask.column_of) - day_bounds(difference.expression, ask.column_of)


def _remainder(remainder_of: exp.Expr, ask: Ranges) -> Bounds:
    """Return the bounds of a % b. A whole number of which nothing is known is a number all the same."""
    dividend, divisor = ask(remainder_of.this), ask(remainder_of.expression)
    if dividend.ends is None and divisor.size is not None and ask.is_whole(remainder_of.this):
        dividend = Bounds(0.0 if dividend.is_nonnegative else -divisor.size, divisor.size)
    return remainder(dividend, divisor)


def _sign_of_terms(node: exp.Expr, ask: Signs) -> Sign:
    return ask.join(
        ask(term.value) if term.factor > 0.0 else ask(term.value).flipped for term in terms_of(node) or ()
    )


def _sign_of_product(node: exp.Expr, ask: Signs) -> Sign:
    left, right = ask(node.this), ask(node.expression)
    same = right if left & Sign.POSITIVE else Sign.NONE
    return same | (right.flipped if left & Sign.NEGATIVE else Sign.NONE)


def _sign_of_cast(cast: exp.Expr, ask: Signs) -> Sign:
    return ask(cast.this) if cast.args["to"].this in exp.DataType.NUMERIC_TYPES else Sign.EITHER


def _sign_of_neighbour(node: exp.Expr, ask: Signs) -> Sign:
    default = node.args.get("default")
    return ask(node.this) | (Sign.NONE if default is None else ask(default))


def _sign_of_aggregate(node: exp.Expr, ask: Signs) -> Sign:
    if (call := call_of(node)) is None:
        return Sign.EITHER
    if call.law.value == "argument" and len(call.arguments) in call.law.arguments:
        return ask(call.arguments[0])
    return Sign.POSITIVE if call.law.value == "plus" else Sign.EITHER


def _vanishing_difference(node: exp.Expr, ask: Vanishing) -> bool:
    """Whether a difference may vanish. Only a number of rows less a small number does not."""
    few = number_of(node.expression)
    return few is None or few > _FEW or not _counts_rows(node.this, ask)


def _counts_rows(node: exp.Expr, ask: Vanishing) -> bool:
    node = node.unnest()
    match node:
        case exp.Column():
            return ask.counts(node)
        case exp.Mul() | exp.Add():
            return _counts_rows(node.left, ask) and _counts_rows(node.right, ask)
        case exp.Cast() | exp.Nullif() | exp.Sum():
            return _counts_rows(node.this, ask)
    return isinstance(node, exp.Count)


def _bends_near_zero(node: exp.Expr, vanishes: Vanishing, alone: bool) -> bool:
    given = (node.this, node.args.get("expression"))  # LOG of one argument has no base
    return any(vanishes(each) for each in given if each is not None)


def _bends_by_power(node: exp.Expr, vanishes: Vanishing, alone: bool) -> bool:
    exponent = number_of(node.expression)
    is_low = exponent is not None and exponent <= _HIGHEST_POWER
    return not (is_low or alone) or vanishes(node.this)


_SMOOTH, _STEPS, _CHOOSES = Motion.SMOOTH, Motion.STEPS, Motion.CHOOSES
_PRODUCT = _sign_of_product, lambda node, ask: ask(node.this) or ask(node.expression)
NEIGHBOUR = Function(sign=_sign_of_neighbour)

TABLE: Mapping[type[exp.Expr], Function] = {
    exp.Column: Function(_SMOOTH),
    exp.Literal: Function(
        _SMOOTH,
        lambda node, ask: UNKNOWN if node.is_string else Bounds.exactly(float(node.this)),
        lambda node, ask: sign_of_bounds(number_of(node), number_of(node)),
        _always(False),
    ),
    exp.Null: Function(_SMOOTH, _always(UNKNOWN), _always(Sign.NONE), _always(False)),
    exp.Paren: Function(_SMOOTH, _argument, _argument, _argument),
    exp.Alias: Function(_SMOOTH, _argument, _argument, _argument),
    exp.Neg: Function(_SMOOTH, _first(Bounds.__neg__), _sign_of_terms, _argument),
    exp.Add: Function(_SMOOTH, _both(Bounds.__add__), _sign_of_terms),
    exp.Sub: Function(_SMOOTH, _difference, _sign_of_terms, _vanishing_difference),
    exp.Mul: Function(
        _SMOOTH,
        _product,
        *_PRODUCT,
        lambda node, vanishes, _: vanishes(node.this) and vanishes(node.expression),
    ),
    exp.Div: Function(_SMOOTH, _quotient, *_PRODUCT, lambda node, vanishes, _: vanishes(node.expression)),
    exp.Nullif: Function(_SMOOTH, _nullif, _argument, _argument),
    exp.Sqrt: Function(_SMOOTH, _first(_square_root), _always(Sign.POSITIVE), _argument, _bends_near_zero),
    exp.Cbrt: Function(_SMOOTH, _first(lambda given: given.rising(math.cbrt)), bends=_bends_near_zero),
    exp.Ln: Function(
        _SMOOTH, _first(lambda given: _logarithm(Bounds.exactly(math.e), given)), bends=_bends_near_zero
    ),
    exp.Log: Function(_SMOOTH, _log, bends=_bends_near_zero),
    exp.Exp: Function(
        *(_SMOOTH, _first(lambda given: given.rising(math.exp).clipped(0.0)), _always(Sign.POSITIVE)),
        bends=lambda node, vanishes, alone: not alone,
        widest=_WIDEST,
    ),
    exp.Pow: Function(_SMOOTH, _both(_raised), vanishes=_argument, bends=_bends_by_power, widest=_WIDEST),
    exp.Abs: Function(Motion.KINKS, _first(Bounds.absolute), _always(Sign.POSITIVE), _argument),
    exp.Round: Function(_STEPS, _rounded, _argument, _argument, step=_step_of_round),
    exp.Floor: Function(_STEPS, _to_whole(math.floor), _argument, step=_step_to_whole),
    exp.Ceil: Function(_STEPS, _to_whole(math.ceil), _argument, step=_step_to_whole),
    exp.Trunc: Function(_STEPS, _to_whole(math.trunc), _argument, step=_step_to_whole),
    exp.Cast: Function(_STEPS, _cast, _sign_of_cast, _argument, step=_step_of_cast),
    exp.IntDiv: Function(_STEPS, _both(_integer_division), _sign_of_product),
    exp.Mod: Function(_STEPS, _remainder, _argument),
    exp.Sign: Function(_STEPS, _always(Bounds.within(1.0))),
    exp.Sin: Function(range=_first(_wave)),
    exp.Cos: Function(range=_first(_wave)),
    exp.Case: Function(_CHOOSES, _one_of, _one_of),
    exp.If: Function(_CHOOSES, _one_of, _one_of),
    exp.Coalesce: Function(_CHOOSES, _first_that_is_not_null, _one_of),
    exp.Greatest: Function(_CHOOSES, _extreme, _one_of),
    exp.Least: Function(_CHOOSES, _extreme, _one_of),
    **dict.fromkeys((exp.Predicate, exp.Connector, exp.Not, exp.Boolean), Function(range=_always(_TRUTH))),
    exp.Window: Function(sign=_argument),
    # Windows that take the value of another row, or a default where there is none.
    **dict.fromkeys((exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue), NEIGHBOUR),
}
"""What is known of each function by itself: one row for one function, which its subclasses share."""


_ROWS = dict(TABLE)  # and those of subclasses, and of others, once they were asked for


def function_of(node: exp.Expr) -> Function:
    """Return the row of a node's function."""
    kind = type(node)
    if kind not in _ROWS:
        _ROWS[kind] = next((TABLE[each] for each in kind.__mro__ if each in TABLE), Function())
    return _ROWS[kind]


def motion_of(node: exp.Expr) -> Motion:
    """Return how a function's value moves. A cast to what is no number may move it anywhere."""
    is_cast_away = isinstance(node, exp.Cast) and rounding_step(node) is None
    return Motion.JUMPS if is_cast_away else function_of(node).motion


def bends(node: exp.Expr, vanishes: Vanishing, *, alone: bool = False) -> bool:
    """Whether a function of estimates may bend sharply within their errors, since an estimate may be near 0.

    Its error bars then say too little: they take it for a straight line. It is so for what is divided by such
    an estimate, for the product of two of them, their roots, logarithms and powers. EXP and powers beyond 3
    bend everywhere. Where they are the whole value, and so `alone`, the width of the interval tells how much
    (`widest_certified`).
    """
    return function_of(node).bends(node, vanishes, alone)


def widest_certified(value: exp.Expr) -> float:
    """Return how wide the interval of a value may be, half of its width relative to it, to be certified.

    EXP and powers multiply errors. With a relative error of s, the interval of a straight line holds where
    the error z of its argument has −1.96·s < exp(−z·s) − 1 < 1.96·s. At 1.96·s = 0.6 that is so in 93.6 % of
    the cases.
    """
    return function_of(value.unnest()).widest


@dataclass(frozen=True, slots=True)
class Fold:
    """A step from a straight value to one that turns or stops at a number, as abs(x), or greatest(x, 0).

    Attributes:
        by: `exp.Abs`, `exp.Least`, `exp.Greatest`, `exp.Add` or `exp.Mul`.
        number: the other argument, 0 for the absolute value.
    """

    by: type[exp.Expr]
    number: float = 0.0

    @property
    def motion(self) -> Motion:
        return Motion.SMOOTH if self.by in (exp.Add, exp.Mul) else function_of(self.by()).motion


def most_folded(motions: Iterable[Motion]) -> Motion:
    """Return how a value moves that is made of folded ones."""
    found = set(motions)
    return next((each for each in (Motion.CHOOSES, Motion.KINKS) if each in found), Motion.SMOOTH)


def unfolded(value: exp.Expr, of_column: SignOfColumn) -> tuple[exp.Expr, tuple[Fold, ...]]:
    """Return a value as it is before all folds around it, and the folds, the innermost first.

    Leaving rows out does not show an error across a fold: of an average of 0.01 or so, greatest(average, 0)
    hardly varies where it is below. But the fold of an interval holds wherever the interval does. What is
    multiplied or divided by a positive estimate is folded at 0 as well after it.
    """
    kept = KeptSigns(of_column)
    straight, folds = _unfolded(value.unnest(), kept)
    return (straight, folds) if any(each.motion is not Motion.SMOOTH for each in folds) else (value, ())


def _unfolded(value: exp.Expr, kept: KeptSigns) -> tuple[exp.Expr, tuple[Fold, ...]]:
    value = value.unnest()
    match value:
        case exp.Abs() if kept(value.this) is Sign.EITHER:
            inner, last = value.this, Fold(exp.Abs)
        case exp.Least() | exp.Greatest():
            numbers, others = (
                _numbers_among(value),
                [e for e in alternatives(value) if find_first(e, exp.Column)],
            )
            if len(others) != 1 or len(numbers) != len(value.expressions):
                return value, ()
            least = isinstance(value, exp.Least)
            inner, last = others[0], Fold(type(value), min(numbers) if least else max(numbers))
        case exp.Neg():
            inner, last = value.this, Fold(exp.Mul, -1.0)
        case exp.Cast() if rounding_step(value) == 0.0:
            return _unfolded(value.this, kept)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _unfolded_operand(value, kept)
        case _:
            return value, ()
    straight, folds = _unfolded(inner, kept)
    return straight, (*folds, last)


def _unfolded_operand(value: exp.Binary, kept: KeptSigns) -> tuple[exp.Expr, tuple[Fold, ...]]:
    """Return an operand of a sum or product before its folds, where the other one is a number or positive."""
    sides = [(value.left, value.right)]
    if not isinstance(value, exp.Div):
        sides.append((value.right, value.left))
    for one, other in sides:
        straight, folds = _unfolded(one, kept)
        number = Ranges(lambda _: None)(other).only_value
        if number is not None and not (isinstance(value, exp.Div) and number == 0.0):
            return straight, (*folds, *_by_number(value, number, is_first=one is value.left))
        is_scaled = all(fold.by is not exp.Add and (fold.by is exp.Mul or not fold.number) for fold in folds)
        if folds and is_scaled and isinstance(value, exp.Mul | exp.Div) and kept(other) is Sign.POSITIVE:
            return type(value)(this=exp.paren(straight.copy()), expression=other.copy()), folds
    return value, ()


def _by_number(value: exp.Binary, number: float, *, is_first: bool) -> tuple[Fold, ...]:
    """Return the steps of a sum or product with a number. is_first: whether the number comes second."""
    match value:
        case exp.Mul():
            return (Fold(exp.Mul, number),)
        case exp.Div():
            return (Fold(exp.Mul, 1.0 / number),)
        case exp.Sub() if is_first:
            return (Fold(exp.Add, -number),)
        case exp.Sub():
            return (Fold(exp.Mul, -1.0), Fold(exp.Add, number))
    return (Fold(exp.Add, number),)


def rounded(value: exp.Expr) -> tuple[exp.Expr, float]:
    """Return a value as it is before all rounding around it, and the most that rounding moves it.

    >>> before, by = rounded(sqlglot.parse_one("round(x / 2, 1)"))
    >>> before.sql(), by
    ('x / 2', 0.05)
    """
    by = 0.0
    while (step := rounding_step(value := value.unnest())) is not None:
        value, by = value.this, by + step
    return value, by


def moves_in_steps(value: exp.Expr) -> bool:
    """Whether something inside the value is rounded. Then nothing bounds how far one row may move it."""
    return any(motion_of(node) is Motion.STEPS and rounding_step(node) != 0.0 for node in value.walk())
