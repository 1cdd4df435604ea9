"""From a draft to which all rules were applied to its plan, a `MergePlan` or a `RowsPlan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relaqs_engine.errors import SqlError
from relaqs_engine.planning.exact import layout_reasons
from relaqs_engine.plans.aggregate import MergePlan, MergeTexts, RowsPlan, StateColumns
from relaqs_engine.plans.plan import OutputColumn
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.having_and_limit import keep_numeric_deciders, near_sql
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
from relaqs_engine.rewrite.scans import measuring_tables, streams_of
from relaqs_engine.rewrite.unbounded import most_listed


def merge_plan(draft: Draft) -> MergePlan:
    """Return the plan of an aggregation. Raises NotOnlineError where a text of it does not bind."""
    types = partial_types(draft)
    check_types_travel(draft, types)
    draft = replace(draft, basis=tuple(replace(column, type=types[column.name]) for column in draft.basis))
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
            key_names(draft), draft.basis, draft.shared_basis, counts_distinct=draft.distinct is not None
        ),
        texts=texts,
        bars=draft.bars,
        groups=draft.groups,
        membership=draft.membership,
        most_listed=most_listed(draft),
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
    draft.binder.describe(f"WITH merged AS (SELECT {columns}) {texts.final}")
    _check_outputs_bind(draft, draft.outputs, columns)
    for text in (texts.estimate, texts.near):
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
        expected_rows=max(draft.catalog.table(stream.table).row_count for stream in streams),
        has_limit=draft.select.args.get("limit") is not None,
        limit_rows=limit_rows(draft),
    )
