"""SLAQ on parts: devices to the jobs whose loss falls most for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed
from relaqs.placed_policies.work import device_shares, runs


@dataclass(frozen=True, slots=True)
class SlaqDevices:
    """Whole jobs by how much a device-second lowers their loss, relative to all that it has fallen.

    The next iterations are expected to do what the last few did. A job that has reported no two losses comes
    first. A running job counts `stay` times, so that equal jobs do not take turns.

    Source: Zhang et al., SLAQ, SoCC 2017: it maximises the normalised fall of the loss in the next epoch.
    """

    stay: float = 1.5
    name: ClassVar[str] = "slaq"

    def __post_init__(self) -> None:
        if not self.stay >= 1:
            raise ValueError(f"stay is {self.stay}; give 1 or more")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = np.where(jobs.loss_fallen > 0, jobs.loss_fall_rate / jobs.loss_fallen, 0.0)
        gain = np.where(np.isnan(jobs.loss_fallen), np.inf, np.maximum(fall, 0.0))
        gain = gain / (jobs.iteration_seconds * device_shares(view)) * np.where(runs(view), self.stay, 1.0)
        return packed(view, np.argsort(-gain, kind="stable"), preempts=True)
