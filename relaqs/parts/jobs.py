"""Jobs that are made of parts, as columns: what they must reach, and how far they have come."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PlacedJobs:
    """J jobs as columns of shape (J,). An iteration is once through the job's data.

    Attributes:
        arrival_seconds: when each came, on the view's clock.
        weight: the user's priority for sharing.
        urgency: how urgent the job is, from 0 to 10.
        deadline_seconds: when it should have ended, on the view's clock.
        iterations_done: so far; a fraction is the iteration in hand.
        iterations_most: after so many it ends by itself.
        iteration_seconds: what one takes where nothing contends.
        loss_fallen_last: by how much the last whole iteration lowered the loss; NaN before the second loss.
        loss_fallen: by how much the loss has fallen since the first one; NaN before the second loss.
        loss_fall_rate: the fall of an iteration, mean of the last few; NaN before the second loss.
        accuracy: of the best model so far; NaN before the first iteration ends.
        accuracy_gain: of the last tenth of iterations_most; NaN before these.
        accuracy_required: what the user needs.
        attained_device_seconds: the devices that the job has held, over time.
        may_stop: whether the job may end before iterations_most once it has the accuracy.
    """

    ids: tuple[str, ...]
    arrival_seconds: FloatArray
    weight: FloatArray
    urgency: FloatArray
    deadline_seconds: FloatArray
    iterations_done: FloatArray
    iterations_most: FloatArray
    iteration_seconds: FloatArray
    loss_fallen_last: FloatArray
    loss_fallen: FloatArray
    loss_fall_rate: FloatArray
    accuracy: FloatArray
    accuracy_gain: FloatArray
    accuracy_required: FloatArray
    attained_device_seconds: FloatArray
    may_stop: BoolArray

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(set(self.ids)) != count:
            raise ValueError("two jobs of a view have the same id; a job can be in a view once")
        for name in _COLUMNS:
            if getattr(self, name).shape != (count,):
                raise ValueError(f"{name} has shape {getattr(self, name).shape}; it must be ({count},)")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def iterations_left(self) -> FloatArray:
        """How many iterations each job still has to make, at least 0; shape (J,)."""
        return np.maximum(self.iterations_most - self.iterations_done, 0.0)

    def of_jobs(self, chosen: IntArray) -> PlacedJobs:
        """Return the columns of the jobs at these positions."""
        columns = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return PlacedJobs(ids=tuple(self.ids[i] for i in chosen), **columns)


_COLUMNS = tuple(each.name for each in fields(PlacedJobs) if each.name != "ids")
