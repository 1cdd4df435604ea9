"""What a slot policy sees: the time, the machines, the elastic jobs, and what it asked to be handed again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.gangs.gangs import Gangs
from relaqs.gangs.nodes import Nodes

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

    >>> from relaqs.gangs.gangs import Gang
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
