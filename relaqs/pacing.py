"""The door for code that is not ours: a loop reports its losses, and takes turns with other work.

The loop holds one of the session's cores while it computes, like a task does, and hands it back when it
reports. So the scheduler sees a job like any other, and gives it the next turn when its share says so.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import SupportsFloat

from relaqs_engine.errors import RelaqsError

from relaqs.executors.base import Executor
from relaqs.job import Step, StepReport, Task, TaskKey, TaskResult
from relaqs.options import check_priority
from relaqs.policies import Kind
from relaqs.progress.loss_delta import LossDelta
from relaqs.runner import JobRunner
from relaqs.scheduling import JobDescription

TURN_SECONDS = 0.02  # quick iterations share a turn: handing the core over takes a fraction of a millisecond


@dataclass(frozen=True, slots=True)
class Turn:
    """What became of a turn. loss: the newest reported. core_seconds: how long the core was held."""

    loss: float
    core_seconds: float
    is_last: bool


class _Turns:
    """Where the loop's thread and the executor's meet: one lends its core and waits, the other computes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_lent = False
        self._is_over = False
        self._since_seconds = 0.0  # on the clock of time.perf_counter
        self._loss = float("inf")

    def lend(self) -> Turn:
        """Give the loop the calling thread's core, and return once it was given back."""
        with self._changed:
            started = self._since_seconds = time.perf_counter()
            self._is_lent = not self._is_over
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_lent)
            return Turn(self._loss, time.perf_counter() - started, self._is_over)

    def wait(self) -> bool:
        """Wait for a turn; False if there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_lent or self._is_over)
            return not self._is_over

    def note(self, loss: float, turn_seconds: float) -> bool:
        """Take a loss; once the turn has lasted long enough, end it and wait for the next."""
        with self._changed:
            self._loss = loss
            if self._is_lent and time.perf_counter() - self._since_seconds >= turn_seconds:
                self._is_lent = False
                self._changed.notify_all()
        return self.wait()

    def end(self) -> None:
        with self._changed:
            self._is_over, self._is_lent = True, False
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class _TurnWork:
    """The work of a turn, in this process alone: it has no other way to reach the loop."""

    turns: _Turns

    def run(self, job_id: str) -> Turn:
        return self.turns.lend()


class _PacedJob:
    """A loop as a job: a step is a turn, its quality the newest loss."""

    def __init__(self, id: str, turns: _Turns) -> None:
        self.id = id
        self._turns = turns
        self._issued = 0
        self._folded = 0
        self._progress = LossDelta()

    def next_step(self) -> Step | None:
        if self._issued > self._folded:
            return None
        key = TaskKey(self.id, self._issued, 0)
        self._issued += 1
        return Step(key.step, (Task(key, _TurnWork(self._turns)),))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded += 1
        [result] = results
        assert isinstance(result.value, Turn), result
        turn = result.value
        progress = self._progress.update(turn.loss)
        return StepReport(step.index, turn.loss, None, result.core_seconds, turn.is_last, progress)


class Pacer:
    """Lets a loop take turns with the session's queries and training runs. Use it in a `with`.

    Entering waits for the first turn; `report` reports a loss and waits where it is another's turn; leaving
    gives the core back. Between them one core is the loop's: it must not wait there for other work of its
    session, which may need that core. Give libraries that start threads one thread. A turn is charged its
    time on the wall clock.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        priority: float = 1.0,
        target_loss: float | None = None,
        name: str = "a loop",
        turn_seconds: float = TURN_SECONDS,
        on_end: Callable[[str], None] = lambda id: None,
    ) -> None:
        """Set it up. target_loss: `report` says to stop at it. name: for people.

        on_end: called with its id when it is over.
        """
        job = _PacedJob(uuid.uuid4().hex[:12], turns := _Turns())

        def end() -> None:
            turns.end()
            on_end(job.id)

        def should_stop(report: StepReport) -> bool:
            return target_loss is not None and report.quality <= target_loss

        self.id = job.id
        description = JobDescription(
            job.id,
            Kind.TRAINING,
            name=name,
            weight=check_priority(priority),
            cores_most=1.0,
            work_total=math.inf,
            target=target_loss,
        )
        self.runner = JobRunner(job, executor, description, should_stop=should_stop, on_end=end)
        self._turns = turns
        self._turn_seconds = turn_seconds
        self._entered: contextvars.Token[Pacer | None] | None = None
        self._losses: list[float] = []

    @property
    def losses(self) -> tuple[float, ...]:
        """What was reported so far."""
        return tuple(self._losses)

    @property
    def priority(self) -> float:
        """The loop's weight: with 2.0 it gets twice the time of one with 1.0. Set it at any time."""
        return self.runner.weight

    @priority.setter
    def priority(self, priority: float) -> None:
        self.runner.weight = check_priority(priority)

    def report(self, loss: SupportsFloat) -> bool:
        """Report a loss, or the error of an answer: smaller is better. Return whether to go on.

        loss: anything that float() takes, such as a tensor of one number. Returns False once the target is
        reached, or the session or `stop` has ended it; the loop is not paced any more then.
        """
        if self._entered is None:
            raise RelaqsError("report() is called outside the pacer's block; use: with db.pace() as pacer: …")
        self._losses.append(float(loss))
        return self._turns.note(self._losses[-1], self._turn_seconds)

    def pause(self) -> None:
        """Let the loop wait in its next report."""
        self.runner.pause()

    def resume(self) -> None:
        self.runner.resume()

    def stop(self) -> None:
        """Let the next report say that the loop should end."""
        self.runner.stop()

    def __enter__(self) -> Pacer:
        self._entered = _CURRENT.set(self)
        self.runner.start()
        if not self._turns.wait() and self.runner.wait() and self.runner.error is not None:
            raise self.runner.error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._entered is not None
        _CURRENT.reset(self._entered)
        self._entered = None
        self._turns.end()
        self.runner.stop()
        self.runner.wait()


_CURRENT: contextvars.ContextVar[Pacer | None] = contextvars.ContextVar("relaqs-pacer", default=None)


def report(loss: SupportsFloat) -> bool:
    """Report a loss to the pacer whose block this code runs in, and return whether to go on.

    Outside of any such block it does nothing and returns True, so code that reports runs by itself too.
    """
    pacer = _CURRENT.get()
    return True if pacer is None else pacer.report(loss)
