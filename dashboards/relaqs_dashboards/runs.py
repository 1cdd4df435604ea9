"""Runs: the queries behind the panels. Identical queries share one, which ends after its last viewer.

All of this lives on the server's event loop. Planning and starting, which may take tens of milliseconds,
happen on threads (`Threads`): the event loop goes on, one user takes no other's, and the end waits for
none. What queries say comes back through their own feeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa
from relaqs_engine.plans.costly import CostlyPlan

from relaqs import OnlinePlan, OnlineQuery, RelaqsError, Session, Snapshot, Table
from relaqs.jobs.executor import background_thread
from relaqs.progress import StopReason
from relaqs.queries.options import QueryOptions, asked_by
from relaqs.queries.snapshot import ConfidenceFor, Interval
from relaqs_dashboards.access import Limits
from relaqs_dashboards.answers import answer_of, column_type, fitting_chart
from relaqs_dashboards.pages import TIMES, Column, day_of
from relaqs_dashboards.settings import Params
from relaqs_dashboards.wire import AnswerColumn, Failure, TimeColumn, encoded

_Result = TypeVar("_Result")


class Threads:
    """Runs calls on threads of their own, so many of one user at once; further ones wait their turn.

    A call keeps its place until it ends, even if its caller has gone, because no thread can be stopped.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._free: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(most))

    async def run(self, user: str, call: Callable[[], _Result]) -> _Result:
        """Return what the call returns, or raise what it raises."""
        free = self._free[user]
        await free.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[_Result] = loop.create_future()
        ended.add_done_callback(lambda _: free.release())

        def work() -> None:
            try:
                settle = partial(ended.set_result, call())
            except BaseException as error:
                settle = partial(ended.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop was closed, and its callers have gone
                loop.call_soon_threadsafe(settle)

        try:
            background_thread(work, self._name).start()
        except RuntimeError as error:  # the machine has no thread left
            ended.set_exception(error)
        return await asyncio.shield(ended)


_SAVE_SECONDS = 5.0  # what queries may take to stop and keep their state
_STARTS = 4  # of one user at once
PLAN_SECONDS = 10.0  # for a plan: DuckDB alone takes a second for the largest query that is accepted
_WEIGHT_WHEN_MET = 0.1  # of the panel's priority: what is good enough goes on with what others leave


class Watcher(Protocol):
    """A panel that shows a run: told of every change, asked how much it matters and how many look at it."""

    @property
    def viewer_count(self) -> int: ...

    @property
    def weight(self) -> float: ...

    @property
    def target(self) -> float | None: ...

    def run_changed(self) -> None: ...

    def run_restarted(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RunKey:
    """What makes two queries the same: the plan, whatever the SQL looked like, and how bars must hold."""

    plan: OnlinePlan
    confidence: float
    interval: Interval
    confidence_for: ConfidenceFor

    @property
    def digest(self) -> str:
        """Return a name for files."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]


@dataclass(eq=False)
class Run:
    """One query, as long as somebody wants to see it.

    Attributes:
        user: who asked for it first, and is charged for it.
        query: its handle. None while it waits for its turn or is being started.
        is_halted: whether it was stopped before it had begun.
        is_stale: whether the files have changed that it reads.
        reason: why it stands as it does, in words.
        version: counts the answers.
        target: the relative error that the scheduler knows as its target.
    """

    key: RunKey
    sql: str
    user: str
    watchers: set[Watcher] = field(default_factory=set)
    query: OnlineQuery | None = None
    snapshot: Snapshot | None = None
    version: int = 0
    failure: Failure | None = None
    reason: str | None = None
    watching: asyncio.Task[None] | None = None
    is_halted: bool = False
    is_stale: bool = False
    target: float | None = None
    _answer: tuple[int, str] = (0, "null")

    @property
    def plan(self) -> OnlinePlan:
        return self.key.plan

    @property
    def state(self) -> str:
        """One of waiting, running, paused, stopped, exact, failed."""
        if self.failure is not None:
            return "failed"
        if self.query is None:
            return "stopped" if self.is_halted else "waiting"
        return self.query.state

    @property
    def is_kept(self) -> bool:
        """Whether it goes on where it was, after a stop and after the server was started again."""
        return (self.plan if self.query is None else self.query.plan).keeps_state

    @property
    def is_active(self) -> bool:
        return self.query is not None and self.state in ("waiting", "running", "paused")

    @property
    def wanted(self) -> float | None:
        """The relative error that is good enough for all who look at it, None where somebody names none."""
        targets = [watcher.target for watcher in self.watchers]
        return None if None in targets else min(filter(None, targets), default=None)

    @property
    def viewer_count(self) -> int:
        return sum(watcher.viewer_count for watcher in self.watchers)

    @property
    def answer(self) -> str:
        """The answer so far as JSON, encoded once for everybody."""
        if self.snapshot is not None and self._answer[0] != self.version:
            kinds = {i: output.part for i, output in enumerate(self.plan.outputs)}
            shown = answer_of(self.snapshot, kinds, ranked=self.plan.is_ordered)
            self._answer = (self.version, encoded(shown))
        return self._answer[1]

    @property
    def fitting_chart(self) -> str | None:
        """The chart that fits the answer so far, None where there is none."""
        if self.snapshot is None:
            return None
        fields = self.snapshot.estimate.schema
        kinds = [output.part for output in self.plan.outputs]
        kinds += ["key"] * (len(fields) - len(kinds))
        columns = [
            AnswerColumn(each.name, kind, column_type(each.type))
            for each, kind in zip(fields, kinds, strict=False)
        ]
        return fitting_chart(columns, len(self.snapshot))

    def tell(self) -> None:
        for watcher in list(self.watchers):
            watcher.run_changed()


class Runs:
    """Every run of a server.

    Args:
        checkpoints: the folder in which the state of queries is kept.
        budget: what the query of a panel may ask the session's costly functions, as `asked_by` takes it.
    """

    def __init__(
        self,
        session: Session,
        checkpoints: Path,
        limits: Limits,
        *,
        confidence: float = 0.95,
        interval: Interval = "pointwise",
        confidence_for: ConfidenceFor = "cell",
        budget: float | str = 0,
    ) -> None:
        self.session = session
        self.measured: Mapping[str, Table] = {}
        self.limits = limits
        self.confidence = confidence
        self.interval: Interval = interval
        self.confidence_for: ConfidenceFor = confidence_for
        self.budget = budget
        self._checkpoints = checkpoints
        self._runs: dict[RunKey, Run] = {}
        self._waiting: list[Run] = []
        self._planning = Threads("relaqs-plan", limits.plans)
        self._starting = Threads("relaqs-start", _STARTS)

    @property
    def all(self) -> tuple[Run, ...]:
        return tuple(self._runs.values())

    async def plan(self, sql: str, user: str, params: Params | None = None) -> OnlinePlan:
        """Return the plan of a user's query. Raises SqlError and its kin, QueryTimeoutError after a while."""
        planned = partial(self.session.plan, sql, params=params, timeout=PLAN_SECONDS)
        return await self._planning.run(user, planned)

    async def read(self, user: str, call: Callable[[], _Result]) -> _Result:
        """Return what a call about a query's text returns, computed as plans are: on a user's thread."""
        return await self._planning.run(user, call)

    def column_names(self) -> dict[str, tuple[str, ...]]:
        """Return the tables with their columns, all in lower case, each table once."""
        return {
            name.lower().partition("@")[0]: tuple(column.name.lower() for column in table.columns)
            for name, table in self.session.tables.items()
        }

    def ends_of(self, table: str, column: str) -> tuple[object, object] | None:
        """Return the least and the greatest value of a table's column, None where they are not known."""
        for name, layout in self.measured.items():
            if name.lower() == table:
                known = [each for each in layout.columns if each.name.lower() == column.lower()]
                ends = [self._shown_ends(each) for each in known if each.minimum is not None]
                return ends[0] if ends else None
        return None

    def times_of(self, tables: Collection[str]) -> tuple[TimeColumn, ...]:
        """Return the columns of dates and moments of tables, as far as their ends are known."""
        return tuple(
            TimeColumn(name.lower(), column.name, first, last, column.type != "DATE")
            for name, layout in self.measured.items()
            if name.lower() in tables
            for column in layout.columns
            if TIMES.fullmatch(column.type)
            and (ends := self._shown_ends(column))
            and (first := day_of(ends[0]))
            and (last := day_of(ends[1]))
        )

    def _shown_ends(self, column: Column) -> tuple[object, object]:
        """Return the least and the greatest value; moments with a zone as the session's clocks show them."""
        ends = column.minimum, column.maximum
        if "ZONE" not in column.type:
            return ends
        try:
            zone = pa.lib.string_to_tzinfo(self.session.timezone)
            first, last = (dt.datetime.fromisoformat(str(end)).astimezone(zone) for end in ends)
        except (pa.ArrowException, ValueError, OverflowError):  # such as infinity
            return ends
        return str(first.replace(tzinfo=None)), str(last.replace(tzinfo=None))

    def type_of_time(self, table: str, column: str) -> str | None:
        """Return the type of a column of dates or moments, None where it is no such column."""
        return next(
            (
                "TIMESTAMPTZ" if "ZONE" in each.type else each.type
                for name, layout in self.measured.items()
                if name.lower() == table
                for each in layout.columns
                if each.name == column and TIMES.fullmatch(each.type)
            ),
            None,
        )

    def attach(self, watcher: Watcher, plan: OnlinePlan, user: str) -> Run:
        """Return the run of a planned query, a new one unless somebody looks at the same already."""
        key = RunKey(replace(plan, sql=""), self.confidence, self.interval, self.confidence_for)
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = Run(key, plan.sql, user)
            run.watchers.add(watcher)
            self._begin(run)
        run.watchers.add(watcher)
        self.reweigh(run)
        run.tell()
        return run

    def detach(self, watcher: Watcher, run: Run) -> None:
        """Take a viewer's panel off its run; the last one ends it."""
        run.watchers.discard(watcher)
        if run.watchers:
            self.reweigh(run)
            run.tell()
        elif self._runs.get(run.key) is run:
            del self._runs[run.key]
            self._end(run)

    def reweigh(self, run: Run) -> None:
        """Give the run the weight that those who look at it want, and tell the scheduler what is enough.

        A query goes on beyond its target, so the target is not the query's own, which would end it there. One
        that asks costly functions ends there.
        """
        if run.query is None or not run.is_active or not run.watchers:
            return
        weight = max(watcher.weight for watcher in run.watchers)
        if weight != run.query.priority:
            run.query.priority = weight
        if run.wanted != run.target:
            run.target = run.wanted
            run.query.runner.set_target(run.target)

    def stop(self, run: Run, reason: str) -> None:
        """End the run with the answer it has."""
        run.reason = reason
        if run.query is not None:
            run.query.stop()
        else:
            run.is_halted = True
            self._end(run)
        run.tell()

    def pause(self, run: Run, reason: str) -> None:
        if run.query is not None and run.state in ("waiting", "running"):
            run.reason = reason
            run.query.pause()
            run.tell()

    def resume(self, run: Run) -> None:
        """Let a paused run go on, and a stopped one from where it was."""
        if run.query is not None and run.state == "paused":
            run.reason = None
            run.query.resume()
            run.tell()
        elif run.state == "stopped":
            self._begin(run)

    def restart(self, run: Run) -> None:
        """Start the run from nothing, for everybody who looks at it."""
        self._end(run)
        run.snapshot, run.failure, run.version = None, None, run.version + 1
        for watcher in list(run.watchers):
            watcher.run_restarted()
        self._begin(run, resume=False)

    async def close(self) -> None:
        """Stop everything, its state kept."""
        runs, self._runs = self.all, {}
        for run in runs:
            self._end(run)
        queries = [run.query for run in runs if run.query is not None]
        await Threads("relaqs-end", 1).run("", partial(_wait_for, queries))

    def _begin(self, run: Run, *, resume: bool = True) -> None:
        """Start the run, or let it wait until its user may run one more. resume: from where it was saved."""
        before, run.query, run.reason, run.is_halted = run.query, None, None, False
        run.target = None
        running = [each for each in self.all if each.user == run.user and _counts(each, but=run)]
        if len(running) >= self.limits.running_queries:
            run.reason = (
                f"{run.user} has {len(running)} queries running, the most allowed; one must end first"
            )
            self._waiting.append(run)
            run.tell()
            return
        run.watching = asyncio.create_task(self._follow(run, before, resume))
        run.watching.add_done_callback(lambda task: self._begin_next())

    def _begin_next(self) -> None:
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            if self._runs.get(run.key) is run:
                self._begin(run)

    def _end(self, run: Run) -> None:
        if run in self._waiting:
            self._waiting.remove(run)
        if run.watching is not None:
            run.watching.cancel()
            run.watching = None
        if run.query is not None:
            run.query.stop()

    async def _follow(self, run: Run, before: OnlineQuery | None, resume: bool) -> None:
        """Start the query and take what it says until it is over. before: what the run was until now."""
        try:
            query = await self._starting.run(run.user, partial(self._start, run, before, resume))
        except Exception as error:  # whatever kept it from starting, the page says so
            self._fail(run, error)
            return
        run.query = query
        self.reweigh(run)
        run.tell()
        try:
            async for snapshot in query:
                self._take(run, snapshot)
        except Exception as error:  # whatever ended the query, the page says so
            self._fail(run, error)
        if run.reason is None and run.state == "stopped":
            most = f"stopped after {self.limits.run_seconds:.0f} s, the most that a query may run here"
            reasons = {
                StopReason.BUDGET: f"the budget of {self.budget} for functions is spent",
                StopReason.TARGET: "its target is reached, and more calls would cost more",
            }
            run.reason = reasons.get(query.stop_reason or StopReason.STOPPED, most)
        run.tell()

    def _start(self, run: Run, before: OnlineQuery | None, resume: bool) -> OnlineQuery:
        if before is not None:
            before.wait(_SAVE_SECONDS)
        options = QueryOptions(
            target=run.wanted if isinstance(run.plan, CostlyPlan) else None,
            confidence=run.key.confidence,
            interval=run.key.interval,
            confidence_for=run.key.confidence_for,
            timeout=self.limits.run_seconds,
        )
        plan = replace(run.plan, sql=run.sql)
        with asked_by(run.user, budget=self.budget):
            return self.session.start(plan, options, checkpoint=self._checkpoint(run), resume=resume)

    def _checkpoint(self, run: Run) -> Path:
        return self._checkpoints / f"{run.key.digest}.arrow"

    def _take(self, run: Run, snapshot: Snapshot) -> None:
        run.snapshot = snapshot
        run.version += 1
        held = sum(
            each.snapshot.table.nbytes
            for each in self.all
            if each.user == run.user and each.snapshot is not None
        )
        if held > self.limits.answer_bytes and not snapshot.is_exact:
            most = self.limits.answer_bytes >> 20
            self.stop(run, f"stopped: {run.user}'s answers would take more than {most} MiB; add a LIMIT")
        self.reweigh(run)
        run.tell()

    def _fail(self, run: Run, error: BaseException) -> None:
        run.failure = failure_of(error, run.sql)
        run.tell()


def _wait_for(queries: Sequence[OnlineQuery]) -> None:
    """Wait until the queries have ended, or their time is up."""
    deadline = time.monotonic() + _SAVE_SECONDS
    for query in queries:
        query.wait(max(0.0, deadline - time.monotonic()))


def met_weight(priority: float) -> float:
    """Return the weight of a query whose target is met."""
    return priority * _WEIGHT_WHEN_MET


def failure_of(error: BaseException, sql: str) -> Failure:
    """Return what a page says of an error. Errors of this project are for people, of others only the kind."""
    if not isinstance(error, RelaqsError):
        return Failure(f"the query failed inside ({type(error).__name__})", None, ())
    message = getattr(error, "message", None) or str(error)
    position, candidates = getattr(error, "position", None), getattr(error, "candidates", ())
    return Failure(message, None if position is None else _offset(sql, *position), tuple(candidates))


def _offset(sql: str, line: int, column: int) -> int | None:
    """Return the place of a character, from 0, in a text; line and column from 1."""
    lines = sql.split("\n")
    if not 1 <= line <= len(lines):
        return None
    before = sum(len(each) + 1 for each in lines[: line - 1])
    return before + min(column - 1, len(lines[line - 1]))


def _counts(run: Run, *, but: Run) -> bool:
    """Whether a run takes one of its user's places: those that are being started, too."""
    return run is not but and (
        run.is_active or (run.query is None and run.watching is not None and not run.watching.done())
    )
