"""Where a query starts: the job that answers a plan, and how the scheduler knows that job.

Each kind of plan has a job in a module of its own, which is loaded when there is such a plan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias, cast, overload

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.planning.exact import whole_core_seconds
from relaqs_engine.plans.plan import OnlinePlan

from relaqs.jobs.job import JobDescription
from relaqs.queries.asker import AskingUser
from relaqs.queries.options import QueryOptions
from relaqs.queries.reporting import Asked
from relaqs.queries.whole import WholeQueryJob
from relaqs.sharing.view import Kind

if TYPE_CHECKING:
    from relaqs_engine.plans.aggregate import MergePlan
    from relaqs_engine.plans.composite import AroundPlan, PartPlan
    from relaqs_engine.plans.plan import WholePlan
    from relaqs_engine.plans.schedule import MiniBatch

    from relaqs.queries.around import AroundQueryJob
    from relaqs.queries.first_part import FirstPartJob
    from relaqs.queries.mergeable import MergeableQueryJob
    from relaqs.queries.refined import RefinedQueryJob
    from relaqs.queries.row_groups import RowGroupQueryJob
    from relaqs.queries.rows import RowsQueryJob

    EstimatedPartJob: TypeAlias = MergeableQueryJob | RowsQueryJob
    PartQueryJob: TypeAlias = EstimatedPartJob | WholeQueryJob
    PlainQueryJob: TypeAlias = RowGroupQueryJob | FirstPartJob
    EstimatingQueryJob: TypeAlias = EstimatedPartJob | AroundQueryJob | RefinedQueryJob | PlainQueryJob
    QueryJob: TypeAlias = EstimatingQueryJob | WholeQueryJob


@overload
def query_job(
    id: str,
    plan: PartPlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor | None,
    exact_config: DatabaseConfig,
) -> PartQueryJob: ...


@overload
def query_job(
    id: str,
    plan: OnlinePlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor | None,
    exact_config: DatabaseConfig,
) -> QueryJob: ...


def query_job(
    id: str,
    plan: OnlinePlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor | None,
    exact_config: DatabaseConfig,
) -> QueryJob:
    """Return the job that answers a plan: each kind of plan has one of its own.

    Args:
        id: the job's name.
        plan: how the query is answered.
        catalog: the tables that it reads.
        asked: what the job is asked for.
        state_cursor: a cursor of the job's own, where its state is kept; it is closed with the last fold.
            None where the plan has no estimates.
        exact_config: the database of what runs as a whole.
    """
    if plan.is_estimated:
        assert state_cursor is not None, "what is estimated has a state"
        return _estimating_job(id, plan, catalog, asked, state_cursor, exact_config)
    if state_cursor is not None:
        state_cursor.close()
    whole = cast("WholePlan", plan)
    seconds = whole_core_seconds(whole, catalog)
    return WholeQueryJob(id, whole, database_config=exact_config, core_seconds=seconds)


def _estimating_job(
    id: str,
    plan: OnlinePlan,
    catalog: Catalog,
    asked: Asked,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> EstimatingQueryJob:
    """Return the job of a plan with estimates. What estimates is loaded now: no other query needs it."""
    from relaqs_engine.plans.aggregate import MergePlan, RowsPlan
    from relaqs_engine.plans.composite import AroundPlan, RefinedPlan
    from relaqs_engine.plans.sampled_then_exact import FirstPartPlan, RowGroupPlan, SummaryPlan

    match plan:
        case MergePlan():
            from relaqs_engine.execution.budgets import DueEstimates, ValueBudget

            from relaqs.queries.mergeable import MergeableQueryJob

            seconds = whole_core_seconds(plan, catalog)
            budget = ValueBudget(seconds) if asked.may_run_whole else None
            due = DueEstimates(seconds) if asked.batches is None else None
            return MergeableQueryJob(id, plan, catalog, asked, state_cursor, budget=budget, due=due)
        case RowsPlan():
            from relaqs.queries.rows import RowsQueryJob

            return RowsQueryJob(id, plan, catalog, asked, state_cursor)
        case RowGroupPlan():
            from relaqs.queries.row_groups import RowGroupQueryJob

            return RowGroupQueryJob(id, plan, asked, state_cursor, database_config=exact_config)
        case FirstPartPlan():
            from relaqs.queries.first_part import first_part_job

            return first_part_job(id, plan, catalog, asked, state_cursor, exact_config)
        case SummaryPlan():
            from relaqs.queries.summary import summary_job

            return summary_job(id, plan, catalog, asked, state_cursor, exact_config)
        case RefinedPlan():
            from relaqs.queries.refined import RefinedQueryJob

            return RefinedQueryJob(id, plan, catalog, asked, state_cursor)
        case AroundPlan():
            from relaqs.queries.around import AroundQueryJob

            parts = _part_jobs(id, plan, catalog, asked, state_cursor, exact_config)
            seconds = whole_core_seconds(plan, catalog)
            return AroundQueryJob(id, plan, parts, asked, state_cursor, seconds)
    raise TypeError(f"{type(plan).__name__} is no kind of plan that has a job")


def _part_jobs(
    id: str,
    plan: AroundPlan,
    catalog: Catalog,
    asked: Asked,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> list[PartQueryJob]:
    """Return the jobs of a plan's parts. Parts that are drawn together have their mini-batches in common."""
    from relaqs_engine.execution.tasks import batches_together

    from relaqs.queries.mergeable import MergeableQueryJob

    schedules: dict[int, tuple[MiniBatch, ...]] = {}
    for draw in plan.draws:
        drawn = [cast("MergePlan", plan.parts[i]) for i in draw.parts]
        schedule = batches_together(drawn, catalog, asked.seed, asked.batches)
        schedules |= dict.fromkeys(draw.parts, schedule)
    jobs: list[PartQueryJob] = []
    for i, part in enumerate(plan.parts):
        cursor = state_cursor.another()
        if i in schedules:
            aggregation = cast("MergePlan", part)
            jobs.append(MergeableQueryJob(id, aggregation, catalog, asked, cursor, schedule=schedules[i]))
        else:
            jobs.append(query_job(id, part, catalog, asked, state_cursor=cursor, exact_config=exact_config))
    return jobs


def query_description(
    id: str, plan: OnlinePlan, options: QueryOptions, asker: AskingUser, *, exact_cores: int
) -> JobDescription:
    """Return what the scheduler is told of a query. exact_cores: what one that runs as a whole can use."""
    return JobDescription(
        id,
        Kind.QUERY if plan.is_estimated else Kind.EXACT,
        name=" ".join(plan.sql.split()),
        weight=options.priority,
        cores_most=math.inf if plan.is_estimated else exact_cores,
        target=options.target if plan.is_estimated else None,
        deadline_seconds=math.inf if options.within is None else options.within,
        costs_grow=plan.costs_grow,
        user=asker.name,
        user_cores_most=asker.cores_most,
    )
