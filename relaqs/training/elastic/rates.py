"""How many times the learning rate of a first step a larger step has.

"linear": k times the rows, k times the rate: as k small steps would go (Goyal et al. 2017). "sqrt": √k, for
optimisers that divide by the gradient's size. "gain": as much as the measured noise says that the larger step
is worth, from 1 to k (Johnson et al. 2020, AdaScale). A larger step's rate is warmed up: it goes there over
some steps. Momentum needs no correction, because `update` multiplies all of it by the present rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaqs.training.elastic.protocol import Scaling


def scale_of(scaling: Scaling, batch_rows: int, start_rows: int, noise_rows: float) -> float:
    """Return how many times the rate of a first step a step of so many rows has.

    noise_rows: the noise scale, NaN where it is not known. "gain" then is "sqrt", which lies between.

    >>> [scale_of(scaling, 256, 64, 64.0) for scaling in ("linear", "sqrt", "gain", "none")]
    [4.0, 2.0, 1.6, 1.0]
    """
    times = batch_rows / start_rows
    if scaling == "linear":
        return times
    if scaling == "sqrt" or (scaling == "gain" and math.isnan(noise_rows)):
        return math.sqrt(times)
    return gain(batch_rows, start_rows, noise_rows) if scaling == "gain" else 1.0


def gain(batch_rows: int, start_rows: int, noise_rows: float) -> float:
    """Return how many first steps a step is worth, by the noise scale: k where all is noise, else less."""
    if math.isinf(noise_rows):
        return batch_rows / start_rows
    return (noise_rows / start_rows + 1.0) / (noise_rows / batch_rows + 1.0)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The way of the rate from what it was when the rows changed.

    Attributes:
        scale: of the rate at that time.
        step: the first with the new rows.
    """

    scale: float = 1.0
    step: int = 0

    def scale_at(self, step: int, goal: float, steps: int) -> float:
        """Return the scale of a step's rate. A lower goal counts at once.

        Args:
            goal: where the scale goes.
            steps: how many steps the way there takes.

        >>> [WarmUp(1.0, step=100).scale_at(step, 2.0, steps=4) for step in (100, 101, 103, 200)]
        [1.25, 1.5, 2.0, 2.0]
        """
        share = min((step - self.step + 1) / steps, 1.0) if steps else 1.0
        return goal if goal <= self.scale else self.scale + share * (goal - self.scale)
