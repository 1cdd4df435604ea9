"""Rule: split each aggregate into partial aggregates that merge, and write its final value over them.

How a call merges is the law of its function (`sql/aggregate_laws.py`). `_MERGES` says what each kind of merge
is made of:

    SUM(x)              sum
    COUNT               count
    AVG(x)              sum / count
    MIN, MAX            min, max
    VAR, CORR           counts, means and products of deviations (`statistics.py`)
    quantiles           all values (`listed_values.py`)

Some merge by themselves and have a value so far, but no estimate:

    ANY_VALUE           the value that was found first stays
    BOOL_AND, BOOL_OR   the least and the greatest truth value: bounds, as MIN and MAX are
    BIT_AND, …          bit by bit
    FIRST, LAST         of all rows, in the order that they ask for; else any row, the same for all of them
    ARG_MIN, ARG_MAX    the value beside the extreme, and the extreme; any of them if several rows have it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from relaqs_engine.bounds import UNKNOWN, Bounds, ColumnLookup, is_never_null, range_of
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.manifest import Column, is_number
from relaqs_engine.plans.aggregate import DISTINCT_ESTIMATE, DISTINCT_SEEN, SCALE, Basis, BasisColumn
from relaqs_engine.plans.plan import INTERVAL_SCALE, MICROSECOND_TYPES, TimeScale
from relaqs_engine.rewrite.draft import (
    Draft,
    NotOnlineError,
    output_name,
    own_nodes,
    said,
    with_children,
    without_brackets,
)
from relaqs_engine.rewrite.grouping import group_keys, grouping_number
from relaqs_engine.rewrite.sampling import groups_are_complete
from relaqs_engine.rewrite.scans import scan_of_tables
from relaqs_engine.sql.aggregate_laws import Call, Merge, call_of, is_aggregate
from relaqs_engine.sql.dialect import copied, find_all
from relaqs_engine.sql.expressions import Ranges
from relaqs_engine.sql.parse import DIALECT
from relaqs_engine.sql.read import STEPS_OF_A_VALUE

if TYPE_CHECKING:
    from relaqs_engine.rewrite.listed_values import MergedValue
    from relaqs_engine.rewrite.statistics import AveragedTime

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


@dataclass(frozen=True, slots=True)
class _Final:
    """The value of one aggregate over merged state: exact in DuckDB's own types, and estimated in DOUBLE."""

    exact: exp.Expr
    estimate: exp.Expr


def split_aggregates(draft: Draft) -> Draft:
    """Return the draft with its keys, its partial aggregates, and the final query over their merged state.

    The final query is written twice. `exact_tree` gives the answer, `estimate_tree` scales what the sample
    gave.

    >>> draft = after(split_aggregates, "SELECT zone, avg(fare) AS a, count(*) AS n FROM trips GROUP BY zone")
    >>> [(column.name, shown(column.sql)) for column in draft.basis]
    [('b0', 'SUM(trips.fare)'), ('b1', 'COUNT(trips.fare)'), ('b2', 'COUNT(*)')]
    >>> print(shown(draft.exact_tree))
    SELECT k0 AS zone, (CAST(b0 AS DOUBLE) / NULLIF(b1, 0)) AS a, (b2) AS n
    >>> print(shown(draft.estimate_tree))
    SELECT k0 AS zone, (CAST(b0 AS DOUBLE) / NULLIF(CAST(b1 AS DOUBLE), 0)) AS a,
           (CAST(b2 AS DOUBLE) * scale) AS n
    """
    select = draft.select
    keys, sets = group_keys(select)
    draft = replace(draft, keys=keys, grouping_sets=sets)
    splitter = _Splitter(draft, groups_are_complete(draft))
    exact = splitter.rewritten(select, keys, lambda final: final.exact)
    estimate = splitter.rewritten(select, keys, lambda final: final.estimate)
    return replace(
        draft,
        basis=splitter.basis,
        distinct=splitter.distinct,
        of_values=splitter.of_values,
        averaged_times=splitter.averaged_times,
        exact_tree=exact,
        estimate_tree=estimate,
    )


_OF_NUMBERS = (exp.Binary, exp.Paren, exp.Literal, exp.Neg, exp.Boolean)


class _Splitter:
    """Collects the partial aggregates while it rewrites a query's expressions. Equal ones are kept once."""

    def __init__(self, draft: Draft, groups_are_local: bool) -> None:
        self._draft = draft
        self._groups_are_local = groups_are_local
        self._outputs = {item.alias: item.unalias() for item in draft.select.expressions}
        self._columns: dict[tuple[Basis, str], BasisColumn] = {}
        # Sums and counts of what is never NULL, with their FILTER.
        self._never_null: dict[tuple[Basis, str], exp.Expr | None] = {}
        self.distinct: exp.Expr | None = None
        self._plain_distinct = False
        calls = map(call_of, find_all(draft.select, exp.AggFunc))
        self._has_moments = any(call is not None and call.merge is Merge.MOMENTS for call in calls)
        self._of_values_found: dict[tuple[str, str], MergedValue] = {}
        self.averaged_times: tuple[AveragedTime, ...] = ()
        self._shared = {value.name: _Final(exp.column(value.name), value.estimate) for value in draft.shared}

    @property
    def basis(self) -> tuple[BasisColumn, ...]:
        """Return the columns. Sums and counts of what is never NULL are counted by COUNT(*)."""
        found = dict(self._columns)
        for key, condition in self._never_null.items():
            counted = self._columns.get((Basis.COUNT, _filtered(exp.Count(this=exp.Star()), condition)))
            if counted is not None and counted is not self._columns[key] and not found[key].count_of:
                found[key] = replace(found[key], count_of=counted.name)
        return tuple(found.values())

    @property
    def of_values(self) -> tuple[MergedValue, ...]:
        return tuple(self._of_values_found.values())

    def rewritten(
        self, select: exp.Select, keys: tuple[exp.Expr, ...], side: Callable[[_Final], exp.Expr]
    ) -> exp.Select:
        """Return SELECT, HAVING, ORDER BY and LIMIT over the columns k0, …, b0, … and m."""
        having, order = select.args.get("having"), select.args.get("order")
        positions = {item.alias: i for i, item in reversed(list(enumerate(select.expressions)))}

        def rewrite(expression: exp.Expr) -> exp.Expr:
            return self._rewrite(expression, keys, side, positions)

        result = exp.Select(expressions=[rewrite(item) for item in select.expressions])
        if having:
            result.set("having", exp.Having(this=rewrite(having.this)))
        if order:
            items = [_ordered(ordered, rewrite(ordered.this)) for ordered in order.expressions]
            result.set("order", exp.Order(expressions=items))
        for part in ("limit", "offset"):
            if value := select.args.get(part):
                result.set(part, value.copy())
        return result

    def _rewrite(
        self,
        expression: exp.Expr,
        keys: tuple[exp.Expr, ...],
        side: Callable[[_Final], exp.Expr],
        positions: dict[str, int],
    ) -> exp.Expr:
        self._draft.binder.effort.spend(STEPS_OF_A_VALUE)
        places = {key: position for position, key in reversed(list(enumerate(keys)))}

        def visit(node: exp.Expr) -> exp.Expr:
            if (position := places.get(node)) is not None:
                return exp.column(f"k{position}", quoted=True)
            if isinstance(node, exp.Grouping | exp.GroupingId):
                return grouping_number(node, keys[:-1] if self._draft.grouping_sets else keys, self._outputs)
            if is_aggregate(node):
                return exp.paren(side(self._final(node)), copy=False)
            if isinstance(node, exp.Column) and not node.table and node.name in self._shared:
                return exp.paren(side(self._shared[node.name]).copy(), copy=False)
            if isinstance(node, exp.Column) and not node.table and node.name in positions:
                return exp.column(output_name(positions[node.name]))
            if isinstance(node, exp.Query):
                return node
            return with_children(node, visit)

        result = visit(copied(expression))
        for column in own_nodes(result, exp.Column):
            # Only columns of the FROM clause are qualified. Keys, basis and output names are not.
            if column.args.get("table"):
                raise NotOnlineError(f"{said(column)} is neither a group key nor part of an aggregate")
        return result

    def _final(self, node: exp.Expr) -> _Final:
        """Return the value of one aggregate. Raises NotOnlineError where it has no law."""
        self._draft.binder.effort.spend(STEPS_OF_A_VALUE)
        if (call := call_of(node)) is None:
            raise NotOnlineError(f"{said(node)} of the whole table cannot be made of those of its parts")
        if call.order and call.law.merge in (Merge.TOTAL, Merge.MEAN) and self._adds_exactly(call):
            call = replace(call, order=())  # the order is about what floats lose
        return _MERGES[call.merge](self, call)

    def of_itself(self, call: Call) -> _Final:
        """Return the value of what merges by itself, and has no estimate."""
        value = value_so_far(call, lambda kind, each, of: self.column(kind, each, call.condition, of))
        return _Final(value, value.copy())

    def of_moments(self, call: Call) -> _Final:
        def add(
            kind: Basis, each: exp.Expr, /, *, count_of: str | None = None, means: tuple[str, ...] = ()
        ) -> str:
            return self.column(kind, each, call.condition, count_of=count_of, means=means)

        def bounds_of(value: exp.Expr) -> Bounds:
            return Ranges(self._statistics)(value)

        from relaqs_engine.rewrite.statistics import value_of_moments

        return _Final(*value_of_moments(call, add, bounds_of))

    def type_of_a_moment(self, value: exp.Expr) -> str:
        """Return the type of dates, times and intervals, "" for numbers."""
        if isinstance(value, exp.Column) and (column := self._statistics(value)) is not None:
            type_ = column.type
        elif all(isinstance(node, _OF_NUMBERS) or self._is_number(node) for node in value.walk()):
            return ""
        else:
            typed = scan_of_tables(self._draft).select(exp.alias_(value.copy(), "v"))
            try:
                ((_, type_),) = self._draft.binder.describe(typed.sql(DIALECT))
            except SqlError:  # it reads what is no table of the catalog
                return ""
        return type_ if type_.startswith(("DATE", "TIME", "INTERVAL")) else ""

    def widened(self, value: exp.Expr) -> exp.Expr:
        """Return what is summed, in wider numbers where `x + 1` could leave the type of x.

        DuckDB adds 1 to the sum instead, once for each row.
        """
        bare = value.unnest()
        sides = [bare.left.unnest(), bare.right.unnest()] if isinstance(bare, exp.Add | exp.Sub) else []
        columns = [side for side in sides if isinstance(side, exp.Column)]
        if len(columns) != 1 or not all(side is columns[0] or side.is_int for side in sides):
            return value.copy()
        column, bounds = self._statistics(columns[0]), Ranges(self._statistics)(bare)
        ends = None if column is None else range_of(column.type)
        if ends is None or bounds.lowest is None or bounds.highest is None:
            return value.copy()
        if ends[0] <= bounds.lowest and bounds.highest < ends[1]:
            return value.copy()
        wide = exp.cast(columns[0].copy(), "HUGEINT", dialect=DIALECT)
        return value.copy().transform(lambda node: wide if isinstance(node, exp.Column) else node)

    def _adds_exactly(self, call: Call) -> bool:
        """Whether a call adds whole numbers or decimals of a column."""
        value = call.arguments[0]
        column = self._statistics(value) if isinstance(value, exp.Column) else None
        return column is not None and is_number(column.type) and column.type not in ("FLOAT", "DOUBLE")

    def _is_number(self, node: exp.Expr) -> bool:
        column = self._statistics(node) if isinstance(node, exp.Column) else None
        return isinstance(node, exp.Identifier) or (column is not None and is_number(column.type))

    def average_of_times(self, call: Call, type_: str) -> _Final:
        """Return AVG of dates, times or intervals; of moments that have no bounds, the value so far."""
        (value,), condition = call.arguments, call.condition
        if type_ == "INTERVAL":
            return self._average_of_intervals(value, condition)
        from relaqs_engine.rewrite.statistics import time_to_average

        ((_, average_type),) = self._draft.binder.describe(f"SELECT avg(CAST(NULL AS {type_})) AS v")
        found = time_to_average(value, type_, self._statistics)
        if found is None or type_ == average_type == "TIMESTAMP_NS":
            return self.listed(call, Merge.ROWS)
        total = self.column(Basis.SUM, exp.Sum(this=found.microseconds), condition)
        count = self.column(Basis.COUNT, exp.Count(this=value.copy()), condition)
        self.link_count(count, total)
        merged = found.merged(total, count, average_type)
        self.averaged_times = (*self.averaged_times, merged)
        return _Final(merged.exact, merged.estimate)

    def _average_of_intervals(self, averaged: exp.Expr, condition: exp.Expr | None) -> _Final:
        from relaqs_engine.rewrite.statistics import interval_to_average

        value = interval_to_average(averaged)
        months, days, microseconds, length = (
            self.column(Basis.SUM, exp.Sum(this=part), condition) for part in (*value.parts, value.length)
        )
        count = self.column(Basis.COUNT, exp.Count(this=averaged.copy()), condition)
        self.link_count(count, length)
        merged = value.merged((months, days, microseconds), length, count)
        self.averaged_times = (*self.averaged_times, merged)
        return _Final(merged.exact, merged.estimate)

    def of_one_row(self, call: Call) -> _Final:
        """Return the value of FIRST and LAST, and of ANY_VALUE, which is the first one in an order."""
        if call.merge is Merge.ANY and not call.order:
            return self.of_itself(call)
        first, condition = first_or_last(call), call.condition
        if first.condition is not None:
            both = first.condition if condition is None else exp.and_(condition.this, first.condition)
            condition = exp.Where(this=both)
        name = self.column(first.kind, first.aggregate, condition, order=first.order)
        value = exp.func("struct_extract", exp.column(name), exp.Literal.string("v"))
        return _Final(value, value.copy())

    def number_of_values(self, call: Call) -> _Final:
        """Return COUNT(DISTINCT x).

        It is a plain count where equal values lie in one partition. Everywhere else it is estimated.
        """
        (counted,), condition = call.arguments, call.condition
        if isinstance(counted, exp.Tuple):
            return self.listed(call, Merge.ROWS)
        value = without_brackets(counted)
        if condition is not None:
            value = exp.case().when(condition.this.copy(), value.copy())
        plain = self._groups_are_local or self._is_cluster_key(without_brackets(counted))
        # In a state with one row for each value, counts of other values do not add up, nor do moments.
        if self.distinct not in (None, value) or ((self._plain_distinct or self._has_moments) and not plain):
            return self.listed(call, Merge.DISTINCT)
        if plain and self.distinct is None:
            self._plain_distinct = True
            return _count(self, call)
        self.distinct = value
        return _Final(exp.column(DISTINCT_SEEN), exp.column(DISTINCT_ESTIMATE))

    def listed(self, call: Call, merge: Merge | None = None) -> _Final:
        """Return the value of what is listed: by the law of the call, or by another merge."""
        from relaqs_engine.rewrite.listed_values import merged_value, of_values

        values, condition = of_values(call, merge or call.merge), call.condition
        if not values.lists_nulls:
            there = exp.paren(values.value.copy()).is_(exp.null()).not_()
            condition = exp.Where(this=there if condition is None else exp.and_(condition.this, there))
        listed = values.value.copy()
        if values.lists_distinct:
            listed = exp.Distinct(expressions=[listed])
        name = self.column(Basis.VALUES, exp.ArrayAgg(this=listed), condition)
        time = None if values.quantile is None else self._time_of(values.value)
        merged = merged_value(f"q{len(self._of_values_found)}", name, values, time)
        merged = self._of_values_found.setdefault((name, merged.call), merged)
        return _Final(exp.column(merged.name), exp.column(merged.name))

    def _time_of(self, value: exp.Expr) -> TimeScale | None:
        """Return how moments or intervals are counted, None for all others and what has no bounds."""
        type_ = self.type_of_a_moment(value)
        if type_ == "INTERVAL":
            return INTERVAL_SCALE
        if type_ not in MICROSECOND_TYPES:
            return None
        from relaqs_engine.rewrite.statistics import time_to_average

        found = time_to_average(value, type_, self._statistics)
        return None if found is None else found.scale

    def _is_cluster_key(self, value: exp.Expr) -> bool:
        source = next((s for s in self._draft.streams if s.alias == getattr(value, "table", None)), None)
        if source is None or source.nullable or not isinstance(value, exp.Column):
            return False
        return [key.lower() for key in source.key_columns] == [value.name.lower()]

    def column(
        self,
        kind: Basis,
        aggregate: exp.Expr,
        condition: exp.Expr | None,
        extreme_of: str | None = None,
        count_of: str | None = None,
        means: tuple[str, ...] = (),
        order: tuple[str, ...] = (),
    ) -> str:
        """Return the name of the column for this partial aggregate. A new aggregate gets a new column."""
        sql = _filtered(aggregate, condition)
        if (kind, sql) not in self._columns:
            if kind in (Basis.SUM, Basis.COUNT) and is_never_null(aggregate.this, self._statistics):
                self._never_null[kind, sql] = condition
            bounds = self._bounds(kind, aggregate)
            name = f"b{len(self._columns)}"
            self._columns[kind, sql] = BasisColumn(
                name=name,
                kind=kind,
                sql=sql,
                type="",
                row_sql=_contribution(kind, aggregate, condition),
                extreme_of=extreme_of,
                count_of=count_of,
                order=order,
                means=(name,) if kind is Basis.MEAN else means,
                lowest=bounds.lowest,
                highest=bounds.highest,
                counts_units=isinstance(aggregate.this, exp.Distinct) and kind is not Basis.VALUES,
            )
        return self._columns[kind, sql].name

    def link_count(self, count: str, total: str) -> None:
        """Note that each row which adds something to this sum adds 1 to that count."""
        for key, column in self._columns.items():
            if column.name == total:
                self._columns[key] = replace(column, count_of=count)

    def _bounds(self, kind: Basis, aggregate: exp.Expr) -> Bounds:
        if kind is Basis.COUNT:
            return Bounds(0.0, 1.0)
        if kind in (Basis.SUM, Basis.MEAN, Basis.M2, Basis.VALUES):
            return bounds_of_a_row(aggregate, self._statistics)
        return UNKNOWN

    def _statistics(self, column: exp.Column) -> Column | None:
        source = next((s for s in self._draft.sources if s.alias == column.table), None)
        return source.column(column.name) if source else None


def _filtered(aggregate: exp.Expr, condition: exp.Expr | None) -> str:
    """Return the SQL of an aggregate, with its FILTER."""
    node = exp.Filter(this=aggregate.copy(), expression=condition.copy()) if condition else aggregate
    return node.sql(DIALECT)


def bounds_of_a_row(aggregate: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of the value that an aggregate has of one row; of a covariance, of their product."""
    bounds = Ranges(column_of)(aggregate.this)
    if isinstance(aggregate, exp.CovarPop):
        return bounds * Ranges(column_of)(aggregate.expression)
    return bounds


def _contribution(kind: Basis, aggregate: exp.Expr, condition: exp.Expr | None) -> str:
    """Return what one row adds to a COUNT or SUM, NULL where nothing."""
    if isinstance(aggregate.this, exp.Distinct):
        return ""
    counted = aggregate.this.sql(DIALECT)
    if kind is Basis.COUNT:
        counted = (
            "1" if isinstance(aggregate.this, exp.Star) else f"CASE WHEN {counted} IS NOT NULL THEN 1 END"
        )
    elif kind is not Basis.SUM:
        return ""
    return f"CASE WHEN {condition.this.sql(DIALECT)} THEN {counted} END" if condition else counted


def _ordered(ordered: exp.Ordered, expression: exp.Expr) -> exp.Ordered:
    copy = ordered.copy()
    copy.set("this", expression)
    return copy


def _double(name: str) -> exp.Expr:
    return exp.cast(exp.column(name), exp.DType.DOUBLE)


def _scaled(name: str) -> exp.Expr:
    return exp.Mul(this=_double(name), expression=exp.column(SCALE))


def _divided(numerator: exp.Expr, denominator: exp.Expr) -> exp.Expr:
    return exp.Div(this=numerator, expression=exp.Nullif(this=denominator, expression=exp.Literal.number(0)))


def _sum(splitter: _Splitter, call: Call) -> _Final:
    name = splitter.column(Basis.SUM, exp.Sum(this=splitter.widened(call.arguments[0])), call.condition)
    return _Final(exp.column(name), _scaled(name))


def _count(splitter: _Splitter, call: Call) -> _Final:
    counted = call.arguments[0].copy() if call.arguments else exp.Star()  # COUNT() is COUNT(*)
    if call.is_distinct:
        counted = exp.Distinct(expressions=[counted])
    name = splitter.column(Basis.COUNT, exp.Count(this=counted), call.condition)
    return _Final(exp.column(name), _scaled(name))


def _avg(splitter: _Splitter, call: Call) -> _Final:
    (value,) = call.arguments
    if type_ := splitter.type_of_a_moment(value):
        return splitter.average_of_times(call, type_)
    value = splitter.widened(value)
    total = splitter.column(Basis.SUM, exp.Sum(this=value), call.condition)
    count = splitter.column(Basis.COUNT, exp.Count(this=value.copy()), call.condition)
    splitter.link_count(count, total)
    exact = _divided(_double(total), exp.column(count))
    return _Final(exact, _divided(_double(total), _double(count)))


_MERGES: dict[Merge, Callable[[_Splitter, Call], _Final]] = {
    Merge.TOTAL: _sum,
    Merge.COUNT: _count,
    Merge.MEAN: _avg,
    Merge.MOMENTS: _Splitter.of_moments,
    Merge.UNIQUE: _Splitter.number_of_values,
    **dict.fromkeys((Merge.ANY, Merge.FIRST, Merge.LAST), _Splitter.of_one_row),
    **dict.fromkeys((Merge.MIN, Merge.MAX, Merge.BESIDE_MIN, Merge.BESIDE_MAX), _Splitter.of_itself),
    **dict.fromkeys((Merge.BIT_AND, Merge.BIT_OR, Merge.BIT_XOR), _Splitter.of_itself),
    **dict.fromkeys((Merge.QUANTILE, Merge.VALUES, Merge.SEEN), _Splitter.listed),
    **dict.fromkeys((Merge.DISTINCT, Merge.ROWS), _Splitter.listed),
}
