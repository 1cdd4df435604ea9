"""From SQL to a running query: its plan, its job, and what it falls back to.

1. `Planner.submitted` and `Planner.plan`: the SELECT with its constants, and its plan. Each is made once
   and kept.
2. `query_job`: each kind of plan has a job, in a module that is loaded when there is such a plan.
3. `assembled_query`: the job with its checkpoint, its publisher and its handle. To run it is the handle's.

Where the state is too large, the groups too many, or the sample gone, the fallback is the query as a
whole, which is right in any case. Where estimating fails by a fault of ours, the fault becomes a warning.
"""

from __future__ import annotations

import logging
import math
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime, Cursor, DatabaseConfig
from relaqs_engine.errors import (
    BrokenDatabaseError,
    MemoryLimitError,
    OverdueError,
    RelaqsError,
    SqlError,
    TooManyGroupsError,
    UnsupportedError,
    WholeIsSoonerError,
    fault_of,
    is_fault,
    is_strict,
    naming,
)
from relaqs_engine.layouts.cached_files import written_path
from relaqs_engine.layouts.folder import InUse
from relaqs_engine.layouts.manifest import SMALL_SECONDS, SOON_SECONDS, WORTH_SECONDS, Layout
from relaqs_engine.planning.exact import (
    RowGroupRules,
    plan_whole,
    reads_a_sample_once,
    samples_the_cache_alone,
    whole_core_seconds,
)
from relaqs_engine.planning.planner import plan_costly, plan_query
from relaqs_engine.plans.plan import NO_ROW, IntervalRequest, Method, OnlinePlan, OutputColumn, OutputKind
from relaqs_engine.sql.binder import Binder, Parameters, placing_failures, tells_the_time
from relaqs_engine.sql.parse import expand_views, parse_query, with_tables_of_paths
from relaqs_engine.sql.read import Effort, WrittenSql, may_be_written_out
from relaqs_engine.sql.statements import as_select, with_tables_shown

from relaqs.arguments import refusal
from relaqs.executors import Executor
from relaqs.executors.files import UnseenFileError
from relaqs.jobs.executor import Stopwatch
from relaqs.jobs.job import JobDescription
from relaqs.jobs.runner import RunningJobs
from relaqs.queries.jobs import Asked, EstimatingJob, JobSetting, Keeper, WholeQueryJob, WorthwhileJob
from relaqs.queries.online_query import (
    Asking,
    OnlineQuery,
    Publisher,
    QueryTimeoutError,
    Resort,
    Telling,
    Witness,
    unix_seconds_of,
)
from relaqs.queries.options import AskingUser, QueryOptions, asking_user, watched_columns
from relaqs.queries.tables import Databases, QueryDatabases
from relaqs.sharing.view import Kind

if TYPE_CHECKING:
    from relaqs_engine.advisor.advise import Advice
    from relaqs_engine.plans.aggregate import MergePlan
    from relaqs_engine.plans.composite import AroundPlan
    from relaqs_engine.plans.costly import CostlyPlan
    from relaqs_engine.plans.plan import MiniBatch, WholePlan

    from relaqs.queries.composite import PartJob

_CANNOT_PLAN = "its estimates could not be planned, by a fault that should be reported: {}"
_SOON = "it takes about {:.2g} s of a core, and queries of less than {:g} s run at once"
logger = logging.getLogger("relaqs")
PLANS_KEPT = 256  # the least recently used go first
# The columns tell whether there are error bars.
_Answer: TypeAlias = tuple[str, CivilTime | None, tuple[OutputColumn, ...]]
_Question: TypeAlias = tuple[_Answer, int, int | None]


@dataclass(frozen=True, slots=True)
class ReadSelect:
    """A SELECT as it is planned.

    Attributes:
        written: its text, with constants in the place of parameters. It knows places in what the user wrote.
        civil_time: by which it reads and shows moments. None: that of the session.
        functions: where it calls costly functions, DuckDB's type of the answers of each.
    """

    written: WrittenSql
    civil_time: CivilTime | None
    functions: Mapping[str, str] | None


class Planner:
    """Plans SELECTs over a catalog and its views. Safe to use from any thread; threads plan side by side.

    Planning takes 10 to 100 ms, so plans are kept. The catalog never changes, so a plan stays right. The
    files of its layouts stay as long as the planner, and each query that was planned here refers to it.

    Args:
        views: name → SELECT.
        state_bytes: what the merged state of a query may take.
        cores: that a query which runs as a whole has.
        civil_time: of SELECTs that name no other. None: that of the process.
        paths: absolute path, or name in a DuckDB file → the table that was opened from it. A query may name
            that instead.
    """

    def __init__(
        self,
        catalog: Catalog,
        views: Mapping[str, str],
        state_bytes: int,
        cores: int = 1,
        civil_time: CivilTime | None = None,
        paths: Mapping[str | tuple[str, ...], str] | None = None,
    ) -> None:
        self._catalog = catalog
        self._paths = paths or {}
        named = (os.path.basename(path) if isinstance(path, str) else path[-1] for path in self._paths)
        self._words_of_paths = {name.lower() for name in named}
        self._views = with_tables_shown(views, catalog.tables)
        self._views_tell_the_time = any(map(tells_the_time, self._views.values()))
        self._civil_time = civil_time
        self._binder = Binder(catalog, civil_time)
        self._state_bytes = state_bytes
        self._row_groups = RowGroupRules(cores)
        # By SQL, and with intervals.
        self._plans: OrderedDict[tuple[str, bool, CivilTime], OnlinePlan] = OrderedDict()
        self._at_once: OrderedDict[_Answer, WholePlan] = OrderedDict()
        self._ran_whole: OrderedDict[_Question, WholePlan] = OrderedDict()  # see note_whole
        self._is_closed = False
        self._in_use = InUse(table for table in catalog.layouts if isinstance(table, Layout))

    @property
    def civil_time(self) -> CivilTime:
        """Return the time zone and calendar of SELECTs that name no other."""
        return self._binder.civil_time

    def submitted(
        self, sql: str, params: Parameters | None = None, civil_time: CivilTime | None = None
    ) -> WrittenSql:
        """Return the SELECT to plan: with constants in the place of its parameters, and of now().

        SHOW TABLES, DESCRIBE, SUMMARIZE and other statements that give rows come back as SELECTs.

        Args:
            sql: as it was written.
            params: values of its parameters.
            civil_time: by which today is the day that it is. None: that of the planner.

        Raises:
            ArgumentError: the SQL is no text.
            SqlError: a parameter has no value, or a value no parameter.
        """
        self.check_open()
        if not isinstance(sql, str):
            raise refusal("sql", sql, 'a text, such as "SELECT count(*) FROM trips"')
        with self._naming(sql):
            written = self.with_own_names(sql)
            if self._views_tell_the_time:
                with written.placing():
                    expanded = expand_views(written.sql, self._views)
                written = written.anew(expanded)
            written = self._binder.at(civil_time).with_constants(written, params)
            if not may_be_written_out(written.sql):
                return written
            return as_select(written, [*self._catalog.tables, *self._views], self._describe)

    def with_own_names(self, sql: str) -> WrittenSql:
        """Return a statement with its tables' own names, where it names paths or schemas of DuckDB files."""
        written, lowered = WrittenSql(sql), sql.lower()
        if not any(word in lowered for word in self._words_of_paths):
            return written
        return with_tables_of_paths(written, self._table_of, self._effort())

    def _table_of(self, path: str | tuple[str, ...]) -> str | None:
        if isinstance(path, tuple):
            return self._paths.get(path)
        is_a_name = any(path.lower() == name.lower() for name in (*self._catalog.tables, *self._views))
        return None if is_a_name else self._paths.get(written_path(path))

    def _describe(self, sql: str) -> list[tuple[str, str]]:
        effort, catalog = self._effort(), self._catalog
        parsed = parse_query(sql, catalog.tables, effort, catalog.left_out, self._views)
        with parsed.placing(), self._binder.spending(effort) as binder:
            return binder.describe(parsed.sql)

    def plan(
        self,
        written: WrittenSql,
        *,
        intervals: bool,
        timeout: float | None,
        begun_at: float,
        civil_time: CivilTime | None = None,
    ) -> OnlinePlan:
        """Return how a SELECT is answered, the kept plan where there is one.

        Args:
            written: one SELECT, as `submitted` returns it.
            intervals: whether its answers have error bars.
            timeout: seconds from `begun_at` on, a reading of `time.perf_counter`; None for no limit.
            civil_time: by which it reads and shows moments. None: that of the planner.

        Raises:
            SqlError: if the SQL is wrong.
            UnsupportedError: if it is refused.
            QueryTimeoutError: when the time is over.
        """
        self.check_open()
        sql, binder = written.sql, self._binder.at(civil_time)
        plan = self._plans.pop((sql, intervals, binder.civil_time), None)
        with self._naming(written.asked), written.placing(), placing_failures(written.asked):
            plan = plan or self._plan_anew(sql, intervals, binder, self._effort(timeout, begun_at))
        self._plans[sql, intervals, binder.civil_time] = plan
        while len(self._plans) > PLANS_KEPT:
            self._plans.popitem(last=False)
        return plan

    def costly(
        self, written: WrittenSql, functions: Mapping[str, str], civil_time: CivilTime | None = None
    ) -> CostlyPlan:
        """Return how a SELECT is answered that calls costly functions.

        functions: DuckDB's type of the answers of each.
        """
        effort = self._effort()
        with self._naming(written.asked), self._binder.at(civil_time).spending(effort) as binder:
            return plan_costly(written.sql, functions, self._catalog, binder, self._views)

    def chosen(self, plan: OnlinePlan, options: QueryOptions, below_seconds: float | None) -> OnlinePlan:
        """Return how the SELECT of a plan is run with these options: by the plan, or as a whole.

        It is the whole where the same question turned out to have too many groups before, and where only the
        end is wanted and comes soon. below_seconds: see `at_once`.

        Raises:
            UnsupportedError: it has no estimate, and none but estimates are wanted.
        """
        has_none = not plan.is_estimated and NO_ROW not in plan.reasons
        if has_none and options.fallback == "error":
            raise UnsupportedError(
                f"the query has no sound estimate: {'; '.join(plan.reasons)}. "
                'Give fallback="exact" to run it as a whole'
            )
        known = self._ran_whole.get(_question(plan, options))
        if known is not None and options.fallback != "error":
            return known
        return self.at_once(plan, below_seconds) if options.wants_the_end_only else plan

    def note_whole(self, plan: OnlinePlan, options: QueryOptions, whole: WholePlan) -> None:
        """Note that a question had too many groups to be estimated. Asked again, it runs as `whole`."""
        self._ran_whole[_question(plan, options)] = whole
        while len(self._ran_whole) > PLANS_KEPT:
            self._ran_whole.popitem(last=False)

    def at_once(
        self, plan: OnlinePlan, below_seconds: float | None, target: float | None = None
    ) -> OnlinePlan:
        """Return how the SELECT of a plan is run as a whole, if one core is predicted to take less for that.

        Otherwise the plan is returned. below_seconds: of one core. None is SOON_SECONDS for layouts of the
        cache, since what was made behind the questions must make none slower. For all else None is
        WORTH_SECONDS, from SMALL_SECONDS on: a first estimate would take too much of the whole. A sample of
        which half of that is predicted to reach the target is taken instead.
        """
        if not plan.is_estimated or plan.calls_functions:
            return plan
        from_seconds = 0.0
        if below_seconds is None and samples_the_cache_alone(plan, self._catalog):
            below_seconds = SOON_SECONDS
        elif below_seconds is None:
            from_seconds, below_seconds = SMALL_SECONDS, WORTH_SECONDS
        seconds = whole_core_seconds(plan, self._catalog)
        if not from_seconds <= seconds < below_seconds or _is_soon_within(plan, target, seconds):
            return plan
        if (kept := self._at_once.get(_answer(plan))) is None:
            kept = self.plan_as_whole(plan, _SOON.format(seconds, below_seconds))
            self._at_once[_answer(plan)] = kept
            while len(self._at_once) > PLANS_KEPT:
                self._at_once.popitem(last=False)
        return replace(kept, if_overdue=plan)

    def plan_as_whole(self, plan: OnlinePlan, reason: str) -> WholePlan:
        """Return how the SELECT of a plan is answered without estimates, once and exactly. reason: why."""
        self.check_open()
        with self._naming(plan.sql):
            return plan_whole(plan, plan.sql, self._catalog, reason, self._views)

    def advise(self, written: WrittenSql) -> Advice:
        """Return which further layouts of its tables would help a SELECT, as `submitted` returns it."""
        from relaqs_engine.advisor.advise import advise

        self.check_open()
        with self._naming(written.asked), written.placing():
            return advise(written.sql, self._catalog, self._binder, self._effort(), self._views)

    def close(self) -> None:
        """Plan no more. What is being planned ends with an error."""
        self._is_closed = True
        self._in_use.release()

    def check_open(self) -> None:
        if self._is_closed:
            raise RelaqsError("this session is closed; open another with relaqs.connect")

    def _plan_anew(self, sql: str, intervals: bool, binder: Binder, effort: Effort) -> OnlinePlan:
        plan = plan_query(
            sql,
            self._catalog,
            binder,
            intervals=intervals,
            state_bytes=self._state_bytes,
            effort=effort,
            row_groups=self._row_groups,
            unforeseen=None if is_strict() else self._why_whole,
            views=self._views,
        )
        return replace(plan, sql=sql, civil_time=binder.civil_time)

    def _why_whole(self, error: Exception) -> str:
        """Return why a query runs as a whole whose estimates could not be planned."""
        self._bind_anew_after(error)
        logger.info("a query runs as a whole, since its estimates could not be planned", exc_info=error)
        return _CANNOT_PLAN.format(fault_of(error))

    @contextmanager
    def _naming(self, sql: str) -> Iterator[None]:
        """Raise what fails in the block as an error of ours."""
        try:
            with naming("planning", sql):
                yield
        except BrokenDatabaseError as error:
            self._bind_anew_after(error)
            raise

    def _bind_anew_after(self, error: Exception) -> None:
        """After a fault of DuckDB, bind in a new database: the old one may refuse all that is asked."""
        if isinstance(error, BrokenDatabaseError):
            self._binder = Binder(self._catalog, self._civil_time)

    def _effort(self, timeout: float | None = None, begun_at: float = 0.0) -> Effort:
        """Return what planning is counted on: it ends with the session, and when the time is over."""

        def still_wanted() -> None:
            self.check_open()
            if timeout is not None and time.perf_counter() > begun_at + timeout:
                raise QueryTimeoutError(
                    f"the query was not planned within {timeout} s; allow more time, or give it fewer "
                    "columns, conditions or subqueries"
                )

        return Effort(still_wanted)


def _answer(plan: OnlinePlan) -> _Answer:
    """Return what decides how a query is answered as a whole: its text, its civil time and its columns."""
    return plan.sql, plan.civil_time, plan.outputs


def _question(plan: OnlinePlan, options: QueryOptions) -> _Question:
    """Return what decides the answer, and which rows are read first: the seed and the mini-batches."""
    return _answer(plan), options.seed, options.batches


_FIRST_SECONDS = 0.03
"""What a query takes of a core until its first answer, beside reading its rows."""


def _is_soon_within(plan: OnlinePlan, target: float | None, whole_seconds: float) -> bool:
    """Whether a sample is predicted to reach the target in half of the time of the whole."""
    if target is None or not plan.share_needed:
        return False
    return _FIRST_SECONDS + plan.share_for(target) * whole_seconds < whole_seconds / 2


_GONE = "its table was not laid out after all, and the first part of the layout is gone"
_CANNOT_GO_ON = "it could not be estimated further, by a fault that should be reported: {}"
_OF_STATES = 0.5  # of their memory, that one may have: it is merged into a copy
_TOO_LARGE = "what is kept of it to estimate from does not fit into the memory limit"


@dataclass(frozen=True, slots=True)
class QueryFallback:
    """Runs a query as a whole after it ran out of memory for its state, or lost the first part it sampled.

    So does one that is computed from too many groups, or whose estimates are not worth their cost. And one
    that runs as a whole, since that was predicted to be soon, gives estimates where it is not. A query goes
    each of the two ways once for such a reason.

    A query that returns rows has no such fallback: the rows that did not fit are the answer itself.

    Attributes:
        planner: makes the other plan.
        plan: how the query is answered now.
        options: of the query; with fallback="error" there is no other way.
        job_id: of the job that failed.
        shows_estimates: whether anybody sees estimates. Where not, a query that runs as a whole goes on.
        turns: how often the query went another way already. Each way has a job of its own.
        is_second: whether it was found out already that the whole takes longer than predicted.
    """

    planner: Planner
    catalog: Catalog
    plan: OnlinePlan
    options: QueryOptions
    asker: AskingUser
    job_id: str
    databases: QueryDatabases
    shows_estimates: bool = True
    turns: int = 0
    is_second: bool = False

    def after(self, error: Exception, *, has_answered: bool) -> Resort | None:
        """Return how the query goes on, None where it cannot.

        If it goes on as a whole before its first snapshot, it begins so when it is asked again.
        """
        if isinstance(error, OverdueError):
            return self._estimated()
        if not (why := self._why_whole(error)):
            return None
        whole = self.planner.plan_as_whole(self.plan, why)
        if isinstance(error, TooManyGroupsError) and not has_answered:
            self.planner.note_whole(self.plan, self.options, whole)
        seconds = error.core_seconds if isinstance(error, WholeIsSoonerError) else None
        if seconds is not None and self.shows_estimates and not self.is_second:
            whole = replace(whole, if_overdue=self.plan)
        job_id, config = self._next_id("whole"), self.databases.whole
        seconds = math.inf if seconds is None else seconds
        job = WholeQueryJob(job_id, whole, database_config=config, core_seconds=seconds, is_seen=has_answered)
        return self._resort(job, whole)

    def _estimated(self) -> Resort | None:
        if (plan := self.plan.if_overdue) is None:
            return None
        names = watched_columns(plan, self.options.watch)
        job = _job(self._next_id("estimated"), plan, self.options, names, self.catalog, self.databases)
        worthwhile = _while_worthwhile(job, plan, self.catalog, self.options, ends_soon=False)
        return self._resort(worthwhile, plan, is_second=True)

    def _next_id(self, way: str) -> str:
        return f"{self.job_id}-{self.turns + 1}-{way}"

    def _resort(self, job: EstimatingJob, plan: OnlinePlan, *, is_second: bool = False) -> Resort:
        cores = self.databases.whole.threads
        description = query_description(job.id, plan, self.options, self.asker, exact_cores=cores)
        is_last = not plan.is_estimated and plan.if_overdue is None
        is_second = self.is_second or is_second
        fallback = None if is_last else replace(self, plan=plan, turns=self.turns + 1, is_second=is_second)
        return Resort(job, plan, description, fallback)

    def _why_whole(self, error: Exception) -> str:
        if isinstance(error, UnseenFileError) and self.plan.sample_may_go:
            return _GONE
        if self.options.fallback == "error":
            return ""
        if self.plan.is_estimated and not is_strict() and _is_fault(error):
            return _CANNOT_GO_ON.format(fault_of(error))
        if isinstance(error, WholeIsSoonerError):
            return error.reason
        if not self.plan.may_run_whole:
            return ""
        if isinstance(error, TooManyGroupsError):
            return error.reason
        return _TOO_LARGE if isinstance(error, MemoryLimitError) else ""


def _is_fault(error: Exception) -> bool:
    """Whether estimating failed and neither the data nor the machine did. The SQL of tasks is our own."""
    return isinstance(error, SqlError | BrokenDatabaseError) or is_fault(error)


def query_job(
    id: str,
    plan: OnlinePlan,
    catalog: Catalog,
    asked: Asked,
    *,
    state_cursor: Cursor | None,
    exact_config: DatabaseConfig,
) -> EstimatingJob:
    """Return the job that answers a plan: each kind of plan has one of its own.

    Args:
        state_cursor: a cursor of the job's own, where its state is kept; it is closed with the last fold.
            None where the plan has no estimates.
        exact_config: the database of what runs as a whole.
    """
    if plan.is_estimated:
        assert state_cursor is not None, "what is estimated has a state"
        return _estimating_job(plan, JobSetting(id, catalog, asked, state_cursor, exact_config))
    if state_cursor is not None:
        state_cursor.close()
    whole = cast("WholePlan", plan)
    seconds = whole_core_seconds(whole, catalog)
    return WholeQueryJob(id, whole, database_config=exact_config, core_seconds=seconds)


def _estimating_job(plan: OnlinePlan, setting: JobSetting) -> EstimatingJob:
    """Return the job of a plan with estimates. What estimates is loaded now: no other query needs it."""
    from relaqs_engine.plans.aggregate import MergePlan, RowsPlan
    from relaqs_engine.plans.composite import AroundPlan, RefinedPlan, SampledThenExact

    match plan:
        case MergePlan():
            from relaqs_engine.execution.state import EstimateCosts

            from relaqs.queries.folded import MergeableQueryJob

            costs = None
            if setting.asked.batches is None:
                costs = EstimateCosts(whole_core_seconds(plan, setting.catalog))
            return MergeableQueryJob(plan, setting, costs=costs)
        case RowsPlan():
            from relaqs.queries.folded import RowsQueryJob

            return RowsQueryJob(plan, setting)
        case SampledThenExact():
            from relaqs.queries.sampled_then_exact import SampledThenExactJob

            return SampledThenExactJob(plan, setting)
        case RefinedPlan():
            from relaqs.queries.composite import RefinedQueryJob

            return RefinedQueryJob(plan, setting)
        case AroundPlan():
            from relaqs.queries.composite import AroundQueryJob

            seconds = whole_core_seconds(plan, setting.catalog)
            return AroundQueryJob(plan, _part_jobs(plan, setting), setting, seconds)
    raise TypeError(f"{type(plan).__name__} is no kind of plan that has a job")


def _part_jobs(plan: AroundPlan, setting: JobSetting) -> list[PartJob]:
    """Return the jobs of a plan's parts. Parts that are drawn together have their mini-batches in common."""
    from relaqs_engine.execution.state import batches_together

    from relaqs.queries.folded import MergeableQueryJob

    catalog, asked = setting.catalog, setting.asked
    schedules: dict[int, tuple[MiniBatch, ...]] = {}
    for draw in plan.draws:
        drawn = [cast("MergePlan", plan.parts[i]) for i in draw.parts]
        schedule = batches_together(drawn, catalog, asked.seed, asked.batches)
        schedules |= dict.fromkeys(draw.parts, schedule)
    jobs: list[PartJob] = []
    for i, part in enumerate(plan.parts):
        own = replace(setting, state_cursor=setting.state_cursor.another())
        if i in schedules:
            jobs.append(MergeableQueryJob(cast("MergePlan", part), own, schedule=schedules[i]))
        else:
            job = query_job(
                own.id, part, catalog, asked, state_cursor=own.state_cursor, exact_config=own.exact_config
            )
            jobs.append(cast("PartJob", job))
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
    may_end_soon: bool = False,
    shows_estimates: bool = True,
) -> OnlineQuery:
    """Return the query that answers a plan, not started.

    Args:
        planner: plans it anew if it must run as a whole after all.
        databases: what it runs on, or those of who asks.
        stopwatch: started when the query was submitted.
        checkpoint: a file in which its state is kept.
        resume: whether it goes on from the state in that file.
        asked_sql: as it was written, if it had parameters.
        may_end_soon: whether it may run as a whole after few estimates, where it is then there soon.
        shows_estimates: see `QueryFallback`.
    """
    if not shows_estimates:
        plan = plan.without_estimates()
    asker = asking_user()
    own = databases.of(asker, plan.civil_time)
    names = watched_columns(plan, options.watch)
    job = _job(uuid.uuid4().hex[:12], plan, options, names, catalog, own)
    keeper = Keeper.of(job, plan, catalog, options, checkpoint)
    if resume:
        stopwatch.earlier_seconds = keeper.resume()
    ends_soon = may_end_soon and checkpoint is None and options.wants_the_end_only
    worthwhile = _while_worthwhile(
        job, plan, catalog, options, ends_soon=ends_soon, may_end_soon=may_end_soon
    )

    def asking() -> Asking:
        submitted_at = unix_seconds_of(stopwatch.seconds() - stopwatch.earlier_seconds)
        return Asking(job.id, plan.sql, asked_sql or plan.sql, plan.mode.value, submitted_at)

    publisher = Publisher(
        worthwhile,
        plan,
        options if names is None else replace(options, watch=names),
        stopwatch,
        executor,
        keeper=keeper,
        fallback=QueryFallback(
            planner, catalog, plan, options, asker, job.id, own, shows_estimates=shows_estimates
        ),
        running=running,
        telling=Telling(witnesses, asking, stopwatch.seconds),
        asked_sql=asked_sql or plan.sql,
    )
    description = query_description(job.id, plan, options, asker, exact_cores=own.whole.threads)
    return OnlineQuery(publisher, worthwhile, executor, description, timeout=options.timeout)


def _while_worthwhile(
    job: EstimatingJob,
    plan: OnlinePlan,
    catalog: Catalog,
    options: QueryOptions,
    *,
    ends_soon: bool,
    may_end_soon: bool = True,
) -> EstimatingJob:
    """Return the job, which gives up where the whole query is there sooner, if it may run as a whole."""
    if not plan.is_estimated or plan.ends_whole or not _may_run_whole(options):
        return job
    from relaqs_engine.execution.state import EstimateCosts

    costs = EstimateCosts(whole_core_seconds(plan, catalog))
    ends_soon = ends_soon and (costs.scan_seconds < SOON_SECONDS or reads_a_sample_once(plan))
    has_intervals = plan.is_two_level or plan.method is not Method.NONE
    estimated = [output for output in plan.outputs if output.kind is OutputKind.ESTIMATE]
    has_only_totals = (
        plan.shows_every_group
        and not plan.is_two_level
        and may_end_soon
        and all(output.total is not None for output in estimated)
    )
    return WorthwhileJob(
        job,
        costs,
        ends_soon=ends_soon,
        target=options.target,
        has_intervals=has_intervals,
        has_only_totals=has_only_totals,
    )


def _may_run_whole(options: QueryOptions) -> bool:
    return options.fallback != "error" and options.batches is None


def _job(
    id: str,
    plan: OnlinePlan,
    options: QueryOptions,
    watch: tuple[str, ...] | None,
    catalog: Catalog,
    databases: QueryDatabases,
) -> EstimatingJob:
    """Return the job of a plan. watch: the columns whose error counts, None for all."""
    may_run_whole = _may_run_whole(options)
    return query_job(
        id,
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
            may_run_whole=may_run_whole,
            state_bytes=_OF_STATES * databases.states.memory_bytes if may_run_whole else math.inf,
            target=math.inf if options.target is None else options.target,
        ),
        state_cursor=databases.state_cursor() if plan.is_estimated else None,
        exact_config=databases.whole,
    )
