"""What every loop that is paced has: it holds a core of its session between two reports.

The loop runs on a thread of the user's. The scheduler sees a job like any other. Each turn of that job lends
the core to the loop, and the loop gives it back when it reports. Example, two loops on one core:

    loop A computes ── report ── waits ......... computes ── report ── …
    loop B waits .............. computes ── report ── waits ........ …
"""

from __future__ import annotations

import contextvars
import math
import uuid
from types import TracebackType
from typing import Literal, Self, SupportsFloat

from relaqs_engine.errors import RelaqsError

from relaqs.arguments import check_priority
from relaqs.jobs.executor import Executor
from relaqs.jobs.handle import Handle, RunListener
from relaqs.jobs.job import JobDescription, StepReport
from relaqs.jobs.runner import JobRunner, RunningJobs, RunState
from relaqs.pacing.paced_job import PacedJob, Reported, Turns
from relaqs.progress import StopRules
from relaqs.sharing.view import Kind

TURN_SECONDS = 0.02  # quick iterations share a turn: handing the core over takes a fraction of a millisecond

PacedState = Literal["waiting", "running", "paused", "stopped", "ended", "failed"]


class PacedListener(RunListener[Reported]):
    """Lets go of the loop at the end, and says when it has reached its target."""

    def __init__(self, job_id: str, turns: Turns, target: float | None, running: RunningJobs | None) -> None:
        super().__init__(job_id, StopRules(target), running)
        self._turns = turns

    def should_stop(self, report: StepReport) -> bool:
        return self._may_stop(report.quality, math.inf)

    def is_good_enough(self) -> bool:
        latest = self.feed.latest
        return latest is not None and self._may_stop(latest.quality, math.inf)

    def _release(self) -> None:
        self._turns.end()


class PacedLoop(Handle[Reported]):
    """Lets a loop take turns with the session's queries and training runs. Use it in a `with`.

    Entering waits for the first turn. A report waits where it is another job's turn. Leaving gives the core
    back. Between them one core is the loop's: it must not wait there for other work of its session, which may
    need that core. Give libraries that start threads one thread. A turn is charged its time on the wall
    clock. Other threads may iterate over it: they get what the loop reported last.
    """

    def __init__(
        self,
        executor: Executor,
        kind: Kind,
        *,
        priority: float,
        quality_target: float | None,
        name: str,
        turn_seconds: float = TURN_SECONDS,
        running: RunningJobs | None = None,
    ) -> None:
        """Set it up.

        Args:
            executor: whose cores it takes turns on.
            kind: what it is to the scheduler.
            priority: its weight beside other jobs.
            quality_target: the loss or error at which a report says to stop.
            name: for people.
            turn_seconds: how long it may compute before a report ends its turn.
            running: the jobs of its session.
        """
        job = PacedJob(uuid.uuid4().hex[:12], turns := Turns())
        description = JobDescription(
            job.id,
            kind,
            name=name,
            weight=check_priority(priority),
            cores_most=1.0,
            work_total=1.0 if kind is Kind.QUERY else math.inf,
            target=quality_target,
        )
        listener = PacedListener(job.id, turns, quality_target, running)
        super().__init__(JobRunner(job, executor, description, listener), listener)
        self._turns = turns
        self._turn_seconds = turn_seconds
        self._entered: contextvars.Token[PacedLoop | None] | None = None
        self._session = None if running is None else running.owner  # it must not close before the block

    @property
    def state(self) -> PacedState:
        """One of waiting, running, paused; at the end stopped, ended (the loop left its block) or failed."""
        return _STATES[self.runner.state]

    @property
    def is_over(self) -> bool:
        """Whether the loop should end: for loops whose reports are made for them, such as `report_fits`."""
        return self._turns.is_over

    def stop(self) -> None:
        """Let the next report say that the loop should end."""
        self.runner.stop()

    def report(self, loss: SupportsFloat) -> bool:
        """Report a loss. Raises RelaqsError here: only a `Pacer` has losses, a query has results."""
        raise RelaqsError("a query has no loss; report its results: pacer.report_result(table, fraction)")

    def _note(self, reported: Reported) -> bool:
        if self._entered is None:
            raise RelaqsError("report() is called outside the pacer's block; use: with db.pace() as pacer: …")
        self._listener.feed.publish(reported)
        return self._turns.note(reported, self._turn_seconds)

    def __enter__(self) -> Self:
        if self._entered is not None or self.is_over:
            raise RelaqsError("a pacer is for one block; make another for this one, with db.pace()")
        self._entered = _CURRENT.set(self)
        try:
            self.start()
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


def current_loop() -> PacedLoop | None:
    """Return the innermost paced loop that this code runs in, or None."""
    return _CURRENT.get()


_CURRENT: contextvars.ContextVar[PacedLoop | None] = contextvars.ContextVar("relaqs-pacer", default=None)

_STATES: dict[RunState, PacedState] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.STOPPED: "stopped",
    RunState.EXACT: "ended",
    RunState.FAILED: "failed",
}
