"""What one sampling unit that was not read may add, and which estimates nothing bounds.

**Units.** What a sampling unit comes to where it is a cluster key: its rows in a group, its sums, its
derived row.

    SELECT avg(n), avg(s) FROM (SELECT user, count(*) AS n, sum(paid) AS s FROM events GROUP BY user)

Laid out by user, one row of this derived table is one unit. So its columns have bounds as those of a
stored table have, and all that asks for bounds follows: what one unread user may move, and whether a sum
can fall.

    n    at least 1, and at most the rows of the largest unit
    s    as many times what one row may add, and at most what the manifest has of sums over a unit
         (`layouts/outliers.py`)
    avg, min, max, any_value, quantiles    between the ends of what they are of

Conditions inside only leave rows out, or rows of the derived table. Where further keys stand beside the
cluster key, a unit has as many rows as these have values, and within one group of the outer query as many
as the other keys have. Where a unit may meet any number of rows of a joined table, nothing is known of its
sums.

**Rule:** `say_what_is_unbounded`: the answer says which of its estimates are never certified before the
end, and why. An interval is certified only if no row that was not read could move the value far. That
cannot be told where nothing bounds what a row may add, as in `sum(length(comment))`. It cannot be told
either where one row of the sampled table may meet many rows of another table, because all of them then
come at once. Nor is a value certified that an estimate chooses, or one that jumps, or bends near zero, as
the square of a covariance in `regr_r2`.

**Choices.** Which outputs choose between values by an estimate, so that more rows may let them choose
otherwise:

    CASE WHEN sum(gain) > 0 THEN avg(win) ELSE avg(loss) END

Error bars come from leaving rows out, one block at a time. If the sum is 500 in the sample, and 5 less in
each of these, then all of them have the average win. Nothing tells that the sum of all rows may be -20.

**Jumps and bends.**

    hash(sum(km)) % 7       what is hashed jumps
    sum(km) / sum(gain)     gains and losses may nearly cancel, and then the ratio may be anything

Error bars come from how a value moves where a little is left out, as if it went on along a straight line.
Of 40 groups in 12 orders, 65 % of the bars of the second held (docs/decisions/0073-what-bends.md).

**Places.** Where LIMIT picks groups by their keys, the groups before each are counted, as far as keys
order them:

    SELECT state, avg(paid) FROM sales GROUP BY state ORDER BY state, 2 DESC LIMIT 100

A group has its place for sure if LIMIT has room for all that may come before it: those that were seen, and
those that were not. Groups that are ordered by estimates alone count as coming before each other.

Last, the values of medians and the like have to fit into the memory for merged states: those of all rows
(`check_kept_values`), or, where the query may run as a whole after a sample, of one partition
(`check_first_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite, prod, sqrt

import sqlglot
from sqlglot import exp

from relaqs_engine.bounds import UNKNOWN, Bounds, ColumnLookup
from relaqs_engine.layouts.manifest import Column, OtherUnits, is_number
from relaqs_engine.layouts.statistics import NEARLY_ALL
from relaqs_engine.plans.aggregate import (
    BEFORE,
    BEFORE_ONCE,
    IS_FIRST,
    ROWS,
    SCALE,
    SHARED_SCALE,
    Basis,
    BasisColumn,
    UnitSum,
)
from relaqs_engine.plans.plan import OutputColumn, OutputKind
from relaqs_engine.rewrite.draft import (
    Draft,
    KeyBeside,
    NotOnlineError,
    Source,
    column_pair,
    conjuncts_of,
    is_said,
    said,
    said_name,
    tables_in,
)
from relaqs_engine.rewrite.grouping import group_keys
from relaqs_engine.rewrite.outputs import BENDS, sign_of_column
from relaqs_engine.sql.aggregates import Call, Merge, call_of, is_aggregate
from relaqs_engine.sql.expressions import (
    Motion,
    Ranges,
    Sign,
    Signs,
    alternatives,
    asked_in_turn,
    bends,
    conditions_in,
    motion_of,
    number_of,
)
from relaqs_engine.sql.parse import DIALECT

_ONE_OF_VALUES = (Merge.MIN, Merge.MAX, Merge.ANY, Merge.FIRST, Merge.LAST)
_BETWEEN_VALUES = (*_ONE_OF_VALUES, Merge.MEAN, Merge.QUANTILE, Merge.BESIDE_MIN, Merge.BESIDE_MAX)
# The most that they are of values which differ by 1 at most.
_SPREADS = {
    **dict.fromkeys(("stddev_pop", "sem"), 0.5),
    **dict.fromkeys(("stddev", "stddev_samp"), sqrt(0.5)),
}
_VARIANCES = {"var_pop": 0.25, "var_samp": 0.5}


def rows_of_unit(draft: Draft, source: Source) -> int:
    """Return the most rows of a source that a sampling unit has in one group."""
    sampled = (draft.catalog.table(table.name) for table in tables_in(source.node))
    most = prod(layout.max_unit_rows for layout in sampled if layout.is_sampled)
    columns = source.layout.columns if source.layout and not source.is_derived else ()
    return rows_in_a_group(draft, source, most, {each.name: each.most_unit_rows for each in columns})


def rows_in_a_group(draft: Draft, source: Source, most: int, parts: Mapping[str, int | None]) -> int:
    """Return the most rows of a source that a sampling unit has in one group.

    Rows of a group agree in each key, so a column that is a key bounds them. An outer join may put a unit's
    rows that met none into the group of NULL, and a grouping set may leave a key out.

    Args:
        draft: the query.
        source: a relation of its FROM.
        most: the rows of the largest unit, in the tables that it reads.
        parts: the most rows of a unit with one value, by column. None where that is not known.
    """
    grouped = () if source.nullable or draft.grouping_sets else draft.keys
    keys = [key.name.lower() for key in grouped if isinstance(key, exp.Column) and key.table == source.alias]
    if source.is_derived:
        beside = (key.values for key in source.keys_beside if key.output not in keys)
        return source.grouping_sets * min(most, prod(most if each is None else each for each in beside))
    named = {name.lower(): rows for name, rows in parts.items() if rows}
    return min([most, *(named[key] for key in keys if key in named)])


def of_derived_table(inner: Draft, others: OtherUnits | None = None) -> tuple[Column, ...]:
    """Return what is known of the columns of a derived table that groups by a cluster key.

    Args:
        inner: the query inside, with its streams chosen.
        others: what is known of the units that are no outliers, where the table has these alone.

    The orders of the example have up to nine items, whose prices are between 0.5 and 99:

    >>> from relaqs_engine.planning.example import after
    >>> from relaqs_engine.rewrite.sampling import choose_streams
    >>> inner = "SELECT order_id, count(*) AS n, sum(price) - 1 AS s FROM items GROUP BY order_id"
    >>> (table,) = after(choose_streams, f"SELECT avg(n), avg(s), min(order_id) FROM ({inner})").streams
    >>> [(column.name, column.minimum, column.maximum) for column in table.columns]
    [('order_id', 1, 256000), ('n', 1.0, 9.0), ('s', -0.5, 890.0)]
    """
    types = inner.binder.describe(inner.select.sql(DIALECT))
    rows = _rows_of_groups(inner, others)
    sets = len(group_keys(inner.select)[1])
    items = zip(inner.select.expressions, types, strict=True)
    return tuple(_column(item.unalias().unnest(), name, type_, rows, sets) for item, (name, type_) in items)


def keys_beside(inner: Draft, cluster_key: frozenset[tuple[str, str]]) -> tuple[KeyBeside, ...]:
    """Return the keys of a derived table beside the cluster key, given as (alias, column in lower case)."""
    return tuple(_keys_beside(inner, cluster_key))


def _keys_beside(inner: Draft, cluster_key: frozenset[tuple[str, str]]) -> Iterator[KeyBeside]:
    keys, sets = group_keys(inner.select)
    outputs = {item.unalias(): item.alias_or_name.lower() for item in inner.select.expressions}
    for key in keys[:-1] if sets else keys:
        if isinstance(key, exp.Column) and (key.table, key.name.lower()) in cluster_key:
            continue
        known = inner.column_of(key) if isinstance(key, exp.Column) else None
        counted = known.distinct_count if known is not None else 0
        yield KeyBeside(outputs.get(key, ""), 1 + ceil(counted / NEARLY_ALL) if counted else None)


@dataclass(frozen=True, slots=True)
class _RowsOfGroups:
    """What is known of the rows in each group of a derived table.

    Attributes:
        column_of: gives the statistics of a column.
        most: how many there are at most. None where that is not known.
        is_nullable: whether an outer join may fill a column with NULL.
        sum_of: gives what they add to the sum of a value, None where that is not known.
    """

    column_of: ColumnLookup
    most: int | None
    is_nullable: Callable[[exp.Column], bool]
    sum_of: Callable[[exp.Expr], UnitSum | None]

    def are_never_null(self, value: exp.Expr) -> bool:
        """Whether a value is a column without NULL."""
        if not isinstance(value, exp.Column) or self.is_nullable(value):
            return False
        known = self.column_of(value)
        return known is not None and known.null_count == 0


def _rows_of_groups(inner: Draft, others: OtherUnits | None) -> _RowsOfGroups:
    joins = inner.select.args.get("joins") or []
    keys, sets = group_keys(inner.select)
    grouped = replace(inner, keys=keys, grouping_sets=sets)
    most = None
    if not any(join.side == "FULL" for join in joins) and not any(met_several_times(inner)):
        most = prod(rows_of_unit(grouped, source) for source in inner.streams)
    sums: dict[str, UnitSum] = {}
    alias = ""
    if others is not None:
        (source,) = inner.streams
        assert source.layout is not None
        parts = {column.column: column.most_unit_rows for column in others.columns}
        alias = source.alias
        if most is not None:
            most = rows_in_a_group(grouped, source, others.max_unit_rows, parts)
        sums = sums_of(others, {column.name.lower() for column in source.layout.columns})
    return _RowsOfGroups(
        inner.column_of,
        most,
        lambda column: inner.source(column.table).nullable,
        lambda value: unit_sum(value, alias, sums),
    )


def _column(value: exp.Expr, name: str, type_: str, rows: _RowsOfGroups, sets: int) -> Column:
    """Return what is known of an output of a derived table. null_count: 0, or 1 where it may be NULL."""
    call = call_of(value) if is_aggregate(value) else None
    nulls = int(not _is_never_null(value, call, rows) or sets > 0)
    taken = call.arguments[0] if call is not None and _takes_one(call) else value
    known = rows.column_of(taken) if isinstance(taken, exp.Column) else None
    if known is not None and known.type == type_:
        return Column(name, type_, known.minimum, known.maximum, nulls, known.distinct_count, byte_count=0)
    bounds = _bounds(value, rows) if is_number(type_) else UNKNOWN
    return Column(name, type_, _finite(bounds.lowest), _finite(bounds.highest), nulls, 0, byte_count=0)


def _finite(end: float | None) -> float | None:
    return end if end is not None and isfinite(end) else None


def _takes_one(call: Call) -> bool:
    """Whether a call gives one of the values of its argument."""
    return call.law.merge in _ONE_OF_VALUES and len(call.arguments) in call.law.arguments


def _is_never_null(value: exp.Expr, call: Call | None, rows: _RowsOfGroups) -> bool:
    if call is None:
        return rows.are_never_null(value)
    if call.law.merge is Merge.COUNT:
        return True
    has_value = call.law.merge in (*_ONE_OF_VALUES, Merge.TOTAL, Merge.MEAN)
    return has_value and call.condition is None and all(map(rows.are_never_null, call.arguments))


def _bounds(value: exp.Expr, rows: _RowsOfGroups) -> Bounds:
    """Return the bounds of an expression over aggregates and keys."""
    found: dict[str, Column] = {}

    def placed(node: exp.Expr) -> exp.Expr:
        if not is_aggregate(node):
            return node
        name, call = f"aggregate_{len(found)}", call_of(node)
        bounds = UNKNOWN if call is None else _bounds_of_call(call, rows)
        type_ = "BIGINT" if call is not None and call.law.merge is Merge.COUNT else "DOUBLE"
        found[name] = Column(name, type_, bounds.lowest, bounds.highest, 1, 0, 0)
        return exp.column(name)

    over = value.copy().transform(placed)
    return Ranges(lambda each: rows.column_of(each) if each.table else found.get(each.name))(over)


def _bounds_of_call(call: Call, rows: _RowsOfGroups) -> Bounds:
    """Return the bounds of an aggregate of a group that has at least one row. DISTINCT leaves rows out."""
    law = call.law
    if len(call.arguments) not in law.arguments or law.name == "approx_quantile":
        return UNKNOWN
    if law.merge is Merge.COUNT:
        of_all = not call.arguments or isinstance(call.arguments[0], exp.Star)
        least = 1.0 if of_all and call.condition is None else 0.0
        return Bounds(least, None if rows.most is None else float(rows.most))
    of_a_row = Ranges(rows.column_of)(call.arguments[0])
    if law.merge is Merge.TOTAL:
        return _bounds_of_sum(of_a_row, rows.most, rows.sum_of(call.arguments[0]))
    if law.merge in _BETWEEN_VALUES:
        return of_a_row
    if of_a_row.ends is None or law.name not in (*_SPREADS, *_VARIANCES):
        return UNKNOWN
    width = of_a_row.ends[1] - of_a_row.ends[0]
    most = _SPREADS[law.name] * width if law.name in _SPREADS else _VARIANCES[law.name] * width**2
    return Bounds(0.0, most)


def _bounds_of_sum(of_a_row: Bounds, most: int | None, of_unit: UnitSum | None) -> Bounds:
    """Return the bounds of a sum over at least one row, and `most` of them.

    >>> _bounds_of_sum(Bounds(-1.0, 5.0), 10, None)
    Bounds(lowest=-10.0, highest=50.0)
    >>> _bounds_of_sum(Bounds(2.0, 5.0), 10, UnitSum(3.0, above=4.0, below=6.0, squares=9.0))
    Bounds(lowest=2.0, highest=34.0)
    """
    low, high = of_a_row.lowest, of_a_row.highest
    if most is None:
        return Bounds(low if of_a_row.is_nonnegative else None, None)
    low = None if low is None else min(low, most * low)
    high = None if high is None else max(high, most * high)
    if of_unit is not None:
        least = min(of_unit.middle, most * of_unit.middle) - of_unit.below
        greatest = max(of_unit.middle, most * of_unit.middle) + of_unit.above
        low, high = (
            least if low is None else max(low, least),
            greatest if high is None else min(high, greatest),
        )
    return Bounds(low, high)


def sums_of(others: OtherUnits, of_all: Container[str]) -> dict[str, UnitSum]:
    """Return what the rows of a unit that is no outlier add to the sum of a column, by name in lower case.

    of_all: the columns whose outliers are among these rows.
    """
    found = {}
    for each in others.columns:
        name = each.column.lower()
        without = (each.above, each.below, each.squares)
        with_outliers = (each.above_of_all, each.below_of_all, each.squares_of_all)
        above, below, squares = with_outliers if name in of_all else without
        if each.middle is not None and above is not None and below is not None and squares is not None:
            found[name] = UnitSum(each.middle, above, below, squares)
    return found


def unit_sum(value: exp.Expr, alias: str, sums: Mapping[str, UnitSum]) -> UnitSum | None:
    """Return what a unit's rows add to the sum of a column of a source, or of a + b · column.

    None where nothing is known of it.
    """
    value = value.unnest()
    match value:
        case exp.Column():
            return sums.get(value.name.lower()) if value.table == alias else None
        case exp.Cast() if value.to.is_type(exp.DType.DOUBLE):
            return unit_sum(value.this, alias, sums)
        case exp.Neg():
            return _scaled(unit_sum(value.this, alias, sums), -1.0)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _unit_sum_of_two(value, alias, sums)
    return None


def _unit_sum_of_two(value: exp.Binary, alias: str, sums: Mapping[str, UnitSum]) -> UnitSum | None:
    """Return the same of a column and a number, with an operation between them."""
    left, right = _number(value.left), _number(value.right)
    if right is not None:
        return _unit_sum_with(type(value), unit_sum(value.left, alias, sums), right)
    if left is None or isinstance(value, exp.Div):
        return None
    found = unit_sum(value.right, alias, sums)
    if isinstance(value, exp.Sub):
        return _unit_sum_with(exp.Add, _scaled(found, -1.0), left)
    return _unit_sum_with(type(value), found, left)


def _unit_sum_with(operation: type[exp.Binary], found: UnitSum | None, number: float) -> UnitSum | None:
    """Return what units' rows add to a sum where each value is combined with a number on its right."""
    if found is None:
        return None
    if operation is exp.Add or operation is exp.Sub:
        return found.moved(number if operation is exp.Add else -number)
    if operation is exp.Mul:
        return found.times(number)
    return found.times(1.0 / number) if number else None


def _scaled(found: UnitSum | None, factor: float | None) -> UnitSum | None:
    return None if found is None or factor is None else found.times(factor)


def _number(value: exp.Expr) -> float | None:
    """Return the number that is written out, None for anything else."""
    value = value.unnest()
    if isinstance(value, exp.Neg) and (inner := _number(value.this)) is not None:
        return -inner
    return float(value.this) if isinstance(value, exp.Literal) and not value.is_string else None


_COMPARED_WITH_ZERO = (exp.EQ, exp.NEQ, exp.GT)
_NUMBERS_OF_ALL = (ROWS, SCALE, SHARED_SCALE)


def chooses_by_estimates(value: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether the value may be another one, not a near one, once an estimate has moved a little.

    Three conditions are harmless: of keys alone, whether a sum that is never negative is 0, and whether a
    value is NULL. In the last two, error bars find out: they look at what one more row would do.

    Args:
        value: of an output, over merged state.
        basis: the merged columns by their names.
    """
    bare = value.unnest()
    return (
        any(not _is_harmless(each, basis) for each in conditions_in(value))
        or any(each is not bare and _may_be_filled(each, basis) for each in value.find_all(exp.Coalesce))
        or any(_chooses(each, basis, alone=each is bare) for each in value.find_all(exp.Greatest, exp.Least))
    )


def _is_harmless(condition: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    condition = condition.unnest()
    if not _estimated(condition, basis):
        return True
    if isinstance(condition, exp.And | exp.Or):
        return all(_is_harmless(side, basis) for side in (condition.left, condition.right))
    if isinstance(condition, exp.Not):
        return _is_harmless(condition.this, basis)
    if isinstance(condition, exp.Is):
        return isinstance(condition.expression, exp.Null)
    if not isinstance(condition, _COMPARED_WITH_ZERO) or number_of(condition.right) != 0.0:
        return False
    sign = Signs(lambda column: sign_of_column(column, basis))(condition.left)
    return len(_estimated(condition.left, basis)) == 1 and not sign & Sign.NEGATIVE


def _chooses(extreme: exp.Expr, basis: Mapping[str, BasisColumn], *, alone: bool) -> bool:
    """Whether GREATEST or LEAST has estimates to choose from.

    One estimate beside constants does no harm if that is the whole value: it is cut at the constant.
    """
    estimated = [bool(_estimated(each, basis)) for each in alternatives(extreme)]
    return any(estimated) if not alone else sum(estimated) > 1


def _may_be_filled(coalesce: exp.Coalesce, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether COALESCE has an estimate that may be NULL for now, other than a sum.

    The mean of no rows is NULL, and one more row with a 0 would let it be 0: that is what COALESCE often
    takes, so that error bars do not see the difference.
    """
    return any(len(_estimated(each, basis)) > 1 for each in asked_in_turn(coalesce)[0])


def _estimated(expression: exp.Expr, basis: Mapping[str, BasisColumn]) -> set[str]:
    """Return the merged columns in an expression, those left aside that count all rows."""
    names = {column.name for column in expression.find_all(exp.Column)}
    return {name for name in names if name in basis and name not in _NUMBERS_OF_ALL}


def jumps_and_bends(value: exp.Expr, basis: Mapping[str, BasisColumn]) -> Iterator[str]:
    """Yield why error bars of a value over merged state may say too little.

    Args:
        value: of an output.
        basis: the merged columns by their names.
    """
    estimates = [column for column in value.find_all(exp.Column) if column.name in basis]
    above = {id(node): node for column in estimates for node in _path(column)}
    for node in above.values():
        if motion_of(node) is Motion.JUMPS:
            yield f"{_called(node)} may jump where an estimate moves a little; its parts may be certified"
    bare, curved = value.unnest(), [node for node in above.values() if not _centres_moments(node, basis)]
    if any(bends(node, lambda c: sign_of_column(c, basis), alone=node is bare) for node in curved):
        yield BENDS


def _called(node: exp.Expr) -> str:
    """Return what is computed, without its arguments: they are columns of merged state."""
    name, is_call, _ = node.sql(DIALECT).partition("(")
    return f"{name.lower()}()" if is_call and name.isidentifier() else "an operator"


def _centres_moments(node: exp.Expr, basis: Mapping[str, BasisColumn]) -> bool:
    """Whether a product moves moments to another centre, as in the kurtosis of `statistics.py`.

    Both factors may be near zero, but then it is a small part of the sum that it stands in.
    """
    if not isinstance(node, exp.Mul) or node.left.find(exp.Sub) is None:
        return False
    shift, moments = (
        [basis.get(each.name) for each in side.find_all(exp.Column)] for side in (node.left, node.right)
    )
    return all(each is not None and each.kind is Basis.MEAN for each in shift) and all(
        each is not None and each.is_moment for each in moments
    )


def _path(column: exp.Column) -> list[exp.Expr]:
    """Return the nodes from a column up to the value, none where it stands in a condition of CASE or IF."""
    found: list[exp.Expr] = [column]
    while (parent := found[-1].parent) is not None:
        if isinstance(parent, exp.If | exp.Case) and parent.this is found[-1]:
            return []
        found.append(parent)
    return found


def say_what_is_unbounded(draft: Draft) -> Draft:
    """Return the draft with a reason for each estimate that cannot be certified.

    >>> from relaqs_engine.planning.example import after
    >>> draft = after(say_what_is_unbounded, "SELECT sum(km) AS km, sum(length(comment)) AS words FROM trips")
    >>> [output.never_certified for output in draft.outputs]
    ['', 'nothing bounds LENGTH(comment), which it adds up']
    """
    if not draft.intervals or draft.groups.are_local:
        return draft
    basis = {column.name: column for column in (*draft.basis, *draft.shared_basis)}
    of_all = [
        f"a row may meet several rows of {name}, which then count all at once; it helps to lay both tables "
        "out by the columns that join them"
        for name in map(said_name, met_several_times(draft))
    ]
    of_all += [
        f"a group of {said_name(source.alias)} may become any number of rows, which then count all at once"
        for source in draft.streams
        if source.is_derived and source.node.find(exp.UDTF, exp.Explode)
    ]
    estimated = {
        output: output.of_distinct.factor if output.of_distinct else output for output in draft.outputs
    }
    reasons = {
        output: why
        for output, of_sums in estimated.items()
        if of_sums.kind is OutputKind.ESTIMATE
        and (why := "; ".join([*of_all, *_reasons(of_sums, basis, draft.sources)]))
    }
    outputs = (
        replace(output, never_certified=reasons.get(output, output.never_certified))
        for output in draft.outputs
    )
    return replace(draft, outputs=tuple(outputs))


def met_several_times(draft: Draft) -> Iterator[str]:
    """Yield the tables that are read whole and have more than one row that a sampled row may meet."""
    joins = draft.select.args.get("joins") or []
    conditions = [*draft.conjuncts, *(c for join in joins for c in conjuncts_of(join.args.get("on")))]
    equated = frozenset(column for condition in conditions for column in _equated(condition))
    for source in draft.sources:
        columns = {name for alias, name in equated if alias == source.alias}
        if not source.streams and not _is_unique(source, columns):
            yield source.alias if source.layout is None else source.layout.table


def _equated(condition: exp.Expr) -> frozenset[tuple[str, str]]:
    """Return the columns, as (alias, name), that a condition surely equates with those of other tables."""
    condition = condition.unnest()
    if isinstance(condition, exp.Or):
        branches = [
            frozenset(column for part in conjuncts_of(branch) for column in _equated(part))
            for branch in condition.flatten()
        ]
        return frozenset.intersection(*branches)
    pair = column_pair(condition)
    return frozenset() if pair is None else frozenset((each.table, each.name.lower()) for each in pair)


def _is_unique(source: Source, columns: set[str]) -> bool:
    """Whether no two rows of a source agree in all of these columns, as far as the statistics tell.

    Of several columns, and in sampled tables, these are numbers of distinct values to a few percent.
    """
    if source.layout is None:
        return isinstance(source.node, exp.Subquery) and _tell_apart(columns, source.node.this)
    layout, rows = source.layout, source.layout.row_count
    found = [column for column in layout.columns if column.name.lower() in columns]
    if any(each.is_counted and each.distinct_count >= rows - each.null_count for each in found):
        return True
    if rows > 1 and len(found) == 1 and found[0].is_counted:
        return False
    return rows <= 1 or prod(each.distinct_count for each in found) >= NEARLY_ALL * rows


def _tell_apart(columns: set[str], query: exp.Expr) -> bool:
    """Whether no two rows of an aggregation, or of distinct rows, agree in all of these columns."""
    if not isinstance(query, exp.Query):
        return False
    if isinstance(query, exp.Select) and query.args.get("group"):
        keys, sets = group_keys(query)
        named = {item.unalias() for item in query.expressions if item.alias_or_name.lower() in columns}
        return not sets and named.issuperset(keys)
    distinct = query.args.get("distinct")
    is_plain = distinct is True or (isinstance(distinct, exp.Distinct) and not distinct.args.get("on"))
    return is_plain and {name.lower() for name in query.named_selects} <= columns


def _reasons(output: OutputColumn, basis: dict[str, BasisColumn], sources: Sequence[Source]) -> Iterator[str]:
    if output.moves_in_steps:
        yield "it rounds inside of an expression, and so moves in steps; round the result instead"
    names = {output.total: None}
    if output.total is None:
        value = sqlglot.parse_one(output.smooth_sql, dialect=DIALECT)
        if chooses_by_estimates(value, basis):
            yield "it chooses by an estimate, and may choose otherwise at the end; its parts may be certified"
        yield from jumps_and_bends(value, basis)
        names = dict.fromkeys(column.name for column in value.find_all(exp.Column))
    for name in names:
        column = basis.get(name or "")
        if column is not None and column.is_additive and None in (column.lowest, column.highest):
            yield _unbounded(column, sources)


def _unbounded(column: BasisColumn, sources: Sequence[Source]) -> str:
    """Return why nothing bounds what a row adds to a sum, in the words of the query."""
    summed = sqlglot.parse_one(column.sql, dialect=DIALECT)
    named = {source.alias: source for source in sources}
    for each in summed.find_all(exp.Column):
        source = named.get(each.table)
        known = None if source is None or source.is_derived else source.column(each.name)
        if known is not None and known.type in ("DOUBLE", "FLOAT") and None in (known.minimum, known.maximum):
            return f"{known.name} has NaN, infinity or no values, so nothing bounds what a row adds"
    call = summed.find(exp.AggFunc)
    inner = summed if call is None or not isinstance(call.this, exp.Expr) else call.this
    for each in inner.find_all(exp.Column):
        if not is_said(each.name):
            return "nothing bounds what a row adds to it"
        each.set("table", None)
    return f"nothing bounds {said(inner)}, which it adds up"


# The most values of its sampled tables that a query may keep, however much memory there is, because each
# mini-batch computes its answer from all of them anew. With a limit of 2 GB, states have 500 MB: two columns
# of 6 million decimals end within it, three do not.
MOST_VALUES = 12_500_000
_VALUE_BYTES = 40
# DuckDB's own state for a median and its group. 1.5 million of them do not fit into 450 MB.
_GROUP_BYTES = 300


def most_listed(draft: Draft) -> int | None:
    """Return the most values that all lists of the state may have; None where it has no lists.

    >>> from relaqs_engine.planning.example import after
    >>> most_listed(after(check_first_values, "SELECT median(price) FROM items"))
    12500000
    """
    lists = sum(column.kind is Basis.VALUES for column in draft.basis)
    if not lists:
        return None
    if draft.state_bytes is None:
        return MOST_VALUES
    left = draft.state_bytes - lists * draft.groups.expected * _GROUP_BYTES
    return min(MOST_VALUES, max(0, left // _VALUE_BYTES))


def check_first_values(draft: Draft) -> Draft:
    """Return the draft unchanged. Raises NotOnlineError where one partition has more values than are kept.

    >>> from relaqs_engine.planning.example import refusal
    >>> refusal(check_first_values, "SELECT median(fare) FROM trips")
    ''
    """
    return _with_few_values(draft, max)


def check_kept_values(draft: Draft) -> Draft:
    """Return the draft unchanged. Raises NotOnlineError where too many values would be kept.

    It is for what is estimated to its end. Other queries keep as many as they may, and then run as a whole.

    >>> from relaqs_engine.planning.example import refusal
    >>> refusal(check_kept_values, "SELECT median(price) FROM items")
    ''
    >>> refusal(check_kept_values, "SELECT median(fare) FROM trips")
    'it would keep 12,800,000 values; up to 12,500,000 are kept'
    """
    return _with_few_values(draft, sum)


def _with_few_values(draft: Draft, of_partitions: Callable[[Iterable[int]], int]) -> Draft:
    """Return the draft. of_partitions: which rows must have few values, those of all partitions or of one."""
    most = most_listed(draft)
    if most is None:
        return draft
    layouts = [source.layout for source in draft.streams if source.layout is not None]
    rows = max(of_partitions([0, *(part.row_count for part in layout.partitions)]) for layout in layouts)
    values = rows * sum(column.kind is Basis.VALUES for column in draft.basis)
    if values > most:
        memory = "" if most == MOST_VALUES else f" within {_mib(draft.state_bytes or 0)}"
        raise NotOnlineError(f"it would keep {values:,} values; up to {most:,} are kept{memory}")
    return draft


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20:,} MiB"


def with_places(draft: Draft) -> str:
    """Return the source of merged groups, with their places by keys where LIMIT picks groups.

    >>> from relaqs_engine.planning.example import after, shown
    >>> from relaqs_engine.rewrite.having_and_limit import decide_membership
    >>> sql = "SELECT zone, count(*) AS n FROM trips GROUP BY 1 ORDER BY zone NULLS FIRST LIMIT 3"
    >>> print(shown(with_places(after(decide_membership, sql))))
    (SELECT *, count(*) OVER (ORDER BY k0 NULLS FIRST) AS relaqs_before,
            count(CASE WHEN m <= 1 THEN 1 END) OVER (ORDER BY k0 NULLS FIRST) AS relaqs_before_once,
            k0 IS NULL AS relaqs_is_first FROM merged)
    """
    if not _has_room(draft):
        return "merged"
    # count(…) FILTER (…) OVER (…) takes DuckDB twenty times as long as this CASE, and a window of all groups
    # twice as long as a subquery.
    counts = ("count(*)", f"count(CASE WHEN {ROWS} <= {_rows_of_unit(draft)} THEN 1 END)")
    by_keys = ", ".join(draft.membership.first_by)
    before, once = (
        f"{count} OVER (ORDER BY {by_keys})" if by_keys else f"(SELECT {count} FROM merged)"
        for count in counts
    )
    places = [f"{before} AS {BEFORE}", f"{once} AS {BEFORE_ONCE}", f"{_is_first(draft)} AS {IS_FIRST}"]
    return f"(SELECT *, {', '.join(places)} FROM merged)"


def place_columns(draft: Draft) -> tuple[str, ...]:
    """Return the names of the columns that `with_places` adds."""
    return (BEFORE, BEFORE_ONCE, IS_FIRST) if _has_room(draft) else ()


def _has_room(draft: Draft) -> bool:
    """Whether LIMIT picks groups of one sampled table whose rows lie in all partitions, each once at most."""
    is_limited = draft.membership.most_rows is not None and bool(draft.keys)
    if not is_limited or len(draft.streams) != 1 or draft.groups.are_local:
        return False
    return not any(met_several_times(draft))


def _rows_of_unit(draft: Draft) -> int:
    [stream] = draft.streams
    assert stream.layout is not None
    return stream.layout.max_unit_rows


def _is_first(draft: Draft) -> str:
    """Return SQL that says whether all keys are NULL and NULL comes first, as in the total of a ROLLUP.

    What the answer is ordered by after all of its keys tells only rows apart that have the same keys.
    """
    keys = draft.keys[:-1] if draft.grouping_sets else draft.keys
    names = [f"k{i}" for i in range(len(keys))]
    order = draft.membership.first_by[: len(names)]
    ordered = {each.removesuffix(" NULLS FIRST").removesuffix(" DESC").strip('"') for each in order}
    if ordered != set(names) or not all(each.endswith(" NULLS FIRST") for each in order):
        return "FALSE"
    return " AND ".join(f"{name} IS NULL" for name in names)
