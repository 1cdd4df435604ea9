"""The course of a run: where it stands between two steps, and the pure way from one step to the next.

Whoever carries a run (tasks, workers that live longer, a replay) goes round like this:

    step = next_step(job, rule, order, course)
    sums = the sums of the pieces in step.pieces, added in pairs
    course = after(job, order, course, step, sums)

In the order of a step:

- Which rows come next (`Order`): a pass is a permutation of pieces, and a step takes the next few of them.
- How many (`BatchRule`): every rule is pure, and sees the course so far and nothing else. The gradient's
  noise scale says from how many rows on a larger step saves little.
- At which rate: a larger step has a larger rate than the first one.

What time and other work decided on the way is in the journal: how many rows each step had, at which rate,
on how many ranks. By its journal a model is trained again, bit by bit the same (`replay`). `StepLog`
writes it, with the changes that were carried out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import MASK, STEP, FloatArray, IntArray, mixed, mixed_word
from relaqs_engine.errors import DataError

from relaqs.training.protocol import MiniBatchTraining, Scaling, most_rows
from relaqs.training.rows import Sums


class Change(NamedTuple):
    """From this step on, steps had these rows and ranks.

    >>> Change(step=0, batch_rows=64, ranks=1).batch_rows
    64
    """

    step: int
    batch_rows: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Journal:
    """All that time and other work may have decided about a run. It gives the same model again, to the bit.

    See `replay`. Ranks are how many tasks or workers shared a step; they change no bit of the model.

    Attributes:
        batch_rows: the rows of each step, shape (steps,). The last step of a pass takes what is left.
        rates: each step's learning rate, shape (steps,).
        ranks: shape (steps,).

    >>> journal = Journal(np.array([64, 64, 128]), np.array([0.1, 0.1, 0.2]), np.array([1, 1, 1]))
    >>> list(journal.changes())
    [Change(step=0, batch_rows=64, ranks=1), Change(step=2, batch_rows=128, ranks=1)]
    """

    batch_rows: IntArray
    rates: FloatArray
    ranks: IntArray

    def __len__(self) -> int:
        return len(self.batch_rows)

    def then(self, later: Journal) -> Journal:
        """Return this journal with the steps that came after it."""
        return Journal(
            np.concatenate([self.batch_rows, later.batch_rows]),
            np.concatenate([self.rates, later.rates]),
            np.concatenate([self.ranks, later.ranks]),
        )

    def until(self, step: int) -> Journal:
        """Return the steps before one."""
        return Journal(self.batch_rows[:step], self.rates[:step], self.ranks[:step])

    def changes(self) -> Iterator[Change]:
        """Yield the first step and those at which the rows or the ranks changed."""
        both = np.column_stack([self.batch_rows, self.ranks])
        is_new = np.append(np.ones(min(len(self), 1), dtype=bool), (both[1:] != both[:-1]).any(axis=1))
        for step in np.flatnonzero(is_new):
            yield Change(int(step), int(self.batch_rows[step]), int(self.ranks[step]))


class Replays(Protocol):
    """What can train a job again: a session over the same data."""

    def train(self, job: MiniBatchTraining, *, batch: Journal) -> Any:
        """Start training, step by step as the journal says."""
        ...


def replay(journal: Journal, job: MiniBatchTraining, db: Replays) -> Any:
    """Return the fitted estimator that a run gave, trained again. It is the same to the bit.

    However many ranks the run had, and whatever happened to them, one core is enough to train it again.

    Args:
        journal: of the run, `run.journal`.
        job: what it trained.
        db: a session over the same data.

    Raises:
        ArgumentError: the journal has no steps.
        RelaqsError: the run failed.

    >>> from relaqs.training import MiniBatchLinear, replay
    >>> db = relaqs.connect("data", threads=2)
    >>> job = MiniBatchLinear("SELECT x, late FROM points", target="late", passes_most=3)
    >>> run = db.train(job, batch="elastic")
    >>> model = run.result()
    >>> replay(run.journal, job, db).coef_.tolist() == model.coef_.tolist()
    True
    """
    return db.train(job, batch=journal).result()


@dataclass(frozen=True, slots=True)
class Rescale:
    """A change of the gang that was carried out.

    Attributes:
        step: the first step after it.
        ranks, batch_rows: since then.
        pause_seconds: from the end of the last step before to the start of that one, of the worst rank. None
            where no rank had made a step before.

    >>> Rescale(step=120, ranks=4, batch_rows=512, pause_seconds=0.02).ranks
    4
    """

    step: int
    ranks: int
    batch_rows: int
    pause_seconds: float | None


@dataclass(frozen=True, slots=True)
class StepsMade:
    """Steps that were made one after another, as arrays of one entry a step."""

    first_step: int
    batch_rows: IntArray
    rates: FloatArray

    def __len__(self) -> int:
        return len(self.batch_rows)

    @property
    def end(self) -> int:
        """The first step after them."""
        return self.first_step + len(self)


class StepLog:
    """The steps that were made, each once. What is made again is what was made before.

    first_step: those before it were made by others.
    """

    def __init__(self, first_step: int = 0) -> None:
        self._first_step = first_step
        self._rows, self._rates, self._ranks = array("q"), array("d"), array("q")
        self.row_count = 0  # of the steps, as planned: the last one of a pass may have fewer

    @property
    def end(self) -> int:
        """The first step that was not made yet."""
        return self._first_step + len(self._rows)

    def note(self, made: StepsMade, ranks: int) -> None:
        assert made.first_step <= self.end
        new = slice(max(0, self.end - made.first_step), None)
        rows = made.batch_rows[new].tolist()
        self.add(rows, made.rates[new].tolist(), [ranks] * len(rows))

    def add(self, batch_rows: Iterable[int], rates: Iterable[float], ranks: Iterable[int]) -> None:
        """Note the steps that follow."""
        rows = list(batch_rows)
        self.row_count += sum(rows)
        self._rows.extend(rows)
        self._rates.extend(rates)
        self._ranks.extend(ranks)

    @property
    def columns(self) -> tuple[array[int], array[float], array[int]]:
        """What `add` takes: the rows, the rates and the ranks of all steps."""
        return self._rows, self._rates, self._ranks

    @property
    def batch_rows(self) -> int | None:
        """The rows of the last step; None before the first one. May be asked for from any thread."""
        return self._rows[-1] if self._rows else None

    @property
    def ranks(self) -> int:
        """The ranks of the last step; 0 before the first one."""
        return self._ranks[-1] if self._ranks else 0

    def journal(self, since_step: int | None = None) -> Journal:
        """Return what was noted from a step on. May be asked for from any thread."""
        first = 0 if since_step is None else since_step - self._first_step
        ranks, rates, rows = self._ranks[first:], self._rates[first:], self._rows[first:]
        whole = slice(0, len(ranks))  # another thread may have noted more steps meanwhile
        return Journal(np.array(rows[whole]), np.array(rates[whole]), np.array(ranks))


MOST_PIECE_ROWS = 256
WINDOW_ROWS = 1 << 22  # of whole partitions: a pass mixes their pieces, and reads no further apart

_PASS, _PARTITION, _DRAW, _WINDOW = range(4)  # streams of draws from one seed


@dataclass(frozen=True, slots=True)
class Order:
    """The pieces of the partitions, and the order in which a pass takes them.

    A piece is at most `piece_rows` rows of one partition. Its rows are drawn from the partition once, by the
    seed, because a partition keeps the order that its rows had in the source. Partitions of a layout are
    random samples, so pieces are, too. A pass mixes the pieces of as many whole partitions at a time as have
    about WINDOW_ROWS rows, and takes partitions in another order each time.

    Every row comes once a pass, whatever numbers of pieces are taken.

    Attributes:
        partition_rows: how many rows each partition has.
        piece_rows: the rows of a piece; the last of a partition may have fewer.
        seed: of all draws.

    >>> order = Order(partition_rows=(5, 0, 3), piece_rows=2, seed=0)
    >>> order.piece_count, [order.place(piece) for piece in range(5)]
    (5, [(0, 0, 2), (0, 2, 4), (0, 4, 5), (2, 0, 2), (2, 2, 3)])
    >>> sorted(order.of_pass(0).tolist()), order.of_pass(1).tolist() == order.of_pass(0).tolist()
    ([0, 1, 2, 3, 4], False)
    """

    partition_rows: tuple[int, ...]
    piece_rows: int
    seed: int
    _firsts: IntArray = field(init=False, repr=False, compare=False)  # of each partition; last, their number
    _sizes: IntArray = field(init=False, repr=False, compare=False)  # of each piece, in rows

    def __post_init__(self) -> None:
        rows = np.array(self.partition_rows, dtype=np.int64)
        firsts = np.concatenate([[0], np.cumsum(-(-rows // self.piece_rows))])
        sizes = np.full(firsts[-1], self.piece_rows, dtype=np.int64)
        sizes[firsts[1:][rows > 0] - 1] = (rows[rows > 0] - 1) % self.piece_rows + 1
        object.__setattr__(self, "_firsts", firsts)
        object.__setattr__(self, "_sizes", sizes)

    @property
    def piece_count(self) -> int:
        return len(self._sizes)

    @property
    def row_count(self) -> int:
        return sum(self.partition_rows)

    def of_pass(self, index: int) -> IntArray:
        """Return all pieces in the order of one pass, shape (pieces,)."""
        return _pieces_of_pass(self.partition_rows, self.piece_rows, self.seed, index)

    def place(self, piece: int) -> tuple[int, int, int]:
        """Return a piece's partition, and the positions of its rows in `rows_of` that: first and end."""
        partition = int(np.searchsorted(self._firsts, piece, side="right")) - 1
        first = (piece - int(self._firsts[partition])) * self.piece_rows
        return partition, first, min(first + self.piece_rows, self.partition_rows[partition])

    def rows_of(self, partition: int) -> IntArray:
        """Return the order in which a partition's rows are cut into pieces, shape (rows,)."""
        keys = hashes(self.partition_rows[partition], self.seed, _PARTITION, partition)
        return np.argsort(keys, kind="stable")

    def row_count_of(self, pieces: IntArray) -> int:
        """Return how many rows some pieces have together."""
        return int(self._sizes[pieces].sum())

    def draw(self, step: int, piece: int) -> int:
        """Return the number that is drawn for a piece in a step, from 0 to below 2^63."""
        return hash_of(self.seed, _DRAW, step, piece) >> 1


def piece_rows_of(start_rows: int) -> int:
    """Return how many rows a piece has: few, and so that a first step is a power of two of pieces."""
    pieces = 1 << (-(-start_rows // MOST_PIECE_ROWS) - 1).bit_length()
    return -(-start_rows // pieces)


def pieces_of_step(batch_rows: int, piece_rows: int) -> int:
    """Return how many pieces come nearest to the rows of a step; one at least."""
    return max(1, round(batch_rows / piece_rows))


def subtrees(pieces: int, ranks: int) -> Iterator[slice]:
    """Yield the neighbouring pieces of a step that each rank sums up. The last ranks may have none.

    Each has the same power of two of them, but for the last one that has any. So each share is a subtree
    of the tree in which `in_pairs` adds pieces, and the shares added in pairs give the same bits as all
    pieces added in pairs.
    """
    size = 1 << (-(-pieces // ranks) - 1).bit_length()
    for rank in range(ranks):
        yield slice(min(rank * size, pieces), min((rank + 1) * size, pieces))


def hashes(count: int, *words: int) -> NDArray[np.uint64]:
    """Return numbers that look random, shape (count,): a hash of the words and of each position."""
    places = np.arange(count, dtype=np.uint64) + np.uint64(hash_of(*words)) + np.uint64(1)
    return mixed(places * np.uint64(STEP))


def hash_of(*words: int) -> int:
    """Return a number that looks random, from 0 to below 2^64: a hash of some words."""
    found = 0
    for word in words:
        found = mixed_word((found + word + 1) * STEP & MASK)
    return found


@lru_cache(maxsize=4)
def _pieces_of_pass(partition_rows: tuple[int, ...], piece_rows: int, seed: int, index: int) -> IntArray:
    rows = np.array(partition_rows, dtype=np.int64)
    pieces = -(-rows // piece_rows)
    turns = np.argsort(hashes(len(rows), seed, _WINDOW, index), kind="stable")
    window = np.empty(len(rows), dtype=np.int64)
    window[turns] = (np.cumsum(rows[turns]) - 1) // WINDOW_ROWS
    found = np.lexsort((hashes(int(pieces.sum()), seed, _PASS, index), np.repeat(window, pieces)))
    found.setflags(write=False)
    return found


KEPT_SHARE = 0.95  # of what earlier steps say, at each step


@dataclass(frozen=True, slots=True)
class Noise:
    """What the steps so far say about the noise: two averages that forget slowly. It has no state of its own.

    Attributes:
        variance: of one row's gradient, summed over all parameters, times `weight`.
        square: of the true gradient, times `weight`.
        weight: of the steps, to below 1.
        last: the gradients of the last step, where that was a single piece, and its rows.

    >>> two = (np.array([3.0]), np.array([1.0]))  # sums of two pieces of one row each
    >>> squares = sum(float(each @ each) for each in two)
    >>> Noise().after((two[0] + two[1],), squares, pieces=2, rows=2).rows  # variance 2, square 4 - 1
    0.6666666666666666
    """

    variance: float = 0.0
    square: float = 0.0
    weight: float = 0.0
    last: tuple[Sums, int] | None = None

    @property
    def rows(self) -> float:
        """The noise scale φ. NaN while nothing is known, inf where no signal is seen."""
        if not self.weight:
            return math.nan
        return max(self.variance, 0.0) / self.square if self.square > 0 else math.inf

    def after(self, gradients: Sums, squares: float, pieces: int, rows: int) -> Noise:
        """Return what is known with one step more.

        Two steps of a single piece each are compared with each other, as if they were one step.

        Args:
            gradients: the sums over the step.
            squares: Σ |g|²/n over its pieces: g a piece's sums, n its rows.
            pieces: how many these were.
            rows: how many rows they had.
        """
        if pieces > 1:
            return self._seen(gradients, squares, pieces, rows)
        if self.last is None:
            return Noise(self.variance, self.square, self.weight, (gradients, rows))
        before, rows_before = self.last
        both = tuple(one + other for one, other in zip(before, gradients, strict=True))
        return self._seen(both, squares + norm(before) / rows_before, 2, rows + rows_before)

    def _seen(self, gradients: Sums, squares: float, pieces: int, rows: int) -> Noise:
        of_mean = norm(gradients) / rows**2
        variance = (squares - rows * of_mean) / (pieces - 1)
        square = of_mean - variance / rows
        share = 1.0 - KEPT_SHARE
        return Noise(
            KEPT_SHARE * self.variance + share * variance,
            KEPT_SHARE * self.square + share * square,
            KEPT_SHARE * self.weight + share,
        )


def norm(gradients: Sums) -> float:
    """Return the sum of the squares of all numbers in some arrays."""
    return float(sum(np.vdot(each, each) for each in gradients))


def scale_of(scaling: Scaling, batch_rows: int, start_rows: int, noise_rows: float) -> float:
    """Return how many times the rate of a first step a step of `batch_rows` has.

    noise_rows: the noise scale, NaN where it is not known. "gain" then is "sqrt", which lies between.
    """
    times = batch_rows / start_rows
    if scaling == "linear":
        return times
    if scaling == "sqrt" or (scaling == "gain" and math.isnan(noise_rows)):
        return math.sqrt(times)
    return gain(batch_rows, start_rows, noise_rows) if scaling == "gain" else 1.0


def gain(batch_rows: int, start_rows: int, noise_rows: float) -> float:
    """Return how many first steps a step is worth, by the noise scale: k where all is noise, else less."""
    if math.isinf(noise_rows):
        return batch_rows / start_rows
    return (noise_rows / start_rows + 1.0) / (noise_rows / batch_rows + 1.0)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The way of the rate from what it was when the rows changed.

    Attributes:
        scale: of the rate at that time.
        step: the first with the new rows.
    """

    scale: float = 1.0
    step: int = 0

    def scale_at(self, step: int, goal: float, steps: int) -> float:
        """Return the scale of a step's rate. A lower goal counts at once.

        Args:
            goal: where the scale goes.
            steps: how many steps the way there takes.

        >>> [WarmUp(1.0, step=100).scale_at(step, 2.0, steps=4) for step in (100, 101, 103, 200)]
        [1.25, 1.5, 2.0, 2.0]
        """
        share = min((step - self.step + 1) / steps, 1.0) if steps else 1.0
        return goal if goal <= self.scale else self.scale + share * (goal - self.scale)


LEAST_SETTLING = 20  # steps, in which the noise is measured anew
SETTLING = 2  # times the steps of a warm-up that a number of rows stays in force at least
MOST_EXTRA = 0.15  # the share of more rows that a run may need because its steps are larger


class BatchRule(ABC):
    """Says how many rows the next step has, and how many steps a run has at most."""

    @abstractmethod
    def rows(self, seen: TrainingCourse) -> int:
        """Return the rows of the next step."""

    def rate(self, step: int, otherwise: float) -> float:
        """Return a step's learning rate. otherwise: what the job's own rules say."""
        return otherwise

    @property
    def steps_most(self) -> int | None:
        """After how many steps the run ends; None where the rule has no say in it."""
        return None


@dataclass(frozen=True, slots=True)
class FixedBatch(BatchRule):
    """The same rows at every step."""

    batch_rows: int

    def rows(self, seen: TrainingCourse) -> int:
        return self.batch_rows


@dataclass(frozen=True, slots=True)
class ElasticBatch(BatchRule):
    """Twice the rows, again and again, as long as the noise of the gradients says that little is lost.

    Steps of B rows need (φ + B) / (φ + B₀) times the rows that first steps of B₀ would need, where φ is the
    noise scale. The batch doubles if that is at most 1 + MOST_EXTRA afterwards. Where φ is not known, because
    the job has no gradients, it doubles after each pass. It never shrinks.

    Attributes:
        start_rows: the rows of the first steps, B₀.
        rows_most: the most rows of a step.
        settle_steps: how many steps a number of rows stays in force at least.
    """

    start_rows: int
    rows_most: int
    settle_steps: int

    @classmethod
    def of(cls, job: MiniBatchTraining) -> ElasticBatch:
        """Return the rule for a job."""
        settle_steps = max(LEAST_SETTLING, SETTLING * job.warm_up_steps)
        return cls(job.start_rows, most_rows(job), settle_steps)

    def rows(self, seen: TrainingCourse) -> int:
        wanted = 2 * seen.batch_rows
        return wanted if wanted <= self.rows_most and self._may_grow(seen, wanted) else seen.batch_rows

    def _may_grow(self, seen: TrainingCourse, wanted: int) -> bool:
        if math.isnan(seen.noise_rows):
            return seen.passes > seen.changed_passes
        if seen.step < seen.changed_step + self.settle_steps:
            return False
        worth = gain(wanted, self.start_rows, seen.noise_rows)  # in first steps
        return wanted / self.start_rows <= (1.0 + MOST_EXTRA) * worth


@dataclass(frozen=True, slots=True)
class ReplayedBatch(BatchRule):
    """What a journal says."""

    journal: Journal

    @property
    def steps_most(self) -> int:
        return len(self.journal)

    def rows(self, seen: TrainingCourse) -> int:
        return int(self.journal.batch_rows[seen.step])

    def rate(self, step: int, otherwise: float) -> float:
        return float(self.journal.rates[step])


@dataclass(frozen=True, slots=True)
class TrainingCourse:
    """Where a run stands between two steps: all that the next step depends on. Picklable.

    Attributes:
        state: the model, and what its optimiser remembers.
        batch_rows: the rows of the last step.
        step: how many steps are done.
        passes: how many passes are done.
        pieces: how many pieces of the present pass are done.
        progress: how many first steps the steps amount to.
        scale: how many times the rate of a first step the last step had.
        warm_up: the way of the rate since the rows changed last.
        changed_passes: how many passes were done then.
        loss_sum: the loss of the present pass's rows; at the end of a pass, of that pass.
        loss_rows: how many rows these are.
        noise: of the gradients.
    """

    state: Any
    batch_rows: int
    step: int = 0
    passes: int = 0
    pieces: int = 0
    progress: float = 0.0
    scale: float = 1.0
    warm_up: WarmUp = field(default_factory=WarmUp)
    changed_passes: int = 0
    loss_sum: float = 0.0
    loss_rows: int = 0
    noise: Noise = field(default_factory=Noise)

    @property
    def changed_step(self) -> int:
        """The first step with the present rows."""
        return self.warm_up.step

    @property
    def noise_rows(self) -> float:
        """The noise scale, in rows; NaN where it is not known."""
        return self.noise.rows

    @property
    def is_between_passes(self) -> bool:
        """Whether a pass is just over, or none has begun."""
        return self.pieces == 0


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """One step, decided. The numbers follow from the course before it.

    Attributes:
        batch_rows: how many rows it was to have.
        rows: how many it has; fewer where pieces are short, or the pass is nearly over.
        pieces: shape (pieces,), in the order in which they are added.
    """

    step: int
    batch_rows: int
    rows: int
    rate: float
    scale: float
    warm_up: WarmUp
    pieces: IntArray


def first_course(job: MiniBatchTraining, state: Any) -> TrainingCourse:
    """Return the course of a run that has not made a step."""
    return TrainingCourse(state, job.start_rows)


def next_step(job: MiniBatchTraining, rule: BatchRule, order: Order, course: TrainingCourse) -> MiniBatch:
    """Return which rows the next step takes, and its rate."""
    rows = rule.rows(course)
    warm_up = course.warm_up if rows == course.batch_rows else WarmUp(course.scale, course.step)
    goal = scale_of(job.scaling, rows, job.start_rows, course.noise_rows)
    scale = warm_up.scale_at(course.step, goal, job.warm_up_steps)
    end = course.pieces + pieces_of_step(rows, order.piece_rows)
    pieces = order.of_pass(course.passes)[course.pieces : end]
    return MiniBatch(
        step=course.step,
        batch_rows=rows,
        rows=order.row_count_of(pieces),
        rate=rule.rate(course.step, scale * job.rate(course.progress)),
        scale=scale,
        warm_up=warm_up,
        pieces=pieces,
    )


def after(
    job: MiniBatchTraining, order: Order, course: TrainingCourse, step: MiniBatch, sums: Sums
) -> TrainingCourse:
    """Return the course after a step.

    sums: of all its pieces, as `piece_sums` gives them.

    Raises DataError where the loss is no number.
    """
    *own, squares = sums
    loss = _checked(float(own[0]), step)
    gradients = job.gradients(tuple(own))
    noise = course.noise
    if gradients:
        noise = noise.after(gradients, float(squares), len(step.pieces), step.rows)
    return advanced(
        job, order, course, step, loss, job.update(course.state, tuple(own), step.rows, step.rate), noise
    )


def advanced(
    job: MiniBatchTraining,
    order: Order,
    course: TrainingCourse,
    step: MiniBatch,
    loss: float,
    state: Any,
    noise: Noise,
) -> TrainingCourse:
    """Return the course after a step that somebody else has made.

    Args:
        loss: summed over the rows of the step.
        state: after it.
        noise: of the gradients, with those of the step.

    Raises DataError where the loss is no number.
    """
    _checked(loss, step)
    pieces = course.pieces + len(step.pieces)
    is_over = pieces >= order.piece_count
    same_pass = course.pieces > 0
    return TrainingCourse(
        state=state,
        batch_rows=step.batch_rows,
        step=course.step + 1,
        passes=course.passes + is_over,
        pieces=0 if is_over else pieces,
        progress=course.progress + (step.scale if job.scaling == "gain" else step.rows / job.start_rows),
        scale=step.scale,
        warm_up=step.warm_up,
        changed_passes=course.changed_passes if step.batch_rows == course.batch_rows else course.passes,
        loss_sum=loss + (course.loss_sum if same_pass else 0.0),
        loss_rows=step.rows + (course.loss_rows if same_pass else 0),
        noise=noise,
    )


def _checked(loss: float, step: MiniBatch) -> float:
    if not np.isfinite(loss):
        raise DataError(
            f"the loss is {loss} at step {step.step} with a rate of {step.rate:.3g}; give a lower rate, "
            "or scale the features in SQL"
        )
    return loss
