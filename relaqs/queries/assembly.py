"""From a plan to a query that is ready to start: its job, its checkpoint, its publisher."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from relaqs_engine.catalog import Catalog
from relaqs_engine.execution.intervals import IntervalRequest
from relaqs_engine.plans.plan import OnlinePlan

from relaqs.executors import Executor
from relaqs.jobs.runner import RunningJobs
from relaqs.jobs.threads import Stopwatch
from relaqs.queries.asker import asking_user
from relaqs.queries.checkpoint import Keeper
from relaqs.queries.databases import Databases, QueryDatabases
from relaqs.queries.fallback import WholeFallback
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import QueryOptions, watched_columns
from relaqs.queries.planner import Planner
from relaqs.queries.publisher import Publisher
from relaqs.queries.reporting import Asked
from relaqs.queries.start import query_description, query_job
from relaqs.queries.witness import Asking, Telling, Witness, unix_seconds_of

if TYPE_CHECKING:
    from relaqs.queries.start import QueryJob


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
