"""Plans of SUMMARIZE over sampled tables: an aggregation of the first partitions, then SUMMARIZE itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from relaqs_engine.duck import quote_name
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.manifest import FirstPart, Layout, first_part_of, is_number
from relaqs_engine.planning.exact import summarized
from relaqs_engine.plans.aggregate import Basis, MergePlan
from relaqs_engine.plans.composite import SampledThenExact, SummarizedColumn
from relaqs_engine.plans.plan import TIME_TYPES, OutputColumn, OutputKind, WholePlan, microseconds_sql
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, tables_in
from relaqs_engine.sql.columns import names_in
from relaqs_engine.sql.parse import DIALECT, ParsedQuery, parse_query

MOST_SHARE = 1 / 8
"""Of the partitions. SUMMARIZE reads all of them again, so this is what estimates may cost beside it."""

MOST_VALUES = 4_000_000
"""Of all columns together, listed for quantiles and distinct values, and sorted after each mini-batch."""

SUMMARIZED_AT_ONCE = 1_000_000
"""So many values, rows times columns, take DuckDB less time than estimates of them."""

_SHARES = {"q25": 0.25, "q50": 0.5, "q75": 0.75}
_KINDS = {
    "min": (OutputKind.BOUND, "most"),
    "max": (OutputKind.BOUND, "least"),
    "approx_unique": (OutputKind.DISTINCT, None),
    "avg": (OutputKind.ESTIMATE, None),
    "std": (OutputKind.ESTIMATE, None),
    "q25": (OutputKind.QUANTILE, None),
    "q50": (OutputKind.QUANTILE, None),
    "q75": (OutputKind.QUANTILE, None),
    "count": (OutputKind.ESTIMATE, None),
    "null_percentage": (OutputKind.ESTIMATE, None),
}
_NOT_CARRIED = ("BIT", "ENUM", "TIME WITH TIME ZONE", "HUGEINT", "UHUGEINT")


def summary_plan(
    draft: Draft, whole: WholePlan, part: FirstPart | None, aggregated: Callable[[Draft], MergePlan]
) -> SampledThenExact:
    """Return how SUMMARIZE is estimated before its exact answer. Raises NotOnlineError where it is not.

    Args:
        draft: of the statement, before any rule.
        whole: how it runs at the end.
        part: the first part of the layout that is being made of its table; None for a layout that is there.
        aggregated: plans an aggregation over sampled tables; it raises NotOnlineError.
    """
    query = summarized(draft.tree)
    assert query is not None
    described = draft.binder.describe(query.sql(DIALECT))
    if len({name.lower() for name, _ in described}) < len(described):
        raise NotOnlineError("two of the columns that it summarizes have one name")
    table = _largest(draft, query) if part is None else part
    lists = len(described)
    if part is None and table.row_count * lists <= SUMMARIZED_AT_ONCE:
        raise NotOnlineError("so few values are summarized at once")
    count = _partitions(table, lists) if part is None else len(part.partitions)
    sampled = first_part_of(table, max(1, count)) if part is None else part
    with_lists = count > 0 and lists * _rows(sampled, len(sampled.partitions)) <= MOST_VALUES
    nulls = _known_nulls(query, table)
    columns = tuple(_column(name, type_, with_lists, nulls.get(name)) for name, type_ in described)
    sample = aggregated(_over(draft, query, sampled, columns))
    if (bounded := _without_infinite_times(columns, sample)) != columns:
        columns, sample = bounded, aggregated(_over(draft, query, sampled, bounded))
    outputs = tuple(_output(name, type_) for name, type_ in draft.schema)
    plan = SampledThenExact.of(sample, whole, sampled, *_reasons(sampled, table, with_lists))
    return replace(
        plan,
        outputs=outputs,
        whole=replace(plan.whole, outputs=outputs),
        warnings=(),
        summarized=_with_lists(columns, sample),
    )


def _largest(draft: Draft, query: exp.Query) -> Layout:
    """Return the layout to sample: that of the sampled table with the most rows."""
    names = {table.name for table in tables_in(query) if isinstance(table.this, exp.Identifier)}
    layouts = [draft.catalog.layout(name) for name in names if draft.catalog.is_sampled(name)]
    if not layouts:
        raise NotOnlineError("none of its tables is sampled")
    return max(layouts, key=lambda layout: (layout.row_count, layout.table))


def _partitions(layout: Layout, lists: int) -> int:
    """Return how many partitions are sampled, 0 where the values of the first are too many to be listed."""
    most = max(1, int(len(layout.partitions) * MOST_SHARE))
    fitting = (i for i in range(most, 0, -1) if _rows(layout, i) * lists <= MOST_VALUES)
    return next(fitting, 0)


def _rows(layout: Layout, count: int) -> int:
    return sum(partition.row_count for partition in layout.partitions[:count])


def _known_nulls(query: exp.Query, table: Layout) -> dict[str, float]:
    """Return the percentage of NULLs in each column of `SELECT * FROM t`, from the table's statistics."""
    more = {key for key, value in query.args.items() if value} - {"expressions", "from_"}
    from_ = query.args.get("from_")
    is_table = from_ is not None and isinstance(from_.this, exp.Table) and not from_.this.args.get("sample")
    if more or not is_table or query.expressions != [exp.Star()] or not table.row_count:
        return {}
    return {column.name: 100.0 * column.null_count / table.row_count for column in table.columns}


def _column(name: str, type_: str, with_lists: bool, null_percentage: float | None) -> SummarizedColumn:
    is_time = type_ in TIME_TYPES
    carried = not any(each in type_ for each in _NOT_CARRIED)
    return SummarizedColumn(
        name,
        type_,
        listed="?" if with_lists and carried else "",
        lists_distinct=not (is_number(type_) or is_time),
        time_type=type_ if is_time else "",
        null_percentage=null_percentage,
    )


def _without_infinite_times(
    columns: tuple[SummarizedColumn, ...], sample: MergePlan
) -> tuple[SummarizedColumn, ...]:
    """Return the columns, of which those of moments without bounds have ends alone.

    Infinite ones have no number, so that an average or a quartile of the numbers would leave them out.
    """
    averaged = {output.name for output in sample.outputs if output.kind is OutputKind.ESTIMATE}
    return tuple(
        replace(each, listed="", time_type="") if each.time_type and f"avg_{i}" not in averaged else each
        for i, each in enumerate(columns)
    )


def _over(draft: Draft, query: exp.Query, part: Layout, columns: Sequence[SummarizedColumn]) -> Draft:
    """Return the draft of the aggregation that the estimates come from."""
    values = ", ".join(["count(*) AS rows", *_measures(columns)])
    sql = f"SELECT {values} FROM ({query.sql(DIALECT)}) AS summarized"
    catalog = draft.catalog.with_layout(part)
    try:
        parsed: ParsedQuery = parse_query(sql, catalog.tables, draft.binder.effort)
        schema = tuple(draft.binder.describe(sql))
    except SqlError as error:
        raise NotOnlineError(f"its measures do not bind ({error.message})") from None
    return replace(
        draft, sql=sql, tree=parsed.tree, catalog=catalog, schema=schema, names=names_in(parsed.tree)
    )


def _measures(columns: Sequence[SummarizedColumn]) -> Iterator[str]:
    """Yield the measures of each column as SQL, named by the measure and the number of the column."""
    for i, column in enumerate(columns):
        value = f"summarized.{quote_name(column.name)}"
        if column.null_percentage is None:
            yield f"100 * (1 - count({value}) / count(*)) AS null_{i}"
        if not any(each in column.type for each in _NOT_CARRIED[:3]):
            yield f"min({value}) AS min_{i}"
            yield f"max({value}) AS max_{i}"
        if is_number(column.type) or column.time_type:
            yield f"avg({value}) AS avg_{i}"
        if is_number(column.type):
            yield f"stddev(CAST({value} AS DOUBLE)) AS std_{i}"
        if column.listed and column.lists_distinct:
            yield f"approx_count_distinct({value}) AS approx_{i}"
        elif column.listed:
            ranked = microseconds_sql(column.time_type, value) if column.time_type else value
            yield from (f"approx_quantile({ranked}, {share}) AS {q}_{i}" for q, share in _SHARES.items())


def _with_lists(columns: Sequence[SummarizedColumn], sample: MergePlan) -> tuple[SummarizedColumn, ...]:
    """Return the columns with the names of their lists in the state, which has one for each."""
    lists = [each.name for each in sample.columns.basis if each.kind is Basis.VALUES]
    listed = [column for column in columns if column.listed]
    if len(lists) != len(listed):
        raise NotOnlineError("two of the columns that it summarizes are one")
    names = iter(lists)
    return tuple(replace(each, listed=next(names)) if each.listed else each for each in columns)


def _output(name: str, type_: str) -> OutputColumn:
    kind, side = _KINDS.get(name, (OutputKind.KEY, None))
    return OutputColumn(name, kind, type_, "", side=side)


def _reasons(part: FirstPart, table: Layout, with_lists: bool) -> tuple[str, ...]:
    reasons = [f"estimates come from the first {len(part.partitions)} of {len(table.partitions)} partitions"]
    if not part.is_made:
        reasons = [f"{part.table} is being laid out, and estimates come from its first part"]
    if not with_lists:
        reasons.append("quantiles and distinct values are known at the end: their values are too many")
    return (*reasons, "at the end DuckDB summarizes all rows")
