"""Calls whose value needs every value of a group, or every row: the state lists them.

Each answer applies DuckDB's own function to the list, so it is exact to the last digit and type. The list
stays in the state, which spills to disk where memory is short. Only the function needs it at once, as DuckDB
itself does. What is listed of each row is the law of the call (`sql/aggregate_laws.py`):

    QUANTILE    median(x), quantile_cont(x, 0.9), of a constant share or a list of them: the values
    VALUES      mode(x), histogram(x), …: the values
    SEEN        approx_count_distinct(x): the distinct values
    DISTINCT    sum(DISTINCT x) and the like: the distinct values
    ROWS        any other call: its arguments, and what they are ordered by

    string_agg(name, ', ' ORDER BY fare)

lists `{a0: name, a1: fare}` of each row, and is then `string_agg(listed.a0, ', ' ORDER BY listed.a1)`. The
value so far is of the rows read so far. Nothing is said of the rows to come.

DuckDB's approximate quantile depends on the order of the values, and so differs a little between two runs.
Its approximate count does not: it is the same for the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from sqlglot import exp

from relaqs_engine.plans.plan import QuantileOf, TimeScale
from relaqs_engine.sql.aggregate_laws import Call, Merge
from relaqs_engine.sql.dialect import find_first
from relaqs_engine.sql.parse import DIALECT

# The column that `OfValues.call` is over.
LISTED = "listed"
# How far off the share p DuckDB's approximate quantiles are, over the root of p(1 − p), by which their digest
# is made (Dunning and Ertl 2019, Computing extremely accurate quantiles using t-digests). Of the quartiles of
# seven kinds of data the largest were 0.0068 with 20,000 values, and 0.0012 with a million.
DIGEST_ERROR = 0.008
_NUMBERS = ("DOUBLE", "FLOAT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT")


@dataclass(frozen=True, slots=True)
class OfValues:
    """A DuckDB function of all values.

    Attributes:
        value: what is listed for each row.
        call: the function over the column `listed`, one row for each value.
        quantile: the name of the function and its share, where it is a quantile of one constant share.
        lists_distinct: whether equal values are listed once.
        lists_nulls: whether rows are listed where the value is NULL.
        side: "least" where more values can only make it greater.
    """

    value: exp.Expr
    call: exp.Expr
    quantile: tuple[str, float] | None = None
    lists_distinct: bool = False
    lists_nulls: bool = False
    side: str | None = None


def of_values(call: Call, merge: Merge) -> OfValues:
    """Return how a call follows from a list, in one of the ways above.

    >>> from relaqs_engine.sql.aggregate_laws import call_of
    >>> def found(sql):
    ...     call = call_of(sqlglot.parse_one(sql, dialect="duckdb"))
    ...     of = of_values(call, call.merge)
    ...     print(of.value.sql("duckdb"), of.quantile, of.call.sql("duckdb"))
    >>> found("quantile_cont(fare, 0.9)")
    fare ('quantile_cont', 0.9) QUANTILE_CONT(listed, 0.9)
    >>> found("list(km ORDER BY fare DESC)")
    {'a0': km, 'a1': fare} None LIST(listed.a0 ORDER BY listed.a1 DESC)
    """
    name, value = call.law.name, call.arguments[0] if call.arguments else exp.null()
    match merge:
        case Merge.QUANTILE if all(map(_is_share, shares := _shares(call))):
            quantile = (name, float(shares[0].name)) if _has_one_share(call) else None
            return OfValues(value, _over_values(name, *call.arguments[1:]), quantile)
        case Merge.VALUES:
            return OfValues(value, _over_values(name))
        case Merge.SEEN:
            return OfValues(value, _over_values(name), lists_distinct=True, side="least")
        case Merge.DISTINCT:
            each_once = exp.Distinct(expressions=[exp.column(LISTED)])
            over = exp.AnonymousAggFunc(this=name, expressions=[each_once])
            return OfValues(value, over, lists_distinct=True)
    return _of_rows(call)


def _of_rows(call: Call) -> OfValues:
    """Return how a call follows from the list of what it reads of each row. Constants stay where they are."""
    fields: dict[str, tuple[str, exp.Expr]] = {}

    def listed(value: exp.Expr) -> exp.Expr:
        if find_first(value, exp.Column) is None:
            return value.copy()
        name, _ = fields.setdefault(value.sql(DIALECT), (f"a{len(fields)}", value.copy()))
        return exp.column(name, LISTED)

    given = [listed(argument) for argument in call.arguments]
    if call.is_distinct:
        given[0] = exp.Distinct(expressions=[given[0]])
    if call.order:
        order = [each.copy() for each in call.order]
        for each in order:
            each.set("this", listed(each.this))
        given[-1] = exp.Order(this=given[-1], expressions=order)
    named = list(fields.values()) or [("a0", exp.true())]
    parts = [exp.PropertyEQ(this=exp.to_identifier(name), expression=value) for name, value in named]
    over = exp.AnonymousAggFunc(this=call.law.name, expressions=given)
    return OfValues(exp.Struct(expressions=parts), over, lists_nulls=True)


def _over_values(function: str, *more: exp.Expr) -> exp.Expr:
    given = [exp.column(LISTED), *(each.copy() for each in more)]
    return exp.AnonymousAggFunc(this=function, expressions=given)


def _shares(call: Call) -> list[exp.Expr]:
    """Return the shares that a quantile is asked for."""
    if len(call.arguments) == 1:
        return [exp.Literal.number("0.5")]
    (share,) = call.arguments[1:]
    return share.expressions if isinstance(share, exp.Array) else [share]


def _has_one_share(call: Call) -> bool:
    return not any(isinstance(each, exp.Array) for each in call.arguments[1:])


def _is_share(share: exp.Expr) -> bool:
    return isinstance(share, exp.Literal) and not share.is_string and 0.0 <= float(share.name) <= 1.0


@dataclass(frozen=True, slots=True)
class MergedValue:
    """A merged column: a function of all values that the state lists in another column.

    Attributes:
        name: the column's own name, q0, q1, …
        listed: the column with the lists.
        call: the SQL of the function over that column, one row for each value.
        quantile_function: the name of a quantile's function, "" where it is no quantile.
        share: the share of a quantile.
        side: "least" where more values can only make it greater.
        lists_nulls: whether NULLs are among the values, or inside of them.
        time: how the values are counted as numbers, where they are moments or intervals with a quantile.
    """

    name: str
    listed: str
    call: str
    quantile_function: str = ""
    share: float = 0.5
    side: str | None = None
    lists_nulls: bool = False
    time: TimeScale | None = None

    def empty(self, list_type: str) -> str:
        """Return the column for no values, with the type that it has over lists of this type."""
        nothing = f"SELECT unnest(NULL::{list_type}) AS {self.listed}"
        return f"(SELECT {self.call} FROM ({nothing})) AS {self.name}"

    @property
    def quantile(self) -> QuantileOf | None:
        """Return which quantile it is, None where it is none."""
        if not self.quantile_function:
            return None
        is_digest = self.quantile_function == "approx_quantile"
        error = DIGEST_ERROR * sqrt(self.share * (1.0 - self.share)) if is_digest else 0.0
        return QuantileOf(self.listed, self.share, error)


def merged_value(name: str, listed: str, values: OfValues, time: TimeScale | None = None) -> MergedValue:
    """Return the merged column of a function, over the column that lists its values.

    >>> call = sqlglot.parse_one("mode(listed)", dialect="duckdb")
    >>> merged_value("q0", "b0", OfValues(exp.column("fare"), call)).call
    'MODE(b0)'
    """

    def named(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and LISTED in (node.name, node.table):
            return exp.column(node.name if node.table else listed, listed if node.table else None)
        return node

    call = values.call.transform(named).sql(DIALECT)
    function, share = values.quantile or ("", 0.5)
    return MergedValue(name, listed, call, function, share, values.side, values.lists_nulls, time)


def with_functions_of_values(
    merge: str, values: Sequence[MergedValue], keys: Sequence[str], state: str, types: Mapping[str, str]
) -> str:
    """Return the merge with the functions of all values beside each group. Values are never in one list.

    Args:
        merge: the SELECT of one row for each group.
        values: the functions.
        keys: the columns that make a group.
        state: the name of the state.
        types: DuckDB's type of each column of the state.
    """
    listed = sorted({value.listed for value in values})
    if len(listed) > 1:
        values = [_without_filling(value) for value in values]
    unnested = ", ".join(f"unnest({column}) AS {column}" for column in listed)
    computed = _computed(values, types)
    columns = ", ".join([*keys, *dict.fromkeys(each.sql for each in computed.values())])
    grouped = f"SELECT {columns} FROM (SELECT {', '.join([*keys, unnested])} FROM {state})"
    of_none = f"SELECT {unnested} FROM {state} WHERE false"
    shown = ["groups_alone.*"]
    for value in values:
        found = f"of_values.{computed[value.name].place}"
        if not value.quantile_function and keys:  # such as the number of no values, which is 0
            found = f"coalesce({found}, (SELECT {value.call} FROM ({of_none})))"
        shown.append(f"{found} AS {value.name}")
    select = f"SELECT {', '.join(shown)} FROM ({merge}) AS groups_alone"
    if not keys:
        return f"{select} CROSS JOIN ({grouped}) AS of_values"
    same = " AND ".join(f"groups_alone.{key} IS NOT DISTINCT FROM of_values.{key}" for key in keys)
    return f"{select} LEFT JOIN ({grouped} GROUP BY {', '.join(keys)}) AS of_values ON {same}"


def _without_filling(value: MergedValue) -> MergedValue:
    """Return the value without the NULLs that fill up a list beside a longer one."""
    if not value.lists_nulls:
        return value
    return replace(value, call=f"{value.call} FILTER (WHERE {value.listed} IS NOT NULL)")


@dataclass(frozen=True, slots=True)
class _Computed:
    """How a merged value is computed: the SQL of a column, and where in that column it stands."""

    sql: str
    place: str


def _computed(values: Sequence[MergedValue], types: Mapping[str, str]) -> dict[str, _Computed]:
    """Return how each value is computed. Quantiles of the same values are computed in one pass."""
    together: dict[tuple[str, str], list[MergedValue]] = {}
    for value in values:
        if function := _continuous(value, types):
            together.setdefault((function, value.listed), []).append(value)
    found = {value.name: _Computed(f"{value.call} AS {value.name}", value.name) for value in values}
    for (function, listed), members in together.items():
        if len(members) > 1:
            shares = ", ".join(repr(value.share) for value in members)
            name = members[0].name
            sql = f"{function}({listed}, [{shares}]) AS {name}"
            found |= {value.name: _Computed(sql, f"{name}[{i}]") for i, value in enumerate(members, start=1)}
    return found


def _continuous(value: MergedValue, types: Mapping[str, str]) -> str:
    """Return the function of a quantile. The median of numbers is their continuous quantile."""
    is_of_numbers = types.get(value.listed, "").removesuffix("[]") in _NUMBERS
    is_median = value.quantile_function == "median"
    return "quantile_cont" if is_median and is_of_numbers else value.quantile_function
