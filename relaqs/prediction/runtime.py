"""What the steps ahead cost in core-seconds, and how many of them a budget buys.

Costs are in core-seconds, so that they hold for any number of cores: SLAQ's c·S/N seconds are a cost of c·S
spread over N cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.series import Series

LEAST_SHARE_LEFT = 0.05  # of a step's cost, when more than the whole of it was spent already


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The steps ahead of J jobs, in core-seconds, shape (J,) each.

    Attributes:
        next_core_seconds: the whole cost of the step in hand.
        growth_core_seconds: by how much each step costs more than the one before.
        spent_core_seconds: what the step in hand has used already.
    """

    next_core_seconds: FloatArray
    growth_core_seconds: FloatArray
    spent_core_seconds: FloatArray

    def of_jobs(self, jobs: IntArray | BoolArray) -> StepCosts:
        """Return the costs of some of the jobs."""
        return StepCosts(
            self.next_core_seconds[jobs], self.growth_core_seconds[jobs], self.spent_core_seconds[jobs]
        )

    def steps_within(self, core_seconds: FloatArray) -> FloatArray:
        """Return how many steps a budget buys, as fractions. core_seconds: shape (J, K); so is the result.

        The step in hand is paid for evenly over what is left of it, later ones over all they cost.
        """
        left = self._left_of_first()[:, None]
        first = np.minimum(core_seconds / left, 1.0)
        # n more steps cost n·(B + A/2) + n²·A/2; solved for n in the form that also holds for A = 0.
        growth = self.growth_core_seconds[:, None]
        slope = np.maximum(self.next_core_seconds[:, None] + growth / 2, 1e-12)
        beyond = np.maximum(core_seconds - left, 0.0)
        more = 2 * beyond / (slope + np.sqrt(slope**2 + 2 * growth * beyond))
        steps: FloatArray = first + more
        return steps

    def core_seconds_of(self, steps: FloatArray) -> FloatArray:
        """Return what so many steps cost from now on; the inverse of `steps_within`. steps: shape (J, K)."""
        first = np.minimum(steps, 1.0) * self._left_of_first()[:, None]
        more = np.maximum(steps - 1.0, 0.0)
        growth = self.growth_core_seconds[:, None]
        cost: FloatArray = first + more * (self.next_core_seconds[:, None] + growth / 2 + growth * more / 2)
        return cost

    def _left_of_first(self) -> FloatArray:
        cost = self.next_core_seconds
        return np.maximum(np.maximum(cost - self.spent_core_seconds, LEAST_SHARE_LEFT * cost), 1e-12)


def constant_cost(steps: Series) -> FloatArray:
    """Return each job's cost of a step, shape (J,): the weighted mean of its core-seconds, NaN before any."""
    weight = steps.weight.sum(axis=1)
    return np.where(weight > 0, (steps.weight * steps.y).sum(axis=1) / np.maximum(weight, 1e-300), np.nan)


def line_cost(steps: Series) -> tuple[FloatArray, FloatArray]:
    """Return slope A ≥ 0 and offset B of each job's cost A·x + B, shape (J,), for refined queries.

    They keep undecided rows and read them again, so that a mini-batch costs more than the one before.
    A job with one step, or whose costs fall, has A = 0 and the mean as B. Source: the thesis, ch. 4.
    """
    share = steps.weight / np.maximum(steps.weight.sum(axis=1, keepdims=True), 1e-300)
    mean_x, mean_y = (share * steps.x).sum(axis=1), constant_cost(steps)
    from_mean = steps.x - mean_x[:, None]
    spread = (share * from_mean**2).sum(axis=1)
    covariance = (share * from_mean * steps.y).sum(axis=1)
    slope = np.maximum(np.where(spread > 1e-24, covariance / np.where(spread > 1e-24, spread, 1.0), 0.0), 0.0)
    return slope, mean_y - slope * mean_x


def cost_per_size(sizes: Series) -> FloatArray:
    """Return c of each job's cost c·S, shape (J,), for training. sizes: x the rows S of a step, y its cost.

    On N cores the step takes c·S/N seconds. Source: SLAQ, prediction of runtime.
    """
    squares = (sizes.weight * sizes.x**2).sum(axis=1)
    product = (sizes.weight * sizes.x * sizes.y).sum(axis=1)
    return np.where(squares > 0, product / np.where(squares > 0, squares, 1.0), np.nan)
