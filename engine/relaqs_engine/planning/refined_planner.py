"""Plans of queries with inner aggregates over all partitions, with the best choice of layouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from relaqs_engine.planning.aggregate_plan import merge_plan, rows_to_wait_for
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.composite import RefinedPlan
from relaqs_engine.rewrite.draft import Draft, NotOnlineError
from relaqs_engine.rewrite.exists import ask_groups_by_key, read_no_outputs_of_exists
from relaqs_engine.rewrite.normalize import merged
from relaqs_engine.rewrite.scalar_subqueries import child_queries
from relaqs_engine.rewrite.uncertain_rows import refine_rows
from relaqs_engine.sql.parse import DIALECT

PlanStageDraft = Callable[[Draft], MergePlan]


def plan_refined(draft: Draft, tables: frozenset[str], *, plan_stage: PlanStageDraft) -> RefinedPlan:
    """Return the refined plan of a flattened query, with the best choice of layouts.

    Args:
        plan_stage: plans an inner query with its layouts chosen.

    Raises:
        NotOnlineError: it has no such plan.
    """
    if not child_queries(draft.select):
        raise NotOnlineError("it has no subquery")
    draft = ask_groups_by_key(read_no_outputs_of_exists(draft))
    refused = NotOnlineError("no choice of layouts was tried")
    found: list[tuple[int, RefinedPlan]] = []
    for choice in draft.catalog.choices(tables):
        chosen = replace(draft, catalog=choice)
        try:
            plan = _plan(chosen, plan_stage)
        except NotOnlineError as reason:
            refused = reason
            continue
        streamed = sum(choice.table(stream.table).row_count for stream in plan.streams)
        rows = sum(choice.table(name).row_count for name in tables)
        found.append((rows_to_wait_for(streamed, rows), plan))
    if not found:
        raise refused
    return min(found, key=lambda each: each[0])[1]


def _plan(draft: Draft, plan_stage: PlanStageDraft) -> RefinedPlan:
    def plan_inner(select: exp.Select, around: Draft) -> MergePlan:
        sql = select.sql(DIALECT)
        schema = tuple(around.binder.describe(sql))
        # What is looked up per group is compared as it is; error bars are known of one value for all.
        intervals = around.intervals and select.args.get("group") is None
        return plan_stage(
            Draft(
                sql,
                around.catalog,
                around.binder,
                merged(select),
                schema,
                intervals,
                around.state_bytes,
                around.names,
                is_qualified=True,
            )
        )

    if not _samples_itself(draft):
        raise NotOnlineError("no table of its FROM is sampled")
    return refine_rows(draft, plan_inner, merge_plan)


def _samples_itself(draft: Draft) -> bool:
    """Whether the query's own FROM names a sampled table."""
    select = draft.select
    from_ = select.args.get("from_")
    items = [*([from_.this] if from_ else []), *(join.this for join in select.args.get("joins") or [])]
    return any(
        isinstance(item, exp.Table)
        and isinstance(item.this, exp.Identifier)
        and draft.catalog.table(item.name).is_sampled
        for item in items
    )
