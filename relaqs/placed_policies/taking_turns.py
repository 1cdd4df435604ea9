"""Nobody waits: where devices are full, parts share them and take turns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relaqs.parts.plan import PlacedPlan, PlacedPolicy
from relaqs.parts.view import CORES, DEVICES, WAITS, PlacedView

HALVINGS = 20  # of what parts ask for, until all find room


@dataclass(frozen=True, slots=True)
class TakingTurns:
    """A policy on machines where parts take turns on a device, as they do on the workers of a cluster.

    Placed policies let a part wait where devices are full. Here all parts are then taken to use half of what
    they ask of devices and cores, and so on, until all have a place. So the policy still says who stands
    beside whom. It is not asked about parts that would use more than all devices together.

    Args:
        inner: says where parts are.
    """

    inner: PlacedPolicy

    @property
    def name(self) -> str:
        return f"{self.inner.name}, by turns"

    def plan(self, view: PlacedView) -> PlacedPlan:
        wanted, there = view.parts.demand[:, DEVICES].sum(), view.nodes.device_counts[view.nodes.alive].sum()
        plan: PlacedPlan | None = None
        for halved in range(HALVINGS):
            share = 0.5**halved
            if share * wanted <= there:
                plan = self.inner.plan(_asking_for(view, share) if halved else view)
                if (plan.node != WAITS).all():
                    return plan
        return self.inner.plan(view) if plan is None else plan


def _asking_for(view: PlacedView, share: float) -> PlacedView:
    """Return a view whose parts ask for so much less of devices and cores."""
    demand = view.parts.demand.copy()
    demand[:, np.array([DEVICES, CORES])] *= share
    return replace(view, parts=replace(view.parts, demand=demand))
