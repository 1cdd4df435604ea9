"""From a draft without aggregates, to which all rules were applied, to its RowsPlan."""

from __future__ import annotations

from relaqs_engine.planning.reasons import layout_reasons
from relaqs_engine.plans.rows import RowsPlan
from relaqs_engine.rewrite.carried_types import check_types_travel
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.render import key_names
from relaqs_engine.rewrite.rows import limit_rows, row_types, rows_final_sql, rows_query
from relaqs_engine.rewrite.scans import measuring_tables, streams_of


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
