"""Fair sharing: equal cores, cores in proportion to the weights, and max-min: cores to the largest error.

All three are max-min fair, each in its own currency. Fair and weighted fair sharing make the least number
of cores (for a weight) as large as it can be; what a job cannot use goes to the others. Max-min makes the
largest *error* as small as it can be, and needs predictions for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.division import Contest, Floored, divide, fill_evenly, take_most_valued
from relaqs.sharing.outlook import Outlook, is_predictable
from relaqs.sharing.view import Plan, View


@dataclass(frozen=True, slots=True)
class Fair:
    """Every job gets the same number of cores, whatever its weight. It is what others are compared with.

    Cores that a job cannot use go to the other jobs (max-min fairness among equals).

    >>> from relaqs.policies import Fair, Jobs, JobView, Kind, View
    >>> jobs = Jobs.of([JobView("a", Kind.QUERY, 0.0), JobView("b", Kind.QUERY, 1.0, cores_most=2.0)])
    >>> Fair().plan(View(time_seconds=2.0, capacity_cores=8.0, jobs=jobs)).cores_by_job()
    {'a': 6.0, 'b': 2.0}
    """

    name: ClassVar[str] = "fair"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "the cores are shared evenly"
    why_less: ClassVar[str] = "the cores are shared evenly"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        cores = fill_evenly(view.capacity_cores, np.ones(len(jobs)), jobs.cores_most)
        return Plan(jobs.ids, cores, view.capacity_cores)


@dataclass(frozen=True, slots=True)
class WeightedFair:
    """Every job gets cores in proportion to its weight.

    Cores that a job cannot use go to the other jobs. Source: Bertsekas, Gallager 1992, Data Networks, ch. 6
    (weighted max-min fairness).

    >>> from relaqs.policies import Jobs, JobView, Kind, View, WeightedFair
    >>> jobs = Jobs.of([JobView("a", Kind.QUERY, 0.0), JobView("b", Kind.QUERY, 1.0, weight=3.0)])
    >>> WeightedFair().plan(View(time_seconds=2.0, capacity_cores=8.0, jobs=jobs)).cores_by_job()
    {'a': 2.0, 'b': 6.0}
    """

    name: ClassVar[str] = "weighted_fair"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "the cores are shared by weight"
    why_less: ClassVar[str] = "the cores are shared by weight"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        cores = fill_evenly(view.capacity_cores, jobs.weight, jobs.cores_most)
        return Plan(jobs.ids, cores, view.capacity_cores)


LEAST_GAIN = 1e-12  # of error: a job that gains less by all it could get is not helped


@dataclass(frozen=True, slots=True)
class MaxMin(Floored):
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

    name: ClassVar[str] = "max_min"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "its answer is worse than the others"
    why_less: ClassVar[str] = "other answers are worse"

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
