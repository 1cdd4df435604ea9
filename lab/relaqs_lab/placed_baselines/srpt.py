"""Least work left first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed
from relaqs.placed_policies.work import device_seconds_left


@dataclass(frozen=True, slots=True)
class LeastWorkLeft:
    """Whole jobs by the device-seconds that they have left. A running job makes way for one with less.

    Source: Schrage, Operations Research 1968: the shortest remaining time first has the least mean time on
    one machine. Counting by device-seconds is A-SRPT's way (arXiv 2501.05563).
    """

    name: ClassVar[str] = "srpt"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        return packed(view, np.argsort(device_seconds_left(view), kind="stable"), preempts=True)
