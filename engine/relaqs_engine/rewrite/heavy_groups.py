"""Rule: read the heaviest groups of a ranking early, from the index of heavy units.

    SELECT order_id, sum(price) AS paid FROM items GROUP BY order_id ORDER BY paid DESC LIMIT 10

Each group lies in one partition, so before the end most groups were not seen. The index of `items` has all
rows of the orders with the largest sums of `price`, and the bound of all other orders. From that follows the
most that a group outside the index can sum to:

    price                     the bound of price
    price * (1 - discount)    the bound of price, times the largest value of 1 - discount
    count(*)                  the bound of the number of rows
    … JOIN orders             times the rows of orders that one item can meet

A static table's rows that one row can meet are counted when the index is read.
`layouts/heavy_units.py` says what is in the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite, prod

from sqlglot import exp

from relaqs_engine.bounds.interval_arithmetic import Bounds
from relaqs_engine.bounds.values import value_bounds
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.basis import Basis, BasisColumn
from relaqs_engine.plans.heavy_groups import HeavyGroups
from relaqs_engine.rewrite.draft import Draft, Source, pairs_of
from relaqs_engine.rewrite.scans import streams_of
from relaqs_engine.sql.aggregates import call_in
from relaqs_engine.sql.parse import DIALECT

_ROUNDING = 1e-9


def read_heavy_groups(draft: Draft) -> Draft:
    """Return the draft with its heavy groups, if an index of heavy units bounds all other groups.

    >>> from relaqs_engine.planning.example import after
    >>> sql = "SELECT id, sum(price / 2) AS s FROM orders JOIN items ON id = order_id GROUP BY id"
    >>> after(read_heavy_groups, f"{sql} ORDER BY s DESC LIMIT 10").heavy
    HeavyGroups(index='...', most=1350.0..., fan_out_sql='1')
    >>> after(read_heavy_groups, f"{sql} ORDER BY s LIMIT 10").heavy is None   # the least come first
    True
    """
    column = _ranked_total(draft)
    if column is None:
        return draft
    fan_out = _static_fan_out(draft)
    found = [_of_source(draft, source, column, fan_out) for source in draft.streams] if fan_out else []
    best = min(filter(None, found), key=lambda heavy: heavy.most, default=None)
    return replace(draft, heavy=best)


def _ranked_total(draft: Draft) -> BasisColumn | None:
    """Return the total whose largest values come first, where each group is complete once it is seen."""
    rules = draft.membership
    ranking = rules.ranking
    is_plain = not (draft.of_values or draft.distinct is not None or draft.shared or draft.grouping_sets)
    if not draft.groups.are_local or not is_plain or not draft.may_read_outliers or rules.rows_may_leave:
        return None
    if ranking is None or not ranking.descends or any(s.nullable or s.is_derived for s in draft.sources):
        return None
    column = next((each for each in draft.basis if each.name == ranking.value.total), None)
    return column if column is not None and column.kind in (Basis.SUM, Basis.COUNT) else None


def _of_source(draft: Draft, source: Source, column: BasisColumn, fan_out: str) -> HeavyGroups | None:
    """Return the heavy groups by the index of one stream, None where that does not bound the others."""
    layout = source.layout
    if layout is None or layout.heavy is None:
        return None
    index = layout.heavy.name
    if any(draft.catalog.table(s.table).rows_of_heavy(index) is None for s in streams_of(draft)):
        return None
    others = [other.layout for other in draft.streams if other is not source]
    times = prod(other.max_unit_rows for other in others if other is not None)
    most = _UnitMost(draft, source.alias, layout)(column) * times * (1.0 + _ROUNDING)
    return HeavyGroups(index, most, fan_out) if isfinite(most) else None


class _UnitMost:
    """Says what an aggregate of a unit's rows is at most, for the units that are not in the index.

    Each bound is that of a sum of values that are not negative. So it also bounds the sum over some of the
    rows.
    """

    def __init__(self, draft: Draft, alias: str, layout: Layout) -> None:
        assert layout.heavy is not None
        self._draft = draft
        self._alias = alias
        self._bounds = {bound.column.lower(): bound.most for bound in layout.heavy.bounds}
        self._rows = self._bounds.get("", float(layout.max_unit_rows))

    def __call__(self, column: BasisColumn) -> float:
        call = call_in(column.sql)
        assert call is not None
        return self._rows if column.kind is Basis.COUNT else self._of(call.arguments[0])

    def _of(self, value: exp.Expr) -> float:
        """Return the most that a value sums to over the rows of a unit, infinity where that is not known."""
        value = value.unnest()
        return min(self._by_parts(value), self._rows * _highest(self._range(value)))

    def _by_parts(self, value: exp.Expr) -> float:
        match value:
            case exp.Column() if value.table == self._alias:
                return self._bounds.get(value.name.lower(), inf)
            case exp.Mul():
                left, right = value.left, value.right
                return min(self._scaled(left, right), self._scaled(right, left))
            case exp.Add():
                return self._of(value.left) + self._of(value.right)
            case exp.Sub() if _is_never_negative(self._range(value.right)):
                return self._of(value.left)
            case exp.Div() if isinstance(value.right.unnest(), exp.Literal):
                return self._scaled(value.left, exp.Div(this=exp.Literal.number(1.0), expression=value.right))
            case exp.Case():
                branches = [each.args["true"] for each in value.args["ifs"]]
                last = value.args.get("default")
                return sum(map(self._of, branches if last is None else [*branches, last]))
        return inf

    def _scaled(self, value: exp.Expr, factor: exp.Expr) -> float:
        found = self._range(factor)
        return self._of(value) * _highest(found) if _is_never_negative(found) else inf

    def _range(self, value: exp.Expr) -> Bounds:
        return value_bounds(value, lambda each: self._draft.source(each.table).column(each.name))


def _highest(found: Bounds) -> float:
    return inf if found.highest is None else max(0.0, found.highest)


def _is_never_negative(found: Bounds) -> bool:
    return found.lowest is not None and found.lowest >= 0.0


def _static_fan_out(draft: Draft) -> str:
    """Return the SQL of how many rows of the static tables one joined row of the streams can meet at most.

    It is "" where a static table is met by no equation of columns.
    """
    reached = {source.alias for source in draft.streams}
    waiting = [source for source in draft.sources if not source.streams]
    factors = ["1"]
    while waiting:
        ready = next((each for each in waiting if _columns_met(draft, each, reached)), None)
        if ready is None:
            return ""
        columns = ", ".join(_columns_met(draft, ready, reached))
        rows = f"SELECT count(*) AS n FROM {_prepared(draft, ready)} GROUP BY {columns}"
        factors.append(f"(SELECT coalesce(max(n), 1) FROM ({rows}))")
        reached.add(ready.alias)
        waiting.remove(ready)
    return " * ".join(factors)


def _columns_met(draft: Draft, source: Source, reached: set[str]) -> Sequence[str]:
    """Return the columns of a static table that are equated with columns of sources that were reached."""
    sides: list[tuple[exp.Column, exp.Column]] = [
        pair for both in pairs_of(draft.conjuncts) for pair in (both, (both[1], both[0]))
    ]
    met = (mine.name for mine, other in sides if mine.table == source.alias and other.table in reached)
    return [exp.to_identifier(name, quoted=True).sql(DIALECT) for name in dict.fromkeys(met)]


def _prepared(draft: Draft, source: Source) -> str:
    """Return the name that a static table is prepared under."""
    assert draft.scan is not None
    tables = draft.scan.find_all(exp.Table)
    return next(table.name for table in tables if table.alias == source.alias)
