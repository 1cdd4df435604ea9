"""Where a query starts: the job that answers a plan, and how the scheduler knows that job."""

from __future__ import annotations

import math
from typing import TypeAlias, overload

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.plans.around import AroundPlan, PartPlan
from relaqs_engine.plans.first_part import FirstPartPlan
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.online_plan import OnlinePlan
from relaqs_engine.plans.refined import RefinedPlan
from relaqs_engine.plans.rows import RowsPlan
from relaqs_engine.plans.whole import WholePlan

from relaqs.jobs.description import JobDescription
from relaqs.queries.around import AroundQueryJob
from relaqs.queries.first_part import FirstPartJob
from relaqs.queries.mergeable import MergeableQueryJob
from relaqs.queries.options import QueryOptions
from relaqs.queries.refined import RefinedQueryJob
from relaqs.queries.reporting import Asked
from relaqs.queries.rows import RowsQueryJob
from relaqs.queries.whole import WholeQueryJob
from relaqs.sharing.view import Kind

PartQueryJob: TypeAlias = MergeableQueryJob | RowsQueryJob | WholeQueryJob
QueryJob: TypeAlias = PartQueryJob | AroundQueryJob | RefinedQueryJob | FirstPartJob


@overload
def query_job(
    id: str,
    plan: PartPlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> PartQueryJob: ...


@overload
def query_job(
    id: str,
    plan: OnlinePlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> QueryJob: ...


def query_job(
    id: str,
    plan: OnlinePlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> QueryJob:
    """Return the job that answers a plan: each kind of plan has one of its own.

    Args:
        id: the job's name.
        plan: how the query is answered.
        catalog: the tables that it reads.
        asked: what the job is asked for.
        state_cursor: a cursor of the job's own, where its state is kept; it is closed with the last fold.
        exact_config: the database of what runs as a whole.
    """
    match plan:
        case MergePlan():
            return MergeableQueryJob(id, plan, catalog, asked, state_cursor)
        case RowsPlan():
            return RowsQueryJob(id, plan, catalog, asked, state_cursor)
        case WholePlan():
            state_cursor.close()
            return WholeQueryJob(id, plan, database_config=exact_config)
        case FirstPartPlan():
            return _first_part_job(id, plan, catalog, asked, state_cursor, exact_config)
        case RefinedPlan():
            return RefinedQueryJob(id, plan, catalog, asked, state_cursor)
        case AroundPlan():
            parts = [
                query_job(
                    *(id, part, catalog, asked),
                    state_cursor=state_cursor.another(),
                    exact_config=exact_config,
                )
                for part in plan.parts
            ]
            return AroundQueryJob(id, plan, parts, asked, state_cursor)
    raise TypeError(f"{type(plan).__name__} is no kind of plan that has a job")


def _first_part_job(
    id: str,
    plan: FirstPartPlan,
    catalog: Catalog,
    asked: Asked,
    state_cursor: Cursor,
    exact_config: DatabaseConfig,
) -> FirstPartJob:
    sampled = catalog.with_layout(plan.part)  # the catalog may have the whole layout meanwhile
    sample = MergeableQueryJob(id, plan.sample, sampled, asked, state_cursor, ends_exact=False)
    whole = WholeQueryJob(id, plan.whole, database_config=exact_config, step=sample.batch_count)
    return FirstPartJob(plan, sample, whole)


def query_description(
    id: str, plan: OnlinePlan, options: QueryOptions, *, exact_cores: int
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
    )
