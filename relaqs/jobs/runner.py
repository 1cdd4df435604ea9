"""Drives one job over an executor, on a thread of its own: issue steps, collect results, fold in order.

Everything that happens to a job arrives in one mailbox and is handled by one thread, so a job needs no
lock. What happens is told to one listener. A query's makes snapshots, a training run's keeps the losses, a
paced loop's lets go of the core at the end. The order of calls for a job of three steps, the second good
enough:

    should_stop(report 0) → False      the runner issues another step
    folded(report 0)
    should_stop(report 1) → True       the runner issues no more
    folded(report 1)
    ended(STOPPED, None)

A job that fails may have a successor (`Listener.failed`), which runs in its place under a name of its own.
`RunningJobs` knows the runners of one session, and keeps the session alive while one runs.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from queue import Empty, SimpleQueue

from relaqs.jobs.executor import Executor, call_later, is_set_in_time, run_in_background, without_frames
from relaqs.jobs.job import Job, JobDescription, Step, StepReport, TaskResult, check_weight


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


STEPS_IN_FLIGHT = 2  # at least: the step in hand and one ahead, so that cores have work while it is folded


@dataclass(slots=True)
class _StepInFlight:
    step: Step
    results: dict[int, TaskResult] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return len(self.results) == len(self.step.tasks)

    def in_task_order(self) -> list[TaskResult]:
        return [self.results[task.key.index] for task in self.step.tasks]


class JobRunner:
    """Runs the job from `start()` until it is exact, stopped or failed.

    Args:
        description: what the scheduler learns of the job; without one it knows the id alone.
        listener: what is told of each fold, of a failure and of the end.
        timeout_seconds: the job is stopped so many seconds after `start`; None for no limit.
    """

    def __init__(
        self,
        job: Job,
        executor: Executor,
        description: JobDescription | None = None,
        listener: Listener | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> None:
        self._job = job
        self._executor = executor
        self._description = description or JobDescription(job.id)
        self._weight = self._description.weight
        self._listener = listener or Listener()
        # A SimpleQueue may be put to from anywhere, also from a finalizer that interrupts its own get.
        self._mailbox: SimpleQueue[TaskResult | None] = SimpleQueue()
        self._in_flight: deque[_StepInFlight] = deque()
        self._has_started = self._has_entered = False
        self._is_paused = False
        self._is_stopping = False
        self._over: RunState | None = None
        self._ended = threading.Event()
        self._thread: int | None = None
        self._timeout_seconds = timeout_seconds
        self._timer: threading.Timer | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        _LIVE.add(self)
        seconds = self._timeout_seconds
        if seconds is not None and seconds < threading.TIMEOUT_MAX:  # of more no clock knows
            self._timer = call_later(seconds, self._time_out)
        with suppress(Exception):  # its thread tries again, and fails the job by what is raised then
            self._enter()
            self._has_entered = True
        try:
            run_in_background(self._run, f"relaqs-job-{self._job.id}")
        except BaseException as error:  # the system allows no thread more
            self.error = error
            self._end(RunState.FAILED)
            raise

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def state(self) -> RunState:
        if self._over is not None:
            return self._over
        if self._is_paused:
            return RunState.PAUSED
        return RunState.RUNNING if self._has_started else RunState.WAITING

    @property
    def weight(self) -> float:
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = check_weight(weight)
        self._executor.set_weight(self._job.id, weight)

    def set_target(self, target: float | None) -> None:
        """Tell the scheduler the error or loss the job may stop at. Its listener is what stops it there."""
        self._description = replace(self._description, target=target)
        self._executor.set_target(self._job.id, target)

    def pause(self) -> None:
        """Issue no more steps; those in flight end and are folded."""
        self._is_paused = True
        self._executor.set_waiting(self._job.id, False)

    def resume(self) -> None:
        self._is_paused = False
        self._executor.set_waiting(self._job.id, True)
        self._mailbox.put(None)

    def stop(self) -> None:
        """Ask the job to end; returns at once, `wait` to see it done. Safe from callbacks and finalizers."""
        self._is_stopping = True
        self._mailbox.put(None)

    def end_by_plan(self) -> None:
        """Ask the job to end because a plan of the policy ends it. As `stop`."""
        try:
            self._listener.ended_by_plan()
        finally:
            self.stop()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Return whether the job is over, its cores free and every callback made, by then."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("a job's own callback cannot wait for its end; wait in another thread")
        return is_set_in_time(self._ended, timeout_seconds)

    def _time_out(self) -> None:
        try:
            self._listener.timed_out()
        finally:
            self.stop()

    def _run(self) -> None:
        self._thread = threading.get_ident()
        try:
            over = self._drive_or_succeed()
        except BaseException as error:  # the job's, the executor's or a callback's: all end the job
            self.error, over = without_frames(error), RunState.FAILED
        self._end(over)

    def _end(self, over: RunState) -> None:
        try:
            self._executor.cancel(self._job.id)
        finally:
            self._over = over
            self._forget_results()
            _LIVE.discard(self)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None  # each refers to the other, and this one to all that the job has read
            try:
                self._listener.ended(over, self.error)
            finally:
                self._thread = None  # it goes on with other jobs
                self._ended.set()

    def _forget_results(self) -> None:
        """Let go of results that are not folded any more. Handles are often kept for long."""
        self._in_flight.clear()
        with suppress(Empty):
            while True:
                self._mailbox.get_nowait()

    def _drive_or_succeed(self) -> RunState:
        """Drive the job, and whatever takes its place when it fails."""
        while True:
            try:
                return self._drive()
            except Exception as error:
                without_frames(error)
                if self._is_stopping or (successor := self._listener.failed(error)) is None:
                    raise
                self._executor.cancel(self._job.id)
                self._in_flight.clear()
                self._job = successor.job
                self._description = successor.description

    def _drive(self) -> RunState:
        """Return how the job ended. Raises whatever a task, a fold or a callback raised."""
        if not self._has_entered:
            self._enter()
        self._has_entered = False  # what takes its place when it fails enters anew
        while True:
            if (over := self._advance()) is not None:
                return over
            if (result := self._mailbox.get()) is not None:
                self._take(result)

    def _enter(self) -> None:
        """Register the job, with what was changed of it before it started."""
        self._executor.enter(replace(self._description, weight=self._weight), driver=self)
        if self._is_paused:
            self._executor.set_waiting(self._job.id, False)

    def _advance(self) -> RunState | None:
        """Issue and fold all there is to issue and fold. Returns the state where that ends the job."""
        while not self._is_stopping:
            has_run_dry = self._issue()
            if not self._in_flight:
                if has_run_dry:
                    raise RuntimeError(f"job {self._job.id} has no more steps, but reported no end")
                return None
            if not self._in_flight[0].is_whole:
                return None
            if (over := self._fold()) is not None:
                return over
        return RunState.STOPPED

    def _issue(self) -> bool:
        """Put steps in flight as long as there is room; return whether the job had none to give.

        There is room for two steps, and for more while some core would have no task of this job: the size of
        a step belongs to the job, so that its results are the same on any cluster.
        """
        while self._has_room() and not self._is_paused:
            if (step := self._job.next_step()) is None:
                return True
            self._in_flight.append(_StepInFlight(step))
            self._executor.submit(step.tasks, self._mailbox.put)
        return False

    def _has_room(self) -> bool:
        if len(self._in_flight) < STEPS_IN_FLIGHT:
            return True
        return sum(max(1, len(each.step.tasks)) for each in self._in_flight) <= self._executor.capacity

    def _take(self, result: TaskResult) -> None:
        """Keep a result for its fold.

        One that came before, or belongs to a folded step or a job that was replaced, changes nothing.
        """
        if result.key.job != self._job.id:
            return
        self._has_started = True
        for each in self._in_flight:
            if each.step.index == result.key.step and result.key.index not in each.results:
                if result.error is not None:
                    raise result.error
                each.results[result.key.index] = result

    def _fold(self) -> RunState | None:
        whole = self._in_flight.popleft()
        report = self._job.fold(whole.step, whole.in_task_order())
        ends = report.is_final or self._listener.should_stop(report)
        if not ends and report.gives_up is None:
            self._issue()  # before the listener, which may take its time over a snapshot
        told = self._listener.folded(report)
        self._executor.report(self._job.id, replace(told, gives_up=None))  # no scheduler needs the error
        if ends:
            return RunState.EXACT if report.is_final else RunState.STOPPED
        if report.gives_up is not None:
            raise report.gives_up
        return None


def stop_when_forgotten(handle: object, runner: JobRunner) -> None:
    """Stop the runner once nobody refers to the handle any more.

    What waits for that must not keep the runner: one that failed has an error, whose traceback keeps the
    handle, so that nobody could forget it.
    """
    known = weakref.ref(runner)

    def stop() -> None:
        if (found := known()) is not None:
            found.stop()

    weakref.finalize(handle, stop).atexit = False  # at exit runners stop themselves


_LIVE: set[JobRunner] = set()


def is_any_running() -> bool:
    """Return whether a job of this process runs, be it that it waits or folds."""
    return bool(_LIVE)


@atexit.register
def _stop_all() -> None:
    """Let the jobs end when the process does; their threads are waited for."""
    for runner in list(_LIVE):
        runner.stop()


class RunningJobs:
    """Knows the runners of the jobs that run. As long as one does, their owner is kept alive.

    Example: `relaqs.connect("warehouse").online_sql(sql).result()` drops the session at once. It must not be
    collected before the query is done, since closing it would stop the query.
    """

    def __init__(self, owner: object) -> None:
        self._owner = weakref.ref(owner)
        self._runners: dict[str, tuple[JobRunner, object]] = {}
        self._is_closed = False

    @property
    def owner(self) -> object:
        """The owner, for what must keep it alive before its job runs; None once it was collected."""
        return self._owner()

    def register(self, runner: JobRunner) -> None:
        """Note a job that is about to start. One that comes after `close` is stopped."""
        self._runners[runner.id] = runner, self._owner()
        if self._is_closed:
            runner.stop()

    def forget(self, job_id: str) -> None:
        """Note that a job is over."""
        self._runners.pop(job_id, None)

    def close(self, timeout_seconds: float) -> bool:
        """Stop all of them, wait for them that long, and return whether all are over."""
        self._is_closed = True
        runners = [runner for runner, _ in list(self._runners.values())]  # jobs end meanwhile
        for runner in runners:
            runner.stop()
        deadline = time.monotonic() + timeout_seconds
        ends = [runner.wait(max(0.0, deadline - time.monotonic())) for runner in runners]
        return all(ends)
