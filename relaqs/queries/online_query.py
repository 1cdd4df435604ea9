"""A running query: what happens on its runner's thread, who hears of it, and the handle that users hold.

    folded step ──► Publisher ──► snapshot ──► feed ──► OnlineQuery, on the threads of whoever reads
                        └──► witnesses

- `Publisher` makes a snapshot of a folded step, and says when the query stops. A query with a target and a
  time for it says whether it will be there, and when instead (`promise`). A query that cannot go on, since
  it has too many groups or its sample is gone, goes over to another way (`Resort`).
- `OnlineQuery` is iterated, asked for its result, and steered.
- A `Witness` hears of each query of a session, and takes no part in it. A query log writes a line of each
  query, metrics count them, and tracing draws their spans. The calls for one query of three mini-batches:

    began(asking)        planned, and about to run; on the thread of whoever asked
    folded(id, report)   three times, on the query's own thread, as is all that follows
    answered(id, 0.2)    after the first of them
    ended(record)

An exception in a witness is logged, and the query goes on.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from relaqs_engine.errors import ExpressionError, RelaqsError, named, naming
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_engine.sql.binder import placed_in

from relaqs.arguments import ArgumentError, check_seconds, relative_error
from relaqs.jobs.executor import Executor, Stopwatch, client_name
from relaqs.jobs.handle import End, Handle, RunListener, State
from relaqs.jobs.job import JobDescription, StepReport
from relaqs.jobs.runner import JobRunner, RunningJobs, RunState, Successor
from relaqs.prediction.ahead import KEPT, Course, Expected, Seen
from relaqs.progress import PIXEL, StopReason, StopRules, UserDelta, answer_pixels
from relaqs.queries.jobs import EstimatingJob, Keeper
from relaqs.queries.options import QueryOptions, asking_user
from relaqs.queries.snapshot import Snapshot, snapshot_of

logger = logging.getLogger("relaqs.witness")


@dataclass(frozen=True, slots=True)
class Asking:
    """A query that is about to run.

    Attributes:
        id: of its job, as in `JobStatus`.
        sql: the SELECT as it runs, with the values of parameters.
        asked_sql: the SELECT as it was written, without them.
        kind: how it is answered, such as "mergeable" or "exact".
        who: asked it; the process where no user was named.
        submitted_at: seconds since 1970.
        user: who asked it, "" where no user was named.
    """

    id: str
    sql: str
    asked_sql: str
    kind: str
    submitted_at: float
    who: str = field(default_factory=lambda: asking_user().name or client_name())
    user: str = field(default_factory=lambda: asking_user().name)


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """What became of a query. All seconds count from its submission.

    Attributes:
        asking: the query.
        outcome: "exact", "stopped" or "failed".
        first_answer_seconds: when the first snapshot was there, None without one.
        seconds: when it was over.
        error: the relative error of the last snapshot, 0.0 of an exact one, None without one.
        fraction: of the rows that were read, as the last snapshot says.
        core_seconds: of the mini-batches that were folded.
        failure: the error that ended it, in words.
    """

    asking: Asking
    outcome: End
    first_answer_seconds: float | None
    seconds: float
    error: float | None
    fraction: float
    core_seconds: float
    failure: str | None


class Witness:
    """Hears of each query. Does nothing at any event: a witness of yours overrides what it cares for."""

    def began(self, asking: Asking) -> None:
        """Hear that a query is about to run. Runs on the thread of whoever asked."""

    def folded(self, id: str, report: StepReport) -> None:
        """Hear that a mini-batch was folded."""

    def answered(self, asking: Asking, seconds: float) -> None:
        """Hear that the first snapshot is there. seconds: since the submission."""

    def ended(self, record: QueryRecord) -> None:
        """Hear that a query is over."""


class Telling:
    """Tells the witnesses of one query. Without any it does nothing.

    Args:
        witnesses: of the session. Those that come later hear of the queries that come later.
        seconds: says how long ago it was submitted.
    """

    def __init__(
        self, witnesses: Sequence[Witness], asking: Callable[[], Asking], seconds: Callable[[], float]
    ) -> None:
        self._witnesses = tuple(witnesses)
        self._asking = asking
        self._told: Asking | None = None
        self._seconds = seconds
        self._first_seconds: float | None = None
        self._core_seconds = 0.0

    def began(self) -> None:
        if self._witnesses:
            self._told = asking = self._asking()
            self._tell(lambda witness: witness.began(asking))

    def folded(self, report: StepReport, has_answer: bool) -> None:
        if (asking := self._told) is None:
            return
        self._core_seconds += report.core_seconds
        self._tell(lambda witness: witness.folded(asking.id, report))
        if has_answer and self._first_seconds is None:
            self._first_seconds = seconds = self._seconds()
            self._tell(lambda witness: witness.answered(asking, seconds))

    def ended(self, outcome: End, latest: Snapshot | None, error: BaseException | None) -> None:
        if (asking := self._told) is None:
            return
        record = QueryRecord(
            asking,
            outcome,
            self._first_seconds,
            self._seconds(),
            None if latest is None or math.isnan(latest.error) else latest.error,
            0.0 if latest is None else latest.fraction,
            self._core_seconds,
            None if error is None else f"{type(error).__name__}: {error}",
        )
        self._tell(lambda witness: witness.ended(record))

    def _tell(self, say: Callable[[Witness], None]) -> None:
        for witness in self._witnesses:
            try:
                say(witness)
            except Exception:
                logger.exception("%s did not take what it was told of a query", type(witness).__name__)


def unix_seconds_of(seconds_ago: float) -> float:
    """Return when that was, in seconds since 1970."""
    return time.time() - seconds_ago


def promise(
    target: float, deadline_seconds: float, elapsed_seconds: float, expected: Expected, *, is_met: bool
) -> str | None:
    """Return one sentence, or None where the target was met in time. Seconds count from the submission.

    expected: from now on.
    """
    goal, limit = f"± {100 * target:g} %", f"{deadline_seconds:g} s"
    if is_met:
        late = elapsed_seconds > deadline_seconds
        return f"{goal} came after {_seconds(elapsed_seconds)}, not within {limit}" if late else None
    at, low, high = (elapsed_seconds + each for each in (expected.seconds, expected.low, expected.high))
    if elapsed_seconds > deadline_seconds:
        said = "was not there"
    elif high <= deadline_seconds:
        said = "will be there"
    else:
        said = "will not be there" if low > deadline_seconds else "may not be there"
    between = f"{_seconds(low)} to {_seconds(high)} in nine of ten cases"
    return f"{goal} {said} within {limit}: expected after {_seconds(at)} ({between})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


class QueryTimeoutError(RelaqsError, TimeoutError):
    """The time was over before the first snapshot. It is a TimeoutError too."""


@dataclass(frozen=True, slots=True)
class Resort:
    """Another job that answers the same query after the first one failed (see `relaqs/queries/start.py`).

    Attributes:
        job: under an id of its own.
        fallback: knows the way to go after this one; None: there is none.
    """

    job: EstimatingJob
    plan: OnlinePlan
    description: JobDescription
    fallback: OtherWay | None = None


class OtherWay(Protocol):
    """Knows another way to answer a query."""

    def after(self, error: Exception, *, has_answered: bool) -> Resort | None:
        """Return the way to go after the first failed with this error; None if there is no other.

        has_answered: whether the first gave a snapshot.
        """
        ...


class Publisher(RunListener[Snapshot]):
    """Turns the estimates of one job into snapshots until the answer is exact, or good enough, or time is up.

    Each snapshot gets a `Course`: the answers so far, each a `Seen`, and the mini-batches ahead. From it
    `relaqs/prediction/ahead.py` predicts when an error is reached.

    Args:
        stopwatch: counts since the query was submitted.
        executor: where it runs. How fast it will go on depends on how many cores there are.
        keeper: saves the job's state in a checkpoint file now and then (`relaqs/queries/jobs.py`).
        fallback: asked for another way when the job fails.
        asked_sql: as it was written.
    """

    def __init__(
        self,
        job: EstimatingJob,
        plan: OnlinePlan,
        options: QueryOptions,
        stopwatch: Stopwatch,
        executor: Executor,
        *,
        keeper: Keeper | None = None,
        fallback: OtherWay | None = None,
        running: RunningJobs | None = None,
        telling: Telling | None = None,
        asked_sql: str = "",
    ) -> None:
        rules = StopRules(options.target, pixels=None if options.chart_pixels is None else PIXEL)
        super().__init__(job.id, rules, running)
        self._job = job
        self._plan = plan
        self._folded_before = 0  # mini-batches of a job that this one took the place of
        self._shown_fraction = 0.0  # of the rows that its newest answer was from
        self._options = options
        self._stopwatch = stopwatch
        self._executor = executor
        self._keeper = keeper or Keeper(None, None)
        self._fallback = fallback
        self._telling = telling
        self._asked_sql = asked_sql
        self._seen: deque[Seen] = deque(maxlen=KEPT)
        self._unseen_core_seconds: list[float] = []  # of each mini-batch since the newest answer
        self._begun_seconds = 0.0
        self._paused_seconds = 0.0
        self._paused_at: float | None = None
        self._moved: UserDelta[Snapshot] = UserDelta(lambda before, now: now.error)
        self._stops = False  # whether the job ends with the step that is being folded
        self._judged: Snapshot | None = None  # has an error by the user's function, and is published next

    def starting(self, runner: JobRunner) -> None:
        """Publish what the job knows already, if it goes on from a saved state; that may be good enough."""
        super().starting(runner)
        if self._telling is not None:
            self._telling.began()
        self._begun_seconds = self._stopwatch.seconds()
        if (estimate := self._job.latest) is None:
            return
        error = estimate.relative_error(self._watched_names, self._options.judge)
        self._stops = self._may_stop(error, self._change_pixels(estimate))
        self._publish(self._snapshot(estimate, self._job.folded, error))
        if self._stops:
            runner.stop()

    @property
    def plan(self) -> OnlinePlan:
        """How the query is answered now."""
        return self._plan

    def should_stop(self, report: StepReport) -> bool:
        """Whether the newest estimate meets the target, or no bar of the chart would move any more."""
        estimate = self._job.latest
        if estimate is None:
            return False
        error = report.quality
        if callable(self._options.watch):
            self._judged = self._snapshot(estimate, report.step + 1, error)
            error = self._judged.error
        self._stops = self._may_stop(error, self._change_pixels(estimate))
        if report.is_spent:
            self.stop_reason, self._stops = self.stop_reason or StopReason.BUDGET, True
        return self._stops

    def folded(self, report: StepReport) -> StepReport:
        """Publish the newest estimate, and return the report for the scheduler.

        Where the user gave a function of the error, the report has its error in the place of ours.
        """
        told = self._published(report)
        self._keeper.keep_if_due(self._stopwatch.seconds())
        if self._telling is not None:
            self._telling.folded(report, has_answer=self.feed.latest is not None)
        return told

    def _published(self, report: StepReport) -> StepReport:
        estimate = self._job.latest
        if estimate is None or not self._tells_more(estimate):
            self._unseen_core_seconds.append(report.core_seconds)
            return report
        snapshot = self._judged or self._snapshot(estimate, report.step + 1, report.quality)
        self._judged = None
        snapshot = self._publish(snapshot, report.core_seconds)
        return self._watched(report, snapshot) if callable(self._options.watch) else report

    def _tells_more(self, estimate: Estimate) -> bool:
        """Return whether it is from more rows than the answers of a job that this one took the place of."""
        return self._stops or estimate.is_exact or estimate.fraction > self._shown_fraction

    def failed(self, error: Exception) -> Successor | None:
        """Go on another way, where there is one, with the snapshots of the job that failed.

        Raises the error of an expression with its place in what the user wrote.
        """
        if (
            self._fallback is None
            or (resort := self._fallback.after(error, has_answered=self.feed.latest is not None)) is None
        ):
            if isinstance(error, ExpressionError):
                raise placed_in(error, self._asked_sql) from error.__cause__
            return None
        self._job.close()
        self._fallback = resort.fallback
        self._judged = None
        latest = self.feed.latest
        self._shown_fraction = 0.0 if latest is None else latest.fraction
        self._folded_before += self._job.folded
        self._job, self._plan = resort.job, resort.plan
        return Successor(resort.job, resort.description)

    def timed_out(self) -> None:
        super().timed_out()
        seconds = self._options.timeout
        self.feed.close("stopped", no_snapshot_within(seconds) if self.feed.latest is None else None)

    def ended(self, state: RunState, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            error = named(error, "answering the query", self._asked_sql or self._plan.sql)
        super().ended(state, error)
        if self._telling is not None and self.feed.end is not None:
            self._telling.ended(self.feed.end, self.feed.latest, error)

    def is_good_enough(self) -> bool:
        latest = self.feed.latest
        return latest is not None and self._may_stop(latest.error, math.inf)

    def _release(self) -> None:
        self._keeper.keep(self._stopwatch.seconds())
        self._job.close()

    def _publish(self, snapshot: Snapshot, core_seconds: float = 0.0) -> Snapshot:
        snapshot = self._foreseeing(snapshot, core_seconds)
        end: End | None = "exact" if snapshot.is_exact else "stopped" if self._stops else None
        self.feed.publish(snapshot, end)
        return snapshot

    def _watched(self, report: StepReport, snapshot: Snapshot) -> StepReport:
        """Return the report with the error by the user's function, and the progress that follows from it.

        The function compares two snapshots, so its error is how far the newest is from the one before.
        """
        is_known = report.step == 0 or math.isfinite(snapshot.error)
        progress = self._moved.update(snapshot) if is_known else math.nan
        return replace(report, quality=snapshot.error, progress=progress)

    def pause(self) -> None:
        """Note that from now on no time counts for the pace."""
        if self._paused_at is None:
            self._paused_at = self._stopwatch.seconds()

    def resume(self) -> None:
        if self._paused_at is not None:
            self._paused_seconds += self._stopwatch.seconds() - self._paused_at
            self._paused_at = None

    def _foreseeing(self, snapshot: Snapshot, core_seconds: float) -> Snapshot:
        """Return the snapshot with what its future follows from, and what is said of its deadline."""
        snapshot = replace(snapshot, course=self._course(snapshot, core_seconds))
        deadline, target = self._options.within, snapshot.target
        if deadline is None or target is None:
            return snapshot
        said = promise(
            target,
            deadline,
            snapshot.elapsed_seconds,
            snapshot.expected(target),
            is_met=snapshot.error <= target,
        )
        return snapshot if said is None else replace(snapshot, warnings=(*snapshot.warnings, said))

    def _course(self, snapshot: Snapshot, core_seconds: float) -> Course:
        seconds = min(snapshot.elapsed_seconds, self._paused_at or math.inf) - self._paused_seconds
        ahead = self._job.fractions[self._job.folded :]
        if self._unseen_core_seconds and self._seen:
            ahead = _likely_answers_ahead(ahead, self._seen[-1].fraction, snapshot.fraction)
        spent = core_seconds + sum(self._unseen_core_seconds)
        self._unseen_core_seconds.clear()
        self._seen.append(Seen(snapshot.fraction, snapshot.error, seconds, spent))
        return Course(tuple(self._seen), ahead, float(self._executor.capacity), self._begun_seconds)

    @property
    def _watched_names(self) -> tuple[str, ...] | None:
        watch = self._options.watch
        return None if callable(watch) else watch

    def _snapshot(self, estimate: Estimate, batch: int, error: float) -> Snapshot:
        """Return the estimate as a snapshot. error: of its watched columns, unless a function gives it."""
        build = partial(
            snapshot_of,
            estimate,
            confidence=self._options.confidence,
            interval=self._options.interval,
            confidence_for=self._options.confidence_for,
            batch=self._folded_before + batch,
            batches=self._folded_before + self._job.batch_count,
            elapsed_seconds=self._stopwatch.seconds(),
            mode=self._plan.mode.value,
            warnings=(*(f"run as a whole: {reason}" for reason in self._plan.why_whole), *estimate.warnings),
            target=self.target,
            widths=estimate.watched_widths(self._watched_names),
            measures=tuple(i for i, output in enumerate(self._plan.outputs) if output.part != "key"),
        )
        watch, before = self._options.watch, self.feed.latest
        if not callable(watch):
            left_out = estimate.not_judged(watch, self._options.judge)
            return build(error=error, not_judged=left_out)
        if estimate.is_exact:
            return build(error=0.0)
        now = build(error=float("inf"))
        return now if before is None else build(error=self._error_by_function(before, now))

    def _error_by_function(self, before: Snapshot, now: Snapshot) -> float:
        """Return the error by the user's function. Raises ArgumentError for whatever that raises."""
        watch = self._options.watch
        assert callable(watch)
        try:
            return float(watch(before, now))
        except Exception as error:
            raise ArgumentError(f"the function `watch` failed: {type(error).__name__}: {error}") from error

    def _change_pixels(self, estimate: Estimate) -> float:
        """Return how far a bar of the watched columns may still move in the chart, inf without a chart."""
        height, watch = self._options.chart_pixels, self._watched_names
        if height is None:
            return math.inf
        chosen = [
            index
            for index, column in enumerate(estimate.approximate)
            if watch is None or column.name in watch
        ]
        values, half_widths = estimate.values[:, chosen], estimate.half_widths[:, chosen]
        return answer_pixels(values, half_widths, estimate.certified[:, chosen], height)


def _likely_answers_ahead(ahead: tuple[float, ...], before: float, now: float) -> tuple[float, ...]:
    """Return the fractions of the rows after which answers likely come, where not each mini-batch has one.

    Each is taken to come once as many times more rows were read as between the newest two.

    ahead: after each mini-batch to come. before, now: of the newest two answers.

    >>> _likely_answers_ahead((0.2, 0.3, 0.4, 0.6, 0.8, 1.0), before=0.1, now=0.2)
    (0.4, 0.8, 1.0)
    """
    kept, newest, growth = [], now, now / before
    for fraction in ahead:
        if fraction >= growth * newest or fraction == ahead[-1]:
            kept.append(fraction)
            newest = fraction
    return tuple(kept)


def no_snapshot_within(seconds: float | None, *, was_paused: bool = False) -> QueryTimeoutError:
    if was_paused:
        return QueryTimeoutError(
            f"no snapshot came within {seconds} s, as the query was paused; call resume() before result()"
        )
    return QueryTimeoutError(
        f"no snapshot came within {seconds} s; allow more time, or lay the table out (`relaqs shuffle`), "
        "in more partitions if it is laid out already: then the first estimate comes sooner"
    )


class OnlineQuery(Handle[Snapshot]):
    """A query that is being answered, better and better.

    Each `for` or `async for` gets the newest snapshot each time round. A slow loop skips some. The last
    snapshot always arrives, and over a query that has ended it is the only one. `await query` gives the last
    alone. Leaving a `with` stops the query. So does ctrl-C while waiting for a snapshot, or in asyncio the
    cancelling of a task that waits for one. So does dropping the last reference to the query.

    >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
    >>> for snapshot in query:
    ...     pass
    >>> snapshot.is_exact
    True
    """

    def __init__(
        self,
        publisher: Publisher,
        job: EstimatingJob,
        executor: Executor,
        description: JobDescription,
        *,
        timeout: float | None = None,
    ) -> None:
        """Set the query up.

        Args:
            publisher: makes snapshots of the job's estimates.
            timeout: seconds after which it is stopped.
        """
        runner = JobRunner(job, executor, description, publisher, timeout_seconds=timeout)
        super().__init__(runner, publisher)
        self._publisher = publisher

    if not TYPE_CHECKING:  # which would take any name for one of a query

        def __getattr__(self, name: str) -> NoReturn:
            is_known = hasattr(Snapshot, name) and not name.startswith("_")
            hint = f": .result().{name} waits for the last snapshot" if is_known else ""
            raise AttributeError(f"a query has no {name!r}{hint}", name=name, obj=self)

    @property
    def sql(self) -> str:
        """The SELECT that is being answered.

        >>> query.sql
        'SELECT sum(x) AS total FROM numbers'
        """
        return self.plan.sql

    @property
    def plan(self) -> OnlinePlan:
        """How the query is answered.

        >>> query.plan.mode.value
        'mergeable'
        """
        return self._publisher.plan

    @property
    def state(self) -> State:
        """One of waiting, running, paused; at the end stopped, exact or failed.

        >>> snapshot = query.result()
        >>> query.state
        'exact'
        """
        return self._publisher.feed.end or _STATES[self.runner.state]

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it stopped by itself before it was exact: target reached, time is up, no visible change.

        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers", target="50%")
        >>> snapshots = list(query)
        >>> query.stop_reason.value
        'target reached'
        """
        return self._publisher.stop_reason

    @property
    def latest(self) -> Snapshot | None:
        """The newest snapshot, None before the first.

        >>> query.wait()
        True
        >>> query.latest.is_exact
        True
        """
        return self._publisher.feed.latest

    def expected(self, target: float | str) -> Expected | None:
        """Return when the error will be the target, as the newest snapshot predicts; None before it.

        >>> snapshot = query.result()
        >>> query.expected("1%").seconds
        0.0
        """
        return None if self.latest is None else self.latest.expected(target)

    def pause(self) -> None:
        """Start no more mini-batches. Those that run are finished. The timeout goes on.

        >>> query.pause()
        >>> query.resume()
        >>> query.result().is_exact
        True
        """
        self._publisher.pause()
        super().pause()

    def resume(self) -> None:
        """Go on after `pause`, whose example shows both."""
        self._publisher.resume()
        super().resume()

    def explain(self) -> str:
        """Return the plan in words and SQL.

        >>> print(query.explain().splitlines()[0])
        mode: mergeable
        """
        from relaqs_engine.plans.explain import explain

        return explain(self.plan)

    def display(self, **look: Any) -> object:
        """Return what a notebook shows of the query while it runs: its chart, as on a dashboard.

        Without anywidget it is the newest snapshot, as a table.

        Args:
            look: what a dashboard's panel has, such as `chart="bars"`, `title`, and the columns `x`, `y` and
                `series`. `face="name"` picks the face of another package.

        Raises:
            ArgumentError: there is no such face.
        """
        from relaqs.rendering.html import display

        return display(self, **look)

    def result(self, until: float | str | None = None, timeout: float | None = None) -> Snapshot:
        """Return the exact answer, or the first snapshot with an error of `until`, and end the query.

        Args:
            until: the relative error that is good enough, such as 0.01 or "1%".
            timeout: seconds after which the newest snapshot is returned.

        Raises:
            QueryTimeoutError: no snapshot came within the timeout.
            RelaqsError: the query failed, or was stopped before its first snapshot.

        >>> query.result().estimate.to_pydict()
        {'total': [Decimal('499500')]}
        """
        enough = relative_error(until, "until")
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        # The statement is asked for inside of a block too: that may fail like all else.
        with naming("reading the answer"), naming("reading the answer", self.sql):
            reader = iter(self)
            while (snapshot := reader.next_within(_seconds_left(deadline))) is not None:
                if snapshot.is_exact or (enough is not None and snapshot.error <= enough):
                    break
            snapshot = snapshot or self.latest
            was_paused = self.state == "paused"
            self.stop()
        if snapshot is not None:
            return snapshot
        if deadline is not None and not _seconds_left(deadline):
            raise no_snapshot_within(seconds, was_paused=was_paused)
        raise RelaqsError("the query was stopped before its first snapshot; run it again, or stop it later")

    def __await__(self) -> Generator[Any, None, Snapshot]:
        return self._awaited().__await__()

    async def _awaited(self) -> Snapshot:
        async for _ in self:
            pass
        return self.result()

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        from relaqs.rendering.html import cell_forms

        return cell_forms(self)

    def _checked_target(self, target: Any) -> float | None:
        return relative_error(target)

    def __repr__(self) -> str:
        from relaqs.rendering.view_model import heading

        newest = "no snapshot yet" if self.latest is None else heading(self.latest)
        return f"<OnlineQuery {self.state}: {newest}>"


_STATES: dict[RunState, State] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.STOPPED: "stopped",
    RunState.EXACT: "exact",
    RunState.FAILED: "failed",
}


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
