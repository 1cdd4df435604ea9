"""A rank's life: it is prepared on a slot, keeps its state there, and trains with its peers in turns.

A turn is a pinned task on each slot of a gang. The tasks of one turn meet, make steps together, and end at
the same step. Between turns the state stays in the worker's process, in `RESIDENTS`.

What is trained is a `Lesson`: it goes from one step to the next, and asks for the sums between. They are
made of some pieces of the step here (`piece_sums`), and of those of the peers.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.jobs.executor import LEAST_BYTES_PER_SECOND, is_core_wanted
from relaqs.training.elastic.course import (
    BatchRule,
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
from relaqs.training.elastic.membership import Actor, Membership, TurnWork
from relaqs.training.elastic.mesh import ExchangeBrokenError, partners_of
from relaqs.training.passes import PartitionSource, add_sums, in_pairs
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
        rule: who decides how many rows a step has.
        first: the course before the first step.
        patience_seconds: how long a rank may let its peers wait, at least.
    """

    job: MiniBatchTraining
    rule: BatchRule
    order: Order
    first: TrainingCourse
    reader: ReadsPieces
    patience_seconds: float = MEETING_SECONDS

    def next(self, course: TrainingCourse) -> MiniBatch:
        """Return the next step."""
        return next_step(self.job, self.rule, self.order, course)

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


@dataclass(frozen=True, slots=True)
class TableRecipe:
    """A rank over partitions of tables. sources: of all partitions, by their positions in the order.

    What fits into the budget of a process is read before the first step, because a rank that reads in a step
    keeps its peers waiting.
    """

    job: MiniBatchTraining
    rule: BatchRule
    order: Order
    first: TrainingCourse
    sources: Mapping[int, PartitionSource]

    def actor(self, slot: str, owner: str) -> Rank:
        reader = PieceReader(owner, self.order, self.sources)
        patience_seconds = MEETING_SECONDS if reader.read_ahead() else READING_SECONDS
        lesson = Lesson(self.job, self.rule, self.order, self.first, reader, patience_seconds)
        step = lesson.next(self.first)
        lesson.sums(self.first, step.pieces[:1])  # imports and compiles what the first step needs
        return Rank(slot, lesson)


LEAST_TURN_SECONDS = 0.05  # before a turn ends for a task that waits: a turn costs messages, about 15 ms
LIMIT_STEPS = 10.0  # a peer may take this many times the median step, and at least MEETING_SECONDS


@dataclass(frozen=True, slots=True)
class EndOfPass:
    """The state at the end of a pass. course: pickled, after these steps and passes."""

    passes: int
    step: int
    course: bytes


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn of one rank gave.

    Attributes:
        step: how many steps the rank has made, with all before it.
        passes: how many passes these are.
        made: the steps of this turn. Every rank tells them: any other may die before it has.
        broken: why the generation is over. None: it is not.
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
    turn: int
    step: int = 0
    passes: int = 0
    made: StepsMade | None = None
    broken: str | None = None
    pause_seconds: float | None = None
    step_seconds: float = 0.0
    ends: tuple[EndOfPass, ...] = ()
    kept: bytes | None = None
    compute_seconds: float = 0.0
    noise_rows: float = math.nan
    state_bytes: int = 0
    pass_seconds_left: float = math.inf


@dataclass(frozen=True, slots=True)
class RankTurn(TurnWork):
    """One rank's part in a turn.

    Attributes:
        turn: 0, 1, 2, … over all generations.
        seconds: how long the turn lasts at most. Rank 0's clock counts.
        course: pickled, where it begins if no rank knows anything; None: the first one.
        keeps: whether rank 0 returns its course.
        end_passes: the number of passes at which the ranks wait to be told more.
        kept_passes: of how many passes the driver has the state.
    """

    membership: Membership
    turn: int
    seconds: float
    course: bytes | None = None
    keeps: bool = False
    end_passes: float = math.inf
    kept_passes: int = 0


class Rank(Actor):
    """One rank on its slot."""

    def __init__(self, slot: str, lesson: Lesson) -> None:
        super().__init__(slot)
        self._lesson = lesson
        self._now: TrainingCourse | None = None
        self._ends: list[TrainingCourse] = []  # at the ends of passes, which the driver may not have
        self._untold: list[TrainingCourse] = []  # those of them that this rank is to tell
        self._is_new_here = False  # in its generation: it has made no step there
        self._stepped_seconds: float | None = None  # when the last step ended, on the monotonic clock
        self._paces: list[float] = []  # of the last steps
        self._state_bytes = 0  # of the pickled course, about
        self._computed: list[float] = []  # the part of each of them in which this rank computed
        # Of the turn in hand: the rows and the rate of each step, and the pause before the first.
        self._steps: list[tuple[int, float]] = []
        self._pause_seconds: float | None = None

    def _turn(self, work: RankTurn) -> TurnResult:
        self._steps, self._pause_seconds = [], None
        self._ends = [each for each in self._ends if each.passes > work.kept_passes]
        self._join(work)
        self._train(work)
        return self._told(work, None)

    def _broken(self, work: RankTurn, error: ExchangeBrokenError) -> TurnResult:
        return self._told(work, error)

    def _told(self, work: RankTurn, broken: ExchangeBrokenError | None) -> TurnResult:
        ends = () if broken else self._take_untold(work.kept_passes)
        has_told = bool(ends) and ends[-1].step == self.step
        is_first = work.membership.rank_of(work.slot) == 0
        rows, rates = zip(*self._steps, strict=True) if self._steps else ((), ())
        first_step = self.step - len(self._steps)
        left_seconds = math.inf  # to the end of the pass
        if self._now is not None and self._paces:
            left_seconds = self._lesson.steps_left(self._now) * self.step_seconds
        return TurnResult(
            work.slot,
            work.turn,
            self.step,
            self.passes,
            StepsMade(first_step, np.array(rows, dtype=np.int64), np.array(rates)),
            None if broken is None else str(broken),
            self._pause_seconds,
            self.step_seconds,
            ends,
            _pickled(self._now) if is_first and not broken and work.keeps and not has_told else None,
            float(np.median(self._computed)) if self._computed else 0.0,
            math.nan if self._now is None else self._now.noise_rows,
            self._state_bytes,
            left_seconds,
        )

    @property
    def step(self) -> int:
        return 0 if self._now is None else self._now.step

    @property
    def passes(self) -> int:
        return 0 if self._now is None else self._now.passes

    def _take_untold(self, kept_passes: int) -> tuple[EndOfPass, ...]:
        """Return the ends of passes that this rank is to tell, each once."""
        untold, self._untold = self._untold, []
        return tuple(
            EndOfPass(each.passes, each.step, _pickled(each)) for each in untold if each.passes > kept_passes
        )

    def _join(self, work: RankTurn) -> None:
        """Be in the generation of a turn: meet its ranks, and have the state of the one that is furthest."""
        there = work.membership
        if there.generation == self._generation:
            if self._mesh is None:
                raise ExchangeBrokenError(there.rank_of(work.slot), "this generation is over")
            return
        self._paces.clear()
        self._computed.clear()
        rank = there.rank_of(work.slot)
        mesh = self._meet(there, (MEETING_SECONDS, MEETING_SECONDS), partners_of(rank, there.size))
        steps = np.zeros(there.size)
        steps[rank] = 0 if self._now is None else 1 + self._now.step
        (steps,) = mesh.all_reduce((steps,))
        self._agree(work, steps, rank)
        self._untold = list(self._ends)
        self._is_new_here = True

    def _agree(self, work: RankTurn, steps: Any, rank: int) -> None:
        """Take the state of the rank that is furthest, or the first one where none has any."""
        assert self._mesh is not None
        root = int(np.argmax(steps))
        if not steps[root]:
            self._now = self._first(work) if rank == root else None
        if not np.all(steps == steps[root]) or not steps[root]:
            self._share(rank, root)
        self._mesh.limit_seconds = self._lesson.patience_seconds

    def _share(self, rank: int, root: int) -> None:
        """Have the state of one rank on all, and the ends of passes that the driver may not have.

        First all hear how large it is: a large one takes its time.
        """
        assert self._mesh is not None
        packed = _pickled((self._now, self._ends)) if rank == root else b""
        (byte_count,) = self._mesh.all_reduce((np.asarray(float(len(packed))),))
        self._state_bytes = int(byte_count)
        hops = self._mesh.size.bit_length() - 1
        self._mesh.limit_seconds = MEETING_SECONDS + hops * self._state_bytes / LEAST_BYTES_PER_SECOND
        found = self._mesh.broadcast(np.frombuffer(packed, dtype=np.uint8), root)
        if rank != root:
            self._now, self._ends = pickle.loads(found)

    def _first(self, work: RankTurn) -> TrainingCourse:
        if work.course is None:
            return self._lesson.first
        found: TrainingCourse = pickle.loads(work.course)
        return found

    def _train(self, work: RankTurn) -> None:
        """Make steps until a rank says that the turn is over, or a pass is."""
        rank = work.membership.rank_of(work.slot)
        began_seconds = time.monotonic()
        is_over = self.passes >= work.end_passes
        while not is_over:
            started_seconds = time.monotonic()
            is_last = self._is_last(work, rank, started_seconds - began_seconds)
            is_over = self._step(work, rank, is_last)
            is_over |= self._is_pass_over(rank)
            if self._is_new_here:  # the ranks may have met in a turn before, at the end of a pass
                if (before_seconds := self._stepped_seconds) is not None:
                    self._pause_seconds = started_seconds - before_seconds
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

    def _is_last(self, work: RankTurn, rank: int, turned_seconds: float) -> bool:
        """Return whether this rank wants the next step to be the last one of the turn."""
        is_late = rank == 0 and turned_seconds >= work.seconds
        return is_late or (turned_seconds >= LEAST_TURN_SECONDS and is_core_wanted())

    def _step(self, work: RankTurn, rank: int, is_last: bool) -> bool:
        """Make one step with the peers. Return whether one of them said that it is the last of the turn."""
        assert self._mesh is not None
        assert self._now is not None
        course = self._now
        step = self._lesson.next(course)
        mine = step.pieces[list(subtrees(len(step.pieces), work.membership.size))[rank]]
        own: Sums | None = None
        started_seconds = time.monotonic()
        if len(mine):
            ends = np.array([float(is_last)])
            own = (*self._lesson.sums(course, mine), ends)
        self._computed = [*self._computed[-20:], time.monotonic() - started_seconds]
        *sums, ends = self._mesh.all_reduce(own)
        self._steps.append((step.batch_rows, step.rate))
        self._now = self._lesson.after(course, step, tuple(sums))
        return bool(ends[-1])

    def _note_pace(self, seconds: float) -> None:
        self._paces = [*self._paces[-20:], seconds]
        assert self._mesh is not None
        self._mesh.limit_seconds = max(self._lesson.patience_seconds, LIMIT_STEPS * self.step_seconds)

    @property
    def step_seconds(self) -> float:
        return float(np.median(self._paces)) if self._paces else 0.0


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)
