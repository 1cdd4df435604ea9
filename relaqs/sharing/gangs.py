"""Gangs on the slots of machines: what a slot policy sees and says, and what slots are worth to a gang.

A gang is one training job whose ranks run at the same time, each on a slot: a worker's thread, or a GPU. A
policy sees a `SlotView` (the time, the machines, the gangs as columns of numpy arrays) and says a
`SlotPlan` (the slots of each gang on each machine, and its batch).

**Speed.** A step computes and then adds up gradients, and the two overlap in part. Computing takes
`compute_start + compute_row · rows` on each slot. Adding up takes nothing on one slot. On several slots it
takes `start + more · (slots − 2)`, with one pair of numbers on one node and another across nodes. A step
takes `(computeᵞ + syncᵞ)^(1/γ)`: their sum for γ = 1, the larger one for large γ. Where a slot's rows do
not fit at once, they are computed in pieces, and only the last piece adds up. Source: Qiao et al., Pollux,
OSDI 2021, section 3.2.

**Places.** `packed` lets what is held stay, and a gang be on few machines. `packed_on_whole_nodes` puts no
job on more machines than it needs.

Pure: no clock, no file, no thread, no random generator and no Dask live here. The policies themselves are
in `relaqs.slot_policies`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.view import Columns, PolicyOf

SPEED_NAMES = (
    "compute_start_seconds",
    "compute_row_seconds",
    "node_start_seconds",  # adding up within one node
    "node_more_seconds",
    "across_start_seconds",  # adding up across nodes
    "across_more_seconds",
    "overlap",  # γ, from 1 on
)
SPEED_NUMBERS = len(SPEED_NAMES)


def compute_seconds(speed: FloatArray, slot_rows: ArrayLike) -> FloatArray:
    """Return the seconds that a slot needs to compute its rows. speed: shape (…, 7)."""
    return np.asarray(speed[..., 0] + speed[..., 1] * np.asarray(slot_rows))


def sync_seconds(speed: FloatArray, slots: ArrayLike, nodes: ArrayLike) -> FloatArray:
    """Return the seconds in which slots on one or more nodes add their gradients up."""
    slots, nodes = np.asarray(slots), np.asarray(nodes)
    more = np.maximum(slots - 2, 0)
    here = speed[..., 2] + speed[..., 3] * more
    across = speed[..., 4] + speed[..., 5] * more
    return np.where(slots <= 1, 0.0, np.where(nodes > 1, across, here))


def step_seconds(
    speed: FloatArray, slots: ArrayLike, nodes: ArrayLike, slot_rows: ArrayLike, pieces: ArrayLike = 1
) -> FloatArray:
    """Return the seconds of one step. All arguments broadcast against the leading shape of `speed`.

    Args:
        speed: the seven numbers, shape (…, 7), as in SPEED_NAMES.
        slots: how many the job holds.
        nodes: how many machines these are on.
        slot_rows: the rows that a slot computes at once.
        pieces: how many times a slot does so in one step.

    >>> speed = np.array([0.1, 0.001, 0.05, 0.0, 0.2, 0.01, 1.0])
    >>> step_seconds(speed, slots=[1, 2, 4], nodes=[1, 1, 2], slot_rows=[100, 50, 25]).round(3).tolist()
    [0.2, 0.2, 0.345]
    """
    compute = compute_seconds(speed, slot_rows)
    sync, overlap = sync_seconds(speed, slots, nodes), speed[..., 6]
    larger, smaller = np.maximum(compute, sync), np.minimum(compute, sync)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(larger > 0, smaller / larger, 0.0)
    last = larger * (1.0 + ratio**overlap) ** (1.0 / overlap)
    return np.asarray(last + (np.asarray(pieces) - 1) * compute)


def rows_per_second(
    speed: FloatArray, slots: ArrayLike, nodes: ArrayLike, slot_rows: ArrayLike, pieces: ArrayLike = 1
) -> FloatArray:
    """Return the rows that a job processes a second, 0 without slots. Arguments as in `step_seconds`.

    >>> speed = np.array([0.1, 0.001, 0.05, 0.0, 0.2, 0.01, 1.0])
    >>> rows_per_second(speed, slots=2, nodes=1, slot_rows=50).round(6).tolist()
    500.0
    """
    rows = np.asarray(slots) * np.asarray(slot_rows) * np.asarray(pieces)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = rows / step_seconds(speed, slots, nodes, slot_rows, pieces)
    return np.where(rows > 0, rate, 0.0)


_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A batch as the slots compute it. All have the shape of the arguments.

    Attributes:
        slot_rows: the rows that a slot computes at once, a whole number.
        pieces: how many times a slot does so in one step.
        batch_rows: the rows of the whole step. This is the batch asked for, rounded up to equal slots.
    """

    slot_rows: FloatArray
    pieces: FloatArray
    batch_rows: FloatArray


def split_batch(
    batch_rows: ArrayLike,
    slots: ArrayLike,
    slot_rows_most: ArrayLike,
    rows_most: ArrayLike = np.inf,
    pieces_least: ArrayLike = 1,
) -> Split:
    """Return how each slot computes its equal share of a batch. Without slots all is 0.

    Args:
        batch_rows: the batch asked for.
        slots: how many slots compute it.
        slot_rows_most: what fits a slot at once. More is computed in pieces of equal size.
        rows_most: rounding up never leads beyond these.
        pieces_least: a share is cut into this number of pieces at least.

    >>> split = split_batch(batch_rows=[100, 100], slots=[3, 1], slot_rows_most=[64, 64])
    >>> split.slot_rows.tolist(), split.pieces.tolist(), split.batch_rows.tolist()
    ([34.0, 50.0], [1.0, 2.0], [102.0, 100.0])
    """
    slots, most = np.asarray(slots, dtype=np.float64), np.asarray(slot_rows_most, dtype=np.float64)
    places = np.maximum(slots, 1.0)
    share = np.ceil(np.asarray(batch_rows) / places - _ROUNDING)
    pieces = np.maximum(np.ceil(share / most - _ROUNDING), np.maximum(np.asarray(pieces_least), 1.0))
    rows = np.ceil(share / pieces - _ROUNDING)
    rows = np.maximum(np.minimum(rows, np.floor(np.asarray(rows_most) / (places * pieces))), 1.0)
    has = (slots > 0) & (share > 0)
    rows, pieces = np.where(has, rows, 0.0), np.where(has, pieces, 0.0)
    return Split(rows, pieces, slots * rows * pieces)


def fewest_pieces(batch_rows: ArrayLike, slots: ArrayLike, start_rows: ArrayLike) -> FloatArray:
    """Return into how many pieces a slot's share is cut at least.

    The noise of gradients is measured between pieces. So a single slot computes a batch that has grown in
    two.

    >>> fewest_pieces(batch_rows=[32, 64, 64], slots=[1, 1, 2], start_rows=32).tolist()
    [1.0, 2.0, 1.0]
    """
    alone = (np.asarray(slots) == 1) & (np.asarray(batch_rows) > np.asarray(start_rows) + _ROUNDING)
    return np.where(alone, 2.0, 1.0)


def efficiency(batch_rows: ArrayLike, start_rows: ArrayLike, noise_rows: ArrayLike) -> FloatArray:
    """Return what a row is worth in a batch, relative to one in a batch of start_rows.

    (φ + B₀)/(φ + B), with the noise scale φ in rows. Without noise, a batch is worth no more than the first
    one. With much noise, all rows count alike: φ is infinite where gradients are nothing but noise.

    Source: Qiao et al., Pollux, OSDI 2021, section 3.1; McCandlish et al. 2018.

    >>> efficiency(batch_rows=[32, 64, 128], start_rows=32, noise_rows=96).round(3).tolist()
    [1.0, 0.8, 0.571]
    >>> efficiency(batch_rows=128, start_rows=32, noise_rows=float("inf")).tolist()
    1.0
    """
    noise = np.asarray(noise_rows, dtype=np.float64)
    finite = np.where(np.isinf(noise), 0.0, noise)
    worth = (finite + np.asarray(start_rows)) / (finite + np.asarray(batch_rows))
    return np.where(np.isinf(noise), 1.0, worth)


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """N machines as columns. A slot is a place that one rank holds alone: a worker's thread, or a GPU.

    Attributes:
        ids: the machines' names.
        slots: how many slots each has, shape (N,).
        alive: which machines can be used now, shape (N,).

    Raises:
        ValueError: two machines have one name, the columns have different lengths, or slots are negative.

    >>> nodes = Nodes.equal(count=2, slots=4)
    >>> nodes.ids, nodes.usable_slots.tolist()
    (('node 0', 'node 1'), [4, 4])
    """

    ids: tuple[str, ...]
    slots: IntArray
    alive: BoolArray

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("two nodes have the same id; give each machine a name of its own")
        if self.slots.shape != (len(self.ids),) or self.alive.shape != (len(self.ids),):
            raise ValueError(
                f"there are {len(self.ids)} nodes, but slots has shape {self.slots.shape} and alive has "
                f"shape {self.alive.shape}; both must be ({len(self.ids)},)"
            )
        if (self.slots < 0).any():
            raise ValueError(f"slots is {self.slots.tolist()}; no node can have fewer than 0")

    @classmethod
    def equal(cls, count: int, slots: int) -> Nodes:
        """Return machines that are all alike.

        >>> len(Nodes.equal(count=16, slots=4))
        16
        """
        names = tuple(f"node {i}" for i in range(count))
        return cls(names, np.full(count, slots, dtype=np.int64), np.ones(count, dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def usable_slots(self) -> IntArray:
        """The slots of each machine, 0 where it is not alive, shape (N,)."""
        return np.where(self.alive, self.slots, 0)


@dataclass(frozen=True, slots=True)
class Gang:
    """One elastic job: ranks that run at the same time, each on a slot. NaN: the value is unknown.

    A pass is once through the job's data. A batch is the rows of one step, over all ranks together.

    Attributes:
        arrival_seconds: when the job came, on the view's clock.
        weight: the user's priority. A job with 2.0 counts twice.
        pass_rows: the rows of its data.
        start_rows: the batch it starts with, for which its learning rate was chosen.
        slot_rows_least: a slot gets at least these rows of each step.
        slot_rows_most: more rows than these do not fit a slot at once. A larger share is computed in several
            pieces, one after another.
        rows_most: the largest batch that its user allows.
        rows_done: the rows that it has processed so far.
        steps_done: the steps so far.
        passes_done: the passes so far, a whole number.
        passes_since_change: the passes since its slots or its batch last changed.
        first_loss: the loss after its first pass.
        loss: the loss now.
        accuracy: the accuracy on rows held back, after the last pass.
        executed_seconds: how long it has held slots.
        attained_slot_seconds: the same times the slots it held.
        waiting_since_seconds: since when it holds no slot, on the view's clock; NaN while it runs.
        batch_rows: the batch now, or the last one while it waits; 0 before it first runs.
        noise_rows: the gradient's noise scale in rows: a batch beyond it gains little a row.
        rescales: how often its slots have changed since it first ran.
        pause_seconds: how long it stood still when its slots changed, on average; NaN: it was never measured.
        slots_seen_most: the most slots that it has been measured with.
        slots_asked: the slots that its user asked for; 0 if none were.
        rows_asked: the batch that its user asked for.
        rows_left: the rows still to be processed with a batch of rows_asked, if somebody knows them.
        speed: the seven numbers of `relaqs.sharing.gangs`; empty: unknown.
        held: the slots that it holds now on each node, in the nodes' order; empty: none.
        packed_step_seconds: the seconds of a step of rows_asked rows on 1, 2, … slots on as few nodes as
            possible, if somebody knows them.

    >>> Gang("bert", start_rows=12.0, rows_most=384.0).weight
    1.0
    """

    id: str
    arrival_seconds: float = 0.0
    weight: float = 1.0
    pass_rows: float = 10_000.0
    start_rows: float = 32.0
    slot_rows_least: float = 1.0
    slot_rows_most: float = math.inf
    rows_most: float = math.inf
    rows_done: float = 0.0
    steps_done: float = 0.0
    passes_done: float = 0.0
    passes_since_change: float = 0.0
    first_loss: float = math.nan
    loss: float = math.nan
    accuracy: float = math.nan
    executed_seconds: float = 0.0
    attained_slot_seconds: float = 0.0
    waiting_since_seconds: float = math.nan
    batch_rows: float = 0.0
    noise_rows: float = math.nan
    rescales: float = 0.0
    pause_seconds: float = math.nan
    slots_seen_most: int = 0
    slots_asked: int = 0
    rows_asked: float = math.nan
    rows_left: float = math.nan
    speed: tuple[float, ...] = ()
    held: tuple[int, ...] = ()
    packed_step_seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"job {self.id!r} has weight {self.weight}; it must be a finite number above 0")
        if not 0 < self.start_rows <= self.rows_most:
            raise ValueError(
                f"job {self.id!r} starts with {self.start_rows} rows and may have {self.rows_most}; "
                "start_rows must be above 0 and at most rows_most"
            )
        if not (self.slot_rows_least > 0 and self.slot_rows_most >= 1):
            raise ValueError(
                f"job {self.id!r} takes from {self.slot_rows_least} rows on a slot, {self.slot_rows_most} at "
                "once; the first must be above 0 and the second at least 1"
            )
        if len(self.speed) not in (0, SPEED_NUMBERS):
            raise ValueError(f"job {self.id!r} has {len(self.speed)} numbers of speed; give {SPEED_NUMBERS}")


@dataclass(frozen=True, slots=True, eq=False)
class Gangs(Columns):
    """E elastic jobs as columns. Shape (E,), fields as in Gang.

    Three fields are tables: speed (E, 7), held (E, N) with a column for each node, and packed_step_seconds
    (E, C), where C is 0 if nobody knows it.

    >>> gangs = Gangs.of([Gang("a", held=(0, 2)), Gang("b")], nodes=2)
    >>> len(gangs), gangs.slots.tolist()
    (2, [2, 0])
    """

    tables: ClassVar[tuple[str, ...]] = ("speed", "held", "packed_step_seconds")

    arrival_seconds: FloatArray
    weight: FloatArray
    pass_rows: FloatArray
    start_rows: FloatArray
    slot_rows_least: FloatArray
    slot_rows_most: FloatArray
    rows_most: FloatArray
    rows_done: FloatArray
    steps_done: FloatArray
    passes_done: FloatArray
    passes_since_change: FloatArray
    first_loss: FloatArray
    loss: FloatArray
    accuracy: FloatArray
    executed_seconds: FloatArray
    attained_slot_seconds: FloatArray
    waiting_since_seconds: FloatArray
    batch_rows: FloatArray
    noise_rows: FloatArray
    rescales: FloatArray
    pause_seconds: FloatArray
    slots_seen_most: IntArray
    slots_asked: IntArray
    rows_asked: FloatArray
    rows_left: FloatArray
    speed: FloatArray
    held: IntArray
    packed_step_seconds: FloatArray

    def __post_init__(self) -> None:
        Columns.__post_init__(self)
        count = len(self)
        if self.speed.shape != (count, SPEED_NUMBERS):
            raise ValueError(f"speed has shape {self.speed.shape}; it must be ({count}, {SPEED_NUMBERS})")

    @classmethod
    def of(cls, rows: Sequence[Gang], nodes: int) -> Gangs:
        """Return the columns of some jobs, in their order. nodes: how many machines there are."""
        known = max((len(row.packed_step_seconds) for row in rows), default=0)
        return cls.of_rows(
            rows,
            speed=_table([row.speed for row in rows], SPEED_NUMBERS, math.nan),
            held=_table([row.held for row in rows], nodes, 0).astype(np.int64),
            packed_step_seconds=_table([row.packed_step_seconds for row in rows], known, math.nan),
        )

    @property
    def slots(self) -> IntArray:
        """The slots that each job holds now, shape (E,)."""
        return np.asarray(self.held.sum(axis=1))

    @property
    def is_running(self) -> BoolArray:
        """Which jobs hold slots now, shape (E,)."""
        return np.asarray(self.slots > 0)

    @property
    def slots_most(self) -> FloatArray:
        """The most slots that each job can use with its largest batch, shape (E,), at least 1."""
        return np.asarray(np.maximum(np.floor(self.rows_most / self.slot_rows_least + 1e-9), 1.0))

    def pauses(self, unmeasured_seconds: float) -> FloatArray:
        """Return how long each job would stand still if its slots changed, in seconds, shape (E,).

        It is what was measured of the job itself, else the mean of the other jobs.

        Args:
            unmeasured_seconds: what is taken where no job has been measured.

        >>> gangs = Gangs.of([Gang("a", pause_seconds=0.5), Gang("b")], nodes=1)
        >>> gangs.pauses(30.0).tolist(), gangs.of_jobs([False, True]).pauses(30.0).tolist()
        ([0.5, 0.5], [30.0])
        """
        unknown = np.isnan(self.pause_seconds)
        others = unmeasured_seconds if unknown.all() else float(self.pause_seconds[~unknown].mean())
        return np.where(unknown, others, self.pause_seconds)


def _table(rows: Sequence[Sequence[float]], width: int, missing: float) -> FloatArray:
    """Return rows of at most `width` numbers as one array, filled up with what stands for a missing one."""
    table = np.full((len(rows), width), missing, dtype=np.float64)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = values
    return table


FINISHED_COLUMNS = ("pass_rows", "first_loss", "rows_done", "loss_fallen_share", "accuracy", "passes_left")


@dataclass(frozen=True, slots=True, eq=False)
class SlotView:
    """All that one decision of a slot policy may depend on. The live orchestrator or a simulator fills it in.

    It is a second tier. A sharing policy (`relaqs.sharing`) decides how many slots all elastic jobs have
    together, and a slot policy divides these.

    Attributes:
        time_seconds: now, on the clock of the arrivals.
        nodes: the machines and their slots.
        gangs: the elastic jobs that have not ended, running or waiting.
        finished: points on the ways of jobs that ended, shape (n, 6), columns as in FINISHED_COLUMNS.
        arrivals_per_second: the mean rate at which elastic jobs have come so far; NaN: unknown.
        memory: what this policy put into its last plan. None at first, and after a restart.

    >>> view = SlotView(0.0, Nodes.equal(2, slots=4), Gangs.of([Gang("a"), Gang("b")], nodes=2))
    >>> view.memory is None, int(view.nodes.usable_slots.sum())
    (True, 8)
    """

    time_seconds: float
    nodes: Nodes
    gangs: Gangs
    finished: FloatArray = field(default_factory=lambda: np.empty((0, len(FINISHED_COLUMNS))))
    arrivals_per_second: float = math.nan
    memory: object | None = None

    def __post_init__(self) -> None:
        count, nodes = len(self.gangs), len(self.nodes)
        if self.gangs.held.shape != (count, nodes):
            raise ValueError(
                f"held has shape {self.gangs.held.shape} for {count} jobs on {nodes} nodes; "
                f"it must be ({count}, {nodes})"
            )
        if (self.gangs.held < 0).any() or (self.gangs.held.sum(axis=0) > self.nodes.slots).any():
            raise ValueError("the jobs hold more slots of a node than it has, or fewer than 0")
        width = len(FINISHED_COLUMNS)
        if self.finished.ndim != 2 or self.finished.shape[1] != width:
            raise ValueError(f"finished has shape {self.finished.shape}; it must be (n, {width})")

    def of_jobs(self, chosen: BoolArray | IntArray) -> SlotView:
        """Return the view of some of the jobs, on all machines: a mask of shape (E,), or their positions."""
        return replace(self, gangs=self.gangs.of_jobs(chosen))


@dataclass(frozen=True, slots=True, eq=False)
class SlotPlan:
    """Who holds which slots until the next plan. Always: slots_by_node.sum(axis=0) ≤ node_slots.

    Attributes:
        ids: the jobs of the view, in its order.
        slots_by_node: the slots of each job on each node, shape (E, N). A job without slots waits.
        batch_rows: the rows of one step of each job, over all its ranks, shape (E,). What stands there for a
            job that waits has no meaning.
        node_slots: the slots that could be given, shape (N,).
        memory: what the policy wants to be handed with the next view.

    >>> view = SlotView(0.0, Nodes.equal(2, slots=4), Gangs.of([Gang("a"), Gang("b")], nodes=2))
    >>> plan = SlotPlan.of(view, np.array([[4, 1], [0, 0]]), np.array([320.0, 0.0]))
    >>> plan.slots_by_id()
    {'a': 5, 'b': 0}
    """

    ids: tuple[str, ...]
    slots_by_node: IntArray
    batch_rows: FloatArray
    node_slots: IntArray
    memory: object | None = None

    def __post_init__(self) -> None:
        shape = (len(self.ids), len(self.node_slots))
        assert self.slots_by_node.shape == shape, (self.slots_by_node.shape, shape)
        assert np.issubdtype(self.slots_by_node.dtype, np.integer), self.slots_by_node.dtype
        assert (self.slots_by_node >= 0).all(), self.slots_by_node
        given = self.slots_by_node.sum(axis=0)
        assert (given <= self.node_slots).all(), (given, self.node_slots)
        assert self.batch_rows.shape == (len(self.ids),), self.batch_rows.shape
        assert (self.batch_rows[self.slots > 0] >= 1).all(), self.batch_rows

    @classmethod
    def of(
        cls, view: SlotView, slots_by_node: IntArray, batch_rows: FloatArray, memory: object | None = None
    ) -> SlotPlan:
        """Return the plan for a view's jobs on its living machines."""
        return cls(view.gangs.ids, slots_by_node, batch_rows, view.nodes.usable_slots, memory)

    @property
    def slots(self) -> IntArray:
        """The slots of each job, shape (E,)."""
        return np.asarray(self.slots_by_node.sum(axis=1))

    def slots_by_id(self) -> dict[str, int]:
        """Return how many slots each job has, by its id."""
        return dict(zip(self.ids, self.slots.tolist(), strict=True))


@runtime_checkable
class SlotPolicy(PolicyOf[SlotView, SlotPlan], Protocol):
    """A pure function from what is known to who holds which slots: equal views give equal plans.

    It reads no clock and no file, and draws no random numbers: a policy that searches draws them from its
    seed. What it wants to remember travels as `SlotPlan.memory`, a frozen value that can be pickled.

    Tests hold laws for every slot policy of this package (`tests/relaqs/slot_policies/test_laws.py`). A slot
    has one job at most, and a node's slots are never exceeded. A batch is within its job's limits. The order
    of the jobs in the view changes nothing.
    """


def packed(
    counts: IntArray, held: IntArray, nodes: Nodes, order: IntArray, *, tight: bool = True
) -> IntArray:
    """Return the slots of each job on each node, shape (E, N), for a number of slots of each.

    A job whose number of slots is as before keeps its places. Every other is placed anew, in the given order.
    It takes a node that can hold the rest of it, and else the node with most free slots, until it has all.

    Args:
        counts: the slots of each job, shape (E,); together at most what the living nodes have.
        held: the slots that each job holds now on each node, shape (E, N).
        nodes: the machines. What is held on one that is not alive is lost.
        order: the jobs' positions in the order in which they are placed.
        tight: of the nodes that can hold the rest of a job, take the fullest. This keeps whole nodes free
            for large jobs. If False, take the emptiest.

    >>> nodes = Nodes.equal(2, slots=4)
    >>> held = np.array([[3, 0], [0, 0], [0, 0]])
    >>> packed(np.array([3, 1, 4]), held, nodes, np.array([0, 1, 2])).tolist()
    [[3, 0], [1, 0], [0, 4]]
    >>> packed(np.array([3, 1, 4]), held, nodes, np.array([0, 1, 2]), tight=False).tolist()
    [[3, 0], [0, 1], [1, 3]]
    """
    usable = nodes.usable_slots
    assert counts.sum() <= usable.sum(), (counts, usable)
    stay = stays(counts, held, nodes)
    placed = np.where(stay[:, None], held, 0)
    free = usable - placed.sum(axis=0)
    for job in order[~stay[order]]:
        placed[job] = put(int(counts[job]), free, tight=tight)
        free -= placed[job]
    return placed


def stays(counts: IntArray, held: IntArray, nodes: Nodes) -> BoolArray:
    """Return which jobs keep their places, shape (E,): they have as many slots as before, on living nodes."""
    return np.asarray((held.sum(axis=1) == counts) & ~((held > 0) & ~nodes.alive).any(axis=1))


def put(count: int, free: IntArray, *, tight: bool = True) -> IntArray:
    """Return the slots of one job by node, shape (N,), on the free slots of the nodes, shape (N,)."""
    left, placed = count, np.zeros_like(free)
    while left:
        node = _node_for(left, free - placed, tight=tight)
        placed[node] += (taken := min(left, int(free[node] - placed[node])))
        left -= taken
    return placed


def _node_for(slots: int, free: IntArray, *, tight: bool) -> int:
    if tight and (fits := free >= slots).any():
        return int(np.argmin(np.where(fits, free, np.iinfo(np.int64).max)))
    return int(np.argmax(free))


def packed_on_whole_nodes(counts: IntArray, held: IntArray, nodes: Nodes) -> IntArray:
    """Return the slots of each job on each node, shape (E, N), for a number of slots of each.

    As `packed`, the largest first: a job whose number of slots is as before keeps its places. But where a job
    would be on more nodes than it needs, smaller jobs that kept their places move. It is the fewest slots
    that must move, by node, and the smallest jobs of the node. Where the nodes are alike and have a power of
    two of slots, and jobs have powers of two or whole nodes, no job is ever on more nodes than it needs.

    Args:
        counts: the slots of each job, shape (E,); together at most what the living nodes have.
        held: the slots that each job holds now on each node, shape (E, N).
        nodes: the machines. What is held on one that is not alive is lost.

    Source: Jayaram Subramanya et al., Sia, SOSP 2023: how a placement follows from the configurations.

    >>> nodes, held = Nodes.equal(2, slots=4), np.array([[2, 0], [0, 1], [0, 0]])
    >>> packed_on_whole_nodes(np.array([2, 1, 4]), held, nodes).tolist()
    [[2, 0], [1, 0], [0, 4]]
    """
    assert counts.sum() <= nodes.usable_slots.sum(), (counts, nodes.usable_slots)
    stay = stays(counts, held, nodes)
    placed = np.where(stay[:, None], held, 0)
    free = nodes.usable_slots - placed.sum(axis=0)
    reach = np.cumsum(np.sort(nodes.usable_slots)[::-1])
    for size in np.unique(counts[counts > 0])[::-1].tolist():
        needed = int(np.searchsorted(reach, size)) + 1
        for job in np.flatnonzero((counts == size) & ~placed.any(axis=1)).tolist():
            if np.sort(free)[::-1][:needed].sum() < size:
                moved = _in_the_way(size, needed, counts, placed, free)
                free += placed[moved].sum(axis=0)
                placed[moved] = 0
            placed[job] = put(size, free)
            free -= placed[job]
    return placed


def _in_the_way(size: int, needed: int, counts: IntArray, placed: IntArray, free: IntArray) -> BoolArray:
    """Return which smaller jobs move so that some `needed` nodes have `size` free slots; none if none can."""
    smaller = (counts < size) & placed.any(axis=1)
    movable = placed[smaller].sum(axis=0)
    room = free + movable
    order = np.lexsort([movable, -room]) if needed > 1 else np.lexsort([movable, room < size])
    chosen, moved = order[:needed], np.zeros(len(counts), dtype=np.bool_)
    if room[chosen].sum() < size:
        return moved
    free = free.copy()
    there = np.flatnonzero(smaller & placed[:, chosen].any(axis=1))
    for job in there[np.argsort(counts[there], kind="stable")].tolist():
        if free[chosen].sum() >= size:
            break
        moved[job] = True
        free += placed[job]
    return moved
