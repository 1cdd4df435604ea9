"""Where a query starts: from a plan to its job, its checkpoint and its publisher, and what it falls back to.

Each kind of plan has a job in a module of its own, which is loaded when there is such a plan
(`query_job`). Where the state is too large, the groups too many, or the sample gone, the fallback is the
query as a whole, which is right in any case. Where estimating fails by a fault of ours, the fault becomes
a warning.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast, overload

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Cursor, DatabaseConfig
from relaqs_engine.errors import (
    BrokenDatabaseError,
    MemoryLimitError,
    SqlError,
    TooManyGroupsError,
    fault_of,
    is_fault,
    is_strict,
)
from relaqs_engine.planning.exact import whole_core_seconds
from relaqs_engine.plans.plan import IntervalRequest, OnlinePlan

from relaqs.executors import Executor
from relaqs.executors.files import UnseenFileError
from relaqs.jobs.job import JobDescription
from relaqs.jobs.runner import RunningJobs
from relaqs.jobs.threads import Stopwatch
from relaqs.queries.checkpoint import Keeper
from relaqs.queries.databases import Databases, QueryDatabases
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import AskingUser, QueryOptions, asking_user, watched_columns
from relaqs.queries.planner import Planner
from relaqs.queries.publisher import Publisher, Resort
from relaqs.queries.whole import Asked, WholeQueryJob
from relaqs.queries.witness import Asking, Telling, Witness, unix_seconds_of
from relaqs.sharing.view import Kind

if TYPE_CHECKING:
    from relaqs_engine.plans.aggregate import MergePlan
    from relaqs_engine.plans.composite import AroundPlan, PartPlan
    from relaqs_engine.plans.plan import WholePlan
    from relaqs_engine.plans.schedule import MiniBatch

    from relaqs.queries.composite import AroundQueryJob, RefinedQueryJob
    from relaqs.queries.folded import MergeableQueryJob, RowsQueryJob
    from relaqs.queries.sampled_then_exact import FirstPartJob, RowGroupQueryJob

    EstimatedPartJob: TypeAlias = MergeableQueryJob | RowsQueryJob
    PartQueryJob: TypeAlias = EstimatedPartJob | WholeQueryJob
    PlainQueryJob: TypeAlias = RowGroupQueryJob | FirstPartJob
    EstimatingQueryJob: TypeAlias = EstimatedPartJob | AroundQueryJob | RefinedQueryJob | PlainQueryJob
    QueryJob: TypeAlias = EstimatingQueryJob | WholeQueryJob

_GONE = "its table was not laid out after all, and the first part of the layout is gone"
_FAULT = "it could not be estimated further, by a fault that should be reported: {}"
_TOO_LARGE = "what is kept of it to estimate from does not fit into the memory limit"


@dataclass(frozen=True, slots=True)
class WholeFallback:
    """Runs a query as a whole after it ran out of memory for its state, or lost the first part it sampled.

    So does one that turns out to be computed from too many groups.

    A query that returns rows has no such fallback: the rows that did not fit are the answer itself.

    Attributes:
        planner: makes the other plan.
        plan: how the query was answered at first.
        options: of the query; with fallback="error" there is no other way.
        asker: who asks.
        job_id: of the job that failed.
        database_config: of the database that runs it as a whole.
    """

    planner: Planner
    plan: OnlinePlan
    options: QueryOptions
    asker: AskingUser
    job_id: str
    database_config: DatabaseConfig

    def after(self, error: Exception, *, has_answered: bool) -> Resort | None:
        """Return how the query goes on, None where it cannot.

        If it goes on as a whole before its first snapshot, it begins so when it is asked again.
        """
        if not (why := self._why_whole(error)):
            return None
        whole, job_id = self.planner.plan_as_whole(self.plan, why), f"{self.job_id}-whole"
        if isinstance(error, TooManyGroupsError) and not has_answered:
            self.planner.note_whole(self.plan, self.options, whole)
        job = WholeQueryJob(job_id, whole, database_config=self.database_config)
        cores = self.database_config.threads
        description = query_description(job_id, whole, self.options, self.asker, exact_cores=cores)
        return Resort(job, whole, description)

    def _why_whole(self, error: Exception) -> str:
        if isinstance(error, UnseenFileError) and self.plan.sample_may_go:
            return _GONE
        if self.options.fallback == "error":
            return ""
        if self.plan.is_estimated and not is_strict() and _is_fault(error):
            return _FAULT.format(fault_of(error))
        if not self.plan.may_run_whole:
            return ""
        if isinstance(error, TooManyGroupsError):
            return error.reason
        return _TOO_LARGE if isinstance(error, MemoryLimitError) else ""


def _is_fault(error: Exception) -> bool:
    """Whether estimating failed and neither the data nor the machine did. The SQL of tasks is our own."""
    return isinstance(error, SqlError | BrokenDatabaseError) or is_fault(error)


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

            from relaqs.queries.folded import MergeableQueryJob

            seconds = whole_core_seconds(plan, catalog)
            budget = ValueBudget(seconds) if asked.may_run_whole else None
            due = DueEstimates(seconds) if asked.batches is None else None
            return MergeableQueryJob(id, plan, catalog, asked, state_cursor, budget=budget, due=due)
        case RowsPlan():
            from relaqs.queries.folded import RowsQueryJob

            return RowsQueryJob(id, plan, catalog, asked, state_cursor)
        case RowGroupPlan():
            from relaqs.queries.sampled_then_exact import RowGroupQueryJob

            return RowGroupQueryJob(id, plan, asked, state_cursor, database_config=exact_config)
        case FirstPartPlan():
            from relaqs.queries.sampled_then_exact import first_part_job

            return first_part_job(id, plan, catalog, asked, state_cursor, exact_config)
        case SummaryPlan():
            from relaqs.queries.sampled_then_exact import summary_job

            return summary_job(id, plan, catalog, asked, state_cursor, exact_config)
        case RefinedPlan():
            from relaqs.queries.composite import RefinedQueryJob

            return RefinedQueryJob(id, plan, catalog, asked, state_cursor)
        case AroundPlan():
            from relaqs.queries.composite import AroundQueryJob

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

    from relaqs.queries.folded import MergeableQueryJob

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


def assembled_query(
    plan: OnlinePlan,
    options: QueryOptions,
    catalog: Catalog,
    planner: Planner,
    databases: Databases,
    executor: Executor,
    running: RunningJobs,
    *,
    stopwatch: Stopwatch,
    checkpoint: str | Path | None,
    resume: bool,
    witnesses: Sequence[Witness] = (),
    asked_sql: str | None = None,
) -> OnlineQuery:
    """Return the query that answers a plan, not started.

    Args:
        plan: how it is answered.
        options: of the query.
        catalog: the tables that it reads.
        planner: plans it anew if it must run as a whole after all.
        databases: what it runs on, or those of who asks.
        executor: whose cores it uses.
        running: the jobs of the session.
        stopwatch: started when the query was submitted.
        checkpoint: a file in which its state is kept.
        resume: whether it goes on from the state in that file.
        witnesses: hear of it.
        asked_sql: as it was written, if it had parameters.
    """
    asker = asking_user()
    own = databases.of(asker, plan.civil_time)
    names = watched_columns(plan, options.watch)
    job = _job(plan, options, names, catalog, own)
    keeper = Keeper.of(job, plan, catalog, options, checkpoint)
    if resume:
        stopwatch.earlier_seconds = keeper.resume()

    def asking() -> Asking:
        submitted_at = unix_seconds_of(stopwatch.seconds() - stopwatch.earlier_seconds)
        return Asking(job.id, plan.sql, asked_sql or plan.sql, plan.mode.value, submitted_at)

    publisher = Publisher(
        job,
        plan,
        options if names is None else replace(options, watch=names),
        stopwatch,
        executor,
        keeper=keeper,
        fallback=WholeFallback(planner, plan, options, asker, job.id, own.whole),
        running=running,
        telling=Telling(witnesses, asking, stopwatch.seconds),
        asked_sql=asked_sql or plan.sql,
    )
    description = query_description(job.id, plan, options, asker, exact_cores=own.whole.threads)
    return OnlineQuery(publisher, job, executor, description, timeout=options.timeout)


def _job(
    plan: OnlinePlan,
    options: QueryOptions,
    watch: tuple[str, ...] | None,
    catalog: Catalog,
    databases: QueryDatabases,
) -> QueryJob:
    """Return the job of a plan. watch: the columns whose error counts, None for all."""
    return query_job(
        uuid.uuid4().hex[:12],
        plan,
        catalog,
        Asked(
            databases.tasks,
            IntervalRequest(
                options.confidence, options.interval == "anytime", options.confidence_for == "table"
            ),
            options.seed,
            options.batches,
            watch,
            options.judge,
            may_run_whole=options.fallback != "error" and options.batches is None,
        ),
        state_cursor=databases.state_cursor() if plan.is_estimated else None,
        exact_config=databases.whole,
    )
