"""A rank's life: it is prepared on a slot, keeps its state there, and trains with its peers in turns.

A turn is a pinned task on each slot of a gang. The tasks of one turn meet, make steps together, and end at
the same step. Between turns the state stays in the worker's process, in `RESIDENTS`.

What is trained is a `Lesson`: it goes from one step to the next, and asks for the sums between. They are
made of some pieces of the step here (`piece_sums`), and of those of the peers.
"""

from __future__ import annotations

import math
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.jobs.executor import LEAST_BYTES_PER_SECOND, is_core_wanted
from relaqs.training.elastic.course import (
    BatchRule,
    FixedBatch,
    MiniBatch,
    Order,
    StepsMade,
    TrainingCourse,
    after,
    next_step,
    norm,
    pieces_of_step,
    subtrees,
)
from relaqs.training.elastic.exchange import Encryption, ExchangeBrokenError, SocketExchange, meet
from relaqs.training.elastic.membership import RESIDENTS, Membership, RankAddress
from relaqs.training.passes import PartitionSource, add_sums, in_pairs, one_thread
from relaqs.training.protocol import MiniBatchTraining
from relaqs.training.row_cache import KEPT
from relaqs.training.rows import ALL, Rows, Sums


class ReadsPieces(Protocol):
    """What gives the rows of pieces: `PieceReader` does."""

    @property
    def order(self) -> Order: ...

    def rows(self, piece: int) -> Rows: ...


@dataclass(slots=True)
class PieceReader:
    """Reads pieces of partitions, for one task or one rank.

    Partitions that the process keeps are taken from there. Others are read by each reader. It lets go of
    those that it used longest ago, where all of them together are beyond the budget of the process.

    Attributes:
        owner: the name by which a read can be interrupted.
        order: where the pieces are.
        sources: of partitions, by their positions in the order.
        reads: how many partitions were read, because the process did not have them.
    """

    owner: str
    order: Order
    sources: Mapping[int, PartitionSource]
    reads: int = 0
    _open: dict[int, tuple[Rows, IntArray]] = field(default_factory=dict)  # the one used last comes last
    _bytes: int = 0  # of what is open
    _lets_go: bool = False

    def rows(self, piece: int) -> Rows:
        """Return the rows of a piece, copied together."""
        partition, first, end = self.order.place(piece)
        rows, places = self._opened(partition)
        return rows.picked(places[first:end])

    def read_ahead(self) -> bool:
        """Open all partitions that fit into the budget. Return whether these are all there are."""
        for partition in self.sources:
            self._opened(partition)
            if self._lets_go:
                return False
        return True

    def _opened(self, partition: int) -> tuple[Rows, IntArray]:
        if (found := self._open.pop(partition, None)) is None:
            source = self.sources[partition]
            if (rows := source.kept(0, ALL)) is None:
                rows, self.reads = source.read(0, self.owner), self.reads + 1
            found = rows, self._places(partition, source)
            self._bytes += _byte_count(*found)
            self._make_room(source.budget_bytes)
        self._open[partition] = found  # the last one is the one used last
        return found

    def _make_room(self, budget_bytes: int) -> None:
        while self._bytes > budget_bytes and self._open:
            self._bytes -= _byte_count(*self._open.pop(next(iter(self._open))))
            self._lets_go = True

    def _places(self, partition: int, source: PartitionSource) -> IntArray:
        owner = f"{source.data} by {self.order.seed}"
        if (kept := KEPT.get(owner, partition)) is not None:
            places: IntArray = kept["places"][1]
            return places
        places = self.order.rows_of(partition)
        KEPT.put(owner, partition, {"places": (0, places)}, source.budget_bytes)
        return places


def _byte_count(rows: Rows, places: IntArray) -> int:
    beside = sum(each.nbytes for each in (rows.target, rows.others, places) if each is not None)
    return int(rows.features.nbytes + beside)


def piece_sums(
    job: MiniBatchTraining, state: Any, reader: ReadsPieces, step: int, pieces: Sequence[int] | IntArray
) -> Sums:
    """Return the sums of some neighbouring pieces of a step, added in pairs.

    The last of them is for the noise: Σ |g|²/n over the pieces, g a piece's gradient sums, n its rows.
    """

    def each() -> Iterator[Sums]:
        for piece in pieces:
            rows = reader.rows(int(piece))
            sums = job.partial(state, rows, reader.order.draw(step, int(piece)))
            yield *sums, np.asarray(norm(job.gradients(sums)) / len(rows))

    return in_pairs(each(), add_sums)


MEETING_SECONDS = 2.0  # for a peer to answer, where all that it needs is in its memory
READING_SECONDS = 60.0  # where it may have to read rows first; one that dies is noticed at once all the same


@dataclass(frozen=True, slots=True)
class Lesson:
    """A job and its rows, ready for the next step.

    Attributes:
        rule: who decides how many rows a step has, where the driver does not.
        first: the course before the first step.
        patience_seconds: how long a rank may let its peers wait, at least.
    """

    job: MiniBatchTraining
    rule: BatchRule
    order: Order
    first: TrainingCourse
    reader: ReadsPieces
    patience_seconds: float = MEETING_SECONDS

    def next(self, course: TrainingCourse, batch_rows: int | None) -> MiniBatch:
        """Return the next step. batch_rows: how many rows it shall have. None: what the rule says."""
        rule = self.rule if batch_rows is None else FixedBatch(batch_rows)
        return next_step(self.job, rule, self.order, course)

    def steps_left(self, course: TrainingCourse) -> int:
        """Return how many steps lead to the end of the pass, with the rows of the last one."""
        pieces = pieces_of_step(course.batch_rows, self.order.piece_rows)
        return -(-(self.order.piece_count - course.pieces) // pieces)

    def sums(self, course: TrainingCourse, pieces: Sequence[int] | IntArray) -> Sums:
        """Return the sums of some neighbouring pieces of the next step."""
        return piece_sums(self.job, course.state, self.reader, course.step, pieces)

    def after(self, course: TrainingCourse, step: MiniBatch, sums: Sums) -> TrainingCourse:
        """Return the course after a step. sums: of all its pieces."""
        return after(self.job, self.order, course, step, sums)


class Recipe(Protocol):
    """Makes a lesson on a worker: it imports, builds, compiles and reads first rows. It is picklable."""

    def lesson(self, owner: str) -> Lesson:
        """Return it, ready for its first step. owner: the name by which a read can be interrupted."""
        ...


@dataclass(frozen=True, slots=True)
class TableRecipe:
    """The lesson over partitions of tables. sources: of all partitions, by their positions in the order.

    What fits into the budget of a process is read before the first step, because a rank that reads in a step
    keeps its peers waiting.
    """

    job: MiniBatchTraining
    rule: BatchRule
    order: Order
    first: TrainingCourse
    sources: Mapping[int, PartitionSource]

    def lesson(self, owner: str) -> Lesson:
        reader = PieceReader(owner, self.order, self.sources)
        patience_seconds = MEETING_SECONDS if reader.read_ahead() else READING_SECONDS
        lesson = Lesson(self.job, self.rule, self.order, self.first, reader, patience_seconds)
        step = lesson.next(self.first, None)
        lesson.sums(self.first, step.pieces[:1])  # imports and compiles what the first step needs
        return lesson


LEAST_TURN_SECONDS = 0.05  # before a turn ends for a task that waits: a turn costs messages, about 15 ms
LIMIT_STEPS = 10.0  # a peer may take so many times the median step, and at least MEETING_SECONDS


class RankFreedError(Exception):
    """A rank had no turn for so long that its worker freed it, as if its driver had died."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Where ranks begin that know nothing: a gang's first ones, or those after all others died.

    Attributes:
        course: pickled; None: the first one.
        first_step: the step after it.
        batch_rows: of the steps that were made before and are made again in the same way, shape (steps,).
    """

    course: bytes | None
    first_step: int
    batch_rows: IntArray


@dataclass(frozen=True, slots=True)
class EndOfPass:
    """The state at the end of a pass. course: pickled, after so many steps and passes."""

    passes: int
    step: int
    course: bytes


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn of one rank gave.

    Attributes:
        slot: the rank's slot.
        generation, turn: which turn it was.
        step: how many steps the rank has made, with all before it.
        passes: how many passes these are.
        made: the steps of this turn. Every rank tells them: any other may die before it has.
        broken: why the generation is over. None: it is not.
        missed: the peer that did not answer, where the generation is over.
        pause_seconds: between this rank's last step of the generation before and the first of this one; None
            where that was not in this turn.
        step_seconds: the median of its steps.
        compute_seconds: the median of what this rank computed in each.
        noise_rows: the noise scale of the gradients, NaN where it is not known.
        ends: the ends of passes that the driver may not have. Rank 0 tells those of its turn, and in the
            first turn of a generation every rank tells those of the generations before.
        kept: the pickled course of rank 0 at the end of the turn, where the driver asked for it.
        state_bytes: about how many bytes such a course has.
        pass_seconds_left: about how long the steps take to the end of the pass.
    """

    slot: str
    generation: int
    turn: int
    step: int = 0
    passes: int = 0
    made: StepsMade | None = None
    broken: str | None = None
    missed: int | None = None
    pause_seconds: float | None = None
    step_seconds: float = 0.0
    ends: tuple[EndOfPass, ...] = ()
    kept: bytes | None = None
    compute_seconds: float = 0.0
    noise_rows: float = math.nan
    state_bytes: int = 0
    pass_seconds_left: float = math.inf


@dataclass(frozen=True, slots=True)
class PrepareWork:
    """Prepares a rank on a slot, and returns its address. A rank that is there already stays as it is."""

    gang: str
    slot: str
    recipe: Recipe

    def run(self, owner: str) -> RankAddress:
        def make() -> Rank:
            return Rank(self.slot, self.recipe.lesson(owner))

        return RESIDENTS.settled(self.gang, self.slot, Rank, make).address


@dataclass(frozen=True, slots=True)
class TurnWork:
    """One rank's part in a turn.

    Attributes:
        gang, slot: which rank.
        turn: 0, 1, 2, … over all generations.
        seconds: how long the turn lasts at most. Rank 0's clock counts.
        end_step: the step at which the run is over.
        restart: where it begins if no rank knows anything.
        keeps: whether rank 0 returns its course.
        end_passes: the number of passes at which the ranks wait to be told more.
        kept_passes: of how many passes the driver has the state.
    """

    gang: str
    slot: str
    membership: Membership
    turn: int
    seconds: float
    end_step: float
    restart: Restart | None = None
    keeps: bool = False
    end_passes: float = math.inf
    kept_passes: int = 0

    def run(self, owner: str) -> TurnResult:
        freed = RankFreedError(f"the rank on {self.slot} was freed; prepare it once more")
        if (rank := RESIDENTS.get(self.gang, self.slot, Rank)) is None:
            raise freed
        with rank.lock, one_thread():
            if rank.is_freed:  # just now
                raise freed
            return rank.take(self)

    def batch_at(self, step: int) -> int | None:
        """Return how many rows a step shall have. None: the job's rule says it."""
        if (again := self.restart) is not None and step < again.first_step + len(again.batch_rows):
            assert step >= again.first_step, f"step {step} is before {again.first_step}, where ranks begin"
            return int(again.batch_rows[step - again.first_step])
        return self.membership.batch_rows


class Rank:
    """One rank on its slot. `lock` is held in a turn: a worker with several threads may start two at once."""

    def __init__(self, slot: str, lesson: Lesson) -> None:
        here = place_here()
        self._listener = socket.create_server((here.host, 0), family=here.family, backlog=64)
        self._encryption = here.encryption
        host, port = self._listener.getsockname()[:2]
        self.address = RankAddress(slot, host, port)
        self.lock = threading.Lock()
        self.used_seconds = time.monotonic()
        self.is_freed = False
        self._lesson = lesson
        self._now: TrainingCourse | None = None
        self._ends: list[TrainingCourse] = []  # at the ends of passes, which the driver may not have
        self._untold: list[TrainingCourse] = []  # those of them that this rank is to tell
        self._generation = -1
        self._is_new_here = False  # in its generation: it has made no step there
        self._exchange: SocketExchange | None = None
        self._stepped_seconds: float | None = None  # when the last step ended, on the monotonic clock
        self._paces: list[float] = []  # of the last steps
        self.state_bytes = 0  # of the pickled course, about
        self._computed: list[float] = []  # the part of each of them in which this rank computed

    def take(self, work: TurnWork) -> TurnResult:
        """Take part in a turn."""
        report = _Report()
        self._ends = [each for each in self._ends if each.passes > work.kept_passes]
        try:
            self._join(work)
            self._train(work, report)
        except ExchangeBrokenError as error:
            self._leave()
            report.broken, report.missed = str(error), error.peer
        except BaseException:
            self._leave()  # frees the peers, who wait for this rank
            raise
        self.used_seconds = time.monotonic()
        return report.told(self, work)

    def close(self) -> None:
        """Free the rank. A turn that still runs ends."""
        if (exchange := self._exchange) is not None:
            exchange.close()
        with self.lock:
            self.is_freed = True
            self._leave()
            self._listener.close()

    def is_idle_since(self, seconds: float) -> bool:
        """Whether it had no turn since then, on the monotonic clock."""
        return self.used_seconds < seconds and not self.lock.locked()

    @property
    def step(self) -> int:
        return 0 if self._now is None else self._now.step

    @property
    def passes(self) -> int:
        return 0 if self._now is None else self._now.passes

    @property
    def is_between_passes(self) -> bool:
        return self._now is not None and self._now.is_between_passes

    @property
    def pass_seconds_left(self) -> float:
        """About how long the steps take to the end of the pass; inf where no step was measured."""
        if self._now is None or not self._paces:
            return math.inf
        return self._lesson.steps_left(self._now) * self.step_seconds

    def packed(self) -> bytes:
        return _pickled(self._now)

    def take_untold(self, kept_passes: int) -> tuple[EndOfPass, ...]:
        """Return the ends of passes that this rank is to tell, each once."""
        untold, self._untold = self._untold, []
        return tuple(
            EndOfPass(each.passes, each.step, _pickled(each)) for each in untold if each.passes > kept_passes
        )

    def _join(self, work: TurnWork) -> None:
        """Be in the generation of a turn: meet its ranks, and have the state of the one that is furthest."""
        there = work.membership
        if there.generation == self._generation:
            if self._exchange is None:
                raise ExchangeBrokenError(there.rank_of(work.slot), "this generation is over")
            return
        self._leave()
        self._generation = there.generation
        self._paces.clear()
        self._computed.clear()
        rank = there.rank_of(work.slot)
        self._exchange = meet(there, rank, self._listener, self._encryption, MEETING_SECONDS)
        steps = np.zeros(there.size)
        steps[rank] = 0 if self._now is None else 1 + self._now.step
        (steps,) = self._exchange.all_reduce((steps,))
        self._agree(work, steps, rank)
        self._untold = list(self._ends)
        self._is_new_here = True

    def _agree(self, work: TurnWork, steps: Any, rank: int) -> None:
        """Take the state of the rank that is furthest, or the first one where none has any."""
        assert self._exchange is not None
        root = int(np.argmax(steps))
        if not steps[root]:
            self._now = self._first(work) if rank == root else None
        if not np.all(steps == steps[root]) or not steps[root]:
            self._share(rank, root)
        self._exchange.limit_seconds = self._lesson.patience_seconds

    def _share(self, rank: int, root: int) -> None:
        """Have the state of one rank on all, and the ends of passes that the driver may not have.

        First all hear how large it is: a large one takes its time.
        """
        assert self._exchange is not None
        packed = _pickled((self._now, self._ends)) if rank == root else b""
        (byte_count,) = self._exchange.all_reduce((np.asarray(float(len(packed))),))
        self.state_bytes = int(byte_count)
        hops = self._exchange.size.bit_length() - 1
        self._exchange.limit_seconds = MEETING_SECONDS + hops * self.state_bytes / LEAST_BYTES_PER_SECOND
        found = self._exchange.broadcast(np.frombuffer(packed, dtype=np.uint8), root)
        if rank != root:
            self._now, self._ends = pickle.loads(found)

    def _first(self, work: TurnWork) -> TrainingCourse:
        if work.restart is None or work.restart.course is None:
            return self._lesson.first
        found: TrainingCourse = pickle.loads(work.restart.course)
        return found

    def _leave(self) -> None:
        if (exchange := self._exchange) is not None:
            self._exchange = None
            exchange.free()

    def _train(self, work: TurnWork, report: _Report) -> None:
        """Make steps until a rank says that the turn is over, or a pass is, or the run."""
        rank = work.membership.rank_of(work.slot)
        shares = partial(subtrees, ranks=work.membership.size)
        began_seconds = time.monotonic()
        is_over = self.step >= work.end_step or self.passes >= work.end_passes
        while not is_over:
            started_seconds = time.monotonic()
            is_last = self._is_last(work, rank, started_seconds - began_seconds)
            is_over = self._step(work, rank, shares, is_last, report)
            is_over |= self._is_pass_over(rank) or self.step >= work.end_step
            if self._is_new_here:  # the ranks may have met in a turn before, at the end of a pass
                report.note_first(self._stepped_seconds, started_seconds)
                self._is_new_here = False
            self._stepped_seconds = time.monotonic()
            self._note_pace(self._stepped_seconds - started_seconds)

    def _is_pass_over(self, rank: int) -> bool:
        """Return whether a pass is over, and keep its end until the driver has it."""
        assert self._now is not None
        if not self._now.is_between_passes:
            return False
        self._ends.append(self._now)
        if rank == 0:
            self._untold.append(self._now)
        return True

    def _is_last(self, work: TurnWork, rank: int, turned_seconds: float) -> bool:
        """Return whether this rank wants the next step to be the last one of the turn."""
        is_late = rank == 0 and turned_seconds >= work.seconds
        return is_late or (turned_seconds >= LEAST_TURN_SECONDS and is_core_wanted())

    def _step(
        self,
        work: TurnWork,
        rank: int,
        shares: Callable[[int], Iterator[slice]],
        is_last: bool,
        report: _Report,
    ) -> bool:
        """Make one step with the peers. Return whether one of them said that it is the last of the turn."""
        assert self._exchange is not None
        assert self._now is not None
        course = self._now
        step = self._lesson.next(course, work.batch_at(course.step))
        mine = step.pieces[list(shares(len(step.pieces)))[rank]]
        own: Sums | None = None
        started_seconds = time.monotonic()
        if len(mine):
            ends = np.array([float(is_last)])
            own = (*self._lesson.sums(course, mine), ends)
        self._computed = [*self._computed[-20:], time.monotonic() - started_seconds]
        *sums, ends = self._exchange.all_reduce(own)
        report.steps.append((step.batch_rows, step.rate, float(sums[0]) / step.rows))
        self._now = self._lesson.after(course, step, tuple(sums))
        return bool(ends[-1])

    def _note_pace(self, seconds: float) -> None:
        self._paces = [*self._paces[-20:], seconds]
        assert self._exchange is not None
        self._exchange.limit_seconds = max(self._lesson.patience_seconds, LIMIT_STEPS * self.step_seconds)

    @property
    def step_seconds(self) -> float:
        return float(np.median(self._paces)) if self._paces else 0.0

    @property
    def compute_seconds(self) -> float:
        return float(np.median(self._computed)) if self._computed else 0.0

    @property
    def noise_rows(self) -> float:
        return math.nan if self._now is None else self._now.noise_rows


@dataclass(slots=True)
class _Report:
    """What is noted in a turn for its result."""

    steps: list[tuple[int, float, float]] = field(default_factory=list)
    broken: str | None = None
    missed: int | None = None
    pause_seconds: float | None = None

    def note_first(self, before_seconds: float | None, started_seconds: float) -> None:
        """Note the first step of a generation."""
        if before_seconds is not None:
            self.pause_seconds = started_seconds - before_seconds

    def told(self, rank: Rank, work: TurnWork) -> TurnResult:
        is_first, is_whole = work.membership.rank_of(work.slot) == 0, self.broken is None
        ends = rank.take_untold(work.kept_passes) if is_whole else ()
        has_told = bool(ends) and ends[-1].step == rank.step
        keeps = is_first and is_whole and work.keeps and not has_told
        return TurnResult(
            work.slot,
            work.membership.generation,
            work.turn,
            rank.step,
            rank.passes,
            self._made(rank.step),
            self.broken,
            self.missed,
            self.pause_seconds,
            rank.step_seconds,
            ends,
            rank.packed() if keeps else None,
            rank.compute_seconds,
            rank.noise_rows,
            rank.state_bytes,
            rank.pass_seconds_left,
        )

    def _made(self, step: int) -> StepsMade:
        rows, rates, losses = zip(*self.steps, strict=True) if self.steps else ((), (), ())
        first = step - len(self.steps)
        return StepsMade(first, np.array(rows, dtype=np.int64), np.array(rates), np.array(losses))


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


@dataclass(frozen=True, slots=True)
class PlaceHere:
    """Where this process can be reached by its peers, and how they speak."""

    host: str
    family: socket.AddressFamily
    encryption: Encryption | None


def place_here() -> PlaceHere:
    """Return it: a Dask worker's own address and its own certificates; else this machine alone."""
    from relaqs.executors.dask.slots import worker_here

    if (here := worker_here()) is None:
        return PlaceHere("127.0.0.1", socket.AF_INET, None)
    encryption = None
    if here.calling is not None and here.called is not None:
        encryption = Encryption(here.calling, here.called)
    return PlaceHere(here.host, socket.AF_INET6 if ":" in here.host else socket.AF_INET, encryption)
