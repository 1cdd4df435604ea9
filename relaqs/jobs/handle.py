"""Handle: what a user holds of anything that runs: a query, a training run, a paced loop.

All three are steered alike, and read alike:

    with db.train(KMeans(sql)) as run:      leaving the block stops it
        for step in run:                    the newest report each time round, and always the last
            run.priority = 2.0              counts twice as much as one with 1.0

**How reports reach readers.** A report is what the job's owner cares for: the snapshot of a query, the
step of a training run. The runner tells a `RunListener` what happens. The listener publishes reports into
a `Feed`, and applies the rules by which the job may stop (`StopRules`). A feed has one report, the newest.
Its writer publishes and never waits. A `Reader` says how many reports it knows of, and gets the newest if
there is a newer one. So a slow reader skips some, and every reader gets the last.

*Example:* a query publishes ten snapshots a second, and a notebook draws one a second. It gets every tenth
snapshot.

`for` waits on the feed's condition in short pieces. `async for` waits without a thread: the feed calls a
waker of the loop at each change.

The listener does not know the handle, so that the runner can be stopped once nobody refers to the handle.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar

from relaqs_engine.errors import RelaqsError

from relaqs.arguments import check_priority, check_seconds
from relaqs.jobs.checkpoint import NO_KEEPER, RunKeeper
from relaqs.jobs.executor import raised_anew, wait_pieces
from relaqs.jobs.runner import JobRunner, Listener, RunningJobs, RunState, stop_when_forgotten
from relaqs.progress import StopReason, StopRules

End = Literal["stopped", "exact", "failed"]
State = Literal["waiting", "running", "paused"] | End
AnyReport = TypeVar("AnyReport")


class Feed(Generic[AnyReport]):
    """One writer, any number of readers, and one report: the newest. Safe to use from any thread.

    The writer never waits for a reader. A reader says how many reports it knows of, and gets the newest if
    there is a newer one. So a slow reader skips some, and every reader gets the last.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], None]] = set()
        self._latest: AnyReport | None = None
        self._count = 0
        self._end: End | None = None
        self._error: BaseException | None = None

    @property
    def latest(self) -> AnyReport | None:
        return self._latest

    @property
    def end(self) -> End | None:
        """How the feed ended, or None while it is open."""
        return self._end

    def publish(self, report: AnyReport, end: End | None = None) -> bool:
        """Make the report the newest, with `end` the last. After the end do nothing and return False."""
        with self._changed:
            if self._end is not None:
                return False
            self._latest = report
            self._count += 1
            self._end = end
            self._tell()
            return True

    def close(self, end: End, error: BaseException | None = None) -> bool:
        """End the feed as it is; after the end do nothing and return False. error: what readers raise."""
        with self._changed:
            if self._end is not None:
                return False
            self._end, self._error = end, error
            self._tell()
            return True

    def wait(self, seen: int, timeout: float | None = None) -> tuple[int, AnyReport] | None:
        """Return the newest report and the count to say next time; None at the end or after the timeout.

        Args:
            seen: the count that was returned last; 0 at first.
            timeout: in seconds; None waits for as long as it takes.

        Raises:
            BaseException: the job's own error, once the reader has seen the last report.
        """
        with self._changed:
            self._wait_for_news(seen, timeout)
            if self._count > seen and self._latest is not None:
                return self._count, self._latest
            if self._error is not None:
                raise raised_anew(self._error)
            return None

    def _wait_for_news(self, seen: int, timeout: float | None) -> None:
        for seconds in wait_pieces(timeout):
            if self.has_news(seen):
                return
            self._changed.wait(seconds)

    def has_news(self, seen: int) -> bool:
        """Whether `wait` would return at once."""
        return self._count > seen or self._end is not None

    @contextmanager
    def waking(self, waker: Callable[[], None]) -> Iterator[None]:
        """Call the waker, on the writer's thread, at each change inside the block."""
        with self._changed:
            self._wakers.add(waker)
        try:
            yield
        finally:
            with self._changed:
                self._wakers.discard(waker)

    def _tell(self) -> None:
        self._changed.notify_all()
        for waker in tuple(self._wakers):
            waker()


class Reader(Generic[AnyReport]):
    """Reads a feed at its own pace: always the newest report, none twice, and always the last.

    Every loop has a reader of its own, so any number of loops may go through one query.

    Args:
        feed: what is read.
        on_interrupt: called when ctrl-C, or the cancelling of a task of asyncio, ends a wait.
        owner: kept alive for as long as somebody reads.
    """

    def __init__(self, feed: Feed[AnyReport], on_interrupt: Callable[[], None], owner: object = None) -> None:
        self._feed = feed
        self._on_interrupt = on_interrupt
        self._owner = owner
        self._seen = 0

    def __iter__(self) -> Reader[AnyReport]:
        return self

    def __next__(self) -> AnyReport:
        report = self.next_within(None)
        if report is None:
            raise StopIteration
        return report

    def __aiter__(self) -> Reader[AnyReport]:
        return self

    async def __anext__(self) -> AnyReport:
        try:
            await self._news()
        except BaseException:  # the task was cancelled, or its time was over
            self._on_interrupt()
            raise
        report = self.next_within(None)
        if report is None:
            raise StopAsyncIteration
        return report

    def next_within(self, timeout_seconds: float | None) -> AnyReport | None:
        """Return the newest unread report, or None at the end or after the timeout.

        Raises the job's error once its last report was read.
        """
        try:
            news = self._feed.wait(self._seen, timeout_seconds)
        except KeyboardInterrupt:
            self._on_interrupt()
            raise
        if news is None:
            return None
        self._seen, report = news
        return report

    async def _news(self) -> None:
        """Wait without a thread, so that a cancelled `async for` leaves nothing behind."""
        import asyncio

        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, so no one waits there any more
                loop.call_soon_threadsafe(changed.set)

        with self._feed.waking(wake):
            while not self._feed.has_news(self._seen):
                await changed.wait()
                changed.clear()


class RunListener(Listener, Generic[AnyReport]):
    """The listener behind a user's handle: a feed of reports, and the rules by which the job may stop.

    It does not know the handle, so that a handle which nothing refers to any more can be noticed.

    Attributes:
        feed: the reports, for readers.
        stop_reason: why the job stopped by itself, None while it runs or if it was stopped from outside.
        keeper: keeps the job's state, where that is asked for.
        ended_seconds: when it was over, on the clock of `time.perf_counter`; None before.
    """

    def __init__(
        self,
        job_id: str,
        rules: StopRules,
        running: RunningJobs | None = None,
        keeper: RunKeeper | None = None,
    ) -> None:
        self.feed: Feed[AnyReport] = Feed()
        self.keeper = keeper or NO_KEEPER
        self.ended_seconds: float | None = None
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

    def starting(self, runner: JobRunner) -> None:
        """The run is about to start: note it among those of its session."""
        if self._running is not None:
            self._running.register(runner)

    def is_good_enough(self) -> bool:
        """Whether the newest report meets the target as it is now. Asked when the target was changed."""
        return False

    def timed_out(self) -> None:
        if self.feed.end is None:
            self.stop_reason = self.stop_reason or StopReason.TIME

    def saved(self) -> Any:
        """Return what another process goes on from, which is pickled then. None: there is nothing to keep."""
        return None

    def ended(self, state: RunState, error: BaseException | None) -> None:
        self.ended_seconds = time.perf_counter()
        self.feed.close(_ENDS[state], error)
        try:
            if state is RunState.STOPPED and self.stop_reason in _GOES_ON_LATER:
                self.keeper.keep(self.saved)
        finally:
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


_GOES_ON_LATER = (None, StopReason.TIME, StopReason.OVERLOAD)
"""Ends after which the job is not done: its last state is kept. Else it ends again from the one before."""

_ENDS: dict[RunState, End] = {RunState.STOPPED: "stopped", RunState.EXACT: "exact", RunState.FAILED: "failed"}


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

        >>> len(query.id)
        12
        """
        return self.runner.id

    @property
    def priority(self) -> float:
        """Its weight: with 2.0 it counts twice as much as one with 1.0. Set it at any time.

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

        >>> query.stop()
        >>> query.wait()
        True
        """
        _stop(self.runner, self._listener.feed)

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether it is over and its cores are free, within the timeout in seconds.

        >>> query.wait(timeout=60)
        True
        """
        return self.runner.wait(timeout)

    def _wait_for_end(self, timeout: float | None) -> None:
        """Wait until it is over. After the timeout, in seconds, or a ctrl-C it is stopped.

        Raises what made it fail.
        """
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        try:
            self.runner.wait(seconds)
        finally:
            self.stop()
        self.runner.wait()
        if self.runner.error is not None:
            raise raised_anew(self.runner.error)

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

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _checked_target(self, target: Any) -> float | None:
        """Return the target as a number. Raises ArgumentError for what is none."""


def lacking_loss(loss: float, target: float | None) -> str | None:
    """Return what to say of a loss that is above the target; None of one that is not."""
    return None if target is None or loss <= target else f"the loss is {loss:.6g}, not {target:g} or less"


def late(deadline_seconds: float | None, elapsed_seconds: float) -> str | None:
    """Return what to say of an end after the deadline; None of one in time.

    >>> late(60.0, 75.0)
    'it ended after 75 s, not within 60 s'
    """
    if deadline_seconds is None or elapsed_seconds <= deadline_seconds:
        return None
    return f"it ended after {elapsed_seconds:.3g} s, not within {deadline_seconds:g} s"


def check_strictly(shortfall: str | None, strict: bool) -> None:
    """Raise RelaqsError where something is lacking, and that matters."""
    if strict and shortfall is not None:
        raise RelaqsError(f"{shortfall}; result() without strict gives what there is")


def _stop(runner: JobRunner, feed: Feed[Any]) -> None:
    """End the reports with the newest, and the job with the tasks that run."""
    feed.close("stopped")
    runner.stop()
