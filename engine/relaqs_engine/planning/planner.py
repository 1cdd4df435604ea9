"""SQL and a catalog in, a plan out. The way in to the rewriter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import SqlglotError

from relaqs_engine.catalog import LAYOUT_MARK, Catalog
from relaqs_engine.errors import SqlError
from relaqs_engine.layouts.reads import TableRead, read_of_table
from relaqs_engine.planning.layout_choice import rows_to_wait_for
from relaqs_engine.planning.refined_planner import plan_refined
from relaqs_engine.plans.plan import (
    Mode,
    OnlinePlan,
    OutputColumn,
    OutputKind,
)
from relaqs_engine.rewrite import AGGREGATING, READING, SAMPLING, Rule
from relaqs_engine.rewrite.around import MOST_ROWS, plan_around
from relaqs_engine.rewrite.carried_types import check_types_travel
from relaqs_engine.rewrite.carve import carve
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, tables_in
from relaqs_engine.rewrite.flatten import flatten, qualified_query
from relaqs_engine.rewrite.hoist import whole_table
from relaqs_engine.rewrite.membership import keep_numeric_deciders
from relaqs_engine.rewrite.near import near_sql
from relaqs_engine.rewrite.render import (
    Texts,
    key_names,
    leading_table,
    merged_columns,
    partial_types,
    render,
    streams_of,
)
from relaqs_engine.rewrite.rows import limit_rows, rows_sql
from relaqs_engine.rewrite.sources import groups_lie_in_partitions
from relaqs_engine.sql.binder import Binder
from relaqs_engine.sql.effort import Effort
from relaqs_engine.sql.expansion import check_expansion
from relaqs_engine.sql.names import names_in, whole_row
from relaqs_engine.sql.parse import DIALECT, ParsedQuery, is_cte_reference, parse_query


def plan_query(
    sql: str,
    catalog: Catalog,
    binder: Binder,
    *,
    intervals: bool = True,
    state_bytes: int | None = None,
    effort: Effort | None = None,
) -> OnlinePlan:
    """Return how to answer one SELECT. Raises SqlError when the SQL is wrong; anything else has a plan.

    intervals: False leaves out everything that only error bars need. state_bytes: the memory that merged
    states may take; None: enough. effort: what planning may cost, and who may end it.
    """
    effort = effort or Effort()
    with binder.spending(effort) as own:
        return _planned(sql, catalog, own, intervals, state_bytes)


def _planned(
    sql: str, catalog: Catalog, binder: Binder, intervals: bool, state_bytes: int | None
) -> OnlinePlan:
    try:
        parsed = parse_query(sql, catalog.tables, binder.effort)
        check_expansion(parsed.tree, _columns(catalog))
        schema = tuple(binder.describe(sql))
        is_ordered = parsed.tree.args.get("order") is not None
        names = names_in(parsed.tree)
        draft = Draft(parsed.sql, catalog, binder, parsed.tree, schema, intervals, state_bytes, names)
        if row := _row_as_value(parsed, catalog):  # a layout's rows have one more column than the user's
            whole = _exact(parsed, catalog, schema, f"it takes whole rows of {row} as values")
            return replace(whole, is_ordered=is_ordered)
        try:
            plan = _online(draft, parsed.tables)
        except NotOnlineError as reason:
            plan = _around(draft) or _refined(draft, parsed) or _exact(parsed, catalog, schema, str(reason))
        return replace(plan, is_ordered=is_ordered)
    except RecursionError:
        raise SqlError("the SQL is nested too deeply to be planned; name its inner parts in a WITH") from None


def plan_whole(plan: OnlinePlan, sql: str, catalog: Catalog, reason: str) -> OnlinePlan:
    """Return how to run exactly what had another plan, with the same columns. sql: its views written out."""
    parsed = parse_query(sql, catalog.tables)
    return replace(
        plan,
        mode=Mode.EXACT,
        reasons=(reason,),
        hoists=(),
        around=None,
        refinement=None,
        exact_sql=_over_whole_tables(parsed, catalog),
        exact_reads=_whole_reads(parsed, catalog),
    )


def _row_as_value(parsed: ParsedQuery, catalog: Catalog) -> str | None:
    columns = {column.name.lower() for name in parsed.tables for column in catalog.table(name).columns}
    return whole_row(parsed.tree, columns)


def _columns(catalog: Catalog) -> dict[str, list[str]]:
    return {name: [column.name for column in layout.columns] for name, layout in catalog.tables.items()}


def _refined(draft: Draft, parsed: ParsedQuery) -> OnlinePlan | None:
    """Return the plan of a query with inner stages, None where it is not one."""
    try:
        with _bound_by_duckdb():
            draft.binder.effort.spend(len(draft.sql))
            draft = replace(flatten(draft), may_read_outliers=False)
            return plan_refined(draft, parsed.tables, complete=_mergeable, plan_flat=_plan_flat)
    except NotOnlineError:
        return None


def _plan_flat(draft: Draft) -> OnlinePlan:
    draft = replace(draft, may_read_outliers=False)  # what is kept of a stage is told apart by partition
    return _completed(_applied((*READING, *SAMPLING, *AGGREGATING), draft))


def _online(draft: Draft, tables: frozenset[str]) -> OnlinePlan:
    """Return the plan with the choice of layouts that makes most of the query local.

    Raises NotOnlineError if no choice has one: why the one that samples the most rows of its tables has none.
    """
    draft = _applied(READING, draft)
    refused: list[tuple[int, NotOnlineError]] = []
    sampled: list[Draft] = []
    for choice in draft.catalog.choices(tables):
        try:
            sampled.append(_applied(SAMPLING, replace(draft, catalog=choice)))
        except NotOnlineError as reason:
            refused.append((_sampled_rows(choice, tables), reason))
    # Equals stay in their order: a table's first layout before the others.
    for chosen in sorted(sampled, key=lambda each: _locality(each, tables), reverse=True):
        try:
            return _completed(_applied(AGGREGATING, chosen))
        except NotOnlineError as reason:
            refused.append((_sampled_rows(chosen.catalog, tables), reason))
    raise max(refused, key=lambda each: each[0])[1]


def _around(draft: Draft) -> OnlinePlan | None:
    """Return the plan of a query over the answers of simpler ones, None where it is not one."""
    try:
        with _bound_by_duckdb():
            draft.binder.effort.spend(len(draft.sql))
            tree = qualified_query(draft)
            return plan_around(draft, carve(tree, lambda query: _part(draft, query)))
    except NotOnlineError:
        return None


def _part(draft: Draft, query: exp.Query) -> OnlinePlan | None:
    """Return the plan of a query that another one is computed from, None where there is none."""
    if not all(isinstance(table.this, exp.Identifier) for table in tables_in(query)):
        return None  # a table function has no name to look up
    sql = query.sql(DIALECT)
    tables = frozenset(table.name for table in tables_in(query))
    try:
        schema = tuple(draft.binder.describe(sql))
        part = replace(draft, sql=sql, tree=query.copy(), schema=schema)
        if any(draft.catalog.table(name).is_sampled for name in tables):
            return _online(part, tables)
    except (NotOnlineError, SqlError):
        return None
    if sum(draft.catalog.table(name).row_count for name in tables) > MOST_ROWS:
        return None
    reason = "static tables are read whole"
    return _exact(ParsedQuery(sql, query, tables), draft.catalog, schema, reason)


def _applied(rules: Iterable[Rule], draft: Draft) -> Draft:
    """Return what the rules, one after another, make of a draft. Raises NotOnlineError."""
    with _bound_by_duckdb():
        for rule in rules:
            draft.binder.effort.spend(len(draft.sql))
            draft = rule(draft)
    return draft


def _completed(draft: Draft) -> OnlinePlan:
    with _bound_by_duckdb():
        return _rows(draft) if draft.returns_rows else _mergeable(draft)


@contextmanager
def _bound_by_duckdb() -> Iterator[None]:
    """DuckDB has bound the query itself, so whatever does not bind now is our text and not the user's."""
    try:
        yield
    except (SqlglotError, SqlError) as error:
        raise NotOnlineError(f"it could not be rewritten ({error})") from None


def _sampled_rows(choice: Catalog, tables: Iterable[str]) -> int:
    return sum(layout.row_count for name in tables if (layout := choice.table(name)).is_sampled)


def _locality(draft: Draft, tables: Iterable[str]) -> tuple[int, bool]:
    """Return how good a choice is: the fewer rows to wait for the better, then whether groups are local."""
    rows = sum(draft.catalog.table(name).row_count for name in tables)
    streamed_rows = sum(draft.catalog.table(stream.table).row_count for stream in streams_of(draft))
    group = draft.select.args.get("group")
    local = groups_lie_in_partitions(draft, group.expressions if group else ())
    return -rows_to_wait_for(streamed_rows, rows), local


def _mergeable(draft: Draft) -> OnlinePlan:
    types = partial_types(draft)
    check_types_travel(draft, types)
    draft = replace(draft, basis=tuple(replace(column, type=types[column.name]) for column in draft.basis))
    draft = keep_numeric_deciders(draft, types)
    texts = render(draft)
    _check_texts_bind(draft, texts, types)
    select = draft.select
    return OnlinePlan(
        sql=draft.sql,
        mode=Mode.MERGEABLE,
        reasons=(_why_mergeable(draft), *_layout_reasons(draft)),
        streams=streams_of(draft),
        leading=leading_table(draft),
        hoists=draft.hoists,
        outputs=draft.outputs,
        keys=key_names(draft),
        basis=draft.basis,
        method=draft.method,
        expected_groups=draft.expected_groups,
        block_count=draft.block_count,
        partial_sql=texts.partial,
        partial_by_block_sql=texts.partial_by_block,
        outlier_sql=texts.outliers,
        merge_sql=texts.merge,
        weighted_merge_sql=texts.weighted_merge,
        estimate_sql=texts.estimate,
        final_sql=texts.final,
        deciders=draft.deciders,
        membership_is_opaque=draft.membership_is_opaque,
        shown_rows=int(select.args["limit"].expression.this) if draft.is_ranked else None,
        ranks_by_key=draft.ranks_by_key,
        ranks_totals=draft.ranks_totals,
        near_sql=near_sql(draft),
        has_having=select.args.get("having") is not None,
        has_limit=select.args.get("limit") is not None or select.args.get("offset") is not None,
        groups_are_local=draft.groups_are_local,
        has_grouping_sets=bool(draft.grouping_sets),
        rows_are_units=draft.rows_are_units,
        counts_distinct=draft.distinct is not None,
        counts_every_row=draft.counts_every_row,
        warnings=draft.notes,
        shared=draft.shared_basis,
    )


def _rows(draft: Draft) -> OnlinePlan:
    check_types_travel(draft, partial_types(draft))
    partial, final = rows_sql(draft)
    return OnlinePlan(
        sql=draft.sql,
        mode=Mode.MERGEABLE,
        reasons=("each row is final as soon as it is found", *_layout_reasons(draft)),
        streams=streams_of(draft),
        leading=leading_table(draft),
        hoists=draft.hoists,
        outputs=draft.outputs,
        keys=key_names(draft),
        expected_groups=max(draft.catalog.table(stream.table).row_count for stream in streams_of(draft)),
        partial_sql=partial,
        final_sql=final,
        has_limit=draft.select.args.get("limit") is not None,
        returns_rows=True,
        limit_rows=limit_rows(draft),
    )


def _why_mergeable(draft: Draft) -> str:
    if draft.of_values:
        return "every aggregate is a function of sums that merge, or of values that are kept"
    return "every aggregate is a function of sums that merge"


def _layout_reasons(draft: Draft) -> Iterator[str]:
    for stream in streams_of(draft):
        if LAYOUT_MARK in stream.table:
            key = ", ".join(draft.catalog.table(stream.table).cluster_key)
            yield f"the layout {stream.table} holds the rows of one {key} in one partition"
    if draft.outlier_columns:
        named = ", ".join(draft.outlier_columns)
        yield f"rows with values far out in {named} are read first, and counted exactly"


def _check_texts_bind(draft: Draft, texts: Texts, types: dict[str, str]) -> None:
    """An expression may exist for DuckDB's own types and not for estimates, which are DOUBLE.

    What remains of the query around its aggregates must itself aggregate nothing: DuckDB knows more
    aggregates than the rewriter does.
    """
    columns = merged_columns(draft, types)
    draft.binder.describe(f"WITH merged AS (SELECT {columns}) {texts.final}")
    _check_outputs_bind(draft, draft.outputs, columns)
    for text in (texts.estimate, near_sql(draft)):
        if text:
            draft.binder.describe(f"WITH merged AS (SELECT {columns}) {text}")


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


def _exact(
    parsed: ParsedQuery, catalog: Catalog, schema: tuple[tuple[str, str], ...], reason: str
) -> OnlinePlan:
    return OnlinePlan(
        sql=parsed.sql,
        mode=Mode.EXACT,
        reasons=(reason,),
        streams=(),
        hoists=(),
        outputs=tuple(OutputColumn(name, OutputKind.KEY, type_, "") for name, type_ in schema),
        exact_sql=_over_whole_tables(parsed, catalog),
        exact_reads=_whole_reads(parsed, catalog),
    )


def _whole_reads(parsed: ParsedQuery, catalog: Catalog) -> tuple[TableRead, ...]:
    names = names_in(parsed.tree)
    return tuple(read_of_table(catalog.table(table), names) for table in sorted(parsed.tables))


def _over_whole_tables(parsed: ParsedQuery, catalog: Catalog) -> str:
    tree = parsed.tree.copy()
    for table in list(tree.find_all(exp.Table)):
        if isinstance(table.this, exp.Identifier) and not is_cte_reference(table):
            _read_whole(table, catalog)
    return tree.sql(DIALECT)


def _read_whole(table: exp.Table, catalog: Catalog) -> None:
    derived = whole_table(catalog.table(table.name))
    for part in ("joins", "pivots", "sample", "laterals"):
        if value := table.args.get(part):
            derived.set(part, value)
    derived.set("alias", table.args.get("alias") or exp.TableAlias(this=table.this.copy()))
    table.replace(derived)
