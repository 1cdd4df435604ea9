"""Session: a catalog of tables and a place to run, opened once; every query starts here."""

from __future__ import annotations

import difflib
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import TYPE_CHECKING

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Database, DatabaseConfig
from relaqs_engine.errors import SqlError, UnsupportedError
from relaqs_engine.execution.headline import Weighting
from relaqs_engine.execution.interval import IntervalRequest
from relaqs_engine.plans.explain import explain
from relaqs_engine.plans.online_plan import OnlinePlan
from relaqs_engine.plans.outputs import OutputKind

from relaqs.arguments import relative_error, share_of_weight
from relaqs.executors import Executor, ThreadExecutor
from relaqs.executors import duck_process as worker
from relaqs.jobs.background import background_thread
from relaqs.jobs.executor import user_name
from relaqs.jobs.running import RunningJobs
from relaqs.jobs.status import ClusterStatus
from relaqs.jobs.stopwatch import Stopwatch
from relaqs.queries.checkpoint import Keeper
from relaqs.queries.fallback import WholeFallback
from relaqs.queries.online_query import OnlineQuery
from relaqs.queries.options import ErrorFunction, Fallback, QueryOptions, Watch, watched
from relaqs.queries.planner import Planner
from relaqs.queries.publisher import Publisher
from relaqs.queries.reporting import Asked
from relaqs.queries.snapshot import Interval
from relaqs.queries.start import query_description, query_job

if TYPE_CHECKING:
    from relaqs_engine.advisor.advise import Advice
    from relaqs_engine.layouts.manifest import Layout

    from relaqs.pacing.pacer import Pacer
    from relaqs.pacing.query_pacer import QueryPacer
    from relaqs.training.protocol import TrainingJob
    from relaqs.training.run import TrainingRun

# Of the limit, for the merged states of this session's queries; the rest runs tasks. A query that runs as a
# whole has no state, and may take all.
_STATE_SHARE = 0.25
_CLOSE_SECONDS = 5.0  # what closing a session waits for its queries to let go


class Session:
    """Tables, and cores to answer queries over them. A context manager; `relaqs.connect` makes one.

    Closing it, or leaving its `with`, stops its queries. Snapshots live on.
    """

    def __init__(
        self,
        catalog: Catalog,
        views: Mapping[str, str],
        executor: Executor,
        *,
        memory_limit_bytes: int,
        exact_threads: int,
        result_limit_bytes: int | None = None,
    ) -> None:
        self._catalog = catalog
        self._executor = executor
        state_bytes = int(memory_limit_bytes * _STATE_SHARE)
        self._planner = Planner(catalog, views, state_bytes=state_bytes)
        readable = catalog.readable_directories
        self._config = _database_config(readable, memory_limit_bytes - state_bytes, result_limit_bytes)
        self._exact_config = replace(
            self._config, memory_limit_bytes=memory_limit_bytes, threads=exact_threads
        )
        self._states = Database(_database_config((), state_bytes, result_limit_bytes))
        self._running = RunningJobs(self)
        self._is_closed = False
        # In a thread of its own: closing waits for tasks, and a finalizer may run in the middle of one.
        close = background_thread(executor.close, "relaqs-close")
        self._close_forgotten = weakref.finalize(self, close.start)
        self._close_forgotten.atexit = False  # at exit executors close themselves

    @property
    def tables(self) -> Mapping[str, Layout]:
        """The tables' layouts by name."""
        return self._catalog.tables

    def online_sql(
        self,
        sql: str,
        *,
        target: float | str | None = None,
        confidence: float = 0.95,
        interval: Interval = "pointwise",
        priority: float = 1.0,
        watch: Watch | None = None,
        timeout: float | None = None,
        seed: int = 0,
        batches: int | None = None,
        fallback: Fallback = "exact",
        chart_pixels: int | None = None,
        judged_by: Weighting = "rows",
        share: float | str = 0.95,
        within: float | None = None,
    ) -> OnlineQuery:
        """Start answering one SELECT, and return its handle at once.

        target: stop when `snapshot.error` is that small; 0.01 and "1%" are the same. judged_by, share: what
        that error is. "rows": groups with 95 % of the rows are within it, in every column, so that an airport
        with three flights does not hide 228 others; "cells": 95 % of the numbers are, each counts alike;
        "max": all that are certified are, and share is not used. It is relative to the number itself; where
        those of a column may lie on both sides of zero, such as average delays, to the size that groups with
        95 % of the rows have at most, or to the number itself if that is larger. within: seconds in which the
        target should be reached: from the first snapshot on one of the warnings says whether it will be, and
        when instead. The query goes on then; `timeout` ends it. confidence: of the
        intervals. interval: "pointwise" holds at any one moment, "anytime" however often one looks.
        priority: the query's weight beside others. watch: names of the approximate columns that make up the
        error, or a function of two consecutive snapshots that gives it; default: all of them. timeout: stop
        after that many seconds, planning included. seed: the order in which partitions are taken. batches: so
        many equal mini-batches, at most one a partition. fallback: run a query that cannot be estimated as a
        whole ("exact"), or refuse it. chart_pixels: stop when in a bar chart of the answer, so many pixels
        high, no bar would visibly move any more: none is uncertain by a pixel.

        Raises SqlError if the SQL is wrong, UnsupportedError if it is refused, ArgumentError for the rest.
        """
        options = QueryOptions(
            target=relative_error(target),
            confidence=confidence,
            interval=interval,
            priority=priority,
            watch=watched(watch),
            timeout=timeout,
            seed=seed,
            batches=batches,
            fallback=fallback,
            chart_pixels=chart_pixels,
            judged_by=judged_by,
            share=share_of_weight(share),
            within=within,
        )
        return self.submit(sql, options)

    def submit(self, sql: str, options: QueryOptions, *, intervals: bool = True) -> OnlineQuery:
        """Start answering one SELECT with options made beforehand.

        intervals: False leaves error bars out, so that what they cost can be measured.
        Raises SqlError and UnsupportedError as `online_sql` does.
        """
        submitted_at = time.perf_counter()
        plan = self._planner.plan(sql, intervals=intervals, timeout=options.timeout, begun_at=submitted_at)
        if not plan.is_estimated and options.fallback == "error":
            raise UnsupportedError(
                f"the query has no sound estimate: {'; '.join(plan.reasons)}. "
                'Give fallback="exact" to run it as a whole'
            )
        return self.start(plan, options, submitted_at=submitted_at)

    def plan(self, sql: str, *, intervals: bool = True, timeout: float | None = None) -> OnlinePlan:
        """Return how one SELECT will be answered, for `start`. Plans are equal where queries are.

        Planning takes 10 to 100 ms, so plans are kept. Threads plan side by side. timeout: in seconds.
        Raises SqlError and UnsupportedError as `online_sql` does, QueryTimeoutError when the time is over.
        """
        return self._planner.plan(sql, intervals=intervals, timeout=timeout, begun_at=time.perf_counter())

    def start(
        self,
        plan: OnlinePlan,
        options: QueryOptions,
        *,
        checkpoint: str | Path | None = None,
        resume: bool = True,
        submitted_at: float | None = None,
    ) -> OnlineQuery:
        """Start answering what was planned.

        checkpoint: a file that the query's state is kept in, every few seconds and when it is stopped. Where
        it holds the state of the same query over the same data, the query goes on from there, unless resume
        is False. Nothing is kept of queries that are refined, are SQL over the answers of their parts, or run
        as a whole, nor of states beyond 64 MiB: those begin anew. submitted_at: on `time.perf_counter`.
        """
        self._planner.check_open()
        stopwatch = Stopwatch() if submitted_at is None else Stopwatch(submitted_at)
        names = _watched_columns(plan, options.watch)
        job = query_job(
            uuid.uuid4().hex[:12],
            plan,
            self._catalog,
            Asked(
                self._config,
                IntervalRequest(options.confidence, options.interval == "anytime"),
                options.seed,
                options.batches,
                names,
                options.judge,
            ),
            state_cursor=self._states.cursor(),
            exact_config=self._exact_config,
        )
        keeper = Keeper.of(job, plan, self._catalog, options, checkpoint)
        if resume:
            stopwatch.earlier_seconds = keeper.resume()
        publisher = Publisher(
            job,
            plan,
            options if names is None else replace(options, watch=names),
            stopwatch,
            self._executor,
            keeper=keeper,
            fallback=WholeFallback(self._planner, plan, options, job.id, self._exact_config),
            running=self._running,
        )
        description = query_description(job.id, plan, options, exact_cores=self._exact_config.threads)
        query = OnlineQuery(publisher, job, self._executor, description, timeout=options.timeout)
        query.start()
        return query

    def train(
        self,
        job: TrainingJob,
        *,
        priority: float = 1.0,
        target_loss: float | None = None,
        timeout: float | None = None,
        max_steps: int | None = None,
        chart_pixels: int | None = None,
    ) -> TrainingRun:
        """Start training a model on the rows of the job's SELECT, and return its handle at once.

        job: one of `relaqs.training`, or your own `TrainingJob`. priority: its weight beside queries and
        others. target_loss: stop when the loss is that small. timeout: stop after that many seconds.
        max_steps: stop after that many passes over the data. chart_pixels: stop when in a chart of losses, so
        many pixels high, the last three passes made no visible change. Without these it stops when it has
        converged.

        Raises SqlError and UnsupportedError if its SELECT cannot be read row by row, ArgumentError otherwise.
        """
        from relaqs.training.run import TrainingOptions
        from relaqs.training.start import checked_job, training_run

        options = TrainingOptions(priority, target_loss, timeout, max_steps, chart_pixels)
        plan = self.plan(checked_job(job).sql, intervals=False)
        run = training_run(job, plan, self._catalog, self._config, self._executor, options, self._running)
        run.start()
        return run

    def pace(self, *, priority: float = 1.0, target_loss: float | None = None, name: str = "a loop") -> Pacer:
        """Let a loop of your own take turns: `with db.pace() as pacer`, and in the loop `pacer.report(loss)`.

        priority: the loop's weight beside queries and training. target_loss: report says to stop at it. name:
        for people. Raises UnsupportedError on a cluster, whose cores a loop of this process does not use.
        """
        from relaqs.pacing.pacer import Pacer

        self._check_can_pace()
        return Pacer(
            self._executor, priority=priority, target_loss=target_loss, name=name, running=self._running
        )

    def pace_query(
        self,
        columns: Sequence[str],
        *,
        priority: float = 1.0,
        target: float | str | None = None,
        name: str = "a query",
    ) -> QueryPacer:
        """Let another incremental query engine take turns: it calls `pacer.report_result(table, fraction)`.

        columns: of its results, the approximate ones that count. priority: its weight beside others. target:
        the relative error at which report_result says to stop. name: for people, e.g. the SQL.
        Raises UnsupportedError on a cluster, as `pace` does.
        """
        from relaqs.pacing.query_pacer import QueryPacer

        self._check_can_pace()
        return QueryPacer(
            self._executor, columns, priority=priority, target=target, name=name, running=self._running
        )

    def _check_can_pace(self) -> None:
        self._planner.check_open()
        if not isinstance(self._executor, ThreadExecutor):
            raise UnsupportedError(
                f"a loop of this process cannot take turns with {self._executor.describe()}; pace it in a "
                "session without a cluster"
            )

    def status(self) -> ClusterStatus:
        """Return how every job stands that shares these cores: shares, use, quality so far and ahead.

        On a cluster these are the jobs of all its clients.
        """
        self._planner.check_open()
        return self._executor.status()

    def explain(self, sql: str) -> str:
        """Return how a SELECT would be answered, in words and SQL."""
        return explain(self.plan(sql))

    def advise(self, sql: str) -> Advice:
        """Return which further layouts of its tables would help a SELECT, and the commands that make them.

        Nothing is read and nothing is made. Printed, it says what would change, or why none is needed or
        would help. A session opened on a warehouse folder finds a new layout there; one on `tables` is to be
        given it, too: tables={"trips": …, "trips@zone": "…/trips@zone"}.
        """
        return self._planner.advise(sql)

    def close(self) -> None:
        """Stop the session's queries and free its cores. Does nothing the second time."""
        self._planner.close()
        self._is_closed = True
        if self._close_forgotten.detach() is None:
            return
        self._running.close(_CLOSE_SECONDS)
        self._executor.close()
        for config in (self._config, self._exact_config):
            worker.close_database(config)
        self._states.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        place = "closed" if self._is_closed else self._executor.describe()
        return f"<Session of {', '.join(self.tables)}: {place}>"


def _database_config(
    readable: Sequence[str], memory_limit_bytes: int, result_limit_bytes: int | None
) -> DatabaseConfig:
    spill = Path(gettempdir()) / f"relaqs-spill-{user_name()}"  # DuckDB keeps processes in it apart
    return DatabaseConfig(
        tuple(readable), memory_limit_bytes, str(spill), result_limit_bytes=result_limit_bytes
    )


def _watched_columns(
    plan: OnlinePlan, watch: tuple[str, ...] | ErrorFunction | None
) -> tuple[str, ...] | None:
    """Return the names as the answer has them; None where all columns or a function are watched."""
    if watch is None or callable(watch):
        return None
    known = {
        output.name.lower(): output.name
        for output in plan.outputs
        if not plan.is_estimated or output.kind is not OutputKind.KEY
    }
    for name in watch:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, cutoff=0.5)
            raise SqlError(
                f"watch names {name!r}; the approximate columns are {', '.join(known.values()) or 'none'}",
                candidates=tuple(known[each] for each in near),
            )
    return tuple(known[name.lower()] for name in watch)
