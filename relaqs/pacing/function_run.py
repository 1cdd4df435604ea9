"""Functions of the user's own, which `Session.run` runs as jobs beside queries and training.

A function is called with a `Context`. It reads rows by `ctx.batches`, reports losses by `ctx.report`, and
keeps its state by `ctx.save`. What these do depends on where it runs (`Seat`):

| | a thread of this process | a worker of a Dask cluster |
|---|---|---|
| the function | runs once, on a thread that is lent a core (`Turns`) | is a task, made again for each turn |
| `report` | waits there where it is another's turn | notes the loss |
| `save` | keeps the state | keeps it, and ends the turn where that is over |
| a worker that dies | – | costs what came after the last state that was kept |

A turn on a cluster ends in `save`, by an exception that unwinds the function (`TurnOver`). In the next turn
it is called again, perhaps elsewhere. `load` then returns the state, and `batches` goes on behind the batch
that was the last one when it was saved. So a task is a pure function of what was saved, as all tasks are:
Dask may make it again. A function that never saves has one turn.

Rows are those of the shuffled layout: partitions, and the rows within each, in an order that follows from a
seed. A worker cannot plan SQL. So a turn that needs a SELECT for the first time ends, and says so.
"""

from __future__ import annotations

import math
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import Any, Literal, Protocol, SupportsFloat, get_args

from relaqs_engine.errors import RelaqsError

from relaqs.arguments import ArgumentError, check_loss, check_priority, check_seconds, check_whole
from relaqs.jobs.checkpoint import NO_KEEPER, RunKeeper, check_same_rows, packed
from relaqs.jobs.executor import Executor, Stopwatch, background_thread, is_core_wanted
from relaqs.jobs.handle import Feed, Handle, RunListener, check_strictly, lacking_loss, late
from relaqs.jobs.job import JobDescription, Step, StepReport, TaskResult, Work
from relaqs.jobs.runner import JobRunner, RunningJobs, RunState
from relaqs.pacing.paced_loop import (
    TURN_SECONDS,
    PacedJob,
    PacedTurn,
    Reported,
    Turns,
    one_number,
    reports_to,
)
from relaqs.progress import StopReason, StopRules
from relaqs.sharing.view import Kind

Form = Literal["numpy", "arrow", "pandas"]


class ReadsRows(Protocol):
    """The rows of a SELECT, read partition by partition. Picklable, so that workers can read them."""

    @property
    def digest(self) -> str:
        """Of all that the rows follow from: equal ones have equal rows."""
        ...

    def batches(self, rows: int, seed: int, form: Form, owner: str) -> Iterator[Any]:
        """Yield all rows, so many at a time. owner: the name by which a read can be interrupted."""
        ...


Readable = Callable[[str, "str | None"], ReadsRows]

LEAST_TURN_SECONDS = 0.25  # on a cluster, where a turn costs some milliseconds and loads the state
MOST_TURN_SECONDS = 1.0  # so that losses are seen, and a worker that dies costs little
GRACE_SECONDS = 10.0  # after its time is over, for a function to return what it has


@dataclass(frozen=True, slots=True)
class RunGoals:
    """What a user wants of a run. Raises ArgumentError for what is not accepted."""

    until: float | None = None
    within: float | None = None
    timeout: float | None = None
    priority: float = 1.0

    def __post_init__(self) -> None:
        if self.until is not None:
            check_loss("until", self.until)
        for name in ("within", "timeout"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        check_priority(self.priority)


@dataclass(frozen=True, slots=True)
class Call:
    """A function, its arguments by name, and what it is called."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    given_name: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentError(
                f"function is {self.function!r}; give a function that takes a relaqs.pacing.Context"
            )

    @property
    def name(self) -> str:
        return str(self.given_name or getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def packed(self) -> bytes:
        """The function and its arguments, by value. Raises ArgumentError where they cannot travel."""
        return packed((self.function, self.arguments), f"{self.name} or its arguments")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A SELECT that a function reads, and the column that it predicts."""

    sql: str
    target: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """How far a loop is.

    Attributes:
        wanted: what it reads.
        digest: of the rows.
        batches: how many it has had.
    """

    wanted: Wanted
    digest: str
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Saved:
    """What a function has kept. state: pickled. places: of the loops in hand."""

    state: bytes
    places: Mapping[str, Place]


class Seat(Protocol):
    """Where a function runs, as its context sees it."""

    def readable(self, sql: str, target: str | None) -> ReadsRows: ...

    def note(self, loss: float) -> bool:
        """Take a loss, and return whether to go on. It may wait."""
        ...

    def keep(self, saved: Saved) -> None:
        """Keep a state. Raises TurnOver where the turn ends with it."""
        ...


class TurnOver(BaseException):
    """The function is left here, and called again in its next turn. No `except Exception` catches it."""


class Context:
    """What a function is given that `Session.run` runs: rows, and somebody to report to.

    >>> def halved(ctx):
    ...     loss = ctx.load(1.0)
    ...     while ctx.report(loss):
    ...         loss /= 2
    ...         ctx.save(loss)
    ...     return loss
    >>> with relaqs.connect("data", threads=1) as db:
    ...     db.run(halved, until=0.1).result()
    0.0625
    """

    def __init__(self, seat: Seat, name: str, saved: Saved | None = None) -> None:
        self._seat, self._name = seat, name
        self._state = None if saved is None else saved.state
        self._to_skip = {} if saved is None else dict(saved.places)
        self._has_read = False
        self._places: dict[str, Place] = {}

    def batches(
        self, sql: str, rows: int = 4096, *, target: str | None = None, seed: int = 0, form: Form = "numpy"
    ) -> Iterator[Any]:
        """Yield the rows of a SELECT, so many at a time, each once, in a random order.

        Args:
            sql: the SELECT.
            rows: how many a batch has. The last one has what is left.
            target: a column that is yielded by itself: each batch is then a pair of features and target.
            seed: of the order. Give another one for each pass over the data.
            form: "numpy" for arrays of doubles, shape (rows, columns), of columns that are numbers; "pandas"
                for data frames; "arrow" for tables, which have the target as their last column.

        Raises:
            ArgumentError: a column is no number where arrays are asked for.
            RelaqsError: the function goes on in the middle of other rows than these.
            SqlError: the SELECT is wrong.
        """
        check_whole("rows", rows)
        if form not in get_args(Form):
            raise ArgumentError(f"form is {form!r}; it must be {', '.join(map(repr, get_args(Form)))}")
        readable = self._seat.readable(sql, target)
        key = self._key(repr((sql, rows, target, seed, form)))
        here = Place(Wanted(sql, target), readable.digest)
        kept = self._to_skip.pop(key, here)
        check_same_rows(kept.digest, here.digest)
        self._places[key] = kept
        self._has_read = True
        try:
            to_come = islice(readable.batches(rows, seed, form, self._name), kept.batches, None)
            for had, batch in enumerate(to_come, kept.batches + 1):
                self._places[key] = replace(here, batches=had)
                yield batch
        finally:  # also where the loop is left: what it has had is no place to go on from
            del self._places[key]

    def _key(self, rows: str) -> str:
        """Return the name of a loop's place: several loops may read the same rows at once."""
        to_go_on = (key for key in sorted(self._to_skip) if key.rpartition("/")[0] == rows)
        free = (key for loop in count() if (key := f"{rows}/{loop}") not in self._places)
        return next(chain(to_go_on, free))

    def report(self, loss: SupportsFloat) -> bool:
        """Report a loss, smaller is better. Return whether to go on.

        It waits where it is another job's turn. It returns False once the goal is reached, the time is over,
        or somebody has stopped the run: return what you have then.
        """
        return self._seat.note(one_number(loss))

    def save(self, state: Any) -> None:
        """Keep a state: anything that pickle takes. Call it once you have learned from a batch.

        With it goes how far each loop over `batches` is that is in hand. A loop that an earlier life of the
        function was in, and this one has left out, begins anew the next time.

        Raises:
            ArgumentError: the state cannot be pickled.
        """
        if self._has_read:  # before that, loops of an earlier life may still be gone on with
            self._to_skip.clear()
        self._state = packed(state, "the state of the function")
        self._seat.keep(Saved(self._state, self._to_skip | self._places))

    def load(self, otherwise: Any = None) -> Any:
        """Return the state that was saved last, in this life of the function or an earlier one.

        otherwise: what is returned where none was.
        """
        return otherwise if self._state is None else pickle.loads(self._state)


@dataclass(frozen=True, slots=True)
class TurnMade:
    """What became of a turn.

    Attributes:
        turn: its reports, and whether it was the last.
        value: what the function returned, pickled, where it did.
        saved: the newest state, None where it kept none in this turn.
        wanted: the SELECT that it needs to go on.
    """

    turn: PacedTurn
    value: bytes | None = None
    saved: Saved | None = None
    wanted: Wanted | None = None


@dataclass(slots=True)
class _Task:
    """The seat of a function in a task of a worker. kept_losses: how many it had when it kept a state."""

    plans: Mapping[Wanted, ReadsRows]
    until: float | None
    has_time: bool
    started_seconds: float = field(default_factory=time.perf_counter)
    losses: list[float] = field(default_factory=list)
    kept_losses: int = 0
    saved: Saved | None = None
    wanted: Wanted | None = None

    def readable(self, sql: str, target: str | None) -> ReadsRows:
        wanted = Wanted(sql, target)
        if wanted not in self.plans:
            self.wanted = wanted
            raise TurnOver
        return self.plans[wanted]

    def note(self, loss: float) -> bool:
        self.losses.append(loss)
        return self.has_time and not (self.until is not None and loss <= self.until)

    def keep(self, saved: Saved) -> None:
        self.saved, self.kept_losses = saved, len(self.losses)
        seconds = time.perf_counter() - self.started_seconds
        if seconds >= MOST_TURN_SECONDS or (seconds >= LEAST_TURN_SECONDS and is_core_wanted()):
            raise TurnOver


@dataclass(frozen=True, slots=True)
class FunctionTurn:
    """Calls a function for one turn, from what it saved in the one before."""

    packed: bytes
    name: str
    saved: Saved | None
    plans: Mapping[Wanted, ReadsRows]
    until: float | None
    has_time: bool

    def run(self, owner: str) -> TurnMade:
        import cloudpickle

        function, arguments = pickle.loads(self.packed)
        seat = _Task(self.plans, self.until, self.has_time)
        context = Context(seat, self.name, self.saved)
        value: bytes | None = None
        try:
            with reports_to(context):
                value = cloudpickle.dumps(function(context, **arguments))
        except TurnOver:  # what was reported after the last state was saved is reported again
            del seat.losses[seat.kept_losses :]
        reports = tuple(map(Reported, seat.losses))
        return TurnMade(PacedTurn(reports, 0.0, value is not None), value, seat.saved, seat.wanted)


@dataclass(frozen=True, slots=True)
class KeptFunction:
    """What a function goes on from in another process.

    Attributes:
        saved: its newest state.
        losses: that were reported before it.
        elapsed_seconds: since the run was submitted.
    """

    saved: Saved
    losses: tuple[float, ...]
    elapsed_seconds: float


class FunctionJob(PacedJob):
    """A function as a job, on a cluster: a step is a turn, made by any worker.

    Attributes:
        mark: the newest state, and how many losses came before it.
        value: what the function returned, once it `has_returned`.
        losses: all that was reported. feed: the newest, for readers.
        reason: why it was told to end, None where it was not.
    """

    def __init__(self, id: str, program: Call, goals: RunGoals, readable: Readable) -> None:
        super().__init__(id, Turns())
        self.name, self._goals, self._readable = program.name, goals, readable
        self._program = program
        self._plans: dict[Wanted, ReadsRows] = {}
        self.stopwatch, self._earlier_seconds = Stopwatch(), 0.0
        self.value: Any = None
        self.has_returned = False
        self.losses: list[float] = []
        self.feed: Feed[float] = Feed()
        self.reason: StopReason | None = None
        self.mark: tuple[Saved | None, int] = (None, 0)  # the newest state, and how many losses came before
        self._has_time = True  # in the turn in hand
        self._packed = b"" if self.is_here else program.packed

    is_here = False
    """Whether it runs in this process."""

    @property
    def saved(self) -> Saved | None:
        """The newest state."""
        return self.mark[0]

    def kept(self) -> KeptFunction | None:
        """Return what another process goes on from. None: nothing was saved. May be called on any thread."""
        saved, count = self.mark
        return (
            None
            if saved is None
            else KeptFunction(saved, tuple(self.losses[:count]), self.stopwatch.seconds())
        )

    def restore(self, kept: KeptFunction) -> None:
        """Go on from there. Only at the beginning. Raises RelaqsError where a loop has had other rows."""
        for place in kept.saved.places.values():
            check_same_rows(place.digest, self._readable(place.wanted.sql, place.wanted.target).digest)
        self.losses.extend(kept.losses)
        self.mark = kept.saved, len(kept.losses)
        self.stopwatch.earlier_seconds = self._earlier_seconds = kept.elapsed_seconds

    @property
    def has_time(self) -> bool:
        return self._goals.timeout is None or (
            self.stopwatch.seconds() - self._earlier_seconds < self._goals.timeout
        )

    def note(self, loss: float) -> bool:
        """Take a loss, and return whether to go on."""
        self.losses.append(loss)
        self.feed.publish(loss)
        if self._goals.until is not None and loss <= self._goals.until:
            self.reason = self.reason or StopReason.TARGET
        elif not (self._has_time if not self.is_here else self.has_time):
            self.reason = self.reason or StopReason.TIME
        return self.reason is None

    def _work(self) -> Work:
        plans, until = dict(self._plans), self._goals.until
        self._has_time = self.has_time
        return FunctionTurn(self._packed, self.name, self.saved, plans, until, self._has_time)

    def next_step(self) -> Step | None:
        step = super().next_step()
        return None if step is None else replace(step, tasks=(replace(step.tasks[0], work=self._work()),))

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        [result] = results
        made = result.value
        assert isinstance(made, TurnMade), made
        for reported in made.turn.reports:
            self.note(reported.quality)
        if made.value is None:  # of a turn that ends otherwise all losses came before its state
            self.mark = made.saved or self.saved, len(self.losses)
        if made.wanted is not None:
            self._plans[made.wanted] = self._readable(made.wanted.sql, made.wanted.target)
        if made.value is not None:
            self.value, self.has_returned = pickle.loads(made.value), True
        return super().fold(step, [replace(result, value=made.turn)])

    def begin(self) -> None:
        """Be ready for the first turn."""

    def end(self) -> None:
        """Let go of the function: there are no more turns."""

    def join(self) -> None:
        """Wait for a function that was let go of."""


class ThreadedFunctionJob(FunctionJob):
    """A function as a job, in this process: it runs on a thread of its own, which is lent a core."""

    is_here = True

    def __init__(self, id: str, program: Call, goals: RunGoals, readable: Readable) -> None:
        super().__init__(id, program, goals, readable)
        self._thread = background_thread(self._run, f"relaqs-function-{id}")
        self._error: BaseException | None = None

    def next_step(self) -> Step | None:
        return PacedJob.next_step(self)

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        if self._turns.is_over and self._error is not None:
            raise self._error
        return PacedJob.fold(self, step, results)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._turns.end()

    def join(self) -> None:
        self._thread.join(GRACE_SECONDS)

    def _run(self) -> None:
        try:
            if self._turns.wait():
                context = Context(_Thread(self, self._turns, self._readable), self.name, self.saved)
                with reports_to(context):
                    self.value = self._program.function(context, **self._program.arguments)
                self.has_returned = True
        except BaseException as error:
            self._error = error
        finally:
            self._turns.end()


@dataclass(frozen=True, slots=True)
class _Thread:
    """The seat of a function on a thread of this process."""

    job: FunctionJob
    turns: Turns
    readable: Readable

    def note(self, loss: float) -> bool:
        goes_on = self.job.note(loss)
        return self.turns.note(Reported(loss), TURN_SECONDS) and goes_on

    def keep(self, saved: Saved) -> None:
        self.job.mark = saved, len(self.job.losses)


class FunctionListener(RunListener[float]):
    """Keeps the function's state, and lets go of it at the end."""

    def __init__(
        self, job: FunctionJob, target: float | None, running: RunningJobs | None, keeper: RunKeeper
    ) -> None:
        super().__init__(job.id, StopRules(target), running, keeper)
        self.job = job
        self.feed = job.feed

    def folded(self, report: StepReport) -> StepReport:
        self.keeper.keep_if_due(self.saved)
        return report

    def saved(self) -> KeptFunction | None:
        return self.job.kept()

    def _release(self) -> None:
        self.job.end()


@dataclass(frozen=True, slots=True)
class FunctionRecipe:
    """How the run of a function is begun."""

    program: Call
    goals: RunGoals

    def begun(self, session: Any, keeper: RunKeeper) -> FunctionRun:
        run: FunctionRun = session._function_run(self.program, self.goals, keeper)
        run.start()
        return run


class FunctionRun(Handle[float]):
    """A function of the user's own that runs beside queries and training. `Session.run` makes one.

    A `for` over it gets the newest loss each time round; all of them are in `losses`. It is steered as a
    query is: `pause`, `priority`, `stop`.

    >>> run = db.run(lambda ctx: ctx.report(0.5), until=0.5)
    >>> run.result(), run.losses, run.stop_reason.value
    (False, (0.5,), 'target reached')
    """

    def __init__(
        self,
        program: Call,
        goals: RunGoals,
        executor: Executor,
        readable: Readable,
        running: RunningJobs | None = None,
        keeper: RunKeeper | None = None,
    ) -> None:
        """Set it up.

        Args:
            executor: whose cores it takes turns on.
            readable: says how the rows of a SELECT are read.
            keeper: keeps its state, and has the one that it goes on from.
        """
        from relaqs.executors.threads import ThreadExecutor

        kind = ThreadedFunctionJob if isinstance(executor, ThreadExecutor) else FunctionJob
        job = self._job = kind(uuid.uuid4().hex[:12], program, goals, readable)
        description = JobDescription(
            job.id,
            Kind.TRAINING,
            name=program.name,
            weight=goals.priority,
            cores_most=1.0,
            work_total=math.inf,
            target=goals.until,
            deadline_seconds=math.inf if goals.within is None else goals.within,
        )
        keeper = keeper or NO_KEEPER
        if (kept := keeper.restored()) is not None:
            job.restore(kept)
        self._goals = goals
        listener = FunctionListener(job, goals.until, running, keeper)
        most = None if goals.timeout is None else goals.timeout + GRACE_SECONDS
        super().__init__(JobRunner(job, executor, description, listener, timeout_seconds=most), listener)

    def start(self) -> None:
        """Begin, once."""
        super().start()
        self._job.begin()

    @property
    def state(self) -> str:
        """One of waiting, running, paused; at the end stopped, returned or failed."""
        state = self.runner.state
        return "returned" if state is RunState.EXACT else str(state)

    @property
    def losses(self) -> tuple[float, ...]:
        """What was reported so far."""
        return tuple(self._job.losses)

    def losses_from(self, start: int) -> list[float]:
        """Return what was reported so far but for the first losses."""
        return self._job.losses[start:]

    @property
    def latest(self) -> Any:
        """The state that the function saved last; None before."""
        saved = self._job.saved
        return None if saved is None else pickle.loads(saved.state)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run is over; None while it is not. It says so where the end came after the deadline."""
        if not self.runner.state.is_over:
            return None
        if self.runner.state is RunState.FAILED:
            return StopReason.FAILED
        reason = self._job.reason or self._listener.stop_reason
        ended = StopReason.RETURNED if self.runner.state is RunState.EXACT else StopReason.STOPPED
        return (reason or ended).by(self._goals.within, self._seconds)

    @property
    def shortfall(self) -> str | None:
        """What was asked for and has not come, for people; None where all has, or the run is not over."""
        if not self.runner.state.is_over:
            return None
        lacking = lacking_loss(min(self.losses, default=math.inf), self.target)
        return "; ".join(filter(None, (lacking, late(self._goals.within, self._seconds)))) or None

    @property
    def _seconds(self) -> float:
        """How long it has taken, to its end."""
        return self._job.stopwatch.seconds(self._listener.ended_seconds)

    def result(self, timeout: float | None = None, *, strict: bool = False) -> Any:
        """Return what the function returned, once it has.

        Args:
            timeout: seconds after which the run is stopped.
            strict: whether to raise where `until` was not reached, or not `within` its seconds.

        Raises:
            RelaqsError: it was stopped before it returned, or what was asked for has not come. An error of
                the function is raised as it is.
        """
        self._wait_for_end(timeout)
        self._job.join()
        if not self._job.has_returned:
            raise RelaqsError(
                f"{self._job.name} was stopped before it returned; run.latest is what it saved last"
            )
        check_strictly(self.shortfall, strict)
        return self._job.value

    def _checked_target(self, target: Any) -> float | None:
        return None if target is None else check_loss("until", target)

    def __repr__(self) -> str:
        reached = f", loss {self.losses[-1]:.6g}" if self.losses else ""
        return f"<FunctionRun {self._job.name}: {self.state}{reached}>"
