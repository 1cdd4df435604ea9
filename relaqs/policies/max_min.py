"""Max-min: cores go to whoever is worst off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.arrays import FloatArray, IntArray
from relaqs.sharing.division import Contest, check_share, divide
from relaqs.sharing.greedy import take_most_valued
from relaqs.sharing.outlook import Outlook, is_predictable
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View

LEAST_GAIN = 1e-12  # of error: a job that gains less by all it could get is not helped


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Each unit goes to the job whose predicted error, by weight, is then the largest.

    This lowers the largest error as far as it will go, then the next. Errors are normalised: 1 at a job's
    first result. A job that no number of cores would help does not take them. Jobs without a curve
    have their fair share. The thesis's other objective (ch. 4). minimum_share: a fraction of the fair share.
    """

    minimum_share: float = 0.1
    name: ClassVar[str] = "max_min"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

    def plan(self, view: View) -> Plan:
        reserved = ~is_predictable(view.jobs)
        return divide(view, _worst_off_first, minimum_share=self.minimum_share, reserved=reserved)


def _worst_off_first(contest: Contest) -> FloatArray:
    outlook = Outlook.of(contest.view)

    def errors_before_each_unit(chosen: IntArray, columns: int) -> FloatArray:
        core_seconds = contest.core_seconds(chosen, np.arange(columns + 1, dtype=np.float64))
        errors = outlook.errors(chosen, core_seconds)
        helps = errors[:, :-1] - errors[:, -1:] > LEAST_GAIN
        return np.where(helps, contest.jobs.weight[chosen][:, None] * errors[:, :-1], 0.0)

    return contest.unit_cores * take_most_valued(errors_before_each_unit, contest.most_units, contest.units)
