"""Loops of the user's own: each holds a core of its session between two reports.

A loop runs on a thread of its own. It holds a core of an executor, and gives it back at a report when its
turn is over. A turn is a step of its job (`PacedJob`), and lasts half a second where others wait. A `Pacer`
reports losses. A `QueryPacer` is the door for another incremental query engine: it reports results, and is
scheduled like ours.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal, Protocol, Self, SupportsFloat

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.errors import RelaqsError

from relaqs.arguments import ArgumentError, check_loss, check_priority, relative_error
from relaqs.jobs.executor import Executor, raised_anew, wait_pieces
from relaqs.jobs.handle import Handle, RunListener
from relaqs.jobs.job import JobDescription, Metered, Step, StepReport, Task, TaskKey, TaskResult
from relaqs.jobs.runner import JobRunner, RunningJobs, RunState
from relaqs.progress import Cells, LossDelta, ResultDelta, StopRules
from relaqs.sharing.view import Kind


@dataclass(frozen=True, slots=True)
class Reported:
    """What a loop says of itself. quality: loss, or error of a result, smaller is better.

    work_done, progress: of a query, as in `StepReport`; a loss has neither.
    """

    quality: float
    work_done: float | None = None
    progress: float = math.nan


@dataclass(frozen=True, slots=True)
class PacedTurn:
    """What became of a turn. reports: made in it, oldest first. core_seconds: how long the core was held."""

    reports: tuple[Reported, ...]
    core_seconds: float
    is_last: bool


class Turns:
    """Where the loop's thread and the executor's meet: one lends its core and waits, the other computes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_lent = False
        self._is_over = False
        self._since_seconds = 0.0  # on the clock of time.perf_counter
        self._reports: list[Reported] = []

    @property
    def is_over(self) -> bool:
        return self._is_over

    def lend(self) -> PacedTurn:
        """Give the loop the calling thread's core, and return once it was given back."""
        with self._changed:
            started = self._since_seconds = time.perf_counter()
            self._is_lent = not self._is_over
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_lent)
            reports, self._reports = tuple(self._reports), []
            return PacedTurn(reports, time.perf_counter() - started, self._is_over)

    def wait(self) -> bool:
        """Wait for a turn; False if there will be none."""
        with self._changed:
            for seconds in wait_pieces():
                if self._changed.wait_for(lambda: self._is_lent or self._is_over, seconds):
                    break
            return not self._is_over

    def note(self, reported: Reported, turn_seconds: float) -> bool:
        """Take a report; once the turn has lasted long enough, end it and wait for the next."""
        with self._changed:
            self._reports.append(reported)
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

    turns: Turns

    def run(self, owner: str) -> Metered:
        turn = self.turns.lend()
        return Metered(turn, turn.core_seconds)


class PacedJob:
    """A loop as a job: a step is a turn. Its quality is that of the newest result, or the mean of its losses.

    The mean, since the losses of single mini-batches of data jump up and down.
    """

    def __init__(self, id: str, turns: Turns) -> None:
        self.id = id
        self._turns = turns
        self._issued = 0
        self._folded = 0
        self._newest = Reported(math.inf)
        self._moved = LossDelta()

    def next_step(self) -> Step | None:
        if self._issued > self._folded:
            return None
        key = TaskKey(self.id, self._issued, 0)
        self._issued += 1
        return Step(key.step, (Task(key, _TurnWork(self._turns)),))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded += 1
        [result] = results
        assert isinstance(result.value, PacedTurn), result
        newest = self._newest = self._summed_up(result.value.reports)
        return StepReport(
            step.index,
            newest.quality,
            newest.work_done,
            result.core_seconds,
            result.value.is_last,
            newest.progress,
        )

    def _summed_up(self, reports: Sequence[Reported]) -> Reported:
        if not reports:  # a turn that ended without one, as the loop did
            return self._newest
        if reports[-1].work_done is not None:
            return reports[-1]
        loss = fmean(reported.quality for reported in reports)
        return Reported(loss, None, self._moved.update(loss))


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

    Attributes:
        kind: what it is to the scheduler.
    """

    kind: ClassVar[Kind]

    def __init__(
        self,
        executor: Executor,
        *,
        priority: float = 1.0,
        target: float | str | None = None,
        name: str = "a loop",
        turn_seconds: float = TURN_SECONDS,
        running: RunningJobs | None = None,
    ) -> None:
        """Set it up.

        Args:
            executor: whose cores it takes turns on.
            priority: its weight beside other jobs.
            target: the loss or relative error at which a report says to stop.
            turn_seconds: how long it may compute before a report ends its turn.
        """
        job = PacedJob(uuid.uuid4().hex[:12], turns := Turns())
        quality = self._checked_target(target)
        description = JobDescription(
            job.id,
            self.kind,
            name=name,
            weight=check_priority(priority),
            cores_most=1.0,
            work_total=1.0 if self.kind is Kind.QUERY else math.inf,
            target=quality,
        )
        listener = PacedListener(job.id, turns, quality, running)
        super().__init__(JobRunner(job, executor, description, listener), listener)
        self._turns = turns
        self._turn_seconds = turn_seconds
        self._entered: contextvars.Token[Reporting | None] | None = None
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
                raise raised_anew(self.runner.error)
        except BaseException:  # also ctrl-C: without a loop in it, the first turn would never end
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        assert self._entered is not None
        _CURRENT.reset(self._entered)
        self._entered = None
        self._turns.end()
        self.runner.stop()
        self.runner.wait()


class Reporting(Protocol):
    """What takes the losses that code reports with `relaqs.report`."""

    def report(self, loss: SupportsFloat) -> bool: ...


def current_loop() -> Reporting | None:
    """Return the innermost paced loop that this code runs in, or None."""
    return _CURRENT.get()


_CURRENT: contextvars.ContextVar[Reporting | None] = contextvars.ContextVar("relaqs-pacer", default=None)


@contextmanager
def reports_to(loop: Reporting) -> Iterator[None]:
    """Let a loop take what the code in the block reports."""
    token = _CURRENT.set(loop)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def one_number(loss: SupportsFloat) -> float:
    """Return a loss as a number. Raises ArgumentError for what is none."""
    try:
        return float(loss)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"the reported loss, of type {type(loss).__name__}, is not one number ({error}); report its "
            "mean, as a PyTorch module with reduction='mean' computes it"
        ) from error


class Pacer(PacedLoop):
    """A paced loop that reports losses, such as one of PyTorch's. `Session.pace` makes one.

    Other threads may iterate over it: each time round they get the newest report.

    >>> with db.pace(priority=2.0) as pacer:
    ...     for step in range(1, 4):
    ...         goes_on = pacer.report(1 / step)
    >>> pacer.losses[:2]
    (1.0, 0.5)
    """

    kind = Kind.TRAINING

    def __init__(self, executor: Executor, *, target_loss: float | None = None, **asked: Any) -> None:
        """Set it up: `PacedLoop` says what else may be asked. target_loss: where `report` says to stop."""
        super().__init__(executor, target=target_loss, **asked)
        self._losses: list[float] = []

    @property
    def losses(self) -> tuple[float, ...]:
        """What was reported so far."""
        return tuple(self._losses)

    def report(self, loss: SupportsFloat) -> bool:
        """Report a loss, smaller is better. Return whether to go on.

        It returns False once the target is reached, or the session or `stop` has ended the loop. The loop is
        not paced any more then.

        Args:
            loss: anything that float() takes, such as a tensor of one number.

        Raises:
            ArgumentError: for what is no number.
        """
        self._losses.append(one_number(loss))
        return self._note(Reported(self._losses[-1]))

    def _checked_target(self, target: Any) -> float | None:
        return None if target is None else check_loss("target_loss", target)


def report(loss: SupportsFloat) -> bool:
    """Report a loss to the pacer whose block this code runs in, and return whether to go on.

    Outside of any such block it does nothing and returns True, so code that reports runs by itself too.

    >>> report(0.25)
    True

    Raises:
        RelaqsError: in the block of a query's pacer, which takes results and no losses.
    """
    loop = current_loop()
    return True if loop is None else loop.report(loss)


class QueryPacer(PacedLoop):
    """A paced loop that computes approximate results of one query, each over more of the data.

    `Session.pace_query` makes one.

    >>> with db.pace_query(["late"]) as pacer:
    ...     pacer.report_result({"airport": ["JFK", "LGA"], "late": [12.1, 10.2]}, 0.1)
    ...     pacer.report_result({"airport": ["JFK", "LGA"], "late": [11.8, 10.4]}, 0.2)
    True
    True
    """

    kind = Kind.QUERY

    def __init__(self, executor: Executor, columns: Sequence[str], **asked: Any) -> None:
        """Set it up: `PacedLoop` says what else may be asked.

        columns: those of its results that are approximate and count; the others tell groups apart.
        """
        super().__init__(executor, **asked)
        self._columns = tuple(columns)
        self._moved = ResultDelta()
        self._movement = Movement()

    def report_result(self, result: Any, fraction: float, *, error: float | None = None) -> bool:
        """Report a result over a share of the data. Return whether to go on, as `report` does.

        Args:
            result: a table by the Arrow capsule interface (pyarrow, pandas, polars, DuckDB), or a mapping of
                names to values of the columns. NaN or NULL is a cell that does not count yet.
            fraction: the share of the data that was read, in (0, 1].
            error: the relative error of the result, where the engine knows it. Otherwise it follows from how
                far results move.

        Raises:
            ArgumentError: the result has no such columns of numbers, or the fraction is not a share.
        """
        if not 0 < fraction <= 1:
            raise ArgumentError(f"fraction is {fraction!r}; it must be the share of the data read, in (0, 1]")
        cells = self._cells(result)
        estimated = self._movement.error(cells, fraction)
        quality = estimated if error is None else float(error)
        return self._note(Reported(quality, fraction, self._moved.update(cells)))

    def _checked_target(self, target: Any) -> float | None:
        return relative_error(target)

    def _cells(self, result: Any) -> Cells:
        try:
            table = pa.table(dict(result) if isinstance(result, Mapping) else result)
            values = np.stack([doubles(table.column(name)) for name in self._columns], axis=1)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise ArgumentError(
                f"the result has no numbers in {list(self._columns)} ({error}); give a table, or names and "
                "values, of which these are columns"
            ) from error
        keys = [table.column(name).to_pylist() for name in table.column_names if name not in self._columns]
        rows = [repr(row) for row in zip(*keys, strict=True)] if keys else [""] * table.num_rows
        try:
            return Cells(tuple(rows), values, np.isfinite(values))
        except ValueError as error:
            raise ArgumentError(f"{error}; the keys are the columns beside {list(self._columns)}") from error


class Movement:
    """The relative error of results, estimated from how far they move, for engines that do not know it.

    The mean of a sample of a share f of the data has variance σ²(1/f − 1). Between two shares f < g it moves
    with variance σ²(1/f − 1/g). So every move is an estimate of σ, relative to the value. We use the mean
    square of all moves of all cells so far. Example: a mean that moved by 2 % between 10 % and 20 % of the
    data has σ = 0.02 / √5, and a standard error of 1.8 % at 20 %."""

    def __init__(self) -> None:
        self._before: dict[object, FloatArray] = {}
        self._fraction = 0.0
        self._squares, self._moves = 0.0, 0

    def error(self, cells: Cells, fraction: float) -> float:
        """Return the relative standard error of the next result, inf before a second one."""
        if 0 < self._fraction < fraction:
            self._learn(cells, 1 / self._fraction - 1 / fraction)
        self._before = dict(zip(cells.keys, cells.values, strict=True))
        self._fraction = fraction
        if fraction >= 1:
            return 0.0
        return math.sqrt(self._squares / self._moves * (1 / fraction - 1)) if self._moves else math.inf

    def _learn(self, cells: Cells, apart: float) -> None:
        for key, now in zip(cells.keys, cells.values, strict=True):
            if (before := self._before.get(key)) is not None:
                with np.errstate(divide="ignore", invalid="ignore"):
                    squares = ((now - before) / now) ** 2 / apart
                known = np.isfinite(squares)
                self._squares += float(squares[known].sum())
                self._moves += int(known.sum())


_STATES: dict[RunState, PacedState] = {
    RunState.WAITING: "waiting",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.STOPPED: "stopped",
    RunState.EXACT: "ended",
    RunState.FAILED: "failed",
}
