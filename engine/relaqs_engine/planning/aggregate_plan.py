"""From drafts to a plan of one aggregation: the layouts that are within ±5 % soonest, and why.

Each choice of layouts of the tables gives a draft. One of them is taken, and all rules are applied to it.

1. `time_to_estimate`: when a draft is within ±5 %, in core-seconds and by prediction, from its layouts'
   statistics (`TimeToEstimate`).
2. `best_first`: the choices in order, and `why_chosen` in words.
3. `merge_plan`, `rows_plan`: the plan of a draft, a `MergePlan` or a `RowsPlan`.

Predictions are rough, so choices that differ by less than a fifth are equals. Of equals the planner takes
the one with the fewest rows to wait for, then one with each group in one partition, then a table's first
layout. A table that is read whole is filtered once and kept by each worker, which for a small one is
cheaper than joining it partition by partition (docs/decisions/0004-second-layouts.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from sqlglot import exp

from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.assignment import HEAD_DIVISOR
from relaqs_engine.layouts.column_statistics import NEARLY_ALL
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.planning.exact import layout_reasons
from relaqs_engine.plans.aggregate import MergePlan, MergeTexts, RowsPlan, StateColumns
from relaqs_engine.plans.plan import MANY_GROUPS, OutputColumn, mini_batches
from relaqs_engine.rewrite.draft import (
    Draft,
    NotOnlineError,
    Source,
    aliases_in,
    column_pair,
    pairs_of,
    tables_in,
)
from relaqs_engine.rewrite.method import groups_of, share_kept
from relaqs_engine.rewrite.render import (
    check_types_travel,
    key_names,
    limit_rows,
    merged_columns,
    partial_query,
    partial_types,
    render,
    row_types,
    rows_final_sql,
    rows_query,
)
from relaqs_engine.rewrite.sampling import column_seconds, groups_lie_in_partitions, tables_read_whole
from relaqs_engine.rewrite.scans import measuring_tables, streams_of
from relaqs_engine.sql.dialect import find_all

_Z = 1.96  # of an interval of 95 %
_WITHIN = 0.05
_SPREAD = 1.0  # the variance of a row's value by the square of its mean, as exponential values have it
_ROWS_NEEDED = (_Z / _WITHIN) ** 2 * (1 + _SPREAD)

# Core-seconds as measured with TPC-H at scales 1 and 4 (docs/decisions/0085-predicted-time.md).
_START = 0.03  # of any query, up to its first mini-batch
_BATCH = 0.008  # of a mini-batch: tasks are sent, and the state is merged
_BATCH_AND_GROUP = 5e-6  # of the error bars of a group, in each mini-batch
_BATCH_AND_KEPT_ROW = 1.5e-8  # of a row that was read whole, which each mini-batch hashes anew


@dataclass(frozen=True, slots=True)
class TimeToEstimate:
    """What one core does until the headline error is ±5 %.

    Attributes:
        whole_seconds: to read what is read whole, before there is any estimate.
        streamed_seconds: to read all of the streams, as the exact answer does.
        share: of the streams that is read until then.
        batches: the mini-batches until then.
        kept_rows: of what is read whole, those that mini-batches join with.
        groups: that have error bars.
    """

    whole_seconds: float
    streamed_seconds: float
    share: float
    batches: int
    kept_rows: float = 0.0
    groups: int = 0

    @property
    def core_seconds(self) -> float:
        """Return all of it together.

        A million rows are read whole, and kept; a tenth of streams that take a second is read after that:
        """
        batch = _BATCH + _BATCH_AND_GROUP * self.groups + _BATCH_AND_KEPT_ROW * self.kept_rows
        return _START + self.whole_seconds + self.share * self.streamed_seconds + self.batches * batch


def share_to_read(group_rows: float, design_effect: float) -> float:
    """Return the share of the streams after which the total of a group is within ±5 %.

    n of N rows, drawn without replacement, have a relative variance of (1 + cv²) (1 − n/N) / n. Rows in
    clusters have that of `design_effect` times fewer. The share is never above 1, the exact answer.
    Source: Cochran 1977, Sampling Techniques, ch. 4; Kish 1965, Survey Sampling, ch. 8.

    Args:
        group_rows: the rows of the group.
        design_effect: how many rows of a cluster say as much as one row that is drawn by itself.
    """
    needed = _ROWS_NEEDED * design_effect
    return needed / (needed + group_rows)


# Totals were measured to be certified once as many rows are read as so many of the largest units have: one
# unit more could move them by little.
_LARGEST_UNITS = 1_000


def time_to_estimate(draft: Draft) -> TimeToEstimate:
    """Return when a query is within ±5 %, with its streams chosen.

    A group in one partition is complete once it is seen, and all groups are seen at the end. Rows without
    aggregates are taken for one group, of which a sample tells how many there are.
    """
    keys = _keys(draft)
    leading = max(draft.streams, key=_row_count)
    partitions = len(leading.layout.partitions)
    if groups_lie_in_partitions(draft, keys):
        return _time(draft, partitions, share=1.0, groups=0)
    groups = max(1, groups_of(draft, keys))
    rows = leading.layout.row_count * share_kept(draft.conjuncts, draft.column_of)
    share = share_to_read(rows / groups, _design_effect(draft, keys, leading))
    has_heads = all(stream.layout.heads for stream in draft.streams) and not leading.layout.outlier_units
    least = 1 / partitions / (HEAD_DIVISOR if has_heads else 1)
    to_certify = _LARGEST_UNITS * leading.layout.max_unit_rows / max(leading.layout.row_count, 1)
    share = max(share, least, min(1.0, to_certify))
    return _time(draft, partitions, share, min(groups, MANY_GROUPS))


def _time(draft: Draft, partitions: int, share: float, groups: int) -> TimeToEstimate:
    sampled = {stream.table for stream in streams_of(draft)}
    members = {id(table) for each in draft.members_in(draft.select) for table in tables_in(each)}
    whole = streamed = kept = 0.0
    for table in (each for each in tables_in(draft.select) if isinstance(each.this, exp.Identifier)):
        seconds = column_seconds(draft, draft.select, table)
        if id(table) not in members and draft.catalog.table(table.name).table in sampled:
            streamed += seconds
        else:
            whole += seconds
            kept += _rows_kept(draft, table)
    return TimeToEstimate(whole, streamed, share, _batches(partitions, share), kept, groups)


def _rows_kept(draft: Draft, table: exp.Table) -> float:
    """Return about how many rows of a table that is read whole meet the conditions on it alone."""
    own = [each for each in draft.conjuncts if aliases_in(each) == {table.alias_or_name}]
    return draft.catalog.table(table.name).row_count * share_kept(own, draft.column_of)


def _batches(partitions: int, share: float) -> int:
    """Return how many mini-batches there are until that share of the partitions is read."""
    sizes = (len(each.partitions) for each in mini_batches(range(partitions), partition_bytes=0.0))
    read = accumulate(sizes)
    return 1 + sum(done < share * partitions for done in read)


def _keys(draft: Draft) -> tuple[exp.Expr, ...]:
    """Return the keys of the query's groups. Those of several grouping sets are not told apart here."""
    group = draft.select.args.get("group")
    return () if group is None else tuple(group.expressions)


def _row_count(source: Source) -> int:
    return 0 if source.table is None else source.table.row_count


def _design_effect(draft: Draft, keys: tuple[exp.Expr, ...], leading: Source) -> float:
    """Return how many rows say as much as one: those of a unit, if it decides which of them count, and where.

    All items of an order have the order's day. So an order is one observation of what happens on a day. What
    the rows of a unit have besides is taken to differ as much as that of any rows.
    """
    conditions = (each for each in draft.conjuncts if column_pair(each) is None)
    deciding = [column for each in (*keys, *conditions) for column in find_all(each, exp.Column)]
    of_unit = _tables_of_unit(draft, leading)
    is_decided = any(column.table in of_unit or _is_key(column, leading) for column in deciding)
    return _rows_of_unit(leading.layout) if is_decided else 1.0


def _rows_of_unit(layout: Layout) -> float:
    return max(layout.typical_unit_rows, layout.row_count / max(layout.unit_count, 1))


def _tables_of_unit(draft: Draft, leading: Source) -> frozenset[str]:
    """Return the tables of which each unit meets one row, on its key or by way of another such table."""
    pairs = [pair for one in pairs_of(draft.conjuncts) for pair in (one, one[::-1])]
    found: frozenset[str] = frozenset()
    while True:
        grown = found | {
            other.table
            for known, other in pairs
            if (known.table in found or _is_key(known, leading)) and _is_unique(draft, other)
        }
        if grown == found:
            return found - {leading.alias}
        found = grown


def _is_key(column: exp.Column, leading: Source) -> bool:
    """Whether a column is the whole cluster key."""
    return column.table == leading.alias and [column.name.lower()] == [
        each.lower() for each in leading.key_columns
    ]


def _is_unique(draft: Draft, column: exp.Column) -> bool:
    """Whether nearly all values of a column are different, as far as the statistics tell."""
    known = draft.column_of(column)
    return known is not None and known.distinct_count >= NEARLY_ALL * _row_count(draft.source(column.table))


READ_AT_ONCE_ROWS = 1_000_000  # read and filtered within about a tenth of a second
READ_AT_ONCE_SHARE = 0.25  # of the query's rows: no more, however small the tables are
NOTABLY_SOONER = 0.8  # of another choice's core-seconds
_MOST_NAMED = 3  # other choices in a sentence


def rows_to_wait_for(streamed_rows: int, rows: int) -> int:
    """Return the rows read whole before the first estimate, 0 where they are few. rows: of all tables."""
    whole = rows - streamed_rows
    return 0 if whole <= min(READ_AT_ONCE_ROWS, READ_AT_ONCE_SHARE * rows) else whole


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """A query with its streams chosen, and what that is predicted to cost.

    Attributes:
        waiting_rows: read whole before the first estimate.
        groups_are_local: whether each group lies in one partition.
        time: until the answer is within ±5 %.
    """

    draft: Draft
    waiting_rows: int
    groups_are_local: bool
    time: TimeToEstimate

    @classmethod
    def of(cls, draft: Draft, tables: Iterable[str]) -> LayoutChoice:
        """Return what a choice comes to. tables: the names of those that the query reads."""
        streamed = [stream.table for stream in streams_of(draft)]
        twice = [table for table in tables_read_whole(draft) if table in streamed]
        rows = sum(draft.catalog.table(name).row_count for name in (*tables, *twice))
        streamed_rows = sum(draft.catalog.table(name).row_count for name in streamed)
        group = draft.select.args.get("group")
        local = groups_lie_in_partitions(draft, group.expressions if group else ())
        return cls(draft, rows_to_wait_for(streamed_rows, rows), local, time_to_estimate(draft))

    @property
    def streams(self) -> str:
        """Return the layouts that it samples, for people."""
        return " and ".join(stream.table for stream in streams_of(self.draft))


def best_first(choices: Iterable[LayoutChoice]) -> list[LayoutChoice]:
    """Return the choices in the order in which they are to be tried. Equals stay in their order."""
    ordered = sorted(choices, key=lambda each: (each.waiting_rows, not each.groups_are_local))
    soonest = min(ordered, key=lambda each: each.time.core_seconds, default=None)
    if soonest is None or soonest.time.core_seconds <= NOTABLY_SOONER * ordered[0].time.core_seconds:
        ordered.sort(key=lambda each: each is not soonest)
    return ordered


def why_chosen(chosen: LayoutChoice, choices: Sequence[LayoutChoice]) -> str:
    """Return why a choice is taken, in a sentence; "" where no other samples other layouts."""
    soonest: dict[str, float] = {}
    for each in choices:
        seconds = each.time.core_seconds
        soonest[each.streams] = min(seconds, soonest.get(each.streams, seconds))
    soonest.pop(chosen.streams, None)
    if not soonest:
        return ""
    named = sorted(soonest, key=lambda streams: soonest[streams])[:_MOST_NAMED]
    own, others = _rounded(chosen.time.core_seconds), [_rounded(soonest[streams]) for streams in named]
    against = ", ".join(f"{seconds} with {streams}" for seconds, streams in zip(others, named, strict=True))
    more = f", and {len(soonest) - len(named)} more" if len(soonest) > len(named) else ""
    is_last = chosen.time.core_seconds > soonest[named[0]] and own != others[0]
    equal = "; less than a fifth counts as equal" if is_last else ""
    return (
        f"it samples {chosen.streams}: ±5 % is predicted after {own} core-seconds, against {against}{more}"
        f"{equal}"
    )


def _rounded(seconds: float) -> str:
    return f"{seconds:.2f}"


def merge_plan(draft: Draft) -> MergePlan:
    """Return the plan of an aggregation. Raises NotOnlineError where a text of it does not bind."""
    from relaqs_engine.rewrite.unbounded import most_listed

    types = partial_types(draft)
    check_types_travel(draft, types)
    draft = replace(draft, basis=tuple(replace(column, type=types[column.name]) for column in draft.basis))
    if not draft.membership.deciders:
        texts = render(draft)
    else:
        from relaqs_engine.rewrite.having_and_limit import keep_numeric_deciders, near_sql

        draft = keep_numeric_deciders(draft, types)
        texts = replace(render(draft), near=near_sql(draft))
    _check_texts_bind(draft, texts, types)
    return MergePlan(
        sql=draft.sql,
        outputs=draft.outputs,
        reasons=(_why_mergeable(draft), *layout_reasons(draft)),
        streams=streams_of(draft),
        hoists=draft.hoists,
        warnings=draft.notes,
        measured_by=measuring_tables(draft),
        partial=partial_query(draft),
        columns=StateColumns(
            key_names(draft),
            draft.basis,
            draft.shared_basis,
            counts_distinct=draft.distinct is not None,
            most_listed=most_listed(draft),
        ),
        texts=texts,
        bars=draft.bars,
        groups=draft.groups,
        membership=draft.membership,
    )


def _why_mergeable(draft: Draft) -> str:
    if draft.of_values:
        return "every aggregate is a function of sums that merge, or of values that are kept"
    return "every aggregate is a function of sums that merge"


def _check_texts_bind(draft: Draft, texts: MergeTexts, types: Mapping[str, str]) -> None:
    """Check that the texts mean something over merged groups.

    An expression may exist for DuckDB's own types and not for estimates, which are DOUBLE. What remains of
    the query around its aggregates must itself aggregate nothing: DuckDB knows more aggregates than the
    rewriter does.
    """
    columns = merged_columns(draft, types)
    estimates = [text for text in (texts.estimate, texts.near) if text]
    values = ", ".join(output.estimate_sql for output in draft.outputs)
    outputs = [] if texts.estimate else [f"SELECT {values} FROM merged"]  # the estimate has the outputs
    bound = [f"relaqs_text_{i} AS ({text})" for i, text in enumerate([texts.final, *outputs, *estimates])]
    named = ", ".join(f"relaqs_text_{i}" for i in range(len(bound)))
    merged = f"WITH merged AS (SELECT {columns})"
    try:
        draft.binder.describe(f"{merged}, {', '.join(bound)} SELECT 1 FROM {named}")
    except SqlError:  # one of them has no meaning, which is told in its own words
        draft.binder.describe(f"{merged} {texts.final}")
        _check_outputs_bind(draft, draft.outputs, columns)
        for text in estimates:
            draft.binder.describe(f"{merged} {text}")


def _check_outputs_bind(draft: Draft, outputs: tuple[OutputColumn, ...], columns: str) -> None:
    """Raise NotOnlineError that names the first output without a meaning for estimates.

    All are bound at once: for a thousand outputs one by one, DuckDB would read a million columns.
    """
    values = ", ".join(output.estimate_sql for output in outputs)
    try:
        draft.binder.describe(f"SELECT {values} FROM (SELECT {columns})")
    except SqlError as error:
        if len(outputs) == 1:
            name = outputs[0].name
            raise NotOnlineError(f"{name} has no meaning for an estimate ({error.message})") from None
        half = len(outputs) // 2
        _check_outputs_bind(draft, outputs[:half], columns)
        _check_outputs_bind(draft, outputs[half:], columns)


def rows_plan(draft: Draft) -> RowsPlan:
    """Return the plan of a query without aggregates. Raises NotOnlineError where a type does not travel."""
    check_types_travel(draft, row_types(draft))
    streams = streams_of(draft)
    return RowsPlan(
        sql=draft.sql,
        outputs=draft.outputs,
        reasons=("each row is final as soon as it is found", *layout_reasons(draft)),
        streams=streams,
        hoists=draft.hoists,
        measured_by=measuring_tables(draft),
        partial=rows_query(draft),
        keys=key_names(draft),
        final_sql=rows_final_sql(draft),
        expected_groups=max(draft.catalog.table(stream.table).row_count for stream in streams),
        has_limit=draft.select.args.get("limit") is not None,
        limit_rows=limit_rows(draft),
    )
