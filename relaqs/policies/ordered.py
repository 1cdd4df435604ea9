"""Policies that serve jobs in an order: by arrival, by what is left of them, or by what they have had.

Each ranks the jobs by one number and hands cores out in this order, after everybody's floor (`divide`):

- `Fifo` by arrival. It needs to know nothing, and long jobs keep short ones waiting.
- `ShortestRemainingTime` by the core-seconds that are predicted to be left: the least mean time to the end
  on one machine (Schrage 1968), if the prediction is right.
- `LeastAttainedService` by the core-seconds that were used: the same aim where nothing can be predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.prediction.curves import Curves
from relaqs.sharing.division import Contest, Floored, divide, fill_evenly, fill_in_order, without_quality
from relaqs.sharing.outlook import fit_quality_curves, step_costs
from relaqs.sharing.view import Jobs, Plan, View


@dataclass(frozen=True, slots=True)
class Fifo(Floored):
    """The oldest job gets all the cores it can use, then the next oldest. Weights do not count.

    Args:
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).

    >>> from relaqs.policies import Fifo, Jobs, JobView, Kind, View
    >>> jobs = Jobs.of([JobView("new", Kind.QUERY, 1.0), JobView("old", Kind.QUERY, 0.0, cores_most=6.0)])
    >>> Fifo().plan(View(time_seconds=2.0, capacity_cores=8.0, jobs=jobs)).cores_by_job()
    {'new': 2.0, 'old': 6.0}
    """

    minimum_share: float = 0.0
    name: ClassVar[str] = "fifo"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "it is older than the others"
    why_less: ClassVar[str] = "older jobs are served first"
    serves_in_order: ClassVar[bool] = True  # of two equal jobs, one is first

    def plan(self, view: View) -> Plan:
        return divide(view, _in_order_of_arrival, minimum_share=self.minimum_share)


def _in_order_of_arrival(contest: Contest) -> FloatArray:
    jobs = contest.jobs
    order = np.lexsort([np.array(jobs.ids), jobs.arrival_seconds])
    return fill_in_order(contest.cores, order, contest.room_cores)


STEPS_AHEAD = np.unique(np.geomspace(1.0, 1e5, 120).round())  # where the target is looked for


@dataclass(frozen=True, slots=True)
class ShortestRemainingTime(Floored):
    """The job that needs the fewest core-seconds for its weight gets all the cores it can use, then the next.

    What a job needs is counted to its target, or to its end. A job of unknown cost goes first, so that its
    cost becomes known. A job without an end, and with no predicted time to its target, goes last. Exact and
    foreign jobs have their fair share, because their remaining time is unknown. Measured: 0 to 0.5 % from
    the optimum where the time to a target is what counts. Source: Schrage 1968; with weights, Smith 1956.

    Args:
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).

    >>> from relaqs.policies import Jobs, JobView, Kind, ShortestRemainingTime, View
    >>> long = JobView("long", Kind.QUERY, 0.0, step_work=0.01, step_core_seconds=1.0)
    >>> short = JobView("short", Kind.QUERY, 1.0, step_work=0.5, step_core_seconds=1.0, cores_most=6.0)
    >>> view = View(time_seconds=2.0, capacity_cores=8.0, jobs=Jobs.of([long, short]))
    >>> ShortestRemainingTime().plan(view).cores_by_job()
    {'long': 2.0, 'short': 6.0}
    """

    minimum_share: float = 0.0
    name: ClassVar[str] = "shortest_remaining_time"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "it will be done before the others"
    why_less: ClassVar[str] = "others will be done sooner"
    serves_in_order: ClassVar[bool] = True  # of two equal jobs, one is first

    def plan(self, view: View) -> Plan:
        return divide(
            view, _shortest_first, minimum_share=self.minimum_share, reserved=without_quality(view.jobs)
        )


def _shortest_first(contest: Contest) -> FloatArray:
    jobs = contest.jobs
    remaining = remaining_core_seconds(contest.view) / jobs.weight
    order = np.lexsort([np.array(jobs.ids), jobs.arrival_seconds, remaining])
    return fill_in_order(contest.cores, order, contest.room_cores)


def remaining_core_seconds(view: View) -> FloatArray:
    """Return what each job still needs to its target or its end, shape (J,).

    It is 0 for a job whose step has no known cost, and inf for a job without an end in sight.
    """
    jobs = view.jobs
    is_known = np.isfinite(jobs.step_core_seconds) & np.isfinite(jobs.step_work)
    remaining = np.zeros(len(jobs))
    if is_known.any():
        known = view.of_jobs(is_known)
        curves = fit_quality_curves(known.jobs) if known.curves is None else known.curves
        jobs = known.jobs
        to_end = np.maximum(jobs.work_total - jobs.work_done, 0.0) / jobs.step_work
        steps = np.minimum(to_end, _steps_to_target(jobs, curves))
        with np.errstate(invalid="ignore"):
            cost = step_costs(known.jobs).core_seconds_of(steps[:, None])[:, 0]
        remaining[is_known] = np.where(np.isinf(steps), np.inf, cost)
    return remaining


def _steps_to_target(jobs: Jobs, curves: Curves) -> FloatArray:
    """Return the steps until each job's curve is at its target, inf where it never is, shape (J,)."""
    steps = np.full(len(jobs), np.inf)
    asked = np.flatnonzero(np.isfinite(jobs.target) & (jobs.count > 0))
    work = jobs.work_done[asked, None] + jobs.step_work[asked, None] * STEPS_AHEAD
    quality = curves.of_jobs(asked).at(np.minimum(work, jobs.work_total[asked, None]))
    reaches = quality <= jobs.target[asked, None]
    steps[asked] = np.where(reaches.any(axis=1), STEPS_AHEAD[reaches.argmax(axis=1)], np.inf)
    return steps


@dataclass(frozen=True, slots=True)
class LeastAttainedService(Floored):
    """The jobs that have used the fewest core-seconds for their weight get the cores, until they catch up.

    It needs to know nothing about a job's size. Within one plan the least served jobs are brought to a common
    level, so equal jobs share. Source: Nuyens, Wierman 2008, The Foreground-Background queue: a survey.

    Args:
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).

    >>> from relaqs.policies import Jobs, JobView, Kind, LeastAttainedService, View
    >>> ahead = JobView("ahead", Kind.QUERY, 0.0, attained_core_seconds=3.0)
    >>> jobs = Jobs.of([ahead, JobView("behind", Kind.QUERY, 1.0)])
    >>> view = View(time_seconds=2.0, capacity_cores=8.0, jobs=jobs, epoch_seconds=0.5)
    >>> LeastAttainedService().plan(view).cores_by_job()  # 3 core-seconds are 6 cores for half a second
    {'ahead': 1.0, 'behind': 7.0}
    """

    minimum_share: float = 0.0
    name: ClassVar[str] = "least_attained_service"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "it has used less than the others"
    why_less: ClassVar[str] = "others have used less"

    def plan(self, view: View) -> Plan:
        return divide(view, _to_one_level, minimum_share=self.minimum_share)


def _to_one_level(contest: Contest) -> FloatArray:
    jobs = contest.jobs
    # Core-seconds so far, as the cores that would have given them within this epoch.
    attained_cores = jobs.attained_core_seconds / contest.view.epoch_seconds + contest.floor_cores
    return fill_evenly(contest.cores, jobs.weight, contest.room_cores, attained_cores)
