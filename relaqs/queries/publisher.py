"""Publisher: what happens to a query on its runner's thread, from a folded step to a published snapshot.

A query with a target and a time for it says whether it will be there, and when instead (`promise`).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from relaqs_engine.errors import ExpressionError, RelaqsError, named
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.plans.plan import OnlinePlan
from relaqs_engine.sql.binder import placed_in

from relaqs.arguments import ArgumentError
from relaqs.jobs.executor import Executor
from relaqs.jobs.feed import End
from relaqs.jobs.handle import RunListener
from relaqs.jobs.job import Job, JobDescription, StepReport
from relaqs.jobs.runner import Joinable, RunningJobs, RunState, Successor
from relaqs.jobs.threads import Stopwatch
from relaqs.prediction.ahead import KEPT, Course, Expected, Seen
from relaqs.progress import PIXEL, StopRules, UserDelta, answer_pixels
from relaqs.queries.checkpoint import Keeper
from relaqs.queries.options import QueryOptions
from relaqs.queries.snapshot import Snapshot, snapshot_of
from relaqs.queries.witness import Telling


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


class EstimatingJob(Job, Protocol):
    """A job whose steps give estimates of one query's answer."""

    @property
    def latest(self) -> Estimate | None:
        """The newest estimate, None before the first."""
        ...

    @property
    def folded(self) -> int:
        """How many mini-batches it holds."""
        ...

    @property
    def batch_count(self) -> int: ...

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        ...

    def close(self) -> None:
        """Give back the merged state. Safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class Resort:
    """Another job that answers the same query after the first one failed (see `relaqs/queries/start.py`).

    Attributes:
        job: under an id of its own.
        plan: how it answers the query.
        description: what the scheduler learns of the job.
    """

    job: EstimatingJob
    plan: OnlinePlan
    description: JobDescription


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
        job: gives the estimates.
        plan: how the query is answered.
        options: what the user asked for.
        stopwatch: counts since the query was submitted.
        executor: where it runs. How fast it will go on depends on how many cores there are.
        keeper: saves the job's state in a checkpoint file now and then (`relaqs/queries/checkpoint.py`).
        fallback: asked for another way when the job fails.
        running: the jobs of the session.
        telling: tells the witnesses of the session.
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

    def starting(self, runner: Joinable) -> None:
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
        if estimate is None:
            self._unseen_core_seconds.append(report.core_seconds)
            return report
        snapshot = self._judged or self._snapshot(estimate, report.step + 1, report.quality)
        self._judged = None
        snapshot = self._publish(snapshot, report.core_seconds)
        return self._watched(report, snapshot) if callable(self._options.watch) else report

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
        self._fallback = None  # if the other way fails too, the query does
        self._judged = None
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
