"""Tiresias on parts: two queues by device-time, first come first served within each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed


@dataclass(frozen=True, slots=True)
class TiresiasDevices:
    """Whole jobs, those that have held devices for less than the threshold first, then by arrival.

    Source: Gu et al., Tiresias, NSDI 2019: discretised two-dimensional least attained service.

    Args:
        threshold_device_seconds: what a job may use in the first queue.
    """

    threshold_device_seconds: float = 5 * 3600.0
    name: ClassVar[str] = "tiresias"

    def __post_init__(self) -> None:
        if not self.threshold_device_seconds > 0:
            raise ValueError(
                f"threshold_device_seconds is {self.threshold_device_seconds}; it must be above 0"
            )

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        second = view.jobs.attained_device_seconds >= self.threshold_device_seconds
        return packed(view, np.argsort(second, kind="stable"), preempts=True)
