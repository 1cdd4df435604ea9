"""Aggregates that need every value of a group: the partial aggregate is the list of the values.

    MEDIAN, QUANTILE, QUANTILE_CONT, QUANTILE_DISC, PERCENTILE_… WITHIN GROUP    of one constant share
    MODE                               the most frequent value; if several are, any of them
    SUM, AVG, COUNT of DISTINCT x      where the count is not estimated: values so far

The answer is DuckDB's own function of all values, exact to the last digit and type. The values stay in the
state, which spills to disk where memory is short. Only the function needs them at once, as DuckDB itself
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from relaqs_engine.plans.outputs import QuantileOf

_QUANTILES: dict[type[exp.Expr], str] = {
    exp.Quantile: "quantile",
    exp.PercentileCont: "quantile_cont",
    exp.PercentileDisc: "quantile_disc",
}


@dataclass(frozen=True, slots=True)
class OfValues:
    """A DuckDB function of all values.

    Attributes:
        function: its name.
        value: the expression that it is taken over.
        share: the share of a quantile, None where the function is not a quantile of a constant share.
        is_distinct: whether equal values count once.
    """

    function: str
    value: exp.Expr
    share: float | None = None
    is_distinct: bool = False


@dataclass(frozen=True, slots=True)
class MergedValue:
    """A merged column: a function of all values that the state lists in another column.

    Attributes:
        name: the column's own name, q0, q1, …
        listed: the column with the lists.
        function: the name of DuckDB's function.
        share: the share of a quantile, or None.
        is_distinct: whether equal values count once.
    """

    name: str
    listed: str
    function: str
    share: float | None
    is_distinct: bool

    @property
    def sql(self) -> str:
        """Return the aggregate over the listed values, one row for each value."""
        distinct = "DISTINCT " if self.is_distinct else ""
        return f"{self.function}({distinct}{self.listed}{self._share}) AS {self.name}"

    def empty(self, list_type: str) -> str:
        """Return the column for no values, with the type that it has over lists of this type."""
        return f"list_aggregate(NULL::{list_type}, '{self.function}'{self._share}) AS {self.name}"

    @property
    def quantile(self) -> QuantileOf | None:
        """Return which quantile it is, None where it is none."""
        if self.is_distinct or self.function == "mode":
            return None
        return QuantileOf(self.listed, 0.5 if self.share is None else self.share)

    @property
    def _share(self) -> str:
        return "" if self.share is None else f", {self.share!r}"


def of_values(aggregate: exp.Expr) -> OfValues | None:
    """Return how an aggregate follows from the list of its values, None where it is not one of these.

    >>> import sqlglot
    >>> found = of_values(sqlglot.parse_one("quantile_cont(fare, 0.9)", dialect="duckdb"))
    >>> found.function, found.value.sql(), found.share
    ('quantile_cont', 'fare', 0.9)
    >>> of_values(sqlglot.parse_one("sum(fare)")) is None
    True
    """
    if isinstance(aggregate, exp.Sum | exp.Avg) and isinstance(aggregate.this, exp.Distinct):
        return of_distinct(aggregate, aggregate.this.expressions[0])
    value, share = aggregate.this, aggregate.args.get("quantile") or aggregate.expression
    if isinstance(aggregate, exp.WithinGroup):
        ordered = aggregate.expression.expressions
        if len(ordered) != 1 or ordered[0].args.get("desc"):
            return None
        aggregate, share, value = aggregate.this, aggregate.this.this, ordered[0].this
    if not isinstance(value, exp.Expr) or isinstance(value, exp.Distinct | exp.Order):
        return None
    if isinstance(aggregate, exp.Median):
        return OfValues("median", value)
    if isinstance(aggregate, exp.Mode):
        return OfValues("mode", value)
    if (function := _QUANTILES.get(type(aggregate))) is None or not _is_share(share):
        return None
    return OfValues(function, value, float(share.this))


def of_distinct(aggregate: exp.AggFunc, value: exp.Expr) -> OfValues:
    """Return how a sum, average or number of distinct values follows from the list of them."""
    return OfValues(aggregate.key, value, is_distinct=True)


def _is_share(share: object) -> bool:
    return isinstance(share, exp.Literal) and not share.is_string and 0.0 <= float(share.this) <= 1.0


def with_values(merge: str, values: Sequence[MergedValue], keys: Sequence[str], state: str) -> str:
    """Return the merge with the functions of all values beside each group. Values are never in one list."""
    listed = sorted({value.listed for value in values})
    rows = ", ".join([*keys, *(f"unnest({column}) AS {column}" for column in listed)])
    columns = ", ".join([*keys, *(value.sql for value in values)])
    grouped = f"SELECT {columns} FROM (SELECT {rows} FROM {state})"
    shown = ", ".join(["groups_alone.*", *(f"of_values.{value.name}" for value in values)])
    if not keys:
        return f"SELECT {shown} FROM ({merge}) AS groups_alone CROSS JOIN ({grouped}) AS of_values"
    same = " AND ".join(f"groups_alone.{key} IS NOT DISTINCT FROM of_values.{key}" for key in keys)
    grouped += f" GROUP BY {', '.join(keys)}"
    return f"SELECT {shown} FROM ({merge}) AS groups_alone LEFT JOIN ({grouped}) AS of_values ON {same}"
