"""The door for code that is not ours: a loop reports its losses, and takes turns with other work.

The loop holds one of the session's cores while it computes, like a task does, and hands it back when it
reports. So the scheduler sees a job like any other, and gives it the next turn when its share says so.
"""

from __future__ import annotations

import contextvars
import math
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import SupportsFloat

from relaqs_engine.errors import RelaqsError

from relaqs.jobs.description import JobDescription
from relaqs.jobs.executor import Executor
from relaqs.jobs.job import StepReport
from relaqs.jobs.runner import JobRunner
from relaqs.options import ArgumentError, check_priority
from relaqs.pacing.paced_job import PacedJob, Reported, Turns
from relaqs.sharing.view import Kind

TURN_SECONDS = 0.02  # quick iterations share a turn: handing the core over takes a fraction of a millisecond


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
        kind: Kind = Kind.TRAINING,
        turn_seconds: float = TURN_SECONDS,
        on_end: Callable[[str], None] = lambda id: None,
    ) -> None:
        """Set it up. target_loss: `report` says to stop at it. name: for people.

        kind: what it is to the scheduler. on_end: called with its id when it is over.
        """
        job = PacedJob(uuid.uuid4().hex[:12], turns := Turns())

        def end() -> None:
            turns.end()
            on_end(job.id)

        def should_stop(report: StepReport) -> bool:
            return target_loss is not None and report.quality <= target_loss

        self.id = job.id
        description = JobDescription(
            job.id,
            kind,
            name=name,
            weight=check_priority(priority),
            cores_most=1.0,
            work_total=1.0 if kind is Kind.QUERY else math.inf,
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
    def is_over(self) -> bool:
        """Whether the loop should end: for loops whose reports are made for them, such as `report_fits`."""
        return self._turns.is_over

    @property
    def priority(self) -> float:
        """The loop's weight: with 2.0 it gets twice the time of one with 1.0. Set it at any time."""
        return self.runner.weight

    @priority.setter
    def priority(self, priority: float) -> None:
        self.runner.weight = check_priority(priority)

    def report(self, loss: SupportsFloat) -> bool:
        """Report a loss: smaller is better. Return whether to go on.

        loss: anything that float() takes, such as a tensor of one number. Returns False once the target is
        reached, or the session or `stop` has ended it; the loop is not paced any more then. Raises
        ArgumentError for what is no number.
        """
        try:
            self._losses.append(float(loss))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"the reported loss, of type {type(loss).__name__}, is not one number ({error}); report its "
                "mean, as a PyTorch module with reduction='mean' computes it"
            ) from error
        return self._note(Reported(self._losses[-1]))

    def _note(self, reported: Reported) -> bool:
        if self._entered is None:
            raise RelaqsError("report() is called outside the pacer's block; use: with db.pace() as pacer: …")
        return self._turns.note(reported, self._turn_seconds)

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
        try:
            self.runner.start()
            if not self._turns.wait() and self.runner.wait() and self.runner.error is not None:
                raise self.runner.error
        except BaseException:  # also ctrl-C: without a loop in it, the first turn would never end
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
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
