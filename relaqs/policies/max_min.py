"""Max-min: cores go to the job with the largest error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.division import Contest, check_share, divide
from relaqs.sharing.greedy import take_most_valued
from relaqs.sharing.outlook import Outlook, is_predictable
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View

LEAST_GAIN = 1e-12  # of error: a job that gains less by all it could get is not helped


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Each unit of cores goes to the job whose predicted error, times its weight, is the largest then.

    This lowers the largest error as far as possible, then the next largest. Errors are normalised: each is 1
    at the job's first result. A job that no number of cores would help gets none of these units. A job
    without a curve has its fair share. It is the other objective of the ReLAQS thesis (ch. 4).

    Args:
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).

    >>> from relaqs.policies import History, Jobs, JobView, Kind, MaxMin, Observation, View
    >>> step = {"step_work": 0.1, "step_core_seconds": 1.0}
    >>> bad = History().followed_by(Observation(0.1, 0.4, 1.0), Observation(0.2, 0.3, 1.0))
    >>> good = History().followed_by(Observation(0.1, 0.4, 1.0), Observation(0.2, 0.1, 1.0))
    >>> jobs = [JobView("bad", Kind.QUERY, 0.0, history=bad, **step),
    ...         JobView("good", Kind.QUERY, 0.0, history=good, **step)]
    >>> cores = MaxMin().plan(View(2.0, 8.0, Jobs.of(jobs))).cores_by_job()
    >>> cores["bad"] > cores["good"]
    True
    """

    minimum_share: float = 0.1
    name: ClassVar[str] = "max_min"
    why_more: ClassVar[str] = "its answer is worse than the others"
    why_less: ClassVar[str] = "other answers are worse"

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
