"""Gandiva: first come first served, and one part off each overloaded device in every round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relaqs.parts.load import ROUNDING, Load
from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.resources import DEVICES
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import LIMIT, packed


@dataclass(frozen=True, slots=True)
class Gandiva:
    """Jobs by arrival. The part that uses least of an overloaded device moves to the least used device.

    Source: Xiao et al., Gandiva, OSDI 2018: packing and migration. Its growing, shrinking and time slices are
    left out: here parts have the devices that they were cut for.
    """

    name: ClassVar[str] = "gandiva"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        load = Load(view)
        for node, device in np.argwhere(load.overloaded_devices(LIMIT)).tolist():
            there = np.flatnonzero((load.node == node) & (load.device == device))
            part = int(there[view.parts.demand[there, DEVICES].argmin()])
            load.take(part)
            load.put(part, *self._target(part, (node, device), load))
        relieved = PlacedPlan.of(view, load.node, load.device)
        served = packed(_moved(view, relieved), np.arange(len(view.jobs)), preempts=False)
        return PlacedPlan.of(view, served.node, served.device)

    def _target(self, part: int, origin: tuple[int, int], load: Load) -> tuple[int, int]:
        """Return the least used device that has room for a part; where it was if none has."""
        hosts = load.hosts(part, LIMIT)
        used = np.where(hosts[:, None], load.device_used, np.inf)
        node, device = np.unravel_index(int(used.argmin()), used.shape) if used.size else origin
        free = used[node, device]
        fits = free == 0.0 or free + load.demand[part, DEVICES] <= LIMIT + ROUNDING
        return (int(node), int(device)) if fits else origin


def _moved(view: PlacedView, plan: PlacedPlan) -> PlacedView:
    """Return the view as if what a plan moves had moved."""
    return replace(view, parts=replace(view.parts, node=plan.node, device=plan.device))
