"""The thesis's policy: cores go where the sum of predicted progress grows most.

Utility: the user says what an error is worth, and cores go where that grows most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.prediction.curves import Series
from relaqs.prediction.families import INVERSE_SQUARE
from relaqs.sharing.division import Contest, Floored, check_share, divide, divide_greedily, without_quality
from relaqs.sharing.outlook import Outlook, fit_quality_curves, is_predictable, step_costs
from relaqs.sharing.view import Jobs, Kind, Plan, View

FEWEST_OBSERVATIONS = 2  # for a curve: the first result has nothing before it


@dataclass(frozen=True, slots=True)
class MaxSum(Floored):
    """Algorithm 5 of the ReLAQS thesis: SLAQ's greedy allocation, taken over for queries.

    Every job has a minimum share. A job with fewer than two results has no curve yet; it gets 1/n of the
    cores. The other jobs bid for one core after another. A core goes to the job whose predicted progress
    until the next plan grows most, times its weight. The progress P of a query's step i follows
    1/(A·i² + B), so n steps make ΣP. The progress of a training run is its fall in loss, divided by its
    largest fall so far.

    Measured on 12 staggered simulated queries: the integral of the error over time is 0.92 of fair sharing's.
    `Index` has 0.74 to 0.80. There are two reasons. P says how far the answer moved and not how far it is
    off, so it falls like 1/i where the error falls like 1/√i. And young jobs wait on 1/n of the cores for
    their second result.

    Args:
        minimum_share: what every job gets at least, as a fraction of its fair share. The larger it is, the
            sooner old jobs end (the thesis calls this the crossing point).

    >>> from relaqs.policies import History, Jobs, JobView, Kind, MaxSum, Observation, View
    >>> step = {"step_work": 0.1, "step_core_seconds": 1.0}
    >>> seen = [Observation(0.1, 0.4, 1.0, progress=1.0), Observation(0.2, 0.3, 1.0, progress=0.7)]
    >>> young = JobView("young", Kind.QUERY, 0.0, history=History().followed_by(*seen), **step)
    >>> seen += [Observation(i / 10, 0.3 - i / 100, 1.0, progress=1 / i**2) for i in range(3, 9)]
    >>> old = JobView("old", Kind.QUERY, 0.0, history=History().followed_by(*seen), **step)
    >>> cores = MaxSum().plan(View(2.0, 8.0, Jobs.of([young, old]))).cores_by_job()
    >>> cores["young"] > cores["old"]
    True
    """

    name: ClassVar[str] = "max_sum"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "its answer gains more from them"
    why_less: ClassVar[str] = "other answers gain more from them"

    def plan(self, view: View) -> Plan:
        is_new = view.jobs.count < FEWEST_OBSERVATIONS
        reserved = without_quality(view.jobs) | is_new
        return divide(view, _most_progress, minimum_share=self.minimum_share, reserved=reserved)


def _most_progress(contest: Contest) -> FloatArray:
    return divide_greedily(contest, _ProgressSums(contest.view).made)


class _ProgressSums:
    """Predicted sums of progress of the jobs of a view."""

    def __init__(self, view: View) -> None:
        self._jobs = view.jobs
        self._trains = view.jobs.is_kind(Kind.TRAINING)
        self._costs = step_costs(view.jobs)
        self._curves = fit_quality_curves(view.jobs) if view.curves is None else view.curves
        self._parameters = INVERSE_SQUARE.fit(Series.of(view.jobs.work, _measured_progress(view.jobs)))

    def made(self, chosen: IntArray, core_seconds: FloatArray) -> FloatArray:
        """Return ΣP of some jobs over what so many core-seconds buy, shape (len(chosen), K)."""
        jobs = self._jobs
        ahead = np.maximum(jobs.work_total - jobs.work_done, 0.0) / jobs.step_work
        steps = np.minimum(self._costs.of_jobs(chosen).steps_within(core_seconds), ahead[chosen][:, None])
        made = np.empty(steps.shape)
        trains = self._trains[chosen]
        made[trains] = self._of_training(chosen[trains], steps[trains])
        made[~trains] = self._of_queries(chosen[~trains], steps[~trains])
        return made

    def _of_queries(self, chosen: IntArray, steps: FloatArray) -> FloatArray:
        jobs = self._jobs
        return INVERSE_SQUARE.sum_of_steps(
            self._parameters[chosen], jobs.work_done[chosen], jobs.step_work[chosen], steps
        )

    def _of_training(self, chosen: IntArray, steps: FloatArray) -> FloatArray:
        jobs, curves = self._jobs, self._curves.of_jobs(chosen)
        now = jobs.work_done[chosen][:, None]
        fall = curves.at(now) - curves.at(now + steps * jobs.step_work[chosen][:, None])
        largest = jobs.largest_change[chosen][:, None]
        return np.where(largest > 0, fall / np.where(largest > 0, largest, 1.0), 0.0)


def _measured_progress(jobs: Jobs) -> FloatArray:
    """Return the progress of the newest steps, shape (J, W).

    Where no metric measured it: the change of quality, divided by the largest so far.
    """
    known = np.where(np.isfinite(jobs.quality), jobs.quality, np.nan)
    change = np.abs(np.diff(known, axis=1, prepend=np.nan))
    largest = jobs.largest_change[:, None]
    by_quality = np.where(largest > 0, change / np.where(largest > 0, largest, 1.0), 0.0)
    return np.where(np.isnan(jobs.progress), by_quality, jobs.progress)


FAR_DOUBLINGS = 6  # of the horizon: 64 times what a job is likely to get until the next plan

UtilityFunction = Callable[[FloatArray, Jobs], FloatArray]
"""(errors, jobs) → utilities, both of shape (J, K): what each job's errors are worth; more is better."""


@dataclass(frozen=True, slots=True)
class Utility:
    """The sum of weight × utility(error) grows as fast as it can. The user says what an error is worth.

    The utility may have steps, for example at a target. A step far ahead counts at the rate at which the job
    approaches it, because the policy looks beyond the next plan. A job without a curve has its fair share.

    Args:
        utility: a pure function of errors and jobs (see `UtilityFunction`). It is called with many jobs at
            once. `lambda errors, jobs: 1.0 * (errors <= 0.05)` brings as many jobs as possible below 5 %.
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).
        normalised: give the function errors that are 1 at each job's first result (see `Outlook.of`).

    >>> from relaqs.policies import History, Jobs, JobView, Kind, Observation, Utility, View
    >>> step = {"step_work": 0.01, "step_core_seconds": 1.0}
    >>> far = History().followed_by(*(Observation(0.01 * i, 0.9 / i**0.5, 1.0) for i in (1, 2, 3)))
    >>> near = History().followed_by(*(Observation(0.01 * i, 0.18 / i**0.5, 1.0) for i in (1, 2, 3)))
    >>> jobs = [JobView("far", Kind.QUERY, 0.0, history=far, **step),
    ...         JobView("near", Kind.QUERY, 0.0, history=near, **step)]
    >>> soon_good = Utility(lambda errors, jobs: 1.0 * (errors <= 0.05), normalised=False)
    >>> cores = soon_good.plan(View(2.0, 8.0, Jobs.of(jobs))).cores_by_job()
    >>> cores["near"] > cores["far"]
    True
    """

    utility: UtilityFunction
    minimum_share: float = 0.1
    normalised: bool = True
    name: ClassVar[str] = "utility"
    why_more: ClassVar[str] = "its answer gains more from them"
    why_less: ClassVar[str] = "other answers gain more from them"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

    def plan(self, view: View) -> Plan:
        reserved = ~is_predictable(view.jobs)
        return divide(view, self._most_useful, minimum_share=self.minimum_share, reserved=reserved)

    def _most_useful(self, contest: Contest) -> FloatArray:
        outlook = Outlook.of(contest.view, normalised=self.normalised)

        def made(chosen: IntArray, core_seconds: FloatArray) -> FloatArray:
            errors = outlook.errors(chosen, core_seconds)
            worth = np.asarray(self.utility(errors, contest.jobs.of_jobs(chosen)), dtype=np.float64)
            _check(worth, errors)
            return worth

        return divide_greedily(contest, made, far_doublings=FAR_DOUBLINGS)


def _check(worth: FloatArray, errors: FloatArray) -> None:
    if worth.shape != errors.shape or not np.isfinite(worth).all():
        raise ValueError(
            f"the utility function returned shape {worth.shape} for errors of shape {errors.shape}; "
            "it must return one finite number for each error"
        )
