"""Session: a catalog of tables and a place to run, opened once; every query starts here."""

from __future__ import annotations

import time
import weakref
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime, Lent
from relaqs_engine.errors import SqlError, UnsupportedError, naming
from relaqs_engine.execution.estimate import Weighting
from relaqs_engine.layouts.cache import CacheUse
from relaqs_engine.layouts.plain import all_measured
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_engine.sql.read import WrittenSql, may_pivot
from relaqs_engine.sql.statements import with_pivot_values

from relaqs.arguments import check_zone, relative_error, share_of_weight
from relaqs.executors import Executor
from relaqs.executors.duck_process import unchanged
from relaqs.executors.files import check_unchanged
from relaqs.executors.threads import ThreadExecutor
from relaqs.jobs.checkpoint import SECONDS_BETWEEN, Keeping, RunKeeper, begun, resumed
from relaqs.jobs.executor import Stopwatch, background_thread
from relaqs.jobs.job import ClusterStatus
from relaqs.jobs.runner import RunningJobs
from relaqs.pacing.verbs import RunsOwnCode
from relaqs.queries.online_query import OnlineQuery, Witness
from relaqs.queries.options import Fallback, QueryOptions, Watch, watched
from relaqs.queries.snapshot import ConfidenceFor, Interval, Snapshot
from relaqs.queries.start import Planner, ReadSelect, assembled_query
from relaqs.queries.tables import Databases, OpenTables, let_go

if TYPE_CHECKING:
    from relaqs_engine.advisor.advise import Advice
    from relaqs_engine.errors import RelaqsError
    from relaqs_engine.layouts.manifest import Layout, Table
    from relaqs_engine.layouts.sources import TableSource
    from relaqs_engine.plans.costly import CostlyPlan
    from relaqs_engine.sql.binder import Parameters

    from relaqs.costly.asking import CostlyFunctions
    from relaqs.costly.functions import AnswerFunction
    from relaqs.pacing.function_run import FunctionRun, ReadsRows
    from relaqs.pacing.trials import SearchRun
    from relaqs.queries.tables import LayoutProgress
    from relaqs.training.estimators import Until
    from relaqs.training.launch import TrainArguments, TrainingRecipe
    from relaqs.training.protocol import MiniBatchTraining, TrainingJob
    from relaqs.training.run import Batch, GivenModel, TrainingOptions, TrainingRun

_CLOSE_SECONDS = 5.0  # what closing a session waits for its queries to let go


class Session(RunsOwnCode):
    """Tables, and cores to answer queries over them. A context manager; `relaqs.connect` makes one.

    Closing it, or leaving its `with`, stops its queries. Snapshots live on.

    What hears of each query, such as a `relaqs.metrics.QueryLog`, is appended to its `witnesses`. Its
    `exact_below_seconds` is that of `connect`, and may be changed for the queries to come.

    >>> with relaqs.connect("data", threads=1) as db:
    ...     print(db)
    <Session of numbers, points: 1 thread in this process>
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
        background_layouts: bool = True,
        exact_below_seconds: float | None = None,
        cache_use: CacheUse | None = None,
        civil_time: CivilTime | None = None,
        follow_seconds: float | None = None,
    ) -> None:
        self._civil_time = civil_time
        self.exact_below_seconds = exact_below_seconds
        self._functions: CostlyFunctions | None = None
        self._catalog = catalog
        self._executor = executor
        self._views = views
        self._paths = {} if cache_use is None else cache_use.named_paths()
        self._databases = Databases(memory_limit_bytes, exact_threads, result_limit_bytes)
        self._is_closed = False
        self.witnesses: list[Witness] = []
        self._open(catalog)
        self._running = RunningJobs(self)
        cores = executor.capacity if background_layouts else None
        use = cache_use or CacheUse()
        self._open_tables = OpenTables(catalog, use, cores, self._open, civil_time, follow_seconds)
        # In a thread of its own: closing waits for tasks, and a finalizer may run in the middle of one.
        close = background_thread(partial(let_go, executor, self._open_tables), "relaqs-close")
        self._close_forgotten = weakref.finalize(self, close.start)
        self._close_forgotten.atexit = False  # at exit executors close themselves

    def _open(self, catalog: Catalog, taken_back: Collection[Lent] = ()) -> None:
        """Plan over these tables from now on. What was planned before can still read its files.

        taken_back: data in memory that are freed once no query reads them.
        """
        databases = self._databases
        databases.read(catalog, taken_back)
        self._catalog = catalog  # the planner is changed last: others plan now
        cores = databases.whole.threads
        self._planner = Planner(
            catalog, self._views, databases.state_bytes, cores, self._civil_time, self._paths
        )

    @property
    def timezone(self) -> str:
        """The time zone by which moments are read and shown.

        >>> relaqs.connect("data", threads=1, timezone="europe/paris").timezone
        'Europe/Paris'
        """
        return self._planner.civil_time.zone

    @property
    def views(self) -> Mapping[str, str]:
        """The views' SELECTs by name.

        >>> db = relaqs.connect("data", views={"few": "SELECT x FROM numbers WHERE x < 9"}, threads=1)
        >>> list(db.views)
        ['few']
        """
        return dict(self._views)

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables' layouts by name.

        >>> db.tables["numbers"].row_count
        1000
        """
        return self._catalog.tables

    @property
    def left_out(self) -> Mapping[str, RelaqsError]:
        """Tables of the folder that could not be opened, by name, and why. The others can be asked.

        >>> db.left_out
        {}
        """
        return dict(self._catalog.left_out)

    def measured_tables(self) -> Mapping[str, Table]:
        """Return the tables' layouts by name, with the statistics of all columns.

        A plain table is read once to find them. Where a row of it cannot be read, the minimum of a column is
        None. Raises DataError where a plain table's files changed since the session was opened.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range % 9 AS x FROM range(200000)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", threads=1)
        >>> db.measured_tables()["numbers"].column("x").maximum
        8
        """
        plain = [table.whole_read(None) for table in self.tables.values() if table.is_plain]
        check_unchanged(plain)
        with unchanged(plain):
            return all_measured(self.tables, self._databases.whole.threads, self._planner.civil_time)

    @property
    def layout_progress(self) -> LayoutProgress | None:
        """How far the layout is that is being made behind the questions, None where there is none.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range % 9 AS x FROM range(200000)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", threads=1)
        >>> print(db.layout_progress)
        None
        """
        return self._open_tables.progress

    def lay_out(self, table: str) -> Layout:
        """Lay a plain table out now, and return its layout. Later queries of this session sample it.

        The layout is kept in the cache, where later sessions find it. A table that has a layout is returned
        as it is.

        Args:
            table: its name.

        Raises:
            SqlError: there is no such table.
            DataError: its files changed since the session was opened.
            LayoutError: it cannot be written.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range % 9 AS x FROM range(200000)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", cache_directory="cache", threads=1)
        >>> db.lay_out("numbers").is_sampled
        True
        >>> db.plan("SELECT avg(x) AS mean FROM numbers").mode.value
        'mergeable'
        """
        with naming("laying the table out"):
            self._planner.check_open()
            return self._open_tables.lay_out(self._paths.get(tuple(str(table).lower().split(".")), table))

    def refresh(self, table: str) -> Table:
        """Return a table as its files are now. Later queries of this session are about these rows.

        Queries that run go on, and fail if they read a file that changed.

        Raises:
            SqlError: there is no such table.
            DataError, LayoutError: its files cannot be read, or are not there.

        >>> import duckdb, relaqs
        >>> duckdb.sql("SELECT range AS x FROM range(5)").write_parquet("numbers.parquet")
        >>> db = relaqs.connect("numbers.parquet", threads=1)
        >>> duckdb.sql("SELECT range AS x FROM range(7)").write_parquet("numbers.parquet")
        >>> db.refresh("numbers").row_count
        7
        """
        with naming("reading the table anew"):
            self._planner.check_open()
            return self._open_tables.refresh(self._paths.get(tuple(str(table).lower().split(".")), table))

    def refresh_changed(self) -> tuple[str, ...]:
        """Refresh the tables whose files have changed, and return their names.

        A file that cannot be read now, as while it is written, is tried at the next call.

        >>> db.refresh_changed()
        ()
        """
        self._planner.check_open()
        return self._open_tables.refresh_changed()

    def append(self, source: TableSource, table: str, *, batch: str = "") -> Layout:
        """Add rows to a table that was laid out, and return its layout. Later queries read them, too.

        Args:
            source: as `relaqs.append` takes it.
            table: its name. Plain tables cannot be appended to.
            batch: a name for these rows, which are appended only once under it.

        >>> db.append(duckdb.sql("FROM range(500) AS t(x)"), "numbers").row_count
        1500
        """
        with naming("appending rows"):
            self._planner.check_open()
            return self._open_tables.append(table, source, batch)

    def add_table(self, source: TableSource, table: str, *, replace: bool = False) -> Table:
        """Read one more table in the queries to come, and return it. Queries that run go on without it.

        Args:
            source: as the `tables` of `relaqs.connect` take it.
            table: its name.
            replace: whether a table of this name gives way to it, once it is open.

        Raises:
            LayoutError: the table cannot be used, or a table or a view has this name.
            DataError: it cannot be read.
            UnsupportedError: the session runs on a cluster, whose workers would have to be given it.

        >>> import pyarrow as pa, relaqs
        >>> db = relaqs.connect(tables={"rates": pa.table({"rate": [0.1, 0.2]})}, threads=1)
        >>> db.add_table(pa.table({"name": ["low", "high"]}), "names").row_count
        2
        """
        with naming("opening the table"):
            self._planner.check_open()
            if not isinstance(self._executor, ThreadExecutor):
                raise UnsupportedError("a session on a cluster gets its tables when it is opened: tables={…}")
            return self._open_tables.add(table, source, self._views, replaces=replace)

    def remove_table(self, table: str) -> None:
        """Know a table no more in the queries to come. Its files stay, and queries that run go on.

        Raises:
            SqlError: there is no such table.

        >>> db.remove_table("points")
        >>> list(db.tables)
        ['numbers']
        """
        with naming("removing the table"):
            self._planner.check_open()
            self._open_tables.remove(table)

    def online_sql(
        self,
        sql: str,
        params: Parameters | None = None,
        *,
        target: float | str | None = None,
        confidence: float = 0.95,
        interval: Interval = "pointwise",
        confidence_for: ConfidenceFor = "cell",
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
        budget: float | str | None = None,
    ) -> OnlineQuery:
        """Start answering one SELECT, and return its handle at once.

        The error of an answer, `snapshot.error`, is relative to each number. Where the numbers of a column
        may lie on both sides of zero, such as average delays, it is relative to the column's size: the size
        that groups with 95 % of the rows have at most, or the number itself if that is larger.

        Args:
            sql: the SELECT.
            params: values for `?` and `$1` as a list, for `$name` as a dictionary; never read as SQL.
            target: stop when `snapshot.error` is this small. 0.01 and "1%" are the same.
            confidence: of the intervals.
            interval: "pointwise" holds at any one moment. "anytime" holds however often one looks.
            confidence_for: "cell" is the confidence of each interval for itself. "table" is that of all
                certified ones of an answer together: they are wider, fifty by 1.7 times.
            priority: the query's weight beside others.
            watch: names of the approximate columns that make up the error, or a function of two consecutive
                snapshots that gives it. By default all columns count.
            timeout: stop after this many seconds, planning included.
            seed: the order in which partitions are read.
            batches: how many equal mini-batches to make, at most one for each partition.
            fallback: run a query that cannot be estimated as a whole ("exact"), or refuse it ("error").
            chart_pixels: the height of a bar chart of the answer. The query stops when no bar is uncertain by
                a pixel any more.
            judged_by: which numbers must be within the error. "rows": in every column, those of groups with
                95 % of the rows. An airport with three flights then does not hide 228 others. "cells": in
                every column, 95 % of the numbers. "max": every certified number.
            share: the share that must be within the error, instead of 95 %. "max" does not use it.
            within: the seconds in which the target should be reached. From the first snapshot on a warning
                says whether it will be, and when instead. The query goes on then; `timeout` would end it.
            budget: what costly functions may be asked before the query stops: a number of rows, or money such
                as "$3", by their `cost`.

        Raises:
            SqlError: the SQL is wrong.
            UnsupportedError: the query is refused.
            ArgumentError: another argument is not accepted.

        >>> sql = "SELECT sum(x) AS total FROM numbers WHERE x < $most"
        >>> query = db.online_sql(sql, params={"most": 500}, target="1%")
        >>> query.result().error <= 0.01
        True
        """
        options = QueryOptions(
            target=relative_error(target),
            confidence=confidence,
            interval=interval,
            confidence_for=confidence_for,
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
            budget=budget,
        )
        return self.submit(sql, options, params=params)

    def sql(self, query: str, params: Parameters | None = None) -> Snapshot:
        """Return the exact answer of one SELECT, as DuckDB's `sql` and `execute` do: `.df()`, `.fetchone()`.

        Args:
            query: the SELECT.
            params: values of its parameters, as `online_sql` takes them.

        Raises:
            SqlError: the SQL is wrong.
            UnsupportedError: the query is refused.

        >>> db.sql("SELECT max(x) FROM numbers WHERE x < ?", [500]).fetchall()
        [(499,)]
        """
        with self.submit(query, QueryOptions(), params=params, shows_estimates=False) as running:
            return running.result()

    execute = query = sql

    def submit(
        self,
        sql: str,
        options: QueryOptions,
        *,
        params: Parameters | None = None,
        intervals: bool = True,
        timezone: str | None = None,
        plan: OnlinePlan | None = None,
        shows_estimates: bool = True,
    ) -> OnlineQuery:
        """Start answering one SELECT with options that were made beforehand.

        In three steps: `_read` gives the SELECT to plan, `_planned` its plan, `start` the query that runs.

        Args:
            sql: the SELECT.
            params: values of its parameters, as `online_sql` takes them.
            options: what `online_sql` takes as keyword arguments.
            intervals: False leaves error bars out, so that their cost can be measured.
            timezone: by which this query reads and shows moments. The default is that of the session.
            plan: what `plan` has returned for the same. None: it is planned.
            shows_estimates: whether anybody sees them. If so, a query that runs as a whole, and takes twice
                as long as was predicted, begins to give estimates.

        Raises:
            SqlError: the SQL is wrong.
            UnsupportedError: the query is refused.

        >>> db.submit("SELECT count(*) AS n FROM numbers", relaqs.QueryOptions(seed=7)).result().is_exact
        True
        """
        submitted_at = time.perf_counter()
        with naming("planning", sql):
            if plan is None:
                select = self._read(sql, params, timezone)
                plan = self._planned(select, intervals, options.timeout, submitted_at)
            plan = self._planner.chosen(plan, options, self.exact_below_seconds)
        return self.start(
            plan, options, submitted_at=submitted_at, asked_sql=sql, shows_estimates=shows_estimates
        )

    def plan(
        self,
        sql: str,
        *,
        params: Parameters | None = None,
        intervals: bool = True,
        timeout: float | None = None,
        timezone: str | None = None,
    ) -> OnlinePlan:
        """Return how one SELECT will be answered, for `start`. Plans are equal where queries are.

        Planning takes 10 to 100 ms, so plans are kept. Several threads may plan side by side.

        Args:
            sql: the SELECT.
            params: values of its parameters, as `online_sql` takes them.
            intervals: False leaves error bars out.
            timeout: how many seconds planning may take.
            timezone: by which this query reads and shows moments. The default is that of the session.

        Raises:
            SqlError: the SQL is wrong.
            UnsupportedError: the query is refused.
            QueryTimeoutError: the time is over.

        >>> db.plan("SELECT sum(x) AS total FROM numbers").mode.value
        'mergeable'
        """
        with naming("planning", sql):
            begun_at = time.perf_counter()
            return self._planned(self._read(sql, params, timezone), intervals, timeout, begun_at)

    def start(
        self,
        plan: OnlinePlan,
        options: QueryOptions,
        *,
        checkpoint: str | Path | None = None,
        resume: bool = True,
        submitted_at: float | None = None,
        asked_sql: str | None = None,
        shows_estimates: bool = True,
    ) -> OnlineQuery:
        """Start answering what was planned.

        Args:
            plan: what `plan` returned.
            options: what `online_sql` takes as keyword arguments.
            checkpoint: a file in which the query's state is kept, every few seconds and when it is stopped.
                If it holds the state of the same query over the same data, the query goes on from there.
                Refined queries, queries over the answers of their parts, queries that run as a whole and
                states beyond 64 MiB are not kept: they begin anew.
            resume: False begins anew although the checkpoint has a state.
            submitted_at: when the query was submitted, on `time.perf_counter`.
            asked_sql: as it was written, for `witnesses`.
            shows_estimates: see `submit`.

        >>> plan = db.plan("SELECT sum(x) AS total FROM numbers")
        >>> db.start(plan, relaqs.QueryOptions(), checkpoint="sum.arrow").result().is_exact
        True
        """
        with naming("starting the query", asked_sql or plan.sql):
            self._planner.check_open()
            self._open_tables.asked(plan.plain_tables)
            stopwatch = Stopwatch() if submitted_at is None else Stopwatch(submitted_at)
            if plan.calls_functions:
                query = self._costly_query(plan, options, stopwatch, asked_sql)
                query.start()
                return query
            query = assembled_query(
                plan,
                options,
                self._catalog,
                self._planner,
                self._databases,
                self._executor,
                self._running,
                stopwatch=stopwatch,
                checkpoint=checkpoint,
                resume=resume,
                witnesses=self.witnesses,
                asked_sql=asked_sql,
                may_end_soon=self.exact_below_seconds != 0,
                shows_estimates=shows_estimates,
            )
            query.start()
            return query

    def function(
        self,
        name: str,
        fn: AnswerFunction,
        *,
        returns: type = bool,
        batch: int = 32,
        concurrency: int = 8,
        cost: float = 0.0,
        cache: bool | str | Path = True,
        retries: int = 2,
        rate: float | None = None,
        bounds: tuple[float, float] | None = None,
        proxy: str | AnswerFunction | None = None,
        version: str | None = None,
    ) -> None:
        """Let queries call a function whose every answer takes time or money, such as one that asks a model.

        A query that calls it asks a random sample of rows, and estimates counts, sums and averages from the
        answers, with intervals that narrow as more rows are asked. `target`, `budget` and `timeout` end it;
        if it goes on to the end, each row was asked once, and the answer is exact.

        Args:
            name: in SQL.
            fn: gets an Arrow array for each argument, with the rows of one batch, and returns as many
                answers. It may be async. It runs on threads of this process, several at once.
            returns: the type of an answer: bool, int, float or str. None stands for NULL.
            batch: how many rows it gets at most.
            concurrency: how many batches are asked at once.
            cost: of one row, in any currency, for `budget="$3"` and `snapshot.cost`.
            cache: whether answers are kept in a file, `answers.sqlite` in the cache directory, or in which
                file. A row that was answered is not asked again, by any query. False keeps them as long as
                the session.
            retries: how often a batch is asked again after an error, after pauses that double.
            rate: how many rows a second may be asked, over all queries.
            bounds: the least and the largest answer, where it is a number. Without them no interval of its
                sums can be certified.
            proxy: a cheap guess of the answer: SQL over the names of the arguments of `fn`, or a function
                like `fn`. For a bool it is a number from 0 to 1. Good guesses save most of the calls, and bad
                ones do no harm.
            version: answers of another version are asked anew. By default a digest of the code of `fn`.

        Raises:
            ArgumentError: an argument is not accepted.

        >>> db.function("is_odd", lambda x: [each.as_py() % 2 == 1 for each in x], cache=False)
        >>> answer = db.online_sql("SELECT count(*) AS n FROM numbers WHERE is_odd(x)").result(until="20%")
        >>> answer.calls < 1000
        True
        """
        from relaqs.costly.asking import CostlyFunctions

        self._functions = self._functions or CostlyFunctions()
        self._functions.register(
            name,
            fn,
            cache=cache,
            returns=returns,
            batch=batch,
            concurrency=concurrency,
            cost=cost,
            retries=retries,
            rate=rate,
            bounds=bounds,
            proxy=proxy,
            version=version,
        )

    def _costly_query(
        self, plan: OnlinePlan, options: QueryOptions, stopwatch: Stopwatch, asked_sql: str | None
    ) -> OnlineQuery:
        from relaqs.costly.asking import costly_query

        costly = cast("CostlyPlan", plan)
        assert self._functions is not None, "a plan of another session"
        return costly_query(
            costly,
            self._functions.called_by(costly),
            options,
            self._databases,
            self._executor,
            self._running,
            stopwatch=stopwatch,
            asked_sql=asked_sql,
        )

    def fit(
        self,
        model: Any,
        sql: str | None = None,
        *,
        target: str | None = None,
        weight: str | None = None,
        loss: Any = None,
        optimizer: Any = None,
        schedule: Any = None,
        batch: Batch = None,
        held_out: float | None = None,
        seed: int = 0,
        until: Until = None,
        within: float | None = None,
        timeout: float | None = None,
        passes: int | None = None,
        priority: float = 1.0,
        may_stop: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = SECONDS_BETWEEN,
    ) -> TrainingRun:
        """Start fitting a model to the rows of a SELECT, and return its run at once.

        The result has the class and the parameters of the model, which is not changed itself. Without a goal
        it is fitted as the model's own parameters say. Plain tables that the SELECT reads are laid out first.

        Args:
            model: an estimator of scikit-learn that has `partial_fit`, or a Pipeline that ends in one;
                LinearRegression, LogisticRegression, LinearSVC, Lasso or KMeans; a torch.nn.Module; or a job
                of `relaqs.training`, which has its own SELECT.
            sql: the SELECT of the rows. All its columns but the target and the weight are features.
            target: the column to predict.
            weight: the column that is the rows' `sample_weight`.
            loss: of a module of PyTorch, what it minimises. Of an estimator with `partial_fit`, a scorer's
                name or a function of model, X and y that says how well it does.
            optimizer: of a module: one of its parameters, or a function of them that makes one.
            schedule: of a module: of the optimiser's rates, or a function of the optimiser that makes one.
            batch: how many rows a step has: a number, "elastic", or a journal. Not for passes over all rows.
            held_out: the share of partitions that losses and accuracy are measured by.
            seed: of the order of the rows, and of all that draws.
            until: what is good enough: a loss, {"accuracy": 0.9}, or "best" for the best accuracy.
            within: the seconds in which that is wanted. Policies see them; `timeout` would end the run.
            timeout: stop after this many seconds.
            passes: stop after this many passes over the data.
            priority: its weight beside queries and other jobs.
            may_stop: whether a cluster with too few cores may end it once it is good enough.
            checkpoint: a file that is not there yet. The state of the run is kept in it, for `resume`.
            checkpoint_seconds: between two states that are kept, at least.

        Raises:
            SqlError: its SELECT is wrong.
            UnsupportedError: its SELECT cannot be read row by row.
            ArgumentError: another argument is not accepted, or a parameter of the model not honoured.
            MissingPackageError: a package that training needs is not installed.

        >>> from sklearn.linear_model import LinearRegression
        >>> run = db.fit(LinearRegression(), "SELECT x, 3 * x AS y FROM numbers", target="y")
        >>> round(float(run.result().coef_[0]), 3)
        3.0
        """
        goals = {"until": until, "within": within, "timeout": timeout, "passes": passes, "priority": priority}
        torch = {"loss": loss, "optimizer": optimizer, "schedule": schedule, "batch": batch}
        rows = {"target": target, "weight": weight, "held_out": held_out, "seed": seed}
        recipe = self._fit_recipe(model, sql, {**goals, "may_stop": may_stop, **torch, **rows})
        run: TrainingRun = begun(recipe, self, Keeping(checkpoint, checkpoint_seconds))
        return run

    def _fit_recipe(self, model: Any, sql: str | None, asked: Mapping[str, Any]) -> TrainingRecipe:
        from relaqs.training.estimators import fit_recipe

        return fit_recipe(model, sql, asked)

    def train(self, job: TrainingJob | MiniBatchTraining, **asked: Unpack[TrainArguments]) -> TrainingRun:
        """Start training a job of `relaqs.training`, and return its run at once: `fit`, by other names.

        Args:
            job: one of `relaqs.training`, or a `TrainingJob` or `MiniBatchTraining` of your own.
            asked: `TrainArguments` has all of them, such as `target_loss=0.3` and `max_steps=20`.

        >>> from relaqs.training import LinearRegression
        >>> run = db.train(LinearRegression("SELECT x, 3 * x AS y FROM numbers", target="y"))
        >>> round(float(run.result().coef_[0]), 3)
        3.0
        """
        from relaqs.training.launch import TrainingRecipe, asked_of_train

        options = asked_of_train(asked)
        keeping = Keeping(options.checkpoint, options.checkpoint_seconds)
        run: TrainingRun = begun(TrainingRecipe(job, options), self, keeping)
        return run

    def resume(self, path: str | Path) -> TrainingRun | FunctionRun | SearchRun:
        """Go on with a run of another process from its checkpoint, and return the run at once.

        The checkpoint is of `fit`, `train`, `run` or `search`. The run goes on from the newest state that was
        kept, in the middle of a pass, and keeps its state there as before. The rows must be the same. It may
        have other cores or workers. A timeout counts anew. Open only a file that you trust, for it says what
        is run.

        Args:
            path: of the checkpoint.

        Raises:
            RelaqsError: it is not there, damaged, of a query, of another version or of other rows.

        >>> def count_up(ctx, end):
        ...     for step in range(ctx.load(0), end):
        ...         if not ctx.report(end - step):
        ...             break
        ...         ctx.save(step + 1)
        ...     return step
        >>> with relaqs.connect("data", threads=1) as db:
        ...     run = db.run(count_up, {"end": 10**9}, checkpoint="counted.run")
        ...     while run.latest is None:
        ...         pass
        ...     run.stop()
        ...     was_over, reached = run.wait(), run.latest
        >>> with relaqs.connect("data", threads=1) as db:
        ...     run = db.resume("counted.run")
        ...     run.latest >= reached > 0
        True
        """
        self._check_open()
        run: TrainingRun | FunctionRun | SearchRun = resumed(path, self)
        return run

    def _training_run(
        self,
        job: TrainingJob | MiniBatchTraining,
        options: TrainingOptions,
        given: GivenModel | None,
        keeper: RunKeeper,
    ) -> TrainingRun:
        """Return the run of a job, not started."""
        from relaqs.training.launch import planned_rows, training_run

        plan = planned_rows(job, self)
        config = replace(self._databases.tasks, civil_time=plan.civil_time)
        executor, running = self._executor, self._running
        return training_run(job, plan, self._catalog, config, executor, options, running, given, keeper)

    def _readable(self, sql: str, target: str | None) -> ReadsRows:
        from relaqs.training.launch import readable_rows

        return readable_rows(sql, target, self, self._catalog, self._databases.tasks)

    def _check_open(self) -> None:
        self._planner.check_open()

    def status(self) -> ClusterStatus:
        """Return how every job stands that shares these cores: shares, use, quality so far and ahead.

        On a cluster these are the jobs of all its clients.

        >>> db.status().policy, db.status().jobs
        ('index', ())
        """
        self._planner.check_open()
        return self._executor.status()

    def at_once(self, plan: OnlinePlan, below_seconds: float, target: float | None = None) -> OnlinePlan:
        """Return how a query is answered of which only one answer is seen: exactly, where that takes little.

        A session that was opened without `exact_below_seconds` runs none for that reason.

        Args:
            plan: how it is answered with estimates.
            below_seconds: what one core is predicted to take less for is read as a whole.
            target: the error that is enough. A sample that reaches it in half of the time is taken instead.

        >>> db = relaqs.connect("data", threads=1, exact_below_seconds=0.3)
        >>> plan = db.plan("SELECT sum(x) AS total FROM numbers")
        >>> db.at_once(plan, 0.3).mode.value, db.at_once(plan, 0.0).mode.value
        ('exact', 'mergeable')
        """
        if self.exact_below_seconds is None:
            return plan
        return self._planner.at_once(plan, below_seconds, target)

    def with_own_names(self, sql: str) -> str:
        """Return a statement with its tables' names here, where it names paths or schemas of DuckDB files.

        >>> db.with_own_names("SELECT max(x) FROM numbers")
        'SELECT max(x) FROM numbers'
        """
        return self._planner.with_own_names(sql).sql

    def explain(self, sql: str, *, params: Parameters | None = None, timezone: str | None = None) -> str:
        """Return how a SELECT would be answered, in words and SQL.

        Args:
            sql: the SELECT.
            params: values of its parameters, as `online_sql` takes them.
            timezone: by which it reads and shows moments. The default is that of the session.

        >>> print(db.explain("SELECT sum(x) AS total FROM numbers").splitlines()[0])
        mode: mergeable
        """
        from relaqs_engine.plans.explain import explain

        plan = self.plan(sql, params=params, timezone=timezone)
        with naming("explaining the plan", sql):
            return explain(self._planner.at_once(plan, self.exact_below_seconds))

    def advise(self, sql: str, *, params: Parameters | None = None) -> Advice:
        """Return which further layouts of its tables would help a SELECT, and the commands that make them.

        Nothing is read and nothing is made. Printed, it says what would change, or why nothing is needed or
        would help. A session that was opened on a warehouse folder finds a new layout there. Give a session
        on `tables` the new layout too: tables={"trips": …, "trips@zone": "…/trips@zone"}.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> print(db.advise("SELECT sum(x) AS total FROM numbers"))
        No further layout is needed: ...
        """
        with naming("looking for layouts", sql):
            return self._planner.advise(self._read(sql, params, None).written)

    def _read(self, sql: str, params: Parameters | None, timezone: str | None) -> ReadSelect:
        """Return the SELECT to plan. A PIVOT that names no values is given those of the data, by a query."""
        civil_time = None
        if timezone is not None:
            civil_time = replace(self._planner.civil_time, zone=check_zone("timezone", timezone))
        functions = self._functions
        is_costly = functions is not None and functions.are_called(sql)
        written = self._planner.submitted(sql, params, civil_time)
        if not is_costly and may_pivot(written.sql):
            written = with_pivot_values(written, partial(self._texts_of, civil_time=civil_time))
        return ReadSelect(written, civil_time, functions.types if functions and is_costly else None)

    def _planned(
        self, select: ReadSelect, intervals: bool, timeout: float | None, begun_at: float
    ) -> OnlinePlan:
        """Return how a SELECT is answered. Planning may take until `timeout` after `begun_at`."""
        written, civil_time = select.written, select.civil_time
        try:
            if select.functions is not None:
                return self._planner.costly(written, select.functions, civil_time)
            return self._planner.plan(
                written, intervals=intervals, timeout=timeout, begun_at=begun_at, civil_time=civil_time
            )
        except SqlError as error:
            if self._functions is None:
                raise
            raise self._functions.meant(error) from error.__cause__

    def _texts_of(self, written: WrittenSql, *, civil_time: CivilTime | None) -> list[str]:
        """Return the texts in the first column of an exact answer."""
        options, begun_at = QueryOptions(), time.perf_counter()
        plan = self._planner.plan(
            written, intervals=True, timeout=None, begun_at=begun_at, civil_time=civil_time
        )
        plan = self._planner.chosen(plan, options, self.exact_below_seconds)
        answer = self.start(plan, options, submitted_at=begun_at).result().estimate
        return [text for text in answer.column(0).to_pylist() if text is not None]

    def close(self) -> None:
        """Stop the session's queries and free its cores. The second call does nothing.

        >>> db.close()
        >>> db
        <Session of numbers, points: closed>
        """
        self._open_tables.close()
        self._planner.close()
        self._is_closed = True
        if self._close_forgotten.detach() is None:
            return
        are_over = self._running.close(_CLOSE_SECONDS)
        self._executor.close()
        if self._functions is not None:
            self._functions.close()
        self._databases.close(has_states_in_use=not are_over)
        self._open_tables.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = "closed" if self._is_closed else self._executor.describe()
        return f"<Session of {', '.join(self.tables)}: {place}>"
