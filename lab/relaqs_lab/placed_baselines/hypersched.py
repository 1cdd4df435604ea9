"""HyperSched on parts: jobs that still gain accuracy before their deadline, and the others pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed
from relaqs.placed_policies.work import runs


@dataclass(frozen=True, slots=True)
class HyperSched:
    """Whole jobs by the accuracy that they would gain before their deadline, at the rate of the last while.

    What gained less than `gain_least` in the last tenth of its iterations, or is past its deadline, comes
    after all others, by arrival. A job without such a measurement comes first. A running job counts `stay`
    times.

    Source: Liaw et al., HyperSched, SoCC 2019. It pauses trials that do not gain. Here they only come last:
    every job is to end.
    """

    gain_least: float = 0.005
    stay: float = 1.5
    name: ClassVar[str] = "hypersched"

    def __post_init__(self) -> None:
        if not self.stay >= 1 or not self.gain_least >= 0:
            raise ValueError(f"stay is {self.stay} and gain_least is {self.gain_least}; give 1 and 0 or more")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        time_left = np.maximum(jobs.deadline_seconds - view.time_seconds, 0.0)
        iterations = np.minimum(time_left / jobs.iteration_seconds, jobs.iterations_left)
        gain = jobs.accuracy_gain / (0.1 * jobs.iterations_most) * iterations
        gain = np.where(jobs.accuracy_gain < self.gain_least, 0.0, gain)
        gain = np.where(np.isnan(gain), np.where(time_left > 0, np.inf, 0.0), gain)
        return packed(
            view,
            np.argsort(-gain * np.where(runs(view), self.stay, 1.0), kind="stable"),
            preempts=True,
        )
