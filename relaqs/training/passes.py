"""Training by passes over all rows: the first look, the tasks of a pass, and the job that makes passes.

The next model depends on all of the last pass, so passes follow each other (`LossJob`). In a pass:

1. A large partition is cut into pieces of a few thousand rows. Tasks are short then, so that a query that
   comes does not wait behind them, and what a piece needs fits into a core's cache. How many pieces there
   are follows from the size of the data alone.
2. A task sums over 2^k neighbouring pieces (`PassWork`), on one core: numpy's own threads are held back.
3. Sums are added as a binary tree over the pieces' positions (`in_pairs`). What a task covers is one node
   of that tree. So how pieces are grouped into tasks changes no bit of the result, and the grouping may
   follow measured times.

For example, eight pieces 0 to 7 add up as ((0 1) (2 3)) ((4 5) (6 7)), whether one task sums all, or two
tasks four each, on whatever workers.

The first step is a look at all rows for their profile, with the same tree. Small partitions are looked at
together: a task costs some milliseconds to hand out, and a partition of a few thousand rows takes less
than one where a worker has its rows already.
"""

from __future__ import annotations

import math
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from relaqs_engine.errors import DataError

from relaqs.arguments import ArgumentError
from relaqs.jobs.checkpoint import check_same_rows
from relaqs.jobs.job import Step, StepReport, Task, TaskKey, TaskResult, Work
from relaqs.progress import LossDelta
from relaqs.training.protocol import (
    Fold,
    MiniBatchTraining,
    SizedPieces,
    TellsClasses,
    Training,
    TrainingJob,
    WholeSteps,
)
from relaqs.training.row_cache import KEPT, SPILL, VersionedArrays, byte_count
from relaqs.training.rows import (
    ALL,
    NOTHING_TO_LEARN,
    PartitionRead,
    Pieces,
    Profile,
    Rows,
    Sums,
    TrainingSet,
    frame_of,
    profile_of,
)

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

    from relaqs.training.elastic.course import Journal, Rescale


class _OneThread:
    """The limit is the process's own, so it holds from the first task that starts to the last that ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks = 0
        self._limit = ExitStack()
        self._controller: ThreadpoolController | None = None
        self._modules = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            self._tasks += 1
            if self._tasks == 1:
                self._limit.enter_context(self._libraries().limit(limits=1, user_api="blas"))
        try:
            yield
        finally:
            with self._lock:
                self._tasks -= 1
                if not self._tasks:
                    self._limit.close()

    def _libraries(self) -> ThreadpoolController:
        """Return the process's libraries, looked for again (8 ms) where anything was imported meanwhile."""
        if self._controller is None or self._modules != len(sys.modules):
            from threadpoolctl import ThreadpoolController

            self._controller = ThreadpoolController()
            self._modules = len(sys.modules)
        return self._controller


_ONE_THREAD = _OneThread()


def one_thread() -> AbstractContextManager[None]:
    """Return a context inside which numpy and scipy use the calling thread alone.

    Their threads would take cores that the scheduler gave to others, and would not be measured. The
    user's own linear algebra in the same process is limited as well, meanwhile.
    """
    return _ONE_THREAD.held()


TASK_SECONDS = 0.05  # what a task takes at most, if it covers several pieces; at least about half of it
PIECE_ROWS = 8192  # at most, in a piece, where the job does not say: 0.1 to 7 ms of the nine algorithms
FIRST_PIECES = 4  # in a task of the first pass, when no time was measured yet

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PartitionSource:
    """Where a task's partitions come from.

    Attributes:
        run_id: of the run that reads them.
        data: owner of the arrays kept.
        budget_bytes: for all that is kept in the process.
        first: the position of the first partition among all of them.
    """

    run_id: str
    data: str
    budget_bytes: int
    first: int
    reads: tuple[PartitionRead, ...]

    def kept(self, offset: int, pieces: Pieces) -> Rows | None:
        """Return one partition's rows, to be used for these pieces alone, if this process has them."""
        arrays = KEPT.get(self.data, self.first + offset)
        if arrays is None:
            return SPILL.rows(self.run_id, self.data, self.first + offset, pieces)
        return _rows(arrays)

    def read(self, offset: int, owner: str) -> Rows:
        """Return one partition's rows from its files, and keep them for the next who asks."""
        rows = self.reads[offset].rows(owner)
        values = {"features": rows.features, "target": rows.target, "others": rows.others}
        arrays = {name: (0, each) for name, each in values.items() if each is not None}
        if not KEPT.put(self.data, self.first + offset, arrays, self.budget_bytes):
            SPILL.put(self.run_id, self.data, self.first + offset, rows)
        return rows

    def spill_one(self) -> bool:
        """Move a partition's rows from memory to disk. Return whether that was done."""
        if (newest := KEPT.newest(self.data)) is None:
            return False
        partition, arrays = newest
        if not SPILL.put(self.run_id, self.data, partition, _rows(arrays)):
            return False
        KEPT.drop(self.data, partition)
        return True


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows that a run trains on.

    Attributes:
        budget_bytes: what a worker process may keep in memory between passes.
    """

    run_id: str
    data: TrainingSet
    budget_bytes: int

    def source(self, partitions: range) -> PartitionSource:
        """Return where the rows of neighbours come from."""
        reads = self.data.reads[partitions.start : partitions.stop]
        return PartitionSource(self.run_id, self.data.digest, self.budget_bytes, partitions.start, reads)


@dataclass(frozen=True, slots=True)
class ReadableRows:
    """The rows of a training set as batches, for code of the user's own.

    Attributes:
        data: whose rows these are.
        budget_bytes: what a process may keep of them in memory.
    """

    data: TrainingSet
    budget_bytes: int

    @property
    def digest(self) -> str:
        """Of all that the rows follow from."""
        return self.data.digest

    def batches(self, rows: int, seed: int, form: str, owner: str) -> Iterator[Any]:
        """Yield all rows, so many at a time: "numpy", "pandas" or "arrow".

        Partitions come in a random order, and so do the rows of each. owner: the name by which a read can be
        interrupted.
        """
        shaped = {"numpy": self._arrays, "pandas": self._frames, "arrow": self._table}[form]
        left: list[Rows] = []
        for partition in np.random.default_rng(seed).permutation(len(self.data.reads)).tolist():
            found = self._partition(partition, owner)
            order = np.random.default_rng((seed, partition)).permutation(len(found))
            here = Rows.joined([*left, found.picked(order)])
            whole = len(here) - len(here) % rows
            for first in range(0, whole, rows):
                yield shaped(here.part(slice(first, first + rows)))
            left = [here.part(slice(whole, len(here)))]
        if left and len(left[0]):
            yield shaped(left[0])

    def _partition(self, partition: int, owner: str) -> Rows:
        source = RunRows(owner, self.data, self.budget_bytes).source(range(partition, partition + 1))
        kept = source.kept(0, ALL)
        return source.read(0, owner) if kept is None else kept

    def _arrays(self, rows: Rows) -> Any:
        if rows.others is not None:
            raise ArgumentError(
                f"{rows.others.column_names[0]!r} is no number, and an array has numbers only; leave it out, "
                "or give form='pandas' or form='arrow'"
            )
        return rows.features if rows.target is None else (rows.features, rows.target)

    def _frames(self, rows: Rows) -> Any:
        frame = frame_of(rows, self.data.names)
        return frame if rows.target is None else (frame, rows.target)

    def _table(self, rows: Rows) -> pa.Table:
        others: dict[str, Any] = {}
        if rows.others is not None:
            others = dict(zip(rows.others.column_names, rows.others.columns, strict=True))
        numbers = iter(rows.features.T)
        columns = {
            name: others[name] if name in others else pa.array(next(numbers), from_pandas=True)
            for name in self.data.names
        }
        if (target := self.data.reads[0].target) is not None:
            columns[target] = pa.array(rows.target)
        return pa.table(columns)


def _rows(arrays: VersionedArrays) -> Rows:
    _, target = arrays.get("target", (0, None))
    _, others = arrays.get("others", (0, None))
    return Rows(arrays["features"][1], target, others=others)


@dataclass(frozen=True, slots=True)
class Summed:
    """What a task of a pass gives. reads: how many partitions it had to read, because they were not kept."""

    sums: Sums
    reads: int


@dataclass(frozen=True, slots=True)
class Examined:
    """Sums how many rows a model tells rightly, and how many there are: a pass over rows held out."""

    job: TellsClasses

    def partial(self, model: Any, rows: Rows) -> Sums:
        return np.array(float(self.job.right(model, rows))), np.array(float(len(rows)))


@dataclass(frozen=True, slots=True)
class PassWork:
    """Returns the sums of some pieces for a model.

    Attributes:
        cut: how many pieces each partition has.
        first, end: which pieces, by their positions among the pieces of all partitions. The source has the
            partitions that they are of.
    """

    job: TrainingJob | Examined
    model: Any
    source: PartitionSource
    cut: int
    first: int
    end: int

    @property
    def common(self) -> Any:
        return self.model

    def with_common(self, common: Any) -> PassWork:
        return replace(self, model=common)

    def run(self, owner: str) -> Summed:
        reads = 0

        def partials() -> Iterator[Sums]:
            nonlocal reads
            for offset in range(len(self.source.reads)):
                start = (self.source.first + offset) * self.cut
                wanted = range(max(self.first, start), min(self.end, start + self.cut))
                pieces = Pieces(self.cut, wanted.start - start, wanted.stop - start)
                if (rows := self.source.kept(offset, pieces)) is None:
                    rows, reads = self.source.read(offset, owner), reads + 1
                for piece in wanted:
                    yield self._partial(piece, rows)

        with one_thread():
            return Summed(in_pairs(partials(), add_sums), reads)

    def _partial(self, piece: int, partition: Rows) -> Sums:
        run_id, part = self.source.run_id, piece % self.cut
        rows = partition.part(Pieces(self.cut, part, part + 1).of(len(partition)))
        rows.kept.update(KEPT.get(run_id, piece) or {})
        sums = self.job.partial(self.model, rows)
        if rows.kept:
            self._keep(piece, rows.kept)
        return sums

    def _keep(self, piece: int, arrays: VersionedArrays) -> None:
        """Keep what the job stored beside a piece. Rows make room for it, since to map them costs less.

        What a job stores took it longer to compute: bins and scores of trees, for example.
        """
        run_id, budget_bytes = self.source.run_id, self.source.budget_bytes
        while not KEPT.put(run_id, piece, arrays, budget_bytes):
            if byte_count(arrays) > budget_bytes or not self.source.spill_one():
                return


def in_pairs(values: Iterable[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Return all values combined, neighbours first: ((0 1) (2 3)) … A last one without a neighbour waits.

    It holds no more values at a time than the tree is deep.
    """
    tree = PairTree(combine)
    for value in values:
        tree.add(value)
    return tree.total()


class PairTree(Generic[Value]):
    """Combines values in pairs as they come: neighbours as soon as both are there. See `in_pairs`.

    >>> tree = PairTree(lambda one, other: f"({one} {other})")
    >>> for place in (2, 0, 1):
    ...     tree.add(str(place), place)
    >>> tree.total()
    '((0 1) 2)'
    """

    def __init__(self, combine: Callable[[Value, Value], Value]) -> None:
        self.count = 0  # of the values so far
        self._combine = combine
        self._waiting: dict[tuple[int, int], Any] = {}  # whole subtrees, by first value and how many

    def add(self, value: Value, place: int | None = None) -> None:
        """Take a value in. place: among all values. None: it is the next one."""
        first, size = self.count if place is None else place, 1
        self.count += 1
        while (other := (first ^ size, size)) in self._waiting:
            there = self._taken(self._waiting.pop(other))
            value = self._combine(there, value) if first & size else self._combine(value, there)
            first, size = first & ~size, 2 * size
        self._waiting[first, size] = self._put(value)

    def total(self) -> Value:
        """Return all values combined. There must be one at least."""
        *before, total = (self._taken(self._waiting[at]) for at in sorted(self._waiting))
        for each in reversed(before):
            total = self._combine(each, total)
        return total

    def _put(self, value: Value) -> Any:
        """Return a value as it is kept while it waits."""
        return value

    def _taken(self, kept: Any) -> Value:
        """Return a value that waited."""
        found: Value = kept
        return found


def add_sums(one: Sums, other: Sums) -> Sums:
    """Return the sums of both. Raises DataError where a job's sums differ in shape from task to task."""
    if [each.shape for each in one] != [each.shape for each in other]:
        raise DataError(
            f"partial() returned arrays of shapes {[each.shape for each in one]} for one partition and "
            f"{[each.shape for each in other]} for another; their shapes must depend on the model alone"
        )
    return tuple(a + b for a, b in zip(one, other, strict=True))


def pieces_of(row_counts: Sequence[int], piece_rows: int) -> int:
    """Return how many pieces each partition is cut into: a power of two, so that each partition is a subtree.

    Args:
        row_counts: of the partitions.
        piece_rows: the most rows of a piece.
    """
    return 1 << (math.ceil(max(row_counts) / piece_rows) - 1).bit_length() if any(row_counts) else 1


def pieces_per_task(pass_core_seconds: float, pieces: int) -> int:
    """Return how many pieces, a power of two, a task covers, by what the last pass took."""
    each = pass_core_seconds / pieces
    most = TASK_SECONDS / max(each, 1e-9)
    return 1 << max(0, min(math.floor(math.log2(max(most, 1.0))), (pieces - 1).bit_length()))


LOOK_VALUES = 1 << 19  # at most, in a task that covers several partitions: 20 to 50 ms to read


@dataclass(frozen=True, slots=True)
class Profiled:
    """What a first look at some partitions gives.

    Attributes:
        profile: of all their rows.
        row_counts: of each partition, the rows that the SELECT keeps.
    """

    profile: Profile
    row_counts: tuple[int, ...]

    @classmethod
    def of(cls, looks: Sequence[Profiled]) -> Profiled:
        """Return what several looks give together. looks: of neighbours, in their order."""
        counts = tuple(count for look in looks for count in look.row_counts)
        return cls(in_pairs((look.profile for look in looks), Profile.merged), counts)


@dataclass(frozen=True, slots=True)
class ProfileWork:
    """Looks at some partitions. sample_rows: how many rows of each are part of the sample."""

    source: PartitionSource
    sample_rows: tuple[int, ...]

    def run(self, owner: str) -> Profiled:
        profiles = []
        for offset, read in enumerate(self.source.reads):
            if (rows := self.source.kept(offset, ALL)) is None:
                rows = self.source.read(offset, owner)
            seed = self.source.first + offset
            profiles.append(profile_of(rows, read.names, self.sample_rows[offset], seed))
        counts = tuple(profile.row_count for profile in profiles)
        return Profiled(in_pairs(profiles, Profile.merged), counts)


def profile_works(
    reads: Sequence[PartitionRead], source: Callable[[range], PartitionSource], wanted_rows: int
) -> list[Work]:
    """Return the tasks of the first look at partitions: 2^k neighbours for a task where they are small.

    Args:
        source: returns where the rows of some of the partitions come from.
        wanted_rows: how many rows the sample has at most, about.
    """
    counts = [read.row_count for read in reads]
    columns = len(reads[0].names) + (reads[0].target is not None)
    each = partitions_per_look(counts, columns)
    rows = sample_rows(counts, wanted_rows)
    return [
        ProfileWork(source(range(first, min(first + each, len(reads)))), tuple(rows[first : first + each]))
        for first in range(0, len(reads), each)
    ]


def partitions_per_look(row_counts: Sequence[int], columns: int) -> int:
    """Return how many partitions, a power of two, a task of the first look covers.

    >>> partitions_per_look([3_750] * 80, columns=7), partitions_per_look([10**6] * 80, columns=7)
    (16, 1)
    """
    values = max(sum(row_counts) * columns / len(row_counts), 1.0)
    return 1 << max(0, min(math.floor(math.log2(LOOK_VALUES / values)), (len(row_counts) - 1).bit_length()))


def sample_rows(row_counts: Sequence[int], wanted: int) -> list[int]:
    """Return how many rows of each partition are part of the sample at most: in proportion to its size.

    row_counts: before any condition of the SELECT, which may leave fewer than that.
    """
    total = max(sum(row_counts), 1)
    return [math.ceil(min(wanted / total, 1.0) * count) for count in row_counts]


SAMPLE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The newest or best model of a run, and all it takes to make an estimator of it."""

    job: TrainingJob | MiniBatchTraining
    profile: Profile
    model: Any

    def estimator(self) -> Any:
        return self.job.estimator(self.profile, self.model)


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass over the data whose accuracy is not known yet."""

    fold: Fold
    core_seconds: float


@dataclass(frozen=True, slots=True)
class SavedJob:
    """Where a job is between two steps. Pickled at once: what it has changes with the next step.

    Attributes:
        passes: how many have given a loss.
        data: the digest of its rows.
        state: for a job of the same kind.
    """

    passes: int
    data: str
    state: Any

    def checked(self, data: TrainingSet) -> Any:
        """Return the state. Raises RelaqsError where it is of other rows."""
        check_same_rows(self.data, data.digest)
        return self.state


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Where a part of a model is.

    Attributes:
        stage: which neighbouring layers it has; 0 are the first ones.
        replica: which share of a step's rows it takes.
        worker: the address of its worker.

    >>> PlacedPart(stage=0, replica=1, worker="tcp://10.0.0.7:4711").worker
    'tcp://10.0.0.7:4711'
    """

    stage: int
    replica: int
    worker: str


@dataclass(frozen=True, slots=True)
class SubtaskSeconds:
    """What an iteration is made of, in seconds: running means over passes.

    Attributes:
        comp: for which a worker's core is held, on average over the workers.
        pull, push: to get the parameters, and to send the sums, on average over the tasks.
        rest: of the iteration, with neither.

    >>> SubtaskSeconds(comp=0.3, pull=0.1, push=0.1, rest=0.05).alone
    0.55
    """

    comp: float
    pull: float
    push: float
    rest: float

    @property
    def comm(self) -> float:
        """PULL and PUSH together."""
        return self.pull + self.push

    @property
    def alone(self) -> float:
        """The iteration, where nobody else takes the cores and the network."""
        return self.comp + self.comm + self.rest


class ModelJob(ABC):
    """A job that trains a model, as its run sees it: by passes over all rows, or by mini-batches.

    Args:
        held_out: how many partitions, the last ones, are not trained on.

    Attributes:
        passes: how many have given a loss.
        accuracy: after the last pass; NaN where it is not measured.
        is_abreast: as a `JobDescription` has it.
    """

    is_abreast = False

    def __init__(self, rows: RunRows, job: TrainingJob | MiniBatchTraining, held_out: int) -> None:
        self.id, self._data, self._budget_bytes = rows.run_id, rows.data, rows.budget_bytes
        self.passes = 0
        self.accuracy = math.nan
        self._job = job
        self._source = rows.source
        self._trained = len(rows.data.reads) - held_out  # partitions that are trained on
        self._profile: Profile | None = None
        self._latest: TrainedModel | None = None
        self._issued = self._folded = 0
        self._progress = LossDelta()
        SPILL.open(self.id, self._data.digest)

    @property
    def name(self) -> str:
        """What is trained, on what, for people."""
        job = self._job
        what = job.label if isinstance(job, WholeSteps) else type(job).__name__
        return f"{what} on {' '.join(job.sql.split())}"

    @property
    @abstractmethod
    def tasks_most(self) -> int:
        """How many tasks a step has at most."""

    @property
    def latest(self) -> TrainedModel | None:
        """The newest or best model; None before the first one."""
        return self._latest

    # What a step is made by. A pass over all rows has none of it.

    @property
    def batch_rows(self) -> int | None:
        return None

    @property
    def ranks(self) -> int | None:
        return None

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        return ()

    @property
    def journal(self) -> Journal | None:
        return None

    @property
    def placement(self) -> tuple[PlacedPart, ...]:
        """Where each part of the model is, by stage and replica. Empty where it is not cut or placed."""
        return ()

    @property
    def subtask_seconds(self) -> SubtaskSeconds | None:
        """What a pass is made of. None: its parameters are in no shards, or it is not known yet."""
        return None

    def move(self, stage: int, replica: int, worker: str) -> None:
        """Let a part go on at another worker after the step in hand. Raises ArgumentError."""
        raise ArgumentError(f"stage is {stage}, but the model is not cut; train it with parts=")

    @abstractmethod
    def explain(self) -> str:
        """Return where the parameters are, and why."""

    def next_step(self) -> Step | None:
        if self._issued > self._folded:
            return None
        index, self._issued = self._issued, self._issued + 1
        works = self._works()
        return Step(index, tuple(Task(TaskKey(self.id, index, i), work) for i, work in enumerate(works)))

    @abstractmethod
    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        """Fold the results of a step, in task order, and report the loss."""

    @abstractmethod
    def saved(self) -> SavedJob | None:
        """Return what `restore` goes on from; None before the first look at the data is over."""

    @abstractmethod
    def restore(self, saved: SavedJob) -> None:
        """Go on from what a job like this saved. Only at the beginning. Raises RelaqsError: of other rows."""

    def close(self) -> None:
        """Let go the rows on disk. What other processes keep in memory they free after a while."""
        SPILL.close(self.id, self._data.digest)

    @abstractmethod
    def _works(self) -> list[Work]:
        """Return the tasks of the next step."""


class LossJob(ModelJob):
    """Passes over a training set, one after another: the next model depends on all of the last pass.

    The first step reads everything and profiles it; it has no loss yet. The job has no end that is known
    beforehand, so `work_done` is None. Where partitions are held out, one more step after each pass has the
    accuracy of its model on them, and the pass is reported then.

    held_out: how many partitions are not trained on. If there are any, the job `TellsClasses`.
    """

    _job: TrainingJob

    def __init__(self, rows: RunRows, job: TrainingJob, held_out: int = 0) -> None:
        super().__init__(rows, job, held_out)
        self._unreported: _Pass | None = None
        self._training: Training | None = None
        self._cut = self._per_task = 1  # until it is known how many rows there are

    @property
    def tasks_most(self) -> int:
        """How many tasks a pass has at most: one a piece of a partition, if the SELECT keeps all its rows."""
        return self._trained * self._pieces_of(read.row_count for read in self._data.reads)

    def explain(self) -> str:
        return "parameters: whole, in the client"

    def fold(self, step: Step, results: Sequence[TaskResult]) -> StepReport:
        self._folded += 1
        core_seconds = sum(result.core_seconds for result in results)
        values: list[Any] = [result.value for result in results]
        if self._training is None:
            self._begin(Profiled.of(values).profile)
            return StepReport(
                step.index, math.inf, None, core_seconds, False, self._progress.update(math.inf)
            )
        sums = in_pairs([summed.sums for summed in values], add_sums)
        if self._unreported is not None:
            made, self._unreported = self._unreported, None
            right, rows = (float(each) for each in sums)
            if not rows:
                raise DataError(
                    f"the {len(self._data.reads) - self._trained} partitions held out have no rows of "
                    "the SELECT; give a larger held_out, or a SELECT of more rows"
                )
            self.accuracy = right / rows
            return self._reported(step, made, made.core_seconds + core_seconds)
        self._per_task = self._grouped(core_seconds, values)
        fold = self._training.fold(sums)
        made = _Pass(fold, core_seconds)
        if self._trained == len(self._data.reads):
            return self._reported(step, made, core_seconds)
        self._unreported = made
        return StepReport(step.index, math.inf, None, 0.0, False)

    def _reported(self, step: Step, made: _Pass, core_seconds: float) -> StepReport:
        """Return the report of a pass that is complete, and take over its model."""
        assert self._profile is not None
        fold = made.fold
        self.passes += 1
        self._latest = TrainedModel(self._job, self._profile, fold.model)
        progress = self._progress.update(fold.loss)
        return StepReport(step.index, fold.loss, None, core_seconds, fold.is_final, progress)

    def saved(self) -> SavedJob | None:
        if self._training is None:
            return None
        model = None if self.latest is None else self.latest.model
        return self._saved(self.passes, self._training, model)

    def _saved(self, passes: int, training: Training, model: Any) -> SavedJob:
        state = (self._profile, training, model, self._unreported, self.accuracy, self._progress)
        return SavedJob(passes, self._data.digest, state)

    def restore(self, saved: SavedJob) -> None:
        profile, training, model, self._unreported, self.accuracy, self._progress = saved.checked(self._data)
        self.passes = saved.passes
        self._take_training(profile, training)
        if saved.passes:
            self._latest = TrainedModel(self._job, profile, model)

    def close(self) -> None:
        KEPT.forget(self.id)
        super().close()
        if self._training is not None:
            self._training.close()

    def _begin(self, profile: Profile) -> None:
        if not profile.row_count:
            raise DataError(NOTHING_TO_LEARN)
        self._take_training(profile, self._job.begin(profile))

    def _take_training(self, profile: Profile, training: Training) -> None:
        self._profile, self._training = profile, training
        # By the rows that the SELECT keeps, as even in all partitions as chance makes them: pieces of a few
        # rows would cost more to call than to compute.
        self._cut = self._pieces_of([-(-profile.row_count // self._trained)])
        fits = profile.row_count * (len(self._data.names) + 1) * 8 <= self._budget_bytes
        self._per_task = min(self._cut, FIRST_PIECES) if fits else self._cut

    def _pieces_of(self, row_counts: Iterable[int]) -> int:
        job = self._job
        return pieces_of(tuple(row_counts), job.piece_rows if isinstance(job, SizedPieces) else PIECE_ROWS)

    def _works(self) -> list[Work]:
        """Return the tasks of the next step: a first look at the rows, a pass, or the accuracy after it."""
        if self._training is None:
            return profile_works(self._data.reads[: self._trained], self._source, SAMPLE_ROWS)
        trained, cut = self._trained, self._cut
        if self._unreported is None:
            return [
                *self._pass_works(self._job, self._training.model, range(0, trained * cut, self._per_task))
            ]
        assert isinstance(self._job, TellsClasses)
        pieces = range(trained * cut, len(self._data.reads) * cut, cut)
        return [*self._pass_works(Examined(self._job), self._unreported.fold.model, pieces)]

    def _pass_works(self, job: TrainingJob | Examined, model: Any, pieces: range) -> list[PassWork]:
        """Return the tasks that sum over some pieces. pieces: the first one of each task."""
        cut = self._cut
        return [
            PassWork(job, model, self._source(range(i // cut, -(-end // cut))), cut, i, end)
            for i in pieces
            if (end := min(i + pieces.step, pieces.stop))
        ]

    def _grouped(self, core_seconds: float, values: Sequence[Summed]) -> int:
        """Return how many pieces the next pass's tasks have, by what this pass took.

        Whole partitions at least, where some had to be read: each task would read its partition again.
        """
        least = self._cut if any(summed.reads for summed in values) else 1
        return max(least, pieces_per_task(core_seconds, self._trained * self._cut))
