"""Plans with estimates from a part of the rows and then an exact run: over row groups, or over a first part.

Row groups are for queries over plain files that take a while. One table is sampled. It must be read once
in the query, and what stands beside it must be small. The estimate must be a function of sums: row groups
say nothing sound about distinct values and quantiles.

A first part is the part of a layout that is already written while the rest is being made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlglot import exp

from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.manifest import BLOCK_COUNT, FirstPart, columns_named
from relaqs_engine.layouts.plain import PlainTable
from relaqs_engine.layouts.row_groups import (
    MOST_DRAWN,
    RowGroup,
    RowGroupTable,
    drawn_from,
    scan_core_seconds,
    table_of_row_groups,
)
from relaqs_engine.planning.aggregate_plan import merge_plan
from relaqs_engine.planning.exact import RowGroupRules
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.composite import FIRST_DRAWN, SampledThenExact, growing_sizes, what_is_missed
from relaqs_engine.plans.plan import ErrorBars, Method, OutputKind, WholePlan
from relaqs_engine.rewrite import AGGREGATING, READING, SAMPLING, Rule
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, Source, tables_in
from relaqs_engine.rewrite.normalize import check_aggregates
from relaqs_engine.rewrite.row_group_marks import (
    are_mixed,
    choosing_columns,
    far_out,
    has_ends,
    marks_of,
    matching,
    unlike,
    wanted_of,
    without_nan,
)
from relaqs_engine.sql.dialect import find_all


def first_part_plan(
    draft: Draft, part: FirstPart, whole: WholePlan, aggregated: Callable[[Draft], MergePlan]
) -> SampledThenExact | None:
    """Return how a query over plain tables is estimated before its exact answer, None where it is not.

    Args:
        part: the first part of the layout of one of its tables.
        whole: how the exact answer is computed.
        aggregated: plans an aggregation over sampled tables; it raises NotOnlineError.
    """
    try:
        sample = aggregated(replace(draft, catalog=draft.catalog.with_layout(part)))
    except NotOnlineError:
        return None
    why = (
        f"{part.table} is being laid out: estimates come from its first part, and the exact answer from "
        "the plain files"
    )
    return SampledThenExact.of(sample, whole, part, why)


ALL_STATISTICS, SOME_STATISTICS = 8, 20
"""In how many row groups a group must be found: with ends of all columns that choose rows, and without."""


Applied = Callable[[Iterable[Rule], Draft], Draft]


def row_group_plan(
    draft: Draft, tables: frozenset[str], whole: WholePlan, rules: RowGroupRules, applied: Applied
) -> SampledThenExact:
    """Return how a query over plain files is estimated. Raises NotOnlineError where it is not.

    Args:
        draft: the query, before any rule.
        tables: those that it reads, all plain or static.
        whole: how it runs at the end.
        rules: which tables are sampled.
        applied: returns what rules make of a draft.
    """
    plain = _largest(draft.catalog, tables, rules)
    _check_read_once(draft.tree, plain)
    try:
        table = table_of_row_groups(plain, columns_named(plain, draft.names))
    except DataError as error:  # the query fails where its files are checked
        raise NotOnlineError("") from error
    if table is None and plain.from_sql:  # a file of text has no row groups, and nobody asked for them
        raise NotOnlineError("")
    if table is None:
        raise NotOnlineError(f"the row groups of {plain.table} cannot be read one by one")
    draft = applied((*READING, *SAMPLING), replace(draft, catalog=draft.catalog.with_layout(table)))
    draft = check_aggregates(draft, "without aggregates its rows are the answer")
    draft, table, sizes = _framed(draft, table, rules)
    draft = applied((*AGGREGATING, _by_row_group), draft)
    return _completed(merge_plan(draft), table, whole, sizes)


def _largest(catalog: Catalog, tables: frozenset[str], rules: RowGroupRules) -> PlainTable:
    """Return the table to sample. Raises NotOnlineError where all are small, or several are large."""
    large = rules.large(catalog, tables)
    if len(large) != 1:
        names = " and ".join(sorted(each.table for each in large))
        raise NotOnlineError(f"{names} are both large" if large else "")
    return large[0]


def _check_read_once(tree: exp.Expr, plain: PlainTable) -> None:
    count = sum(table.name.lower() == plain.table.lower() for table in tables_in(tree))
    if count != 1:
        raise NotOnlineError(f"{plain.table} is read {count} times")


def _framed(
    draft: Draft, table: RowGroupTable, rules: RowGroupRules
) -> tuple[Draft, RowGroupTable, tuple[int, ...]]:
    """Return the draft over the row groups that can matter, and how many are drawn in each mini-batch."""
    source = next((each for each in draft.streams if each.table is table and not each.is_derived), None)
    if source is None or source.nullable or draft.local_tables:
        raise NotOnlineError(f"{table.table} stands inside of a subquery or an outer join")
    columns = columns_named(table, draft.names)
    wanted = wanted_of(draft.conjuncts, source.alias, table)
    groups = matching(table.drawn_from, wanted)
    if len(groups) < rules.fewest:
        raise NotOnlineError(f"{len(groups)} of its row groups can match, and {rules.fewest} are needed")
    if scan_core_seconds(groups, columns) / rules.cores < rules.least_seconds:
        raise NotOnlineError("")
    sizes = growing_sizes(min(MOST_DRAWN, max(FIRST_DRAWN, int(len(groups) * rules.share))))
    most = sizes[-1] // 2
    summed = _summed(draft.select, source, table)
    compared = _named(draft.conjuncts, source, table)
    marks = marks_of(groups, wanted, columns, dict.fromkeys((*summed, *compared)))
    found = unlike(groups, marks, sizes, most)
    certain = found.certain
    certain += far_out(_without(groups, certain), summed, most - len(certain))
    no_nan = without_nan(draft.conjuncts, source.alias, table)
    drawn = _without(groups, certain)
    framed = drawn_from(table, drawn, certain, columns, no_nan)
    choosing = choosing_columns(draft.select, draft.conjuncts, source.alias, table)
    are_mixed_in = (are_mixed(drawn, name, table.column(name).type) for name in choosing)
    framed = replace(framed, least_drawn=found.least_drawn if all(are_mixed_in) else None)
    sources = tuple(replace(each, table=framed) if each.table is table else each for each in draft.sources)
    return replace(draft, sources=sources, catalog=draft.catalog.with_layout(framed)), framed, sizes


def _without(groups: Iterable[RowGroup], certain: Iterable[RowGroup]) -> tuple[RowGroup, ...]:
    left_out = set(certain)
    return tuple(group for group in groups if group not in left_out)


def _summed(select: exp.Select, source: Source, table: RowGroupTable) -> list[str]:
    """Return the columns inside of the query's aggregates, by the names that the files have."""
    return _named(
        (each for item in select.expressions for each in find_all(item, exp.AggFunc)), source, table
    )


def _named(parts: Iterable[exp.Expr], source: Source, table: RowGroupTable) -> list[str]:
    """Return the columns of the table in some parts of the query, by the names that the files have."""
    found = (column for part in parts for column in find_all(part, exp.Column))
    named = {column.name.lower() for column in found if column.table == source.alias}
    return [column.name for column in table.columns if column.name.lower() in named]


UNLIKE = (
    "its row groups are too unlike in columns that choose rows or are summed; laying the table out "
    "(`relaqs shuffle`) helps"
)


def _by_row_group(draft: Draft) -> Draft:
    """Rule: let row groups be the blocks, and read those that are far out apart.

    Where HAVING or LIMIT picks groups, no group is certain to stay: others may lie in row groups not read.
    """
    _check_sums(draft)
    table = draft.streams[0].table
    assert isinstance(table, RowGroupTable)
    bars = ErrorBars(
        draft.bars.method,
        BLOCK_COUNT,
        joined=draft.bars.joined,
        known_totals=draft.bars.known_totals,
        least_row_groups=_least_row_groups(draft),
    )
    membership = replace(draft.membership, is_opaque=draft.membership.picks_groups)
    outputs = draft.outputs
    if table.least_drawn is None:
        outputs = tuple(replace(each, never_certified=each.never_certified or UNLIKE) for each in outputs)
    return replace(
        draft,
        outputs=outputs,
        bars=bars,
        membership=membership,
        outlier_scan=draft.scan if table.certain else None,
        notes=(*draft.notes, *_notes(draft)),
    )


def _notes(draft: Draft) -> Iterable[str]:
    if draft.keys:
        yield "groups that lie only in row groups not read yet are missing"
    source = draft.streams[0]
    table = source.table
    assert isinstance(table, RowGroupTable)
    for name in _summed(draft.select, source, table):
        is_unknown = table.column(name).maximum is None
        if is_unknown and any(group.zone(name).hides_nan for group in table.drawn_from):
            yield f"footers do not say whether {name} has NaN; with isfinite({name}) in WHERE it has none"


def _check_sums(draft: Draft) -> None:
    if draft.distinct is not None:
        raise NotOnlineError("row groups say nothing sound about numbers of distinct values")
    if draft.of_values or any(output.kind is OutputKind.QUANTILE for output in draft.outputs):
        raise NotOnlineError("row groups say nothing sound about quantiles")
    if not any(output.kind is OutputKind.ESTIMATE for output in draft.outputs):
        raise NotOnlineError("nothing in it is estimated from sums")
    if any(column.is_moment for column in draft.basis):
        raise NotOnlineError("how values spread is not estimated from row groups")
    if draft.bars.method is Method.CLOSED_FORM:
        raise NotOnlineError("it has too many groups to tell row groups apart")


def _least_row_groups(draft: Draft) -> int:
    """Return in how many row groups a group must be found, by whether footers tell unlike ones apart."""
    sources = {source.alias: source for source in draft.sources}
    choosing = [*draft.conjuncts, *draft.keys]
    columns = [column for each in choosing for column in find_all(each, exp.Column)]
    is_known = all(_has_ends(sources[each.table], each.name) for each in columns if each.table in sources)
    return ALL_STATISTICS if is_known else SOME_STATISTICS


def _has_ends(source: Source, name: str) -> bool:
    """Whether the least and greatest value of a column are known. Of a text only the footers have them."""
    column = source.column(name)
    if column is None or column.minimum is not None:
        return True
    if column.type != "VARCHAR" or not isinstance(source.table, RowGroupTable):
        return column.type == "VARCHAR"
    return has_ends(source.table.drawn_from, column.name, column.type)


def _completed(
    sample: MergePlan, table: RowGroupTable, whole: WholePlan, sizes: tuple[int, ...]
) -> SampledThenExact:
    count = len(table.drawn_from)
    reasons = [f"{sizes[-1]} of {count} row groups of {table.table} are read first, drawn at random"]
    if table.certain:
        reasons.append(f"{len(table.certain)} more are unlike the others, and are counted exactly")
    if table.least_drawn is None:
        reasons.append(f"nothing is certified: {UNLIKE}")
    reasons.append("at the end it is read whole, in place")
    sample = replace(sample, warnings=(*sample.warnings, what_is_missed(sizes[-1], count)))
    return replace(SampledThenExact.of(sample, whole, table, *reasons), sizes=sizes)
