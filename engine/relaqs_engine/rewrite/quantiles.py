"""Aggregates that need every value of a group, and one value of each row (see listed_values.py).

    MEDIAN, QUANTILE, QUANTILE_CONT, QUANTILE_DISC,     of one constant share, or of a list of them
    PERCENTILE_… WITHIN GROUP, APPROX_QUANTILE
    MODE                               the most frequent value; if several are, any of them
    HISTOGRAM, ENTROPY, MAD            values so far
    APPROX_COUNT_DISTINCT              at least what was seen
    SUM, AVG, COUNT of DISTINCT x      where the count is not estimated: values so far

DuckDB's approximate quantile depends on the order of the values, and so differs a little between two runs.
Its approximate count does not: it is the same for the same values.
"""

from __future__ import annotations

from sqlglot import exp

from relaqs_engine.rewrite.listed_values import LISTED, OfValues

_QUANTILES: dict[type[exp.Expr], str] = {
    exp.Quantile: "quantile",
    exp.PercentileCont: "quantile_cont",
    exp.PercentileDisc: "quantile_disc",
    exp.ApproxQuantile: "approx_quantile",
}
_OTHERS = ("histogram", "entropy", "mad")


def of_values(aggregate: exp.Expr) -> OfValues | None:
    """Return how an aggregate follows from the list of its values, None where it is not one of these.

    >>> import sqlglot
    >>> found = of_values(sqlglot.parse_one("quantile_cont(fare, 0.9)", dialect="duckdb"))
    >>> found.value.sql(), found.quantile, found.call.sql("duckdb")
    ('fare', ('quantile_cont', 0.9), 'QUANTILE_CONT(listed, 0.9)')
    >>> of_values(sqlglot.parse_one("sum(fare)")) is None
    True
    """
    if isinstance(aggregate, exp.Sum | exp.Avg) and isinstance(aggregate.this, exp.Distinct):
        return of_distinct(aggregate, aggregate.this.expressions[0])
    if isinstance(aggregate, exp.AnonymousAggFunc):
        return _of_other(aggregate)
    value, share = aggregate.this, aggregate.args.get("quantile") or aggregate.expression
    if isinstance(aggregate, exp.WithinGroup):
        ordered = aggregate.expression.expressions
        if len(ordered) != 1 or ordered[0].args.get("desc"):
            return None
        aggregate, share, value = aggregate.this, aggregate.this.this, ordered[0].this
    if not isinstance(value, exp.Expr) or isinstance(value, exp.Distinct | exp.Order):
        return None
    if isinstance(aggregate, exp.Median):
        return OfValues(value, _call("median"), ("median", 0.5))
    if isinstance(aggregate, exp.Mode):
        return OfValues(value, _call("mode"))
    if isinstance(aggregate, exp.ApproxDistinct):
        return OfValues(value, _call("approx_count_distinct"), lists_distinct=True, side="least")
    return _of_shares(aggregate, value, share)


def _of_shares(aggregate: exp.Expr, value: exp.Expr, share: object) -> OfValues | None:
    if (function := _QUANTILES.get(type(aggregate))) is None:
        return None
    if isinstance(share, exp.Array) and all(map(_is_share, share.expressions)):
        return OfValues(value, _call(function, share.copy()))
    if not _is_share(share):
        return None
    assert isinstance(share, exp.Literal)
    return OfValues(value, _call(function, share.copy()), (function, float(share.this)))


def _of_other(aggregate: exp.AnonymousAggFunc) -> OfValues | None:
    name, arguments = aggregate.name.lower(), aggregate.expressions
    if name not in _OTHERS or len(arguments) != 1 or isinstance(arguments[0], exp.Distinct | exp.Order):
        return None
    return OfValues(arguments[0], _call(name))


def of_distinct(aggregate: exp.AggFunc, value: exp.Expr) -> OfValues:
    """Return how a sum, average or number of distinct values follows from the list of them."""
    call = type(aggregate)(this=exp.Distinct(expressions=[exp.column(LISTED)]))
    return OfValues(value, call, lists_distinct=True)


def _call(function: str, *more: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=function.upper(), expressions=[exp.column(LISTED), *more])


def _is_share(share: object) -> bool:
    return isinstance(share, exp.Literal) and not share.is_string and 0.0 <= float(share.this) <= 1.0
