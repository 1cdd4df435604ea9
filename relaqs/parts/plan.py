"""What a placed policy decides: where each part is, and which jobs end now; and the door to every policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, IntArray

from relaqs.parts.view import WAITS, PlacedView


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPlan:
    """Where the parts of a view are until the next plan. A part has one place, or waits.

    Attributes:
        ids: the jobs of the view, in its order.
        node, device: of each part of the view, shape (P,); −1 where it waits, and as a server's device.
        stops: which jobs end now with the model that they have, shape (J,).
    """

    ids: tuple[str, ...]
    node: IntArray
    device: IntArray
    stops: BoolArray

    def __post_init__(self) -> None:
        assert self.node.shape == self.device.shape, (self.node.shape, self.device.shape)
        assert self.stops.shape == (len(self.ids),), self.stops.shape
        assert (self.device[self.node == WAITS] == WAITS).all()

    @classmethod
    def of(
        cls, view: PlacedView, node: IntArray, device: IntArray, stops: BoolArray | None = None
    ) -> PlacedPlan:
        """Return the plan for a view. Who uses it may rely on what is asserted here."""
        assert node.shape == (len(view.parts),), node.shape
        placed = node >= 0
        assert view.nodes.alive[node[placed]].all(), "a part is placed on a node that is not alive"
        on_devices = placed & ~view.parts.is_server
        assert (device[on_devices] >= 0).all()
        assert (device[on_devices] < view.nodes.device_counts[node[on_devices]]).all()
        stops = np.zeros(len(view.jobs), dtype=np.bool_) if stops is None else stops
        return cls(view.jobs.ids, node, device, stops)


def planned_in_order(view: PlacedView, plan: Callable[[PlacedView], PlacedPlan]) -> PlacedPlan:
    """Return the plan for a view, made in the one order of its jobs, parts and nodes (`in_order`)."""
    if view.is_in_order:
        return plan(view)
    ordered, jobs, parts, nodes = view.in_order()
    made = plan(ordered)
    node, device = np.full(len(parts), WAITS), np.full(len(parts), WAITS)
    node[parts] = np.where(made.node >= 0, nodes[made.node], WAITS) if len(nodes) else WAITS
    device[parts] = made.device
    stops = np.zeros(len(jobs), dtype=np.bool_)
    stops[jobs] = made.stops
    return PlacedPlan.of(view, node, device, stops)


@runtime_checkable
class PlacedPolicy(Protocol):
    """A pure function from what is known to where parts are: equal views give equal plans.

    Tests hold laws for every placed policy of this package (`tests/relaqs/placed_policies/test_laws.py`).
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: PlacedView) -> PlacedPlan:
        """Return where each part is until the next plan, and which jobs end now."""
        ...
