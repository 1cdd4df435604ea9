"""Utility of the user's own: what an error is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.arrays import FloatArray, IntArray
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
    """The sum of weight × utility(error) grows as fast as it can; utility may have steps, e.g. at a target.

    A step far ahead counts at the rate at which a job gets there: the envelope looks beyond the next plan.
    Jobs without a curve have their fair share. utility: pure, and called with many jobs at once,
    e.g. `lambda errors, jobs: 1.0 * (errors <= 0.05)` to have as many jobs as possible below 5 %, soon.
    normalised: see `Outlook.of`. minimum_share: a fraction of the fair share.
    """

    utility: UtilityFunction
    minimum_share: float = 0.1
    normalised: bool = True
    name: ClassVar[str] = "utility"

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
