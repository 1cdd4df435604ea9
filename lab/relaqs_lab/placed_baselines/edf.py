"""Earliest deadline first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed


@dataclass(frozen=True, slots=True)
class EarliestDeadline:
    """Whole jobs by their deadlines. A running job makes way for one with an earlier deadline.

    Source: Liu and Layland, Scheduling Algorithms for Multiprogramming, Journal of the ACM 1973.
    """

    name: ClassVar[str] = "edf"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        return packed(view, np.argsort(view.jobs.deadline_seconds, kind="stable"), preempts=True)
