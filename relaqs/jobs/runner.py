"""Drives one job over an executor, on a thread of its own: issue steps, collect results, fold in order.

Everything that happens to a job arrives in one mailbox and is handled by one thread, so a job needs no lock.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from queue import SimpleQueue

from relaqs.jobs.background import background_thread
from relaqs.jobs.description import JobDescription, check_weight
from relaqs.jobs.executor import Executor
from relaqs.jobs.job import Job, Step, StepReport, TaskResult

STEPS_IN_FLIGHT = 2  # at least: the step in hand and one ahead, so that cores have work while it is folded


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
    """A job that takes the place of one that failed, under an id of its own, and what is told of it."""

    job: Job
    description: JobDescription


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

    description: what the scheduler is told; without one nothing is known of the job. on_report: called after
    each fold; it may return another report for the scheduler. should_stop: asked after each fold that is not
    final, before another step. instead: asked what takes the place of a job that failed; None: nothing, the
    run has failed. These run on the runner's thread, and an exception in them fails the job.
    on_end: called there once, when the state is over and the cores are free; it must not raise.
    """

    def __init__(
        self,
        job: Job,
        executor: Executor,
        description: JobDescription | None = None,
        *,
        on_report: Callable[[StepReport], StepReport | None] = lambda report: None,
        should_stop: Callable[[StepReport], bool] = lambda report: False,
        instead: Callable[[Exception], Successor | None] = lambda error: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._job = job
        self._executor = executor
        self._description = description or JobDescription(job.id)
        self._weight = self._description.weight
        self._on_report = on_report
        self._should_stop = should_stop
        self._instead = instead
        self._on_end = on_end
        # A SimpleQueue may be put to from anywhere, also from a finalizer that interrupts its own get.
        self._mailbox: SimpleQueue[TaskResult | None] = SimpleQueue()
        self._in_flight: deque[_StepInFlight] = deque()
        self._has_started = False
        self._is_paused = False
        self._is_stopping = False
        self._over: RunState | None = None
        self._ended = threading.Event()
        self._thread = background_thread(self._run, f"relaqs-job-{job.id}")
        self.error: BaseException | None = None

    def start(self) -> None:
        _LIVE.add(self)
        self._thread.start()

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
        """Tell the scheduler the error or loss the job may stop at; stopping it there is `should_stop`'s."""
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

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Return whether the job is over, its cores free and every callback made, by then."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a job's own callback cannot wait for its end; wait in another thread")
        return self._ended.wait(timeout_seconds)

    def _run(self) -> None:
        try:
            over = self._drive_or_succeed()
        except BaseException as error:  # the job's, the executor's or a callback's: all end the job
            self.error, over = error, RunState.FAILED
        try:
            self._executor.cancel(self._job.id)
        finally:
            self._over = over
            _LIVE.discard(self)
            try:
                self._on_end()
            finally:
                self._ended.set()

    def _drive_or_succeed(self) -> RunState:
        """Drive the job, and whatever takes its place when it fails."""
        while True:
            try:
                return self._drive()
            except Exception as error:
                if self._is_stopping or (successor := self._instead(error)) is None:
                    raise
                self._executor.cancel(self._job.id)
                self._in_flight.clear()
                self._job = successor.job
                self._description = successor.description

    def _drive(self) -> RunState:
        """Return how the job ended. Raises whatever a task, a fold or a callback raised."""
        self._enter()
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
        ends = report.is_final or self._should_stop(report)
        if not ends:
            self._issue()  # before the callback, which may take its time over a snapshot
        revised = self._on_report(report)
        self._executor.report(self._job.id, revised or report)
        if not ends:
            return None
        return RunState.EXACT if report.is_final else RunState.STOPPED


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


@atexit.register
def _stop_all() -> None:
    """Let the jobs end when the process does; their threads are waited for."""
    for runner in list(_LIVE):
        runner.stop()
