"""What more work will make of each job's quality, on one scale for queries and training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relaqs.arrays import BoolArray, FloatArray, IntArray
from relaqs.prediction.curves import Curves, fit_best_curves
from relaqs.prediction.family import PARAMETERS, Family
from relaqs.prediction.geometric import GEOMETRIC
from relaqs.prediction.harmonic import HARMONIC
from relaqs.prediction.runtime import StepCosts
from relaqs.prediction.scaled import LINE_TO_END, STANDARD_ERROR
from relaqs.prediction.series import Series
from relaqs.prediction.sublinear import SUBLINEAR
from relaqs.sharing.view import Jobs, Kind, View

FEWEST_RESULTS = 1
FEWEST_LOSSES = 2
UNKNOWN_ERROR = 1.0  # relative error taken for a query none of whose cells is certified yet
FAR = 10.0  # a training run's loss after so many times its steps is taken for its last one

_TRAINING: tuple[Family, ...] = (SUBLINEAR, GEOMETRIC, HARMONIC)
QUALITY_FAMILIES: tuple[Family, ...] = (*_TRAINING, STANDARD_ERROR, LINE_TO_END)


def fit_quality_curves(jobs: Jobs) -> Curves:
    """Return each job's predicted quality over its work; 4,000 training jobs take about 0.2 s, queries 2 ms.

    A query's error follows √(1/x − 1) through the newest one: sampling theory knows the shape, and the newest
    interval, which rests on all rows so far, the scale. Of a query without an error, none of its cells being
    certified, nothing is known but that it ends: a ranking may change with the last row. All that it gains
    is gained there, and the line to the end is the rate at which it gets there. A loss is fitted and chosen
    from SLAQ's two families.
    """
    chosen = np.empty(len(jobs), dtype=np.int64)
    parameters = np.zeros((len(jobs), PARAMETERS))
    training = jobs.is_kind(Kind.TRAINING)
    if training.any():
        losses = Series.of(jobs.work[training], jobs.quality[training])
        fitted = fit_best_curves(_TRAINING[:2], losses, first=HARMONIC)
        chosen[training], parameters[training] = fitted.chosen, fitted.parameters
    known = np.isfinite(jobs.quality[:, -1])
    for queries, family in ((~training & known, STANDARD_ERROR), (~training & ~known, LINE_TO_END)):
        error = np.where(known, jobs.quality[:, -1], _error_of_unknown(jobs))[queries]
        chosen[queries] = QUALITY_FAMILIES.index(family)
        parameters[queries] = family.through(parameters[queries], jobs.work_done[queries], error)
    return Curves(QUALITY_FAMILIES, chosen, parameters)


def _error_of_unknown(jobs: Jobs) -> FloatArray:
    """Return what is taken for the error of queries that have none now: their first one, if any was known."""
    return np.where(np.isnan(jobs.first_quality), UNKNOWN_ERROR, jobs.first_quality)


def is_predictable(jobs: Jobs) -> BoolArray:
    """Return which jobs have a curve, shape (J,): queries with a result, and runs with two losses."""
    fewest = np.where(jobs.is_kind(Kind.TRAINING), FEWEST_LOSSES, FEWEST_RESULTS)
    return jobs.is_kind(Kind.QUERY, Kind.TRAINING) & (jobs.count >= fewest)


def step_costs(jobs: Jobs) -> StepCosts:
    """Return what the steps ahead of each job cost."""
    return StepCosts(jobs.step_core_seconds, jobs.growth_core_seconds, jobs.spent_core_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Predicted errors of J jobs that have a curve: (quality − floor) / scale, both of shape (J,)."""

    jobs: Jobs
    curves: Curves
    costs: StepCosts
    floor: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, view: View, *, normalised: bool = True) -> Outlook:
        """Return the outlook of a view whose jobs are all predictable.

        normalised: a query's error is divided by its first known one, so that all begin at 1, like losses;
        else it is the relative error itself. A loss goes from 1 at the first to 0 at the last one predicted.
        """
        jobs = view.jobs
        curves = fit_quality_curves(jobs) if view.curves is None else view.curves
        now = curves.at(jobs.work_done[:, None])[:, 0]
        floor = np.minimum(now, curves.at(FAR * jobs.work_done[:, None])[:, 0])
        first = _error_of_unknown(jobs)
        training = jobs.is_kind(Kind.TRAINING)
        fall = np.where(training, np.maximum(first, now) - floor, first if normalised else 1.0)
        scale = np.where(fall > 0, fall, np.inf)  # nothing to gain, on any scale
        return cls(jobs, curves, step_costs(jobs), np.where(training, floor, 0.0), scale)

    def errors(self, chosen: IntArray, core_seconds: FloatArray) -> FloatArray:
        """Return the errors of some jobs after so many core-seconds. core_seconds: shape (len(chosen), K).

        A result is new when a step is folded, and part of a step counts as that part of its gain: what a job
        gets on average by a share of the time.
        """
        steps = self.costs.of_jobs(chosen).steps_within(core_seconds)
        whole = np.floor(steps)
        before, after = self._errors_after(chosen, whole), self._errors_after(chosen, whole + 1.0)
        return before + (steps - whole) * (after - before)

    def _errors_after(self, chosen: IntArray, steps: FloatArray) -> FloatArray:
        jobs = self.jobs
        work = jobs.work_done[chosen][:, None] + steps * jobs.step_work[chosen][:, None]
        quality = self.curves.of_jobs(chosen).at(np.minimum(work, jobs.work_total[chosen][:, None]))
        return (quality - self.floor[chosen][:, None]) / self.scale[chosen][:, None]
