"""Refined plans over streamed rows: inner stages decide which rows count, or are compared with groups.

Conditions on stages are taken out of WHERE. What is left is an ordinary mergeable query. Its rows are kept
with the values that the conditions compare, and rows with equal values are summed to one (`OuterRows.kept`).
A stage that is compared after aggregation becomes a column of every group (`rewrite/shared.py`).

The theory of stages is in `rewrite/stages.py`, that of running such a plan in `execution/refined.py`, and the
decision in docs/decisions/0006-refined-mode.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from relaqs_engine.plans.basis import Basis
from relaqs_engine.plans.deciders import MembershipRules
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.plans.refined import OuterRows, RefinedPlan
from relaqs_engine.plans.streams import Stream
from relaqs_engine.rewrite import AGGREGATING, SAMPLING
from relaqs_engine.rewrite.draft import Draft, NotOnlineError, conjuncts_of
from relaqs_engine.rewrite.hoist import hoist_statics
from relaqs_engine.rewrite.kept_rows import Late, belonging_of, cross_fits, kept_plan
from relaqs_engine.rewrite.method import MANY_GROUPS
from relaqs_engine.rewrite.shape import check_aggregates, check_shape
from relaqs_engine.rewrite.shared import push_arithmetic_inside, share_values
from relaqs_engine.rewrite.sources import choose_streams
from relaqs_engine.rewrite.stages import PlanStage, StageMaker, child_queries
from relaqs_engine.rewrite.subqueries import is_local_query

Complete = Callable[[Draft], MergePlan]


def refine_rows(draft: Draft, plan_stage: PlanStage, complete: Complete) -> RefinedPlan:
    """Return the plan of a flattened query that samples tables of its own FROM.

    Args:
        draft: the query.
        plan_stage: plans a stage by itself.
        complete: makes a plan of a draft to which all rules were applied.

    Raises:
        NotOnlineError: the query has no such plan. The text says why.

    >>> from relaqs_engine.planning.example import explained
    >>> sql = "SELECT zone FROM trips GROUP BY zone HAVING sum(km) > (SELECT 0.01 * sum(km) FROM trips)"
    >>> explained(sql, "mode")
    'refined'
    >>> explained(sql, "why")
    'groups are compared with 0.01 * SUM(km), which is estimated from the same mini-batches'
    >>> print(explained(sql, "partial SQL of stage_0"))
    SELECT SUM(trips.km) AS b0, COUNT(*) AS m FROM partitions_of_trips AS trips
    """
    tree = draft.select.copy()
    push_arithmetic_inside(tree)
    maker = StageMaker(draft, plan_stage)
    sampled = choose_streams(replace(draft, tree=tree))
    for query in _subqueries(tree):
        is_member = isinstance(query.parent, exp.Exists)  # read whole, see `rewrite/members.py`
        if maker.reads_sampled(query) and not is_member and not is_local_query(sampled, query):
            maker.put(query)
    if not maker.stages:
        raise NotOnlineError("no subquery of it aggregates sampled rows of all partitions")
    late = _taken_out(tree, maker)
    draft = share_values(replace(draft, tree=tree), maker)
    draft = check_aggregates(check_shape(draft), "its rows depend on an aggregate over all partitions")
    for rule in (*SAMPLING, *AGGREGATING):
        draft = rule(draft)
    draft = _as_far_as_known(_with_columns(draft, late), late)
    plan = complete(draft)
    draft = replace(draft, basis=plan.columns.basis)
    _check_partitions(draft, plan, maker)
    fits = cross_fits(draft, late, maker)
    measured_by = measured_with_stages(plan.measured_by, maker)
    if measured_by != plan.measured_by:  # the rows of other tables are counted with its own
        plan = replace(plan, bars=plan.bars.of_fewer_rows())
    warnings, streams = (*plan.warnings, *_warnings(late, maker)), all_streams(plan.streams, maker)
    return RefinedPlan(
        sql=plan.sql,
        outputs=plan.outputs,
        reasons=(_reason(late, maker), *plan.reasons[1:]),
        streams=streams,
        hoists=plan.hoists,
        warnings=warnings,
        measured_by=measured_by,
        stages=maker.stages,
        outer=OuterRows(
            plan=replace(plan, streams=streams, warnings=warnings),
            kept=kept_plan(draft, plan, late, fits),
            belonging=belonging_of(draft, late, fits) if late.conditions else None,
            shared=draft.shared_stages,
        ),
    )


def _subqueries(tree: exp.Select) -> list[exp.Expr]:
    """Return the subqueries of a SELECT, but not those in its FROM."""

    def is_source(query: exp.Expr) -> bool:
        derived = query.parent
        return isinstance(derived, exp.Subquery) and isinstance(derived.parent, exp.From | exp.Join)

    return [query for query in child_queries(tree) if not is_source(query)]


def _taken_out(tree: exp.Select, maker: StageMaker) -> Late:
    """Take the conditions on stages out of WHERE and return them."""
    if any(maker.stages_in(join) for join in tree.args.get("joins") or []):
        raise NotOnlineError("an aggregate over all partitions stands in the condition of a join")
    conditions = conjuncts_of(where.this if (where := tree.args.get("where")) else None)
    late = tuple(condition for condition in conditions if maker.stages_in(condition))
    rest = [condition for condition in conditions if condition not in late]
    tree.set("where", exp.Where(this=exp.and_(*rest, copy=True)) if rest else None)
    return Late.of(late, maker)


def _with_columns(draft: Draft, late: Late) -> Draft:
    """Return the draft with static sides that keep the columns which the late conditions compare."""
    tree = draft.select.copy()
    tree.set("expressions", [*tree.expressions, *(column.copy() for column in late.columns)])
    hoisted = hoist_statics(replace(draft, tree=tree))
    return replace(draft, hoists=hoisted.hoists, scan=hoisted.scan)


def _as_far_as_known(draft: Draft, late: Late) -> Draft:
    """Return the draft with what can still be said where rows may leave, or where groups are compared."""
    basis = tuple(column for column in draft.basis if column.kind is not Basis.PRODUCT)
    has_bars = draft.bars.method is not Method.NONE and draft.groups.expected <= MANY_GROUPS
    if draft.groups.are_local and draft.shared:  # the groups are complete; the stages' blocks tell the rest
        has_bars = draft.intervals
    if any(column.kind is Basis.VALUES for column in basis):
        raise NotOnlineError("it keeps all values of its groups, and compares with what is estimated")
    if late.conditions:
        # Distinct values of a complete group too: its rows are folded in several parts.
        counted = any(column.kind is Basis.COUNT and not column.row_sql for column in basis)
        if draft.distinct is not None or counted or draft.grouping_sets:
            raise NotOnlineError(
                "it groups several times over, or counts distinct values, of rows that may leave"
            )
        moments = any(column.is_moment for column in basis)
        decides = late.comparison is not None and not moments and not draft.groups.are_local
        has_bars = has_bars and decides
        outputs = tuple(_without_bounds(output) for output in draft.outputs)
        bars = draft.bars.of_fewer_rows()
        draft = replace(draft, outputs=outputs, bars=bars, membership=_of_rows_that_may_leave(draft, late))
    bars = replace(draft.bars, method=Method.REPLICATES if has_bars else Method.NONE)
    return replace(draft, basis=basis, bars=bars)


def _of_rows_that_may_leave(draft: Draft, late: Late) -> MembershipRules:
    """Return which groups belong to the answer where rows that were counted may stop counting."""
    rules = draft.membership
    return replace(
        rules,
        deciders=tuple(replace(each, value=_without_bounds(each.value)) for each in rules.deciders),
        is_opaque=rules.is_opaque or late.comparison is None,
        rows_may_leave=True,
    )


def _without_bounds(output: OutputColumn) -> OutputColumn:
    """Return the output without bounds. Rows that may still leave the answer bound nothing."""
    if output.kind is OutputKind.BOUND:
        return replace(output, kind=OutputKind.OPAQUE, side=None)
    return replace(output, total=None)


def _check_partitions(draft: Draft, plan: MergePlan, maker: StageMaker) -> None:
    """Raise NotOnlineError unless stages and outer query, which are read together, have equal partitions."""
    streams = all_streams(plan.streams, maker)
    if len({len(draft.catalog.table(stream.table).partitions) for stream in streams}) > 1:
        raise NotOnlineError("its tables are laid out in different numbers of partitions")


def all_streams(streams: Sequence[Stream], maker: StageMaker) -> tuple[Stream, ...]:
    """Return these streams and those of the stages, each once, sorted by name."""
    found = {stream.table: stream for stream in streams}
    found |= {stream.table: stream for stage in maker.stages for stream in stage.plan.streams}
    return tuple(found[table] for table in sorted(found))


def measured_with_stages(own: Sequence[str], maker: StageMaker) -> tuple[str, ...]:
    """Return the tables whose rows measure a query and its stages: own, then the stages'."""
    of_stages = (table for stage in maker.stages for table in stage.plan.measured_by)
    return tuple(dict.fromkeys((*own, *of_stages)))


def _reason(late: Late, maker: StageMaker) -> str:
    titles = ", ".join(stage.title for stage in maker.stages)
    if not late.conditions:
        return f"groups are compared with {titles}, which is estimated from the same mini-batches"
    if late.comparison is None:
        return f"which rows count depends on {titles}; all candidates are kept, and tried again each time"
    return (
        f"which rows count depends on {titles}; rows far from it are folded at once, the others kept and "
        "tried again each time, which costs more as they grow in number"
    )


def _warnings(late: Late, maker: StageMaker) -> tuple[str, ...]:
    if not late.conditions or late.comparison is not None:
        return ()
    titles = ", ".join(stage.title for stage in maker.stages)
    return (f"which rows count depends on {titles}, an estimate per row: no interval is known",)
