"""What a slot policy sees: the time, the machines, the elastic jobs, and what it asked to be handed again.

The machines of a cluster, and the slots that each of them has.

Elastic jobs as columns: how far each has come, how fast it is, what it may have, and what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.gangs.speed import SPEED_NUMBERS


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
        slot_rows_least: a slot gets at least so many rows of each step.
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
        speed: the seven numbers of `relaqs.gangs.speed`; empty: unknown.
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
class Gangs:
    """E elastic jobs as columns, so that a policy is a few array operations. Shape (E,), fields as in Gang.

    Three fields are tables: speed (E, 7), held (E, N) with a column for each node, and packed_step_seconds
    (E, C), where C is 0 if nobody knows it.

    >>> gangs = Gangs.of([Gang("a", held=(0, 2)), Gang("b")], nodes=2)
    >>> len(gangs), gangs.slots.tolist(), gangs.nodes_used.tolist()
    (2, [2, 0], [1, 0])
    """

    ids: tuple[str, ...]
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
        count = len(self.ids)
        if len(set(self.ids)) != count:
            raise ValueError("two elastic jobs of a view have the same id; a job can be in a view once")
        for name in _COLUMNS + _TABLES:
            if len(getattr(self, name)) != count:
                raise ValueError(f"{name} has not {count} rows, one for each job")
        if self.speed.shape != (count, SPEED_NUMBERS):
            raise ValueError(f"speed has shape {self.speed.shape}; it must be ({count}, {SPEED_NUMBERS})")

    @classmethod
    def of(cls, rows: Sequence[Gang], nodes: int) -> Gangs:
        """Return the columns of some jobs, in their order. nodes: how many machines there are."""
        floats = {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in _COLUMNS}
        known = max((len(row.packed_step_seconds) for row in rows), default=0)
        return cls(
            ids=tuple(row.id for row in rows),
            **floats
            | {name: floats[name].astype(np.int64) for name in _WHOLE}
            | {
                "speed": _table([row.speed for row in rows], SPEED_NUMBERS, math.nan),
                "held": _table([row.held for row in rows], nodes, 0).astype(np.int64),
                "packed_step_seconds": _table([row.packed_step_seconds for row in rows], known, math.nan),
            },
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def slots(self) -> IntArray:
        """The slots that each job holds now, shape (E,)."""
        return np.asarray(self.held.sum(axis=1))

    @property
    def nodes_used(self) -> IntArray:
        """The nodes on which each job holds slots now, shape (E,)."""
        return np.asarray((self.held > 0).sum(axis=1))

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
        >>> gangs.pauses(30.0).tolist(), gangs.of_gangs([False, True]).pauses(30.0).tolist()
        ([0.5, 0.5], [30.0])
        """
        unknown = np.isnan(self.pause_seconds)
        others = unmeasured_seconds if unknown.all() else float(self.pause_seconds[~unknown].mean())
        return np.where(unknown, others, self.pause_seconds)

    def of_gangs(self, chosen: BoolArray | IntArray) -> Gangs:
        """Return the columns of some of the jobs: a mask of shape (E,), or their positions."""
        columns = {name: getattr(self, name)[chosen] for name in _COLUMNS + _TABLES}
        return Gangs(ids=tuple(self.ids[i] for i in np.arange(len(self))[chosen]), **columns)


_TABLES = ("speed", "held", "packed_step_seconds")
_WHOLE = ("slots_seen_most", "slots_asked")
_COLUMNS = tuple(each.name for each in fields(Gang) if each.name not in ("id", *_TABLES))


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

    >>> from relaqs.gangs.view import Gang
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

    def of_gangs(self, chosen: BoolArray | IntArray) -> SlotView:
        """Return the view of some of the jobs, on all machines: a mask of shape (E,), or their positions."""
        return replace(self, gangs=self.gangs.of_gangs(chosen))
