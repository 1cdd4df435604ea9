"""SQL and a catalog in, a plan out. The way in to the rewriter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import SqlglotError

from relaqs_engine.binder import Binder
from relaqs_engine.catalog import LAYOUT_MARK, Catalog
from relaqs_engine.errors import SqlError
from relaqs_engine.plan import (
    DISTINCT_ESTIMATE,
    DISTINCT_ONCE,
    DISTINCT_SEEN,
    Mode,
    OnlinePlan,
    OutputColumn,
    OutputKind,
)
from relaqs_engine.rewrite import RULES
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.hoist import whole_table
from relaqs_engine.rewrite.render import Texts, key_names, leading_table, partial_types, render, streams_of
from relaqs_engine.rewrite.rows import limit_rows, rows_sql
from relaqs_engine.rewrite.travel import check_types_travel
from relaqs_engine.sql.parse import DIALECT, ParsedQuery, is_cte_reference, parse_query


def plan_query(sql: str, catalog: Catalog, binder: Binder, *, intervals: bool = True) -> OnlinePlan:
    """Return how to answer one SELECT. Raises SqlError when the SQL is wrong; anything else has a plan.

    intervals: False leaves out everything that only error bars need.
    """
    try:
        parsed = parse_query(sql, catalog.tables)
        schema = tuple(binder.describe(sql))
        plans = [
            _plan(Draft(parsed.sql, choice, binder, parsed.tree, schema, intervals), parsed)
            for choice in catalog.choices(parsed.tables)
        ]
    except RecursionError:
        raise SqlError("the SQL is nested too deeply to be planned; name its inner parts in a WITH") from None
    return max(plans, key=lambda plan: _streamed_rows(plan, catalog))


def _streamed_rows(plan: OnlinePlan, catalog: Catalog) -> int:
    """Return how many rows need not be read whole before there is an answer: what a choice is judged by."""
    return sum(catalog.table(stream.table).row_count for stream in plan.streams)


def _plan(draft: Draft, parsed: ParsedQuery) -> OnlinePlan:
    catalog, schema = draft.catalog, draft.schema
    try:
        for rule in RULES:
            draft = rule(draft)
        return _rows(draft) if draft.returns_rows else _mergeable(draft)
    except NotOnlineError as reason:
        return _exact(parsed, catalog, schema, str(reason))
    except (SqlglotError, SqlError) as error:
        # DuckDB has bound the query itself, so whatever does not bind now is our text and not the user's.
        return _exact(parsed, catalog, schema, f"it could not be rewritten ({error})")


def _mergeable(draft: Draft) -> OnlinePlan:
    types = partial_types(draft)
    check_types_travel(draft, types)
    draft = replace(draft, basis=tuple(replace(column, type=types[column.name]) for column in draft.basis))
    texts = render(draft)
    _check_texts_bind(draft, texts, types)
    select = draft.select
    return OnlinePlan(
        sql=draft.sql,
        mode=Mode.MERGEABLE,
        reasons=("every aggregate is a function of sums that merge", *_layout_reasons(draft)),
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
        merge_sql=texts.merge,
        estimate_sql=texts.estimate,
        final_sql=texts.final,
        has_having=select.args.get("having") is not None,
        has_limit=select.args.get("limit") is not None or select.args.get("offset") is not None,
        groups_are_local=draft.groups_are_local,
        counts_distinct=draft.distinct is not None,
        counts_every_row=draft.counts_every_row,
        warnings=draft.notes,
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


def _layout_reasons(draft: Draft) -> Iterator[str]:
    for stream in streams_of(draft):
        if LAYOUT_MARK in stream.table:
            key = ", ".join(draft.catalog.table(stream.table).cluster_key)
            yield f"the layout {stream.table} holds the rows of one {key} in one partition"


def _check_texts_bind(draft: Draft, texts: Texts, types: dict[str, str]) -> None:
    """An expression may exist for DuckDB's own types and not for estimates, which are DOUBLE.

    What remains of the query around its aggregates must itself aggregate nothing: DuckDB knows more
    aggregates than the rewriter does.
    """
    merged = dict(types)
    if draft.distinct is not None:
        merged |= {DISTINCT_SEEN: "BIGINT", DISTINCT_ONCE: "BIGINT", DISTINCT_ESTIMATE: "DOUBLE"}
    columns = ", ".join([f"NULL::{type_} AS {name}" for name, type_ in merged.items()] + ["1.0 AS scale"])
    draft.binder.describe(f"WITH merged AS (SELECT {columns}) {texts.final}")
    for output in draft.outputs:
        try:
            draft.binder.describe(f"SELECT {output.estimate_sql} FROM (SELECT {columns})")
        except SqlError as error:
            raise NotOnlineError(f"{output.name} has no meaning for an estimate ({error.message})") from None


def _exact(
    parsed: ParsedQuery, catalog: Catalog, schema: tuple[tuple[str, str], ...], reason: str
) -> OnlinePlan:
    tree = parsed.tree.copy()
    for table in list(tree.find_all(exp.Table)):
        if isinstance(table.this, exp.Identifier) and not is_cte_reference(table):
            _read_whole(table, catalog)
    return OnlinePlan(
        sql=parsed.sql,
        mode=Mode.EXACT,
        reasons=(reason,),
        streams=(),
        hoists=(),
        outputs=tuple(OutputColumn(name, OutputKind.KEY, type_, "") for name, type_ in schema),
        exact_sql=tree.sql(DIALECT),
    )


def _read_whole(table: exp.Table, catalog: Catalog) -> None:
    derived = whole_table(catalog.table(table.name))
    for part in ("joins", "pivots", "sample", "laterals"):
        if value := table.args.get(part):
            derived.set(part, value)
    derived.set("alias", table.args.get("alias") or exp.TableAlias(this=table.this.copy()))
    table.replace(derived)
