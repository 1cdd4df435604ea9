"""Fair sharing of devices over time: who has had least of them comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed
from relaqs.placed_policies.work import runs


@dataclass(frozen=True, slots=True)
class FairDevices:
    """Jobs in the order of the device-seconds that they have had, for each unit of weight.

    A job needs all its devices at once, so that a fair share is one over time. It is counted in whole steps
    of `step_device_seconds`. Within a step, running jobs stay, and others come by arrival. This stands for
    the fair scheduler of Borg, under which MLFS's evaluation ran TensorFlow.

    Args:
        step_device_seconds: the smaller, the fairer, and the more jobs are preempted.
    """

    step_device_seconds: float = 3600.0
    name: ClassVar[str] = "fair"

    def __post_init__(self) -> None:
        if not self.step_device_seconds > 0:
            raise ValueError(f"step_device_seconds is {self.step_device_seconds}; it must be above 0")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        step = np.floor(jobs.attained_device_seconds / jobs.weight / self.step_device_seconds)
        return packed(view, np.lexsort([~runs(view), step]), preempts=True)
