"""Urgency for each device-second, for jobs that can still be in time: our own rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed
from relaqs.placed_policies.work import device_shares, iterations_to_accuracy, runs


@dataclass(frozen=True, slots=True)
class SlackIndex:
    """Whole jobs by what a device-second brings: an end in time, by its urgency, or else just an end.

    A job's work is the device-seconds that are left until it ends. With `accuracy_ends`, it is those until it
    has the accuracy that its user needs, as its last gains suggest. A job that can still end by its deadline
    counts with its urgency above the mean one, `late_share` of that if it cannot. A running job counts `stay`
    times, and so makes way only for one that is clearly better.

    Args:
        late_share: of a job that cannot meet its deadline, relative to one that can.
        urgency_power: 0 leaves the urgency out, 1 lets a job of urgency 10 count ten times one of 1.
        accuracy_ends: jobs end when they have the accuracy that is needed, where a rule says so.
        stay: how much better a job must be to take the place of another.
    """

    late_share: float = 0.5
    urgency_power: float = 0.5
    accuracy_ends: bool = True
    stay: float = 1.5
    name: ClassVar[str] = "slack_index"

    def __post_init__(self) -> None:
        if not 0 <= self.late_share <= 1 or not self.stay >= 1 or not self.urgency_power >= 0:
            raise ValueError(
                f"late_share is {self.late_share}, stay {self.stay} and urgency_power {self.urgency_power}; "
                "give from 0 to 1, 1 or more, and 0 or more"
            )

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        iterations = iterations_to_accuracy(view) if self.accuracy_ends else jobs.iterations_left
        seconds = np.maximum(iterations, 1.0) * jobs.iteration_seconds
        in_time = view.time_seconds + seconds <= jobs.deadline_seconds
        worth = np.maximum(jobs.urgency, 1.0) ** self.urgency_power * np.where(in_time, 1.0, self.late_share)
        index = worth / (seconds * device_shares(view)) * np.where(runs(view), self.stay, 1.0)
        return packed(view, np.argsort(-index, kind="stable"), preempts=True)
