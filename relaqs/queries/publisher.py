"""Publisher: what happens to a query on its runner's thread, from a folded step to a published snapshot."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from relaqs_engine.errors import RelaqsError
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.plans.online_plan import OnlinePlan

from relaqs.jobs.job import StepReport
from relaqs.jobs.stopping import PIXEL, StopReason, StopRules, answer_pixels
from relaqs.options import QueryOptions
from relaqs.prediction.arrival import KEPT, Course, Seen
from relaqs.progress.user_delta import UserDelta
from relaqs.queries.feed import End, Feed
from relaqs.queries.promise import promise
from relaqs.snapshot import Snapshot, snapshot_of


class QueryTimeoutError(RelaqsError, TimeoutError):
    """The time was over before the first snapshot. It is a TimeoutError too."""


class EstimatingJob(Protocol):
    """What is asked of a query's job: the newest estimate, the mini-batches in it, and of how many."""

    @property
    def latest(self) -> Estimate | None: ...

    @property
    def folded(self) -> int: ...

    @property
    def batch_count(self) -> int: ...

    @property
    def fractions(self) -> tuple[float, ...]:
        """The share of the rows that has been scanned after each mini-batch."""
        ...


class Publisher:
    """Turns the estimates of one job into snapshots until the answer is exact, or good enough, or time is up.

    It knows the feed and not the user's handle, so that a query nobody refers to can be noticed and stopped.
    elapsed_seconds: tells the time since the query was submitted.
    """

    def __init__(
        self,
        job: EstimatingJob,
        plan: OnlinePlan,
        options: QueryOptions,
        elapsed_seconds: Callable[[], float],
        cores: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.feed = Feed()
        self._job = job
        self._plan = plan
        self._folded_before = 0  # mini-batches of a job that this one took the place of
        self._options = options
        self._elapsed_seconds = elapsed_seconds
        self._rules = StopRules(options.target, pixels=None if options.chart_pixels is None else PIXEL)
        self.stop_reason: StopReason | None = None
        self._cores = cores
        self._seen: deque[Seen] = deque(maxlen=KEPT)
        self._begun_seconds = 0.0
        self._paused_seconds = 0.0
        self._paused_at: float | None = None
        self._moved: UserDelta[Snapshot] = UserDelta(lambda before, now: now.error)
        self._stop_work: Callable[[], None] = lambda: None
        self._timer: threading.Timer | None = None

    def begin(self, stop_work: Callable[[], None]) -> None:
        """Start the timeout, and publish what the job knows already if it goes on from a saved state.

        stop_work: asks the runner to drop the job; it returns at once.
        """
        self._stop_work = stop_work
        self._begun_seconds = self._elapsed_seconds()
        if (estimate := self._job.latest) is not None:
            error = estimate.relative_error(self._watched_names, self._options.judge)
            self._publish(estimate, self._job.folded, error)
        if self._options.timeout is not None:
            self._timer = threading.Timer(self._options.timeout, self._run_out_of_time)
            self._timer.daemon = True
            self._timer.start()

    @property
    def plan(self) -> OnlinePlan:
        """How the query is answered now."""
        return self._plan

    def follow(self, job: EstimatingJob, plan: OnlinePlan) -> None:
        """Publish the estimates of a job that took the place of the one before. On the runner's thread."""
        self._folded_before += self._job.folded
        self._job, self._plan = job, plan

    @property
    def target(self) -> float | None:
        return self._rules.target

    @target.setter
    def target(self, target: float | None) -> None:
        self._rules = replace(self._rules, target=target)
        latest = self.feed.latest
        if latest is not None and target is not None and latest.error <= target:
            self.stop_reason = self.stop_reason or StopReason.TARGET
            self.close("stopped")

    def on_report(self, report: StepReport) -> StepReport:
        """Publish the job's newest estimate; return the report as the user's own function sees it, if any."""
        estimate = self._job.latest
        if estimate is None:
            return report
        snapshot = self._publish(estimate, report.step + 1, report.quality, report.core_seconds)
        return self._watched(report, snapshot) if callable(self._options.watch) else report

    def _publish(self, estimate: Estimate, batch: int, error: float, core_seconds: float = 0.0) -> Snapshot:
        snapshot = self._foreseeing(self._snapshot(estimate, batch, error), core_seconds)
        end = self._end_with(snapshot, estimate)
        if self.feed.publish(snapshot, end) and end is not None:
            self._release()
        return snapshot

    def _watched(self, report: StepReport, snapshot: Snapshot) -> StepReport:
        """The error the user's function gave is the distance from the snapshot before."""
        is_known = report.step == 0 or math.isfinite(snapshot.error)
        progress = self._moved.update(snapshot) if is_known else math.nan
        return replace(report, quality=snapshot.error, progress=progress)

    def close(self, end: End, error: BaseException | None = None) -> None:
        """End the query with the snapshots it has. Does nothing once it is over."""
        if self.feed.close(end, error):
            self._release()

    def _run_out_of_time(self) -> None:
        seconds = self._options.timeout
        self.stop_reason = self.stop_reason or StopReason.TIME
        self.close("stopped", no_snapshot_within(seconds) if self.feed.latest is None else None)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._stop_work()

    def pause(self) -> None:
        """Note that from now on no time counts for the pace."""
        if self._paused_at is None:
            self._paused_at = self._elapsed_seconds()

    def resume(self) -> None:
        if self._paused_at is not None:
            self._paused_seconds += self._elapsed_seconds() - self._paused_at
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
        self._seen.append(Seen(snapshot.fraction, snapshot.error, seconds, core_seconds))
        ahead = self._job.fractions[self._job.folded :]
        return Course(tuple(self._seen), ahead, self._cores(), self._begun_seconds)

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
            batch=self._folded_before + batch,
            batches=self._folded_before + self._job.batch_count,
            elapsed_seconds=self._elapsed_seconds(),
            mode=self._plan.mode.value,
            warnings=(*(f"run as a whole: {reason}" for reason in self._plan.why_whole), *estimate.warnings),
            target=self.target,
            widths=estimate.watched_widths(self._watched_names),
        )
        watch, before = self._options.watch, self.feed.latest
        if not callable(watch):
            return build(error=error)
        if estimate.is_exact:
            return build(error=0.0)
        now = build(error=float("inf"))
        return now if before is None else build(error=float(watch(before, now)))

    def _end_with(self, snapshot: Snapshot, estimate: Estimate) -> End | None:
        if snapshot.is_exact:
            return "exact"
        change_pixels = self._change_pixels(estimate)
        reason = self._rules.reason(snapshot.error, change_pixels)
        self.stop_reason = self.stop_reason or reason
        return None if reason is None else "stopped"

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


def no_snapshot_within(seconds: float | None) -> QueryTimeoutError:
    return QueryTimeoutError(
        f"no snapshot came within {seconds} s; allow more time, or lay the table out in more partitions, "
        "so that the first mini-batch is smaller"
    )
