"""Listener: what a runner tells the owner of its job.

Every job has one listener. A query's makes snapshots, a training run's keeps the losses, a paced loop's
lets go of the core at the end. The order of calls for a job of three steps, the second good enough:

    should_stop(report 0) → False      the runner issues another step
    folded(report 0)
    should_stop(report 1) → True       the runner issues no more
    folded(report 1)
    ended(STOPPED, None)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic

from relaqs.jobs.description import JobDescription
from relaqs.jobs.feed import AnyReport, End, Feed
from relaqs.jobs.job import Job, StepReport
from relaqs.jobs.running import Joinable, RunningJobs
from relaqs.jobs.stopping import StopReason, StopRules


class RunState(StrEnum):
    """Where a job stands. The last three are for good."""

    WAITING = "waiting"  # no task has come back yet
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    EXACT = "exact"  # its last report was final
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (RunState.STOPPED, RunState.EXACT, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Successor:
    """A job that takes the place of one that failed. It has an id and a description of its own."""

    job: Job
    description: JobDescription


class Listener:
    """Does nothing at any event. Owners of jobs override what they care for.

    All methods but `timed_out` and `ended_by_plan` run on the runner's thread, and an exception in one of
    them fails the job. But `ended` must not raise, and an exception in `timed_out` fails nothing: the job is
    stopped all the same.
    """

    def should_stop(self, report: StepReport) -> bool:
        """Return whether the job is good enough. Asked after each fold that is not the last."""
        return False

    def folded(self, report: StepReport) -> StepReport:
        """Take the report of a fold, and return what the scheduler gets of it."""
        return report

    def failed(self, error: Exception) -> Successor | None:
        """Return the job that takes the place of one that failed, or None: the run has failed."""
        return None

    def timed_out(self) -> None:
        """The job's time is over. The runner stops it next. Runs on a thread of its own."""

    def ended_by_plan(self) -> None:
        """A plan of the policy ends the job. The runner stops it next. Called from any thread."""

    def ended(self, state: RunState, error: BaseException | None) -> None:
        """The run is over and its cores are free. Called once."""


class RunListener(Listener, Generic[AnyReport]):
    """The listener behind a user's handle: a feed of reports, and the rules by which the job may stop.

    It does not know the handle, so that a handle which nothing refers to any more can be noticed.

    Attributes:
        feed: the reports, for readers.
        stop_reason: why the job stopped by itself, None while it runs or if it was stopped from outside.
    """

    def __init__(self, job_id: str, rules: StopRules, running: RunningJobs | None = None) -> None:
        self.feed: Feed[AnyReport] = Feed()
        self.stop_reason: StopReason | None = None
        self._job_id = job_id
        self._rules = rules
        self._running = running

    @property
    def target(self) -> float | None:
        """The error or loss to stop at."""
        return self._rules.target

    @target.setter
    def target(self, target: float | None) -> None:
        self._rules = replace(self._rules, target=target)

    def starting(self, runner: Joinable) -> None:
        """The run is about to start: note it among those of its session."""
        if self._running is not None:
            self._running.register(runner)

    def is_good_enough(self) -> bool:
        """Whether the newest report meets the target as it is now. Asked when the target was changed."""
        return False

    def timed_out(self) -> None:
        if self.feed.end is None:
            self.stop_reason = self.stop_reason or StopReason.TIME

    def ended(self, state: RunState, error: BaseException | None) -> None:
        self.feed.close(_ENDS[state], error)
        try:
            self._release()
        finally:
            if self._running is not None:
                self._running.forget(self._job_id)

    def _release(self) -> None:
        """Give back what the job holds. Called once, at its end."""

    def _may_stop(self, quality: float, change_pixels: float) -> bool:
        """Whether a rule is met, noting the first that was."""
        reason = self._rules.reason(quality, change_pixels)
        self.stop_reason = self.stop_reason or reason
        return reason is not None


_ENDS: dict[RunState, End] = {
    RunState.STOPPED: "stopped",
    RunState.EXACT: "exact",
    RunState.FAILED: "failed",
}
