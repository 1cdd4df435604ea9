"""One curve for each of many jobs: fitted, and chosen by what it would have predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.prediction.family import PARAMETERS, Family
from relaqs.prediction.series import Series

HANDICAP = 2.0  # one held-out observation is little to judge by; 10 steps ahead it saves a tenth of the error


@dataclass(frozen=True, slots=True)
class Curves:
    """What is predicted for J jobs. chosen: index into families, shape (J,). parameters: (J, PARAMETERS)."""

    families: tuple[Family, ...]
    chosen: IntArray
    parameters: FloatArray

    def at(self, x: FloatArray) -> FloatArray:
        """Return each job's curve at its own positions. x: shape (J, K); so is the result."""
        values = np.empty(x.shape)
        for index, family in enumerate(self.families):
            jobs = self.chosen == index
            if jobs.any():
                values[jobs] = family.at(self.parameters[jobs], x[jobs])
        return values

    def of_jobs(self, jobs: IntArray | BoolArray) -> Curves:
        """Return the curves of some of the jobs, in the order given."""
        return Curves(self.families, self.chosen[jobs], self.parameters[jobs])


def fit_curves(family: Family, series: Series, *, through_newest: bool = True) -> Curves:
    """Return one family's curves. through_newest: moved so that they pass through each newest observation."""
    parameters = family.fit(series)
    if through_newest:
        parameters = family.through(parameters, *series.newest)
    return Curves((family,), np.zeros(len(parameters), dtype=np.int64), parameters)


def fit_best_curves(
    families: Sequence[Family], series: Series, *, first: Family, enough: int = 4, held_out: int = 1
) -> Curves:
    """Return for each job the curve of the family that best predicts its newest observations.

    families: in order of preference; one must predict twice as well as the one before it to be chosen.
    held_out: how many are predicted from those before; the family chosen is then fitted to all of them, and
    passes through the newest. first: the family of jobs with fewer than `enough` observations.
    """
    everyone = (*families, first)
    chosen = np.where(series.counts < enough, len(families), _best_family(families, series, held_out))
    parameters = np.zeros((len(chosen), PARAMETERS))
    for index, family in enumerate(everyone):
        jobs = chosen == index
        if jobs.any():
            parameters[jobs] = fit_curves(family, series.of_jobs(jobs)).parameters
    return Curves(everyone, chosen, parameters)


def _best_family(families: Sequence[Family], series: Series, held_out: int) -> IntArray:
    """Return the index of the family with the least absolute error over the held-out observations."""
    before = series.before(np.full(len(series.x), held_out))
    was_held_out = (series.weight > 0) & (before.weight == 0)
    errors = [
        HANDICAP**rank * np.abs(fit_curves(family, before).at(series.x) - series.y).sum(1, where=was_held_out)
        for rank, family in enumerate(families)
    ]
    best: IntArray = np.argmin(errors, axis=0)
    return best
