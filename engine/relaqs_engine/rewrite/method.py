"""Rule: choose where the error bars come from, and tell whether a group is complete as soon as it is seen.

A ratio of the rows that conditions keep is guessed (`share_kept`). Values are taken to lie evenly between
a column's ends, each as often as the others. Such a guess decides nothing but what a query is predicted to
cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import ceil, isfinite, prod

import sqlglot
from sqlglot import exp

from relaqs_engine.bounds import ColumnLookup, dates_at_most, day_bounds
from relaqs_engine.layouts.column_statistics import NEARLY_ALL
from relaqs_engine.layouts.manifest import (
    BLOCK_COUNT,
    WHOLE_NUMBERS,
    Column,
    DistinctCount,
    GroupEnds,
    Layout,
)
from relaqs_engine.plans.aggregate import Basis, BasisColumn, GroupFacts
from relaqs_engine.plans.plan import MANY_GROUPS, EndsByGroup, ErrorBars, Method, OutputKind, ValuesByGroup
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, Source, own_nodes, tables_in, without_brackets
from relaqs_engine.rewrite.sampling import groups_are_complete
from relaqs_engine.sql.aggregate_laws import call_in
from relaqs_engine.sql.dialect import find_all, find_first
from relaqs_engine.sql.expressions import Ranges, Sign, cast_step
from relaqs_engine.sql.parse import DIALECT

_UPWARD, _DOWNWARD = (exp.GT, exp.GTE), (exp.LT, exp.LTE)


def share_kept(conditions: Iterable[exp.Expr], column_of: ColumnLookup) -> float:
    """Return about which share of the rows meets all conditions. One that is not understood keeps all."""
    outside: defaultdict[exp.Expr, float] = defaultdict(float)  # of each value that is compared
    kept = 1.0
    for condition in conditions:
        for value, share in _shares_outside(condition, column_of):
            outside[value] += share
        kept *= _share_named(condition, column_of)
    return kept * prod(max(0.0, 1.0 - share) for share in outside.values())


def values_named(condition: exp.Expr, column: exp.Column) -> int:
    """Return how many values a condition such as `x IN (1, 2)` leaves to a column, 0 where it names none."""
    if isinstance(condition, exp.EQ) and column in (condition.left, condition.right):
        return int(isinstance(condition.left, exp.Literal) or isinstance(condition.right, exp.Literal))
    is_list = isinstance(condition, exp.In) and condition.this == column and not condition.args.get("query")
    return len(condition.expressions) if is_list else 0


def _share_named(condition: exp.Expr, column_of: ColumnLookup) -> float:
    """Return the share of the values that a condition names, 1 where it names none."""
    for column in find_all(condition, exp.Column):
        known = column_of(column)
        if known is not None and known.distinct_count and (named := values_named(condition, column)):
            return min(1.0, named / known.distinct_count)
    return 1.0


def _shares_outside(condition: exp.Expr, column_of: ColumnLookup) -> list[tuple[exp.Expr, float]]:
    """Return each value that is compared with a constant, and the share of its range that fails."""
    if isinstance(condition, exp.Between):
        sides = ((condition.args["low"], exp.GTE), (condition.args["high"], exp.LTE))
        return [
            found
            for end, kind in sides
            for found in _shares_outside(kind(this=condition.this, expression=end), column_of)
        ]
    if not isinstance(condition, (*_UPWARD, *_DOWNWARD)):
        return []
    left, right = condition.left.unnest(), condition.right.unnest()
    is_turned = find_first(left, exp.Column) is None
    value, constant = (right, left) if is_turned else (left, right)
    within, ends = _ends(value, column_of), _ends(constant, column_of)
    if within is None or ends is None or find_first(constant, exp.Column) or within[0] >= within[1]:
        return []
    below = (sum(ends) / 2 - within[0]) / (within[1] - within[0])
    below = min(1.0, max(0.0, below))
    return [(value, below if isinstance(condition, _UPWARD) != is_turned else 1.0 - below)]


def _ends(expression: exp.Expr, column_of: ColumnLookup) -> tuple[float, float] | None:
    """Return between which ends a number lies, or a moment in days. None where that is not known."""
    ends = Ranges(column_of)(expression).ends or day_bounds(expression, column_of).ends
    return ends if ends is not None and all(map(isfinite, ends)) else None


# The state may have this many groups times blocks. Beyond that, fewer blocks are told apart.
_BLOCK_ROWS = 64 * 1024
_FEWEST_BLOCKS = 16
_MOST_ENDS = 500  # of expressions in groups that are worked out: each takes some ten microseconds
_EXACT_TYPES = WHOLE_NUMBERS | {"DATE", "TIMESTAMP", "VARCHAR"}  # the manifest has their ends as they are
_ANSWERS = 3  # of EXISTS and IN: yes, no, NULL
_MANY_TO_MERGE = 1_000_000  # groups; fewer are merged within a second
_HARDLY_ROWS = 2.5  # of a group. With fewer, partial results are nearly as many as rows


def choose_method(draft: Draft) -> Draft:
    """Return the draft, knowing where its error bars come from and what is known of its groups.

    Few groups are estimated from replicates, very many from sums of squares. A group that lies in one
    partition is complete once it is seen, so it needs no error bar:

    >>> def method(sql):
    ...     return after(choose_method, sql).bars.method.value
    >>> method("SELECT zone, sum(fare) FROM trips GROUP BY zone")
    'replicates'
    >>> method("SELECT driver, sum(fare) FROM trips GROUP BY driver")
    'closed form'
    >>> method("SELECT id, sum(price) FROM orders JOIN items ON id = order_id GROUP BY id")
    'none'
    """
    sets = sum(len(each) > 1 for each in draft.grouping_sets)
    groups = GroupFacts(
        _expected_groups(draft),
        groups_are_complete(draft),
        sets,
        _most_groups(draft),
        _fewest_groups(draft),
        tuple(_known_keys(draft)),
    )
    method = _method(draft, groups)
    known = tuple(_known_outputs(draft))
    bars = ErrorBars(
        method,
        BLOCK_COUNT if groups.expected * BLOCK_COUNT <= _BLOCK_ROWS else _FEWEST_BLOCKS,
        rows_are_units=_rows_are_units(draft),
        joined=tuple(_joined_tables(draft)),
        known_totals=tuple(_known_totals(draft)),
        distinct=_known_values(draft),
        distinct_by=_known_values_by_group(draft),
        known_outputs=known,
        ends_by_group=tuple(_ends_by_group(draft)),
        rows_are_of_units=any(source.is_derived for source in draft.streams),
        most_unit_rows=prod(_rows_of_unit(draft, source) for source in draft.streams),
    )
    products = _products(draft.basis) if method is Method.CLOSED_FORM else ()
    positions = [i for i, _ in known]
    outputs = tuple(
        replace(each, kind=OutputKind.DISTINCT, sign=Sign.POSITIVE) if i in positions else each
        for i, each in enumerate(draft.outputs)
    )
    return replace(draft, bars=bars, groups=groups, basis=draft.basis + products, outputs=outputs)


def _rows_of_unit(draft: Draft, source: Source) -> int:
    """Return the most rows of a source that a sampling unit has in one group."""
    if source.layout.max_unit_rows == 1 and not source.is_derived:
        return 1
    from relaqs_engine.rewrite.units import rows_of_unit

    return rows_of_unit(draft, source)


def _method(draft: Draft, groups: GroupFacts) -> Method:
    kinds = (OutputKind.ESTIMATE, OutputKind.QUANTILE, OutputKind.OF_DISTINCT)
    estimated = any(output.kind in kinds for output in draft.outputs)
    if not draft.intervals or not estimated or groups.are_local:
        return Method.NONE
    of_sums = draft.distinct is None and not any(column.is_moment for column in draft.basis)
    if _rows_are_units(draft) and groups.expected > MANY_GROUPS and of_sums:
        return Method.CLOSED_FORM
    return Method.REPLICATES


def _counts_every_row(draft: Draft) -> bool:
    return _all_rows_count(draft) and not draft.keys


def _known_totals(draft: Draft) -> Iterator[tuple[str, float]]:
    """Yield the basis columns that count all rows or units of a table, and what the manifest has for them."""
    if len(draft.sources) > 1 or draft.conjuncts or draft.keys:
        return
    (source,) = draft.sources
    for column in draft.basis:
        if column.kind in (Basis.COUNT, Basis.SUM) and isinstance(source.table, Layout):
            total = sqlglot.parse_one(column.sql, dialect=DIALECT)
            of = _known_total_of_units if source.is_derived else _known_count
            known = of(draft, source, source.table, total)
            if known is not None:
                yield column.name, float(known)


def _known_count(draft: Draft, source: Source, layout: Layout, count: exp.Expr) -> int | None:
    """Return a COUNT over all rows of a source, None where the manifest of its table does not have it."""
    if not isinstance(count, exp.Count):
        return None
    counted = count.this
    if isinstance(counted, exp.Star):
        return layout.known_rows
    is_distinct = isinstance(counted, exp.Distinct)
    (value,) = counted.expressions if is_distinct else (counted,)
    if not isinstance(value, exp.Column) or not layout.is_sampled:
        return None
    nulls = layout.column(value.name).null_count
    if not is_distinct:
        return layout.row_count - nulls
    is_key = [key.lower() for key in layout.cluster_key] == [value.name.lower()]
    return layout.unit_count - (nulls > 0) if is_key else None


def _known_total_of_units(draft: Draft, source: Source, layout: Layout, total: exp.Expr) -> int | None:
    """Return how many units there are, or how many rows they have, where a total over all of them is that."""
    if not isinstance(total, exp.Count | exp.Sum) or not _has_all_units(draft, source.node, layout):
        return None
    if isinstance(total.this, exp.Star):
        return layout.unit_count
    known = source.column(total.this.name) if isinstance(total.this, exp.Column) else None
    if isinstance(total, exp.Count):
        return layout.unit_count if known is not None and known.null_count == 0 else None
    items = {item.alias_or_name: item.unalias() for item in source.node.this.expressions}
    added = None if known is None else items.get(known.name)
    return layout.known_rows if isinstance(added, exp.Count) and isinstance(added.this, exp.Star) else None


def _has_all_units(draft: Draft, derived: exp.Expr, layout: Layout) -> bool:
    """Whether a derived table has one row for each unit: SELECT … FROM t GROUP BY the cluster key of t."""
    query = derived.this
    parts = {name.strip("_") for name, part in query.args.items() if part}
    if not isinstance(query, exp.Select) or not parts <= {"expressions", "from", "group"}:
        return False
    tables, group = tables_in(query), query.args.get("group")
    if group is None or len(tables) > 1 or query.args["from_"].this is not tables[0]:
        return False
    if tables[0].args.get("sample") or find_first(query, exp.Unnest, exp.Explode):  # other rows, or more
        return False
    keys = [key.name.lower() for key in group.expressions if isinstance(key, exp.Column)]
    is_plain = [name for name, part in group.args.items() if part] == ["expressions"]
    are_keys = len(keys) == len(group.expressions) and set(keys) == {
        key.lower() for key in layout.cluster_key
    }
    return are_keys and is_plain and draft.catalog.table(tables[0].name).table == layout.table


def _known_values(draft: Draft) -> DistinctCount | None:
    """Return between which ends COUNT(DISTINCT x) lies, by what was counted of the column x.

    Some rows have at most all values of the column. Only all rows have at least as many.
    """
    value, is_all = _counted_column(draft)
    if value is None or (known := draft.column_of(value)) is None:
        return None
    is_all = is_all and _counts_every_row(draft)
    return known.distinct if is_all or known.distinct is None else replace(known.distinct, least=0.0)


def _known_values_by_group(draft: Draft) -> ValuesByGroup | None:
    """Return what the manifest has of COUNT(DISTINCT x) by one column, None where it has nothing."""
    value, is_all = _counted_column(draft)
    key = draft.keys[0] if len(draft.keys) == len(draft.sources) == 1 and not draft.grouping_sets else None
    if value is None or not isinstance(key, exp.Column) or not draft.sources[0].streams:
        return None
    layout = draft.sources[0].layout
    counted, group = draft.column_of(value), draft.column_of(key)
    if counted is None or group is None or group.distinct is None or not layout.is_sampled:
        return None
    counts = next((each for each in counted.by_group if each.by == group.name), None)
    if counts is None:
        return None
    return ValuesByGroup(counts, group.distinct.hashes, layout.hash_probe, is_all and not draft.conjuncts)


def _ends_by_group(draft: Draft) -> Iterator[EndsByGroup]:
    """Yield the ends of what is summed among the rows with each value of a key, where they are known."""
    left = _MOST_ENDS
    for i, key in enumerate(() if draft.grouping_sets else draft.keys):
        group = draft.column_of(key) if isinstance(key, exp.Column) else None
        if (
            not isinstance(key, exp.Column)
            or group is None
            or group.distinct is None
            or not group.distinct.are_told_apart
        ):
            continue
        source = draft.source(key.table)
        if not isinstance(source.table, Layout) or not any(
            ends.by == group.name for each in source.table.columns for ends in each.ends_by
        ):
            continue
        for column in draft.basis:
            if column.kind not in (Basis.SUM, Basis.MEAN):
                continue
            aggregate = call_in(column.sql)
            known = {} if aggregate is None else _ends_by(aggregate.node, source, group.name)
            if aggregate is None or not known:
                continue
            value = aggregate.node.this.unnest()
            while isinstance(value, exp.Cast) and cast_step(value) == 0.0:
                value = value.this.unnest()
            if isinstance(value, exp.Column):
                (only,) = known.values()
                lowest, highest = only.lowest, only.highest
            elif left >= len(group.distinct.hashes):
                left -= len(group.distinct.hashes)
                places = range(len(group.distinct.hashes) + 1)
                ends = [Ranges(_of_group(draft, known, place))(aggregate.node.this) for place in places]
                lowest, highest = tuple(each.lowest for each in ends), tuple(each.highest for each in ends)
            else:
                continue
            probe = source.table.hash_probe
            yield EndsByGroup(column.name, i, group.distinct.hashes, probe, lowest, highest)


def _ends_by(aggregate: exp.Expr, source: Source, group: str) -> dict[tuple[str, str], GroupEnds]:
    """Return the ends by group of the columns of a source in an aggregate, by table and name."""
    found = {}
    for each in find_all(aggregate, exp.Column):
        column = source.column(each.name) if each.table == source.alias else None
        for ends in () if column is None else column.ends_by:
            if ends.by == group:
                found[each.table, each.name] = ends
    return found


def _of_group(draft: Draft, known: Mapping[tuple[str, str], GroupEnds], place: int) -> ColumnLookup:
    """Return what gives the statistics of columns among the rows of the group at this place."""

    def column_of(column: exp.Column) -> Column | None:
        found, ends = draft.column_of(column), known.get((column.table, column.name))
        if found is None or ends is None:
            return found
        return replace(found, minimum=ends.lowest[place], maximum=ends.highest[place])

    return column_of


def _known_outputs(draft: Draft) -> Iterator[tuple[int, DistinctCount]]:
    """Yield the outputs that count the distinct values of all rows in a list, and what is known of these."""
    if not _counts_every_row(draft):
        return
    lists = {each.name: each.sql for each in draft.basis}
    calls = {each.name: each for each in draft.of_values if each.call == f"COUNT(DISTINCT {each.listed})"}
    for i, output in enumerate(draft.outputs):
        counted = calls.get(output.estimate_sql.strip("()"))
        if counted is None:
            continue
        listed = sqlglot.parse_one(lists[counted.listed], dialect=DIALECT)
        column = find_first(listed, exp.Column)
        if column is None or listed.sql(DIALECT) != _list_of_values(column):
            continue  # of an expression, or of some rows
        known = draft.column_of(column)
        if known is not None and known.distinct is not None:
            yield i, known.distinct


def _list_of_values(column: exp.Column) -> str:
    """Return the SQL that lists the distinct values of a column, as `rewrite/aggregates.py` writes it."""
    there = exp.paren(column.copy()).is_(exp.null()).not_()
    each_once = exp.ArrayAgg(this=exp.Distinct(expressions=[column.copy()]))
    return exp.Filter(this=each_once, expression=exp.Where(this=there)).sql(DIALECT)


def _counted_column(draft: Draft) -> tuple[exp.Column | None, bool]:
    """Return the column whose values COUNT(DISTINCT) counts, and whether it does in all rows of a group."""
    value, is_all = draft.distinct, True
    if isinstance(value, exp.Case) and len(value.args["ifs"]) == 1 and not value.args.get("default"):
        value, is_all = without_brackets(value.args["ifs"][0].args["true"]), False  # as FILTER is written
    return (value, is_all) if isinstance(value, exp.Column) else (None, False)


def check_groups_have_rows(draft: Draft) -> Draft:
    """Return the draft unchanged. Raises NotOnlineError where very many groups have hardly a row each.

    A sample has one row of most groups that it has met, which tells nothing of them. And merging what tasks
    return takes several times as long as all of the query does in DuckDB.

    >>> refusal(check_groups_have_rows, "SELECT driver, sum(fare) FROM trips GROUP BY driver")
    ''
    """
    if len(draft.sources) > 1 or not draft.keys or draft.grouping_sets or draft.groups.are_local:
        return draft
    [source] = draft.sources
    if source.table is None:
        return draft
    columns = [source.column(key.name) for key in draft.keys if isinstance(key, exp.Column)]
    groups = max((_fewest_values(column) for column in columns if column is not None), default=0.0)
    rows = source.table.row_count
    is_much = groups * share_kept(draft.conjuncts, draft.column_of) >= _MANY_TO_MERGE
    if is_much and rows < _HARDLY_ROWS * groups:
        raise NotOnlineError(
            f"it has about {groups / 1e6:,.1f} million groups, of {rows / groups:.1f} rows on average: "
            "a part of the rows tells nothing of them"
        )
    return draft


def _fewest_values(column: Column) -> float:
    """Return how many values a column has at least, 0 where they were not counted over all rows."""
    if column.distinct is not None:
        return column.distinct.least
    return column.distinct_count if column.is_counted else 0


def _rows_are_units(draft: Draft) -> bool:
    """Whether each joined row is a sampling unit of its own."""
    table = draft.sources[0].table
    return len(draft.sources) == 1 and isinstance(table, Layout) and table.has_row_units


def _joined_tables(draft: Draft) -> Iterator[str]:
    """Yield the sampled tables of FROM, those inside of a derived table too."""
    for source in draft.streams:
        for table in tables_in(source.node):
            if draft.catalog.table(table.name).is_sampled:
                yield draft.catalog.table(table.name).table


def _expected_groups(draft: Draft) -> int:
    """Return about how many groups there can be at most."""
    values = () if draft.distinct is None else (draft.distinct,)
    sets = [tuple(draft.keys[i] for i in each[:-1]) for each in draft.grouping_sets] or [draft.keys]
    return sum(groups_of(draft, each + values) for each in sets)


def groups_of(draft: Draft, keys: Sequence[exp.Expr]) -> int:
    """Return about how many groups there can be at most by these keys, in a draft with its streams chosen."""
    most = max(source.table.row_count for source in draft.streams if source.table is not None)
    return min(_combinations(draft, keys), most)


def _most_groups(draft: Draft) -> int | None:
    """Return as many groups as there can be, by the statistics of the keys. None where some key has none."""
    most = 1
    for key in draft.keys:
        source = draft.source(key.table) if isinstance(key, exp.Column) else None
        known = None if source is None else source.column(key.name)
        if source is None or known is None or not known.distinct_count or draft.grouping_sets:
            return None
        if (counted := _values_counted(known)) is not None:
            most *= counted
        else:
            most *= 1 + ceil(known.distinct_count / NEARLY_ALL)  # NULL is no value
    return most


def _fewest_groups(draft: Draft) -> int:
    """Return as many groups as there are at least: those of the key with most values, if all rows count."""
    if not _all_rows_count(draft):
        return 0
    columns = [draft.sources[0].column(key.name) for key in draft.keys if isinstance(key, exp.Column)]
    return max((_values_counted(column) or 0 for column in columns if column is not None), default=0)


def _known_keys(draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield values that keys surely have, by their names, as SQL: those of the ends of the columns.

    The first month of a table often has the rows of one day, and may be missed when all others were met.
    """
    for i, key in enumerate(draft.keys if _all_rows_count(draft) else ()):
        columns = {column.name for column in find_all(key, exp.Column)}
        known = draft.sources[0].column(columns.pop()) if len(columns) == 1 else None
        if known is None or known.type not in _EXACT_TYPES or find_first(key, exp.Query):
            continue
        ends = (known.minimum, known.maximum, *([None] if known.null_count else []))
        for end in dict.fromkeys(ends):  # in an order that is the same in each process
            if end is not None or known.null_count:
                value = exp.cast(exp.convert(None if end is None else str(end)), known.type, dialect=DIALECT)
                of_end = key.transform(
                    lambda node, value=value: value if isinstance(node, exp.Column) else node
                )
                yield f"k{i}", of_end.sql(DIALECT)


def _all_rows_count(draft: Draft) -> bool:
    """Whether each row of one table is in some group, and in one only."""
    plain = len(draft.sources) == 1 and not draft.sources[0].is_derived
    return plain and not draft.conjuncts and not draft.grouping_sets


def _values_counted(column: Column) -> int | None:
    """Return how many values a column has, NULL as one of them. None where they were not all counted."""
    known = column.distinct
    if known is None or known.relative_error or known.least != known.most:
        return None
    return round(known.most) + int(column.null_count > 0)


def _combinations(draft: Draft, keys: Sequence[exp.Expr]) -> int:
    """Return the keys' numbers of distinct values, multiplied. Those of one table give its rows at most."""
    others, of_table = 1, dict[str, int]()
    for key in keys:
        columns = (node for node in own_nodes(key, exp.Column) if isinstance(node, exp.Column))
        count = prod(_distinct_values(draft, column) for column in columns)
        count *= _ANSWERS ** len(own_nodes(key, exp.Query))
        if isinstance(key, exp.Column):
            of_table[key.table] = of_table.get(key.table, 1) * count
        else:
            others *= int(min(100, count, dates_at_most(key, draft.column_of)))  # a hundred of another one
    layouts = {alias: draft.source(alias).table for alias in of_table}
    rows = {alias: layout.row_count for alias, layout in layouts.items() if layout is not None}
    return others * prod(min(count, rows.get(alias, count)) for alias, count in of_table.items())


def _distinct_values(draft: Draft, column: exp.Column) -> int:
    known = draft.source(column.table).column(column.name)
    named = [values_named(condition, column) for condition in draft.conjuncts]
    return min([(known.distinct_count if known else 0) or 100, *filter(None, named)])


def _products(basis: tuple[BasisColumn, ...]) -> tuple[BasisColumn, ...]:
    """Return the sums of squares and cross products of what each row adds to the counts and sums."""
    additive = [column for column in basis if column.kind in (Basis.COUNT, Basis.SUM)]
    return tuple(
        BasisColumn(
            name=f"p_{a.name}_{b.name}",
            kind=Basis.PRODUCT,
            sql=f"SUM(CAST({a.row_sql} AS DOUBLE) * CAST({b.row_sql} AS DOUBLE))",
            type="DOUBLE",
        )
        for a, b in combinations_with_replacement(additive, 2)
    )
