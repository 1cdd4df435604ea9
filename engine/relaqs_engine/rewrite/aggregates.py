"""Rule: split each aggregate into partial aggregates that merge, and write its final value over them.

SUM(x)      sum
COUNT       count
AVG(x)      sum / count
MIN, MAX    min, max (the other aggregates of this kind are in so_far.py)
VAR, CORR   counts, means and products of deviations (see moments.py)
quantiles   all values (see quantiles.py)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from relaqs_engine.bounds.dates import ColumnLookup
from relaqs_engine.bounds.interval_arithmetic import UNKNOWN, Bounds
from relaqs_engine.bounds.values import value_bounds
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.manifest import Column
from relaqs_engine.layouts.number_types import is_number
from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.names import DISTINCT_ESTIMATE, DISTINCT_SEEN, SCALE
from relaqs_engine.plans.times import INTERVAL_SCALE, MICROSECOND_TYPES, TimeScale
from relaqs_engine.rewrite.averaged_intervals import interval_to_average
from relaqs_engine.rewrite.averaged_times import AveragedTime, time_to_average
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, own_nodes, without_brackets
from relaqs_engine.rewrite.grouping import group_keys, grouping_number
from relaqs_engine.rewrite.kept_arguments import of_arguments
from relaqs_engine.rewrite.listed_values import MergedValue, OfValues, merged_value
from relaqs_engine.rewrite.moments import is_of_moments, value_of_moments
from relaqs_engine.rewrite.quantiles import of_distinct, of_values
from relaqs_engine.rewrite.scans import scan_of_tables
from relaqs_engine.rewrite.so_far import FirstOrLast, first_or_last, value_so_far
from relaqs_engine.rewrite.sources import groups_are_complete
from relaqs_engine.sql.effort import STEPS_OF_A_VALUE
from relaqs_engine.sql.parse import DIALECT


def output_name(position: int) -> str:
    """Return the name an output's value has inside the final query, before it is cast and named."""
    return f"e{position}"


@dataclass(frozen=True, slots=True)
class _Final:
    """The value of one aggregate over merged state: exact in DuckDB's own types, and estimated in DOUBLE."""

    exact: exp.Expr
    estimate: exp.Expr


def split_aggregates(draft: Draft) -> Draft:
    """Return the draft with its keys, its partial aggregates, and the final query over their merged state.

    The final query is written twice. `exact_tree` gives the answer, `estimate_tree` scales what the sample
    gave.

    >>> from relaqs_engine.planning.example import after, shown
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


_IN_ANY_ORDER = (exp.Sum, exp.Count, exp.Avg, exp.Min, exp.Max)
_OF_NUMBERS = (exp.Binary, exp.Paren, exp.Literal, exp.Neg, exp.Boolean)
_AGGREGATE_NODES = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.AggFunc)


class _Splitter:
    """Collects the partial aggregates while it rewrites a query's expressions. Equal ones are kept once."""

    def __init__(self, draft: Draft, groups_are_local: bool) -> None:
        self._draft = draft
        self._groups_are_local = groups_are_local
        self._outputs = {item.alias: item.unalias() for item in draft.select.expressions}
        self._columns: dict[tuple[Basis, str], BasisColumn] = {}
        self.distinct: exp.Expr | None = None
        self._plain_distinct = False
        self._has_moments = any(map(is_of_moments, draft.select.find_all(exp.AggFunc)))
        self._of_values_found: dict[tuple[str, str], MergedValue] = {}
        self.averaged_times: tuple[AveragedTime, ...] = ()
        self._shared = {value.name: _Final(exp.column(value.name), value.estimate) for value in draft.shared}

    @property
    def basis(self) -> tuple[BasisColumn, ...]:
        return tuple(self._columns.values())

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
            if isinstance(node, _AGGREGATE_NODES) and not isinstance(node, exp.Query):
                return exp.paren(side(self._final(node)), copy=False)
            if isinstance(node, exp.Column) and not node.table and node.name in self._shared:
                return exp.paren(side(self._shared[node.name]).copy(), copy=False)
            if isinstance(node, exp.Column) and not node.table and node.name in positions:
                return exp.column(output_name(positions[node.name]))
            if isinstance(node, exp.Query):
                return node
            for name, child in list(node.args.items()):
                if isinstance(child, list):
                    node.set(name, [visit(c) if isinstance(c, exp.Expr) else c for c in child])
                elif isinstance(child, exp.Expr):
                    node.set(name, visit(child))
            return node

        result = visit(expression.copy())
        for column in own_nodes(result, exp.Column):
            # Only columns of the FROM clause are qualified. Keys, basis and output names are not.
            if column.args.get("table"):
                shown = expression.sql(DIALECT)
                raise NotOnlineError(f"{shown} is neither a group key nor an aggregate that merges")
        return result

    def _final(self, node: exp.Expr) -> _Final:
        """Return the value of one aggregate. Raises NotOnlineError where it does not merge.

        The order of the cases matters. First comes what has no estimate but merges by itself (so_far.py),
        then what needs a list of all values (quantiles.py), then the sums in `_AGGREGATES`. COUNT(DISTINCT x)
        stands before the refusal of every other DISTINCT.
        """
        self._draft.binder.effort.spend(STEPS_OF_A_VALUE)
        condition: exp.Expr | None = None
        if isinstance(node, exp.Filter):
            condition, aggregate = node.expression, node.this
        else:
            aggregate = node
        if isinstance(aggregate, exp.IgnoreNulls):  # how ANY_VALUE is parsed
            aggregate = aggregate.this
        if (first := first_or_last(aggregate)) is not None:
            return self._first(first, condition)
        if isinstance(aggregate, _IN_ANY_ORDER) and isinstance(aggregate.this, exp.Order):
            aggregate = aggregate.copy()
            aggregate.set("this", aggregate.this.this)
        if any(isinstance(aggregate.this, kind) for kind in (exp.Order, exp.HavingMax, exp.Limit)):
            return self._of_values(of_arguments(node if condition is None else node.this), condition)
        so_far = value_so_far(aggregate, lambda kind, each, of: self.column(kind, each, condition, of))
        if so_far is not None:
            return _Final(so_far, so_far.copy())
        if (values := of_values(aggregate)) is not None:
            return self._of_values(values, condition)
        if (moments := self._moments(aggregate, condition)) is not None:
            return moments
        if isinstance(aggregate, exp.Count) and isinstance(aggregate.this, exp.Distinct):
            return self._count_distinct(aggregate, condition)
        build = _AGGREGATES.get(type(aggregate))
        is_plain = not isinstance(aggregate.this, exp.Distinct)
        returns_several = aggregate.expressions or aggregate.args.get("count")
        if build is not None and is_plain and not returns_several:
            return build(self, aggregate, condition)
        return self._of_values(of_arguments(aggregate), condition)

    def _moments(self, aggregate: exp.Expr, condition: exp.Expr | None) -> _Final | None:
        def add(
            kind: Basis,
            each: exp.Expr,
            /,
            *,
            count_of: str | None = None,
            means: tuple[str, ...] = (),
        ) -> str:
            return self.column(kind, each, condition, count_of=count_of, means=means)

        def bounds_of(value: exp.Expr) -> Bounds:
            return value_bounds(value, self._statistics)

        found = value_of_moments(aggregate, add, bounds_of)
        return None if found is None else _Final(*found)

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

    def _is_number(self, node: exp.Expr) -> bool:
        column = self._statistics(node) if isinstance(node, exp.Column) else None
        return isinstance(node, exp.Identifier) or (column is not None and is_number(column.type))

    def average_of_times(self, aggregate: exp.Expr, type_: str, condition: exp.Expr | None) -> _Final:
        """Return AVG of dates, times or intervals; of moments that have no bounds, the value so far."""
        if type_ == "INTERVAL":
            return self._average_of_intervals(aggregate, condition)
        found = time_to_average(aggregate.this, type_, self._statistics)
        if found is None:
            return self._of_values(of_arguments(aggregate), condition)
        total = self.column(Basis.SUM, exp.Sum(this=found.microseconds), condition)
        count = self.column(Basis.COUNT, exp.Count(this=aggregate.this.copy()), condition)
        self.link_count(count, total)
        merged = found.merged(total, count)
        self.averaged_times = (*self.averaged_times, merged)
        return _Final(merged.exact, merged.estimate)

    def _average_of_intervals(self, aggregate: exp.Expr, condition: exp.Expr | None) -> _Final:
        value = interval_to_average(aggregate.this)
        months, days, microseconds, length = (
            self.column(Basis.SUM, exp.Sum(this=part), condition) for part in (*value.parts, value.length)
        )
        count = self.column(Basis.COUNT, exp.Count(this=aggregate.this.copy()), condition)
        self.link_count(count, length)
        merged = value.merged((months, days, microseconds), length, count)
        self.averaged_times = (*self.averaged_times, merged)
        return _Final(merged.exact, merged.estimate)

    def _first(self, first: FirstOrLast, condition: exp.Expr | None) -> _Final:
        if first.condition is not None:
            both = first.condition if condition is None else exp.and_(condition.this, first.condition)
            condition = exp.Where(this=both)
        name = self.column(first.kind, first.aggregate, condition, order=first.order)
        value = exp.func("struct_extract", exp.column(name), exp.Literal.string("v"))
        return _Final(value, value.copy())

    def _count_distinct(self, aggregate: exp.Count, condition: exp.Expr | None) -> _Final:
        """Return COUNT(DISTINCT x).

        It is a plain count where equal values lie in one partition. Everywhere else it is estimated.
        """
        distinct = aggregate.this.expressions
        if len(distinct) != 1 or isinstance(distinct[0], exp.Tuple):
            return self._of_values(of_arguments(aggregate), condition)
        value = without_brackets(distinct[0])
        if condition is not None:
            value = exp.case().when(condition.this.copy(), value.copy())
        plain = self._groups_are_local or self._is_cluster_key(without_brackets(distinct[0]))
        # In a state with one row for each value, counts of other values do not add up, nor do moments.
        if self.distinct not in (None, value) or ((self._plain_distinct or self._has_moments) and not plain):
            return self._of_values(of_distinct(aggregate, value), None)
        if plain and self.distinct is None:
            self._plain_distinct = True
            return _count(self, aggregate, condition)
        self.distinct = value
        return _Final(exp.column(DISTINCT_SEEN), exp.column(DISTINCT_ESTIMATE))

    def _of_values(self, values: OfValues, condition: exp.Expr | None) -> _Final:
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
        found = time_to_average(value, type_, self._statistics) if type_ in MICROSECOND_TYPES else None
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
        node = exp.Filter(this=aggregate.copy(), expression=condition.copy()) if condition else aggregate
        sql = node.sql(DIALECT)
        if (kind, sql) not in self._columns:
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


def bounds_of_a_row(aggregate: exp.Expr, column_of: ColumnLookup) -> Bounds:
    """Return the bounds of the value that an aggregate has of one row; of a covariance, of their product."""
    bounds = value_bounds(aggregate.this, column_of)
    if isinstance(aggregate, exp.CovarPop):
        return bounds * value_bounds(aggregate.expression, column_of)
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
    return exp.cast(exp.column(name), "DOUBLE")


def _scaled(name: str) -> exp.Expr:
    return exp.Mul(this=_double(name), expression=exp.column(SCALE))


def _divided(numerator: exp.Expr, denominator: exp.Expr) -> exp.Expr:
    return exp.Div(this=numerator, expression=exp.Nullif(this=denominator, expression=exp.Literal.number(0)))


def _sum(splitter: _Splitter, aggregate: exp.Expr, condition: exp.Expr | None) -> _Final:
    name = splitter.column(Basis.SUM, aggregate, condition)
    return _Final(exp.column(name), _scaled(name))


def _count(splitter: _Splitter, aggregate: exp.Expr, condition: exp.Expr | None) -> _Final:
    if aggregate.this is None:  # COUNT()
        aggregate = exp.Count(this=exp.Star())
    name = splitter.column(Basis.COUNT, aggregate, condition)
    return _Final(exp.column(name), _scaled(name))


def _count_if(splitter: _Splitter, aggregate: exp.Expr, condition: exp.Expr | None) -> _Final:
    held = aggregate.this.copy() if condition is None else exp.and_(condition.this, aggregate.this)
    return _count(splitter, exp.Count(this=exp.Star()), exp.Where(this=held))


def _avg(splitter: _Splitter, aggregate: exp.Expr, condition: exp.Expr | None) -> _Final:
    if type_ := splitter.type_of_a_moment(aggregate.this):
        return splitter.average_of_times(aggregate, type_, condition)
    total = splitter.column(Basis.SUM, exp.Sum(this=aggregate.this.copy()), condition)
    count = splitter.column(Basis.COUNT, exp.Count(this=aggregate.this.copy()), condition)
    splitter.link_count(count, total)
    return _Final(_divided(_double(total), exp.column(count)), _divided(_double(total), _double(count)))


def _extreme(kind: Basis) -> Callable[..., _Final]:
    def build(splitter: _Splitter, aggregate: exp.Expr, condition: exp.Expr | None) -> _Final:
        name = splitter.column(kind, aggregate, condition)
        return _Final(exp.column(name), exp.column(name))

    return build


_AGGREGATES: dict[type[exp.Expr], Callable[..., _Final]] = {
    exp.Sum: _sum,
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Avg: _avg,
    exp.Min: _extreme(Basis.MIN),
    exp.Max: _extreme(Basis.MAX),
}
