"""Plans of queries over sampled tables: the rules run, and the first kind of plan that fits is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

from relaqs_engine.catalog import Catalog
from relaqs_engine.errors import SqlError
from relaqs_engine.planning.aggregate_plan import LayoutChoice, best_first, merge_plan, rows_plan, why_chosen
from relaqs_engine.planning.exact import RowGroupRules, is_summary, whole_plan
from relaqs_engine.plans.aggregate import MergePlan, RowsPlan
from relaqs_engine.plans.plan import OnlinePlan, OutputColumn, OutputKind
from relaqs_engine.rewrite import AGGREGATING, ESTIMATED_TO_THE_END, LISTING, READING, SAMPLING, Rule
from relaqs_engine.rewrite.draft import AcrossPartitionsError, Draft, NotOnlineError, tables_in
from relaqs_engine.rewrite.normalize import check_aggregates, flatten, merged, qualified
from relaqs_engine.rewrite.sampling import check_parts_read_little_whole
from relaqs_engine.sql.dialect import find_first
from relaqs_engine.sql.parse import ParsedQuery

if TYPE_CHECKING:
    from relaqs_engine.layouts.manifest import FirstPart
    from relaqs_engine.plans.composite import AroundPlan, PartPlan, RefinedPlan, SampledThenExact
    from relaqs_engine.plans.plan import WholePlan
    from relaqs_engine.rewrite.split import PlanPart

_P = TypeVar("_P", bound=OnlinePlan)

# A query reads so many rows of static tables at most beside answers so far, unless it aggregates them. How
# many they are after their conditions is found while it runs.
MOST_STATIC_ROWS = 2_000_000


def sampled_plan(draft: Draft, parsed: ParsedQuery) -> OnlinePlan:
    """Return the plan of the first kind that the query can have. Raises SqlError when the SQL is wrong."""
    if is_summary(draft.tree):
        whole = whole_plan(parsed, draft.catalog, draft.schema, "")
        return _summary_or_whole(draft, whole, None)
    try:
        with _bound_by_duckdb():
            draft = qualified(draft)
    except NotOnlineError as reason:
        return whole_plan(parsed, draft.catalog, draft.schema, str(reason))
    try:
        plan = _online(draft, parsed.tables)
        return _above_groups(draft, plan) or plan
    except NotOnlineError as reason:
        plan_part = _each_once(lambda *query: _part(draft, *query))
        return (
            _over_derived_whole(draft, parsed.tables, reason)
            or _around(draft, plan_part)
            or _refined(draft, parsed)
            or _around(draft, plan_part, lambda *query: _whole_part(draft, *query))
            or whole_plan(parsed, draft.catalog, draft.schema, str(reason))
        )


def plain_plan(
    draft: Draft, parsed: ParsedQuery, whole: WholePlan, part: FirstPart | None, rules: RowGroupRules | None
) -> OnlinePlan:
    """Return the plan of a query over large plain files: with estimates first, or at once as a whole.

    Args:
        draft: the query, before any rule.
        whole: how it runs at the end.
        part: the first part of the layout that is being made of a table; None where there is none.
        rules: which tables are sampled by row groups; None: none.
    """
    from relaqs_engine.planning.sampled_then_exact import first_part_plan

    if is_summary(draft.tree):
        return whole if part is None else _summary_or_whole(draft, whole, part)
    if part is not None and (plan := first_part_plan(draft, part, whole, _aggregation)) is not None:
        return plan
    return whole if rules is None else _row_groups_or_whole(draft, parsed, whole, rules)


def _summary_or_whole(draft: Draft, whole: WholePlan, part: FirstPart | None) -> SampledThenExact | WholePlan:
    """Return the plan of SUMMARIZE, that of the whole where nothing of it is estimated."""
    from relaqs_engine.planning.summary_plan import summary_plan

    try:
        with _bound_by_duckdb():
            return summary_plan(draft, whole, part, _aggregation)
    except NotOnlineError as reason:
        return replace(whole, reasons=(str(reason),))


def _row_groups_or_whole(
    draft: Draft, parsed: ParsedQuery, whole: WholePlan, rules: RowGroupRules
) -> OnlinePlan:
    from relaqs_engine.planning.sampled_then_exact import row_group_plan

    try:
        return row_group_plan(draft, parsed.tables, whole, rules, _applied)
    except NotOnlineError as reason:
        return replace(whole, reasons=(*whole.reasons, *filter(None, [str(reason)])))


def _refined(draft: Draft, parsed: ParsedQuery) -> RefinedPlan | None:
    """Return the plan of a query with inner stages, None where it is not one."""
    from relaqs_engine.planning.refined_planner import plan_refined

    try:
        with _bound_by_duckdb():
            draft.binder.effort.spend(len(draft.sql))
            draft = replace(flatten(draft), may_read_outliers=False)
            return plan_refined(
                draft, parsed.tables, plan_stage=lambda stage: _with_numbers_alone(_aggregation(stage))
            )
    except NotOnlineError:
        return None


def _aggregation(draft: Draft) -> MergePlan:
    """Return the plan of an aggregation, with the layouts that are chosen. Raises NotOnlineError."""
    draft = replace(draft, may_read_outliers=False)  # what is kept of a stage is told apart by partition
    draft = _applied((*READING, *SAMPLING), draft)
    draft = check_aggregates(draft, "a query without aggregates is known at the end only")
    draft = _applied(ESTIMATED_TO_THE_END, draft)
    with _bound_by_duckdb():
        return merge_plan(draft)


def _online(draft: Draft, tables: frozenset[str]) -> MergePlan | RowsPlan:
    """Return the plan with the choice of layouts that makes most of the query local.

    Raises NotOnlineError if no choice has one: why the one that samples the most rows of its tables has none.
    """
    draft = _applied(READING, draft)
    refused: list[tuple[int, NotOnlineError]] = []
    choices: list[LayoutChoice] = []
    for choice in draft.catalog.choices(tables):
        try:
            sampled = _applied(SAMPLING, replace(draft, catalog=choice))
        except NotOnlineError as reason:
            refused.append((_sampled_rows(choice, tables), reason))
        else:
            choices.append(LayoutChoice.of(sampled, tables))
    for chosen in best_first(choices):
        try:
            plan = _completed(chosen.draft)
        except NotOnlineError as reason:
            refused.append((_sampled_rows(chosen.draft.catalog, tables), reason))
        else:
            why = filter(None, [why_chosen(chosen, choices)])
            return replace(plan, reasons=(*plan.reasons, *why)).predicted(chosen.time.share)
    raise max(refused, key=lambda each: each[0])[1]


def _over_derived_whole(
    draft: Draft, tables: frozenset[str], reason: NotOnlineError
) -> MergePlan | RowsPlan | None:
    """Return the plan with derived tables that are read whole, None where those are not why there is none."""
    if not isinstance(reason, AcrossPartitionsError) or not _has_rows_to_sample(draft):
        return None
    try:
        return _online(replace(draft, may_read_derived_whole=True), tables)
    except NotOnlineError:
        return None


def _has_rows_to_sample(draft: Draft) -> bool:
    """Whether a sampled table stands in the query other than in queries of it that make groups."""

    def is_grouped(table: exp.Table) -> bool:
        select = table.parent_select
        while select is not None and select is not draft.tree:
            if select.args.get("group") or select.args.get("distinct"):
                return True
            select = select.parent_select
        return False

    sampled = [each for each in tables_in(draft.tree) if draft.catalog.is_sampled(each.name)]
    return not all(map(is_grouped, sampled))


def _online_or_over_derived_whole(draft: Draft, tables: frozenset[str]) -> MergePlan | RowsPlan:
    try:
        return _online(draft, tables)
    except NotOnlineError as reason:
        if plan := _over_derived_whole(draft, tables, reason):
            return plan
        raise


def _with_numbers_alone(plan: _P) -> _P:
    """Return the plan of what others compute with: averages of moments are values so far, without bars."""
    if all(output.time is None for output in plan.outputs):
        return plan
    outputs = (
        output if output.time is None else OutputColumn(output.name, OutputKind.OPAQUE, output.type, "")
        for output in plan.outputs
    )
    return replace(plan, outputs=tuple(outputs))


def _each_once(plan_part: PlanPart) -> PlanPart:
    """Return the same, with a memory of the plans that it gave for each text."""
    known: dict[str, PartPlan | None] = {}

    def planned(query: exp.Query, sql: str) -> PartPlan | None:
        if sql not in known:
            known[sql] = plan_part(query, sql)
        return known[sql]

    return planned


def _above_groups(draft: Draft, plan: MergePlan | RowsPlan) -> AroundPlan | None:
    """Return the plan of an aggregation over the answer of its groups, where that certifies more columns.

    In one aggregation, what an estimate chooses is never certified. Over its groups, comparisons are judged.
    """
    if not draft.intervals or plan.groups_are_local or find_first(draft.tree, exp.Case, exp.If) is None:
        return None
    known = [_may_be_certified(output) for output in plan.outputs]
    if all(known):
        return None
    found = _around(draft, _each_once(lambda *query: _part(draft, *query)), at_groups=True)
    if found is None:
        return None
    pairs = zip(plan.outputs, found.outputs, strict=True)
    chosen = found.rows.chosen
    stays = all(now.kind is old.kind or not _may_be_certified(old) for old, now in pairs)
    then = [_may_be_certified(o) or chosen[i] for i, o in enumerate(found.outputs)]
    gains = sum(then) > sum(known) and all(b or not a for a, b in zip(known, then, strict=True))
    return found if stays and gains else None


def _may_be_certified(output: OutputColumn) -> bool:
    return output.kind is not OutputKind.OPAQUE and output.certifiable


def _around(
    draft: Draft, plan_part: PlanPart, plan_whole: PlanPart | None = None, *, at_groups: bool = False
) -> AroundPlan | None:
    """Return the plan of a query over the answers of simpler ones, None where it is not one.

    Args:
        plan_part: plans a simpler query.
        plan_whole: plans an aggregation that is read whole, for those about which other answers decide.
        at_groups: the query is an aggregation, and is computed from the answer of its groups.
    """
    from relaqs_engine.rewrite.around import plan_around
    from relaqs_engine.rewrite.split import carve

    try:
        with _bound_by_duckdb():
            draft.binder.effort.spend(len(draft.sql))
            carved = carve(
                draft.tree,
                plan_part,
                draft.binder.describe,
                draft.catalog.is_sampled,
                plan_whole,
                at_groups=at_groups,
            )
            check_parts_read_little_whole(draft, carved.parts, carved.queries)
            return plan_around(draft, carved)
    except NotOnlineError:
        return None


def _whole_part(draft: Draft, query: exp.Query, sql: str) -> WholePlan | None:
    """Return the plan of an aggregation that is read whole beside others. None where it does not bind."""
    tables = frozenset(table.name for table in tables_in(query))
    try:
        schema = tuple(draft.binder.describe(sql))
    except SqlError:
        return None
    parsed = ParsedQuery(sql, query, tables, sql, sql)
    return whole_plan(parsed, draft.catalog, schema, "no estimate of it is known")


def _part(draft: Draft, query: exp.Query, sql: str) -> PartPlan | None:
    """Return the plan of a query that another one is computed from, None where there is none."""
    found = tables_in(query)
    if not all(isinstance(table.this, exp.Identifier) for table in found):
        return None  # a table function has no name to look up
    tables = frozenset(table.name for table in found)
    try:
        if any(draft.catalog.table(name).is_sampled for name in tables):
            part = replace(draft, sql=sql, tree=merged(query), schema=())
            return _with_numbers_alone(_online_or_over_derived_whole(part, tables))
        schema = tuple(draft.binder.describe(sql))
    except (NotOnlineError, SqlError):
        return None
    rows = sum(draft.catalog.table(name).row_count for name in tables)
    if rows > MOST_STATIC_ROWS and not _aggregates(query):
        return None
    reason = "static tables are read whole"
    return whole_plan(ParsedQuery(sql, query, tables, sql, sql), draft.catalog, schema, reason)


def _aggregates(query: exp.Query) -> bool:
    from relaqs_engine.rewrite.split import aggregates

    return isinstance(query, exp.Select) and aggregates(query)


def _applied(rules: Iterable[Rule], draft: Draft) -> Draft:
    """Return what the rules, one after another, make of a draft. Raises NotOnlineError."""
    with _bound_by_duckdb():
        for rule in rules:
            draft.binder.effort.spend(len(draft.sql))
            draft = rule(draft)
    return draft


def _completed(draft: Draft) -> MergePlan | RowsPlan:
    """Return the plan of a draft with its streams chosen."""
    if not draft.schema:  # few parts come so far, so their types are asked now
        draft = replace(draft, schema=tuple(draft.binder.describe(draft.sql)))
    rules, complete = (LISTING, rows_plan) if draft.returns_rows else (AGGREGATING, merge_plan)
    draft = _applied(rules, draft)
    with _bound_by_duckdb():
        return complete(draft)


@contextmanager
def _bound_by_duckdb() -> Iterator[None]:
    """DuckDB has bound the query itself, so whatever does not bind now is our text and not the user's."""
    try:
        yield
    except (SqlglotError, SqlError) as error:
        raise NotOnlineError(f"it could not be rewritten ({error})") from None


def _sampled_rows(choice: Catalog, tables: Iterable[str]) -> int:
    return sum(layout.row_count for name in tables if (layout := choice.table(name)).is_sampled)
