"""ElasticFlow with jobs of fixed size: first who can still be in time, by slack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.pack import packed
from relaqs.placed_policies.work import device_seconds_left


@dataclass(frozen=True, slots=True)
class ElasticFlow:
    """Deadlines that can be met are served first, and what cannot be met comes by least work left.

    ElasticFlow gives each admitted job the fewest devices that meet its deadline, and the rest to those whose
    speed gains most. Here a job runs on the devices that it was cut for, or waits. So its least satisfactory
    share is one of time, and what is left of the admission is the order: jobs that must start soon come
    before those with slack, in steps of `slack_step_seconds`, and less work first within a step.

    Source: Gu et al., ElasticFlow, ASPLOS 2023. It rejects jobs; here nobody is rejected.
    """

    slack_step_seconds: float = 1800.0
    name: ClassVar[str] = "elastic_flow"

    def __post_init__(self) -> None:
        if not self.slack_step_seconds > 0:
            raise ValueError(f"slack_step_seconds is {self.slack_step_seconds}; it must be above 0")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        slack = jobs.deadline_seconds - view.time_seconds - jobs.iterations_left * jobs.iteration_seconds
        step = np.floor(np.maximum(slack, 0.0) / self.slack_step_seconds)
        late = slack < 0
        order = np.lexsort([device_seconds_left(view), np.where(late, 0.0, step), late])
        return packed(view, order, preempts=True)
