"""Which curve predicts a job's quality: one for each of many jobs, fitted and chosen at once.

The theory in half a page. The scheduler must know what more work would make of each job, so it needs the
quality as a function of the work. No single formula fits all jobs. A loss may fall like 1/k (gradient
descent), like a power of a constant (near a minimum), or like something between. A **family** is one such
formula with free parameters, such as y = 1/(A·x² + B) + C.

1. **Fit.** Each family is fitted to the newest observations of each job by weighted least squares. An
   observation weighs 0.8 times the next newer one (`Series`), because a curve that starts fast and goes on
   slowly must be right about where it goes on. All families have closed formulas or a few fixed rounds, so
   thousands of jobs are fitted as arrays, and no optimiser runs for a single job.
2. **Choose.** Which family is right shows in what it predicts, and not in how close it passes to the
   points it was fitted to: a family with more parameters always passes closer. So the newest observation
   is held out, each family is fitted to the others, and the family that comes closest to the held-out one
   is chosen. One held-out observation is little evidence. So families stand in an order of preference, and
   a later one must predict twice as well as the one before it (`HANDICAP`).
3. **Move.** The chosen family is fitted to all observations, and moved so that it passes through the
   newest. A scheduler asks about the future from here on. A curve that starts above the present value
   would promise a gain that has been made already.

Example. Losses 1, 1/2, 1/3, 1/4 after 1, 2, 3, 4 passes. The last is held out. A family 1/(A·x + B) fitted
to the first three predicts 1/4, which is right. A straight line is far below it, and is not chosen.

What this cannot do: it foresees no change of the algorithm, such as a smaller learning rate. But curves
are fitted anew after each step, so a wrong prediction lasts for a step. The source is SLAQ (Zhang et al.
2017). What it was compared with: docs/decisions/0010-sharing-cores.md, benchmarks/prediction.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

DECAY = 0.8  # weight of an observation relative to the next newer one (the thesis and SLAQ)
WINDOW = 16  # observations kept a job: longer windows predict worse (benchmarks/prediction.py)


@dataclass(frozen=True, slots=True)
class Series:
    """The observations of J jobs, each job a row. Arrays have shape (J, W), oldest first.

    All numbers are finite. A job without any observation has x = y = 0 and no weight.

    Attributes:
        x: positions, such as the number of the step or the share of the work. They never fall.
        y: what was observed there.
        weight: how much each observation counts. 0 marks padding.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray, decay: float = DECAY) -> Series:
        """Return the series of observations padded with NaN; those that are not finite are left out."""
        known = np.isfinite(x) & np.isfinite(y)
        newer = known[:, ::-1].cumsum(axis=1)[:, ::-1] - known
        weight = np.where(known, decay**newer, 0.0)
        return cls(_filled(x, known), _filled(y, known), weight)

    @property
    def counts(self) -> IntArray:
        """How many observations each job has, shape (J,)."""
        counts: IntArray = np.count_nonzero(self.weight, axis=1)
        return counts

    @property
    def newest(self) -> tuple[FloatArray, FloatArray]:
        """The position and the value of each job's newest observation, shape (J,) both."""
        last = _last(self.weight > 0)
        rows = np.arange(len(last))
        return self.x[rows, last], self.y[rows, last]

    def of_jobs(self, jobs: IntArray | BoolArray) -> Series:
        """Return the series of some of the jobs."""
        return Series(self.x[jobs], self.y[jobs], self.weight[jobs])

    def before(self, held_out: IntArray) -> Series:
        """Return the series as it was some observations ago.

        Args:
            held_out: how many observations to leave out of each job, shape (J,).
        """
        known = self.weight > 0
        newer = known[:, ::-1].cumsum(axis=1)[:, ::-1] - known
        return Series(self.x, self.y, np.where(newer >= held_out[:, None], self.weight, 0.0))


def _last(known: BoolArray) -> IntArray:
    """Return the column of each row's last True, or the last column where there is none."""
    last: IntArray = known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return last


def _filled(values: FloatArray, known: BoolArray) -> FloatArray:
    """Return the values with the newest known one in every gap, 0 in rows that know nothing."""
    newest = values[np.arange(len(values)), _last(known)]
    newest = np.where(known.any(axis=1), newest, 0.0)
    return np.where(known, values, newest[:, None])


PARAMETERS = 5  # columns every family's parameters fit into; the rest are zero


class Family(Protocol):
    """A formula of quality over position with free parameters, such as 1/(A·x² + B). It has no state.

    Parameters have shape (J, PARAMETERS), one row for each job."""

    @property
    def name(self) -> str: ...

    def fit(self, series: Series) -> FloatArray:
        """Return the parameters that fit each job's weighted observations best, in least squares.

        Never raises for few or odd observations: the curve is then flat, or as steep as they allow.
        """
        ...

    def at(self, parameters: FloatArray, x: FloatArray) -> FloatArray:
        """Return the value of each job's curve at its positions.

        Args:
            parameters: shape (J, PARAMETERS).
            x: positions, shape (J, K). The result has the same shape.
        """
        ...

    def through(self, parameters: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return the parameters, moved so that each job's curve passes through one point.

        Args:
            parameters: shape (J, PARAMETERS).
            x: the position of each job's point, shape (J,).
            y: its value, shape (J,).
        """
        ...


HANDICAP = 2.0  # one held-out observation is little to judge by; 10 steps ahead it saves a tenth of the error


@dataclass(frozen=True, slots=True)
class Curves:
    """What is predicted for J jobs.

    Attributes:
        families: the formulas.
        chosen: the position in `families` of each job's formula, shape (J,).
        parameters: of each job's formula, shape (J, PARAMETERS).
    """

    families: tuple[Family, ...]
    chosen: IntArray
    parameters: FloatArray

    def at(self, x: FloatArray) -> FloatArray:
        """Return the value of each job's curve at its own positions.

        Args:
            x: positions, shape (J, K). The result has the same shape.
        """
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
    """Return the curves of one family.

    Args:
        family: the formula.
        series: the observations of J jobs.
        through_newest: move each curve so that it passes through the newest observation.

    >>> from relaqs.prediction import HARMONIC
    >>> passes, losses = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[1.0, 1 / 2, 1 / 3, 1 / 4]])
    >>> fit_curves(HARMONIC, Series.of(passes, losses)).at(np.array([[5.0, 10.0]])).round(3).tolist()
    [[0.2, 0.1]]
    """
    parameters = family.fit(series)
    if through_newest:
        parameters = family.through(parameters, *series.newest)
    return Curves((family,), np.zeros(len(parameters), dtype=np.int64), parameters)


ENOUGH = 4  # observations to choose a family by


def fit_best_curves(families: Sequence[Family], series: Series, *, first: Family) -> Curves:
    """Return for each job the curve of the family that best predicts its newest observation.

    Args:
        families: in order of preference. A family must predict twice as well as the one before it to be
            chosen.
        series: the observations of J jobs.
        first: the family of jobs with fewer than ENOUGH observations.
    """
    everyone = (*families, first)
    chosen = np.where(series.counts < ENOUGH, len(families), _best_family(families, series))
    parameters = np.zeros((len(chosen), PARAMETERS))
    for index, family in enumerate(everyone):
        jobs = chosen == index
        if jobs.any():
            parameters[jobs] = fit_curves(family, series.of_jobs(jobs)).parameters
    return Curves(everyone, chosen, parameters)


def _best_family(families: Sequence[Family], series: Series) -> IntArray:
    """Return the index of the family that predicts the newest observation best, from those before it."""
    before = series.before(np.ones(len(series.x), dtype=np.int64))
    was_held_out = (series.weight > 0) & (before.weight == 0)
    errors = [
        HANDICAP**rank * np.abs(fit_curves(family, before).at(series.x) - series.y).sum(1, where=was_held_out)
        for rank, family in enumerate(families)
    ]
    best: IntArray = np.argmin(errors, axis=0)
    return best
