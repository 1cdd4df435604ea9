"""Aggregates that are functions of moments: variances, covariances, regressions, skewness and kurtosis.

The state has moments of one value, or of pairs (y, x) without a NULL in either:

    n               how many there are
    mx, my          their means
    sxx, syy, sxy   the sums of products of their deviations from these means

They are merged as Chan, Golub and LeVeque (1979) do it, so large values that differ little lose no digits.

Higher moments need no columns of another kind. With y = (x − c)², for a constant c, and d = mx − c:

    Σ (x − mx)³ = sxy − 2·d·sxx
    Σ (x − mx)⁴ = syy − 4·d·Σ (x − mx)³ − 4·d²·sxx + sxx² / n

The sums stay accurate while d is not many standard deviations, so c is the middle of what bounds x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import sqlglot
from sqlglot import exp

from relaqs_engine.bounds.interval_arithmetic import Bounds
from relaqs_engine.plans.basis import Basis
from relaqs_engine.plans.names import SCALE
from relaqs_engine.sql.aggregates import Call
from relaqs_engine.sql.parse import DIALECT

_THIRD = "(sxy - 2 * (mx - c) * sxx)"
_FOURTH = f"(syy - 4 * (mx - c) * {_THIRD} - 4 * (mx - c) * (mx - c) * sxx + sxx * sxx / NULLIF(n, 0))"
_PEAKED = f"(n * {_FOURTH} / NULLIF(sxx * sxx, 0))"
_SKEWED = f"SQRT(n) * {_THIRD} / NULLIF(sxx * SQRT(sxx), 0)"
_NAN = "CAST('nan' AS DOUBLE)"
# A single value has no deviation, not even where it is infinite.
_SXX, _SYY = ("(CASE WHEN n = 1 THEN 0 ELSE sxx END)", "(CASE WHEN n = 1 THEN 0 ELSE syy END)")


@dataclass(frozen=True, slots=True)
class Formula:
    """The value of an aggregate over its moments, as SQL.

    Attributes:
        estimate: the value of the whole table, estimated.
        exact: the value at the end; "" where it is the same.
    """

    estimate: str
    exact: str = ""


_OF_ONE = {
    "var_samp": Formula("sxx / NULLIF(n - 1, 0)"),
    "var_pop": Formula("sxx / NULLIF(n, 0)", exact=f"{_SXX} / NULLIF(n, 0)"),
    "stddev": Formula("SQRT(sxx / NULLIF(n - 1, 0))"),
    "stddev_samp": Formula("SQRT(sxx / NULLIF(n - 1, 0))"),
    "stddev_pop": Formula("SQRT(sxx / NULLIF(n, 0))", exact=f"SQRT({_SXX} / NULLIF(n, 0))"),
    "sem": Formula(
        f"SQRT(sxx / NULLIF(n, 0)) / NULLIF(SQRT(n * {SCALE}), 0)",
        exact="SQRT(sxx / NULLIF(n, 0)) / NULLIF(SQRT(n), 0)",
    ),
}
# Their y is (x - c)².
_OF_ONE_AND_ITS_SQUARE = {
    "skewness": Formula(f"SQRT(n * (n - 1)) / NULLIF(n - 2, 0) * {_SKEWED}"),
    "kurtosis_pop": Formula(f"{_PEAKED} - 3"),
    "kurtosis": Formula(f"(n - 1) * ((n + 1) * {_PEAKED} - 3 * (n - 1)) / NULLIF((n - 2) * (n - 3), 0)"),
}
_OF_PAIRS = {
    "covar_pop": Formula("sxy / NULLIF(n, 0)"),
    "covar_samp": Formula("sxy / NULLIF(n - 1, 0)"),
    "corr": Formula(
        "sxy / NULLIF(SQRT(sxx) * SQRT(syy), 0)",
        exact=f"CASE WHEN sxx = 0 OR syy = 0 THEN {_NAN} ELSE sxy / (SQRT(sxx) * SQRT(syy)) END",
    ),
    "regr_slope": Formula("sxy / NULLIF(sxx, 0)", exact=f"CASE WHEN sxx = 0 THEN {_NAN} ELSE sxy / sxx END"),
    "regr_intercept": Formula(
        "my - mx * sxy / NULLIF(sxx, 0)",
        exact="CASE WHEN sxx <> 0 AND NOT ISNAN(sxy / sxx) THEN my - mx * sxy / sxx END",
    ),
    "regr_r2": Formula(
        "sxy * sxy / NULLIF(sxx * syy, 0)",
        exact=f"CASE WHEN {_SXX} <> 0 THEN CASE WHEN syy = 0 THEN 1 ELSE sxy * sxy / (sxx * syy) END END",
    ),
    "regr_count": Formula(f"n * {SCALE}", exact="CAST(n AS UINTEGER)"),
    "regr_avgx": Formula("mx"),
    "regr_avgy": Formula("my"),
    "regr_sxx": Formula(f"{SCALE} * sxx", exact=_SXX),
    "regr_syy": Formula(f"{SCALE} * syy", exact=_SYY),
    "regr_sxy": Formula(f"{SCALE} * sxy", exact="sxy"),
}


class AddMoment(Protocol):
    """Adds a basis column, and returns its name."""

    def __call__(
        self, kind: Basis, aggregate: exp.Expr, /, *, count_of: str | None = None, means: tuple[str, ...] = ()
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class _Values:
    """What the moments are of. `counted` is not NULL where a row counts, and `centre` is the constant c."""

    counted: exp.Expr
    x: exp.Expr
    y: exp.Expr
    centre: float = 0.0


def value_of_moments(
    call: Call, add: AddMoment, bounds_of: Callable[[exp.Expr], Bounds]
) -> tuple[exp.Expr, exp.Expr]:
    """Return the call's exact value over merged moments, and its estimate.

    Args:
        call: of a function of moments.
        add: adds a basis column, and returns its name.
        bounds_of: gives what is known of the values of an expression.

    >>> import sqlglot
    >>> from relaqs_engine.bounds.interval_arithmetic import UNKNOWN
    >>> from relaqs_engine.sql.aggregates import call_of
    >>> added = []
    >>> def add(kind, each, /, *, count_of=None, means=()):
    ...     added.append(each.sql("duckdb"))
    ...     return f"b{len(added) - 1}"
    >>> spread = call_of(sqlglot.parse_one("var_pop(fare)", dialect="duckdb"))
    >>> exact, estimate = value_of_moments(spread, add, lambda _: UNKNOWN)
    >>> estimate.sql()
    'b2 / NULLIF(CAST(b0 AS DOUBLE), 0)'
    >>> print(*added, sep="; ")
    COUNT(fare); AVG(CAST(fare AS DOUBLE)); VAR_POP(CAST(fare AS DOUBLE))
    """
    name = call.law.name
    if (formula := _OF_PAIRS.get(name)) is not None:
        values = _pair(*call.arguments)
    elif (formula := _OF_ONE.get(name)) is not None:
        (value,) = call.arguments
        x = exp.cast(value.copy(), "DOUBLE")
        values = _Values(value, x, x)
    else:
        formula = _OF_ONE_AND_ITS_SQUARE[name]
        values = _with_square(call.arguments[0], bounds_of)
    columns = _Columns(values, add)
    estimate = columns.written(formula.estimate)
    return columns.written(formula.exact) if formula.exact else estimate.copy(), estimate


def _pair(y: exp.Expr, x: exp.Expr) -> _Values:
    """Return both values as they are where neither is NULL, and else NULL."""

    def beside(value: exp.Expr, other: exp.Expr) -> exp.Expr:
        there = exp.paren(other.copy()).is_(exp.null()).not_()
        return exp.case().when(there, exp.cast(value.copy(), "DOUBLE"))

    return _Values(beside(x, y), beside(x, y), beside(y, x))


def _with_square(value: exp.Expr, bounds_of: Callable[[exp.Expr], Bounds]) -> _Values:
    x = exp.cast(value.copy(), "DOUBLE")
    bounds = bounds_of(value)
    centre = 0.0
    if bounds.lowest is not None and bounds.highest is not None:
        centre = bounds.lowest / 2 + bounds.highest / 2
    away = exp.paren(exp.Sub(this=x.copy(), expression=exp.convert(centre)))
    return _Values(value, x, exp.Mul(this=away, expression=away.copy()), centre)


class _Columns:
    """Writes formulas over basis columns. It adds the columns that they name."""

    def __init__(self, values: _Values, add: AddMoment) -> None:
        self._values = values
        self._add = add
        self._names: dict[str, str] = {}

    def written(self, formula: str) -> exp.Expr:
        """Return the formula over the names of basis columns."""

        def named(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or node.name == SCALE:
                return node
            if node.name == "c":
                return exp.convert(self._values.centre)
            found = exp.column(self._named(node.name))
            return exp.cast(found, "DOUBLE") if node.name == "n" else found

        return sqlglot.parse_one(formula, dialect=DIALECT).transform(named)

    def _named(self, symbol: str) -> str:
        """Return the name of the column that a symbol of a formula stands for."""
        if symbol not in self._names:
            self._names[symbol] = self._added(symbol)
        return self._names[symbol]

    def _added(self, symbol: str) -> str:
        if symbol == "n":
            return self._add(Basis.COUNT, exp.Count(this=self._values.counted.copy()))
        count = self._named("n")
        if symbol[0] == "m":
            return self._add(Basis.MEAN, exp.Avg(this=self._value(symbol[1])), count_of=count)
        means = tuple(self._named(f"m{letter}") for letter in symbol[1:])
        return self._add(Basis.M2, self._spread(symbol), count_of=count, means=means)

    def _spread(self, symbol: str) -> exp.Expr:
        one, other = (self._value(letter) for letter in symbol[1:])
        if one == other:
            return exp.VariancePop(this=one)
        return exp.CovarPop(this=one, expression=other)

    def _value(self, letter: str) -> exp.Expr:
        return (self._values.x if letter == "x" else self._values.y).copy()
