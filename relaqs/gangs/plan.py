"""What a slot policy decides, the slots of each gang on each node and its batch; the door to every policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.gangs.view import SlotView


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

    >>> from relaqs.gangs.view import Gang, Gangs
    >>> from relaqs.gangs.view import Nodes
    >>> view = SlotView(0.0, Nodes.equal(2, slots=4), Gangs.of([Gang("a"), Gang("b")], nodes=2))
    >>> plan = SlotPlan.of(view, np.array([[4, 1], [0, 0]]), np.array([320.0, 0.0]))
    >>> plan.slots_by_id(), plan.nodes_of_ranks(0).tolist()
    ({'a': 5, 'b': 0}, [0, 0, 0, 0, 1])
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

    def nodes_of_ranks(self, gang: int) -> IntArray:
        """Return the position of the node of each rank of a job, shape (slots,): node by node, packed."""
        return np.repeat(np.arange(len(self.node_slots)), self.slots_by_node[gang])


@runtime_checkable
class SlotPolicy(Protocol):
    """A pure function from what is known to who holds which slots: equal views give equal plans.

    It reads no clock and no file, and draws no random numbers: a policy that searches draws them from its
    seed. What it wants to remember travels as `SlotPlan.memory`, a frozen value that can be pickled.

    Tests hold laws for every slot policy of this package (`tests/relaqs/slot_policies/test_laws.py`). A slot
    has one job at most, and a node's slots are never exceeded. A batch is within its job's limits. The order
    of the jobs in the view changes nothing.
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: SlotView) -> SlotPlan:
        """Return who holds which slots until the next plan."""
        ...
