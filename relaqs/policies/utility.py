"""Utility: the user says what an error is worth, and cores go where that grows most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.division import Contest, check_share, divide
from relaqs.sharing.greedy import allocate_greedily
from relaqs.sharing.outlook import Outlook, is_predictable
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import Jobs, View

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

        def gains(chosen: IntArray, units: FloatArray) -> FloatArray:
            errors = outlook.errors(chosen, contest.core_seconds(chosen, units))
            worth = np.asarray(self.utility(errors, contest.jobs.of_jobs(chosen)), dtype=np.float64)
            _check(worth, errors)
            return contest.jobs.weight[chosen][:, None] * worth

        units = allocate_greedily(gains, contest.most_units, contest.units, far_doublings=FAR_DOUBLINGS)
        return contest.unit_cores * units


def _check(worth: FloatArray, errors: FloatArray) -> None:
    if worth.shape != errors.shape or not np.isfinite(worth).all():
        raise ValueError(
            f"the utility function returned shape {worth.shape} for errors of shape {errors.shape}; "
            "it must return one finite number for each error"
        )
