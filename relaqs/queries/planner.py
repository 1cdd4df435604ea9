"""Planner: the plans of one session's SELECTs, each made once and kept."""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import CivilTime
from relaqs_engine.errors import BrokenDatabaseError, RelaqsError, SqlError, fault_of, is_strict, naming
from relaqs_engine.layouts.cached_files import written_path
from relaqs_engine.layouts.folder import InUse
from relaqs_engine.layouts.manifest import SOON_SECONDS
from relaqs_engine.planning.exact import RowGroupRules, plan_whole
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import OnlinePlan, WholePlan
from relaqs_engine.sql.binder import Binder, placing_failures
from relaqs_engine.sql.edits import WrittenSql
from relaqs_engine.sql.parameters import Parameters, tells_the_time
from relaqs_engine.sql.parse import parse_query
from relaqs_engine.sql.read import Effort
from relaqs_engine.sql.statements import as_select, with_tables_shown
from relaqs_engine.sql.views import expand_views, with_tables_of_paths

from relaqs.arguments import refusal
from relaqs.queries.options import QueryOptions
from relaqs.queries.publisher import QueryTimeoutError

if TYPE_CHECKING:
    from relaqs_engine.advisor.advise import Advice

_FAULT = "its estimates could not be planned, by a fault that should be reported: {}"
_SOON = "it takes about {:.2g} s of a core, and queries of less than {:g} s run at once"
logger = logging.getLogger("relaqs")
PLANS_KEPT = 256  # the least recently used go first
_Question: TypeAlias = tuple[str, CivilTime | None, int, int | None]


class Planner:
    """Plans SELECTs over a catalog and its views. Safe to use from any thread; threads plan side by side.

    Planning takes 10 to 100 ms, so plans are kept. The catalog never changes, so a plan stays right. The
    files of its layouts stay as long as the planner, and each query that was planned here refers to it.

    Args:
        catalog: the tables.
        views: name → SELECT.
        state_bytes: what the merged state of a query may take.
        cores: that a query which runs as a whole has.
        civil_time: of SELECTs that name no other. None: that of the process.
        paths: absolute path → the table that was opened from it. A query may name the path instead.
    """

    def __init__(
        self,
        catalog: Catalog,
        views: Mapping[str, str],
        state_bytes: int,
        cores: int = 1,
        civil_time: CivilTime | None = None,
        paths: Mapping[str, str] | None = None,
    ) -> None:
        self._catalog = catalog
        self._paths = paths or {}
        self._views = with_tables_shown(views, catalog.tables)
        self._views_tell_the_time = any(map(tells_the_time, self._views.values()))
        self._civil_time = civil_time
        self._binder = Binder(catalog, civil_time)
        self._state_bytes = state_bytes
        self._row_groups = RowGroupRules(cores)
        # By SQL, and with intervals.
        self._plans: OrderedDict[tuple[str, bool, CivilTime], OnlinePlan] = OrderedDict()
        self._at_once: OrderedDict[tuple[str, CivilTime | None], WholePlan] = OrderedDict()  # by SQL
        self._ran_whole: OrderedDict[_Question, WholePlan] = OrderedDict()  # see note_whole
        self._is_closed = False
        self._in_use = InUse(layout for layout in catalog.layouts if not layout.is_plain)

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
        written = WrittenSql(sql)
        with self._naming(sql):
            if any(os.path.basename(path) in sql for path in self._paths):
                written = with_tables_of_paths(written, self._table_of, self._effort())
            if self._views_tell_the_time:
                written = written.anew(expand_views(sql, self._views))
            written = self._binder.at(civil_time).with_constants(written, params)
            return as_select(written, [*self._catalog.tables, *self._views], self._describe)

    def _table_of(self, path: str) -> str | None:
        is_a_name = any(path.lower() == name.lower() for name in (*self._catalog.tables, *self._views))
        return None if is_a_name else self._paths.get(written_path(path))

    def _describe(self, sql: str) -> list[tuple[str, str]]:
        effort, catalog = self._effort(), self._catalog
        with self._expanded(sql, effort) as expanded, self._binder.spending(effort) as binder:
            return binder.describe(parse_query(expanded, catalog.tables, effort, catalog.left_out).sql)

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

    def chosen(self, plan: OnlinePlan, options: QueryOptions, below_seconds: float | None) -> OnlinePlan:
        """Return how the SELECT of a plan is run with these options: by the plan, or as a whole.

        It is the whole where the same question turned out to have too many groups before, and where only the
        end is wanted and comes soon. below_seconds: see `at_once`.
        """
        known = self._ran_whole.get(_question(plan, options))
        if known is not None and options.fallback != "error":
            return known
        return self.at_once(plan, below_seconds) if options.wants_the_end_only else plan

    def note_whole(self, plan: OnlinePlan, options: QueryOptions, whole: WholePlan) -> None:
        """Note that a question had too many groups to be estimated. Asked again, it runs as `whole`."""
        self._ran_whole[_question(plan, options)] = whole
        while len(self._ran_whole) > PLANS_KEPT:
            self._ran_whole.popitem(last=False)

    def at_once(self, plan: OnlinePlan, below_seconds: float | None) -> OnlinePlan:
        """Return how the SELECT of a plan is run as a whole, if one core is predicted to take less for that.

        Otherwise the plan is returned. below_seconds: of one core. None is SOON_SECONDS for layouts of the
        cache, since what was made behind the questions must make none slower. For all else None is 0.
        """
        if not plan.is_estimated:
            return plan
        from relaqs_engine.planning.exact import samples_the_cache_alone, whole_core_seconds

        if below_seconds is None:
            below_seconds = SOON_SECONDS if samples_the_cache_alone(plan, self._catalog) else 0.0
        seconds = whole_core_seconds(plan, self._catalog)
        if seconds >= below_seconds:
            return plan
        if (kept := self._at_once.get((plan.sql, plan.civil_time))) is None:
            kept = self.plan_as_whole(plan, _SOON.format(seconds, below_seconds))
            self._at_once[plan.sql, plan.civil_time] = kept
            while len(self._at_once) > PLANS_KEPT:
                self._at_once.popitem(last=False)
        return kept

    def plan_as_whole(self, plan: OnlinePlan, reason: str) -> WholePlan:
        """Return how the SELECT of a plan is answered without estimates, once and exactly. reason: why."""
        with self._naming(plan.sql), self._expanded(plan.sql, self._effort()) as expanded:
            return plan_whole(plan, expanded, self._catalog, reason)

    def advise(self, written: WrittenSql) -> Advice:
        """Return which further layouts of its tables would help a SELECT, as `submitted` returns it."""
        from relaqs_engine.advisor.advise import advise

        effort = self._effort()
        with (
            self._naming(written.asked),
            written.placing(),
            self._expanded(written.sql, effort) as expanded,
        ):
            return advise(expanded, self._catalog, self._binder, effort)

    def close(self) -> None:
        """Plan no more. What is being planned ends with an error."""
        self._is_closed = True
        self._in_use.release()

    def check_open(self) -> None:
        if self._is_closed:
            raise RelaqsError("this session is closed; open another with relaqs.connect")

    def _plan_anew(self, sql: str, intervals: bool, binder: Binder, effort: Effort) -> OnlinePlan:
        with self._expanded(sql, effort) as expanded:
            plan = plan_query(
                expanded,
                self._catalog,
                binder,
                intervals=intervals,
                state_bytes=self._state_bytes,
                effort=effort,
                row_groups=self._row_groups,
                unforeseen=None if is_strict() else self._why_whole,
            )
        return replace(plan, sql=sql, civil_time=binder.civil_time)

    def _why_whole(self, error: Exception) -> str:
        """Return why a query runs as a whole whose estimates could not be planned."""
        self._bind_anew_after(error)
        logger.info("a query runs as a whole, since its estimates could not be planned", exc_info=error)
        return _FAULT.format(fault_of(error))

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

    @contextmanager
    def _expanded(self, sql: str, effort: Effort) -> Iterator[str]:
        """Give the SELECT with its views written out, to a block that plans it."""
        self.check_open()
        expanded = expand_views(sql, self._views, effort) if self._views else sql
        try:
            yield expanded
        except SqlError as error:
            if expanded != sql:  # positions would be those of a text that the user never saw
                raise SqlError(error.message, None, error.candidates) from None
            raise

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


def _question(plan: OnlinePlan, options: QueryOptions) -> _Question:
    """Return what decides which rows a query reads first: its text, its seed and its mini-batches."""
    return plan.sql, plan.civil_time, options.seed, options.batches
