"""Handle: what a user holds of anything that runs: a query, a training run, a paced loop.

All three are steered alike, and read alike:

    with db.train(KMeans(sql)) as run:      leaving the block stops it
        for step in run:                    the newest report each time round, and always the last
            run.priority = 2.0              counts twice as much as one with 1.0

The runner tells a `RunListener` what happens. The listener publishes reports into a feed (`feed.py`), and
applies the rules by which the job may stop (`StopRules`). A loop over the handle reads the feed.

The listener does not know the handle, so that the runner can be stopped once nobody refers to the handle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self

from relaqs.arguments import check_priority
from relaqs.jobs.feed import AnyReport, End, Feed, Reader
from relaqs.jobs.runner import JobRunner, Joinable, Listener, RunningJobs, RunState, stop_when_forgotten
from relaqs.progress import StopReason, StopRules


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


class Handle(ABC, Generic[AnyReport]):
    """Steers and reads a job: pause, resume, stop, priority, target, wait, `with`, and reading its reports.

    Dropping the last reference to it stops the job. So does ctrl-C while waiting for a report, and in asyncio
    the cancelling of a task that waits for one.

    Attributes:
        runner: drives the job. Once the handle is gone it stops the job, when the tasks that run have ended.
    """

    def __init__(self, runner: JobRunner, listener: RunListener[AnyReport]) -> None:
        self.runner = runner
        self._listener = listener
        self._own_reader = Reader(listener.feed, partial(_stop, runner, listener.feed))
        stop_when_forgotten(self, runner)

    def start(self) -> None:
        """Begin, once. What cannot begin has failed, and is not waited for."""
        try:
            self._listener.starting(self.runner)
            self.runner.start()
        except Exception as error:
            self._listener.ended(RunState.FAILED, error)
            raise

    @property
    def id(self) -> str:
        """The name of its job, by which `Session.status` tells of it.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> len(query.id)
        12
        """
        return self.runner.id

    @property
    def priority(self) -> float:
        """Its weight: with 2.0 it counts twice as much as one with 1.0. Set it at any time.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.priority = 2.0
        >>> query.priority
        2.0
        """
        return self.runner.weight

    @priority.setter
    def priority(self, priority: float) -> None:
        self.runner.weight = check_priority(priority)

    @property
    def target(self) -> float | None:
        """The error or loss to stop at. Set it at any time. A target that is met already stops the job.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.target = "1%"
        >>> query.target
        0.01
        """
        return self._listener.target

    @target.setter
    def target(self, target: Any) -> None:
        self._listener.target = checked = self._checked_target(target)
        self.runner.set_target(checked)
        if self._listener.is_good_enough():
            self.stop()

    def pause(self) -> None:
        """Start no more steps. Those that run are finished. A timeout goes on."""
        self.runner.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self.runner.resume()

    def stop(self) -> None:
        """End with what there is. Returns at once; its cores are free within one task.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.stop()
        >>> query.wait()
        True
        """
        _stop(self.runner, self._listener.feed)

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is over and its cores are free, within the timeout in seconds.

        >>> import duckdb, relaqs
        >>> layout = relaqs.shuffle(duckdb.sql("FROM range(1000) AS t(x)"), "data/numbers", force=True)
        >>> db = relaqs.connect("data", threads=1)
        >>> query = db.online_sql("SELECT sum(x) AS total FROM numbers")
        >>> query.wait(timeout=60)
        True
        """
        return self.runner.wait(timeout)

    def __iter__(self) -> Reader[AnyReport]:
        return Reader(self._listener.feed, self.stop, owner=self)

    def __next__(self) -> AnyReport:
        return next(self._own_reader)

    def __aiter__(self) -> Reader[AnyReport]:
        return iter(self)

    async def __anext__(self) -> AnyReport:
        return await anext(self._own_reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @abstractmethod
    def _checked_target(self, target: Any) -> float | None:
        """Return the target as a number. Raises ArgumentError for what is none."""


def _stop(runner: JobRunner, feed: Feed[Any]) -> None:
    """End the reports with the newest, and the job with the tasks that run."""
    feed.close("stopped")
    runner.stop()
