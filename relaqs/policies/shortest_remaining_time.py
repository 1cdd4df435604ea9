"""Shortest remaining time: to the target, or to the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.arrays import FloatArray
from relaqs.prediction.curves import Curves
from relaqs.sharing.division import Contest, check_share, divide, without_quality
from relaqs.sharing.fill import fill_in_order
from relaqs.sharing.outlook import fit_quality_curves, step_costs
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import Jobs, View

STEPS_AHEAD = np.unique(np.geomspace(1.0, 1e5, 120).round())  # where the target is looked for


@dataclass(frozen=True, slots=True)
class ShortestRemainingTime:
    """The job that needs the fewest core-seconds a weight to its target, or to its end, gets all it can use.

    0 to 0.5 % from the optimum where time to a target is what counts. A job without a known cost goes
    first, to be known; one that neither ends nor is predicted to reach its target goes last. Exact and
    foreign jobs, whose remaining time nobody knows, have their fair share. minimum_share: see `divide`.
    Source: Schrage 1968; by weight, Smith 1956.
    """

    minimum_share: float = 0.0
    name: ClassVar[str] = "shortest_remaining_time"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

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

    0 for a job whose step nobody knows the cost of, inf for one without an end in sight.
    """
    jobs = view.jobs
    is_known = np.isfinite(jobs.step_core_seconds) & np.isfinite(jobs.step_work)
    remaining = np.zeros(len(jobs))
    if is_known.any():
        known = view.of_jobs(is_known)
        curves = fit_quality_curves(known.jobs) if known.curves is None else known.curves
        steps = np.minimum(_steps_to_end(known.jobs), _steps_to_target(known.jobs, curves))
        with np.errstate(invalid="ignore"):
            cost = step_costs(known.jobs).core_seconds_of(steps[:, None])[:, 0]
        remaining[is_known] = np.where(np.isinf(steps), np.inf, cost)
    return remaining


def _steps_to_end(jobs: Jobs) -> FloatArray:
    return np.maximum(jobs.work_total - jobs.work_done, 0.0) / jobs.step_work


def _steps_to_target(jobs: Jobs, curves: Curves) -> FloatArray:
    """Return the steps until each job's curve is at its target, inf where it never is, shape (J,)."""
    steps = np.full(len(jobs), np.inf)
    asked = np.flatnonzero(np.isfinite(jobs.target) & (jobs.count > 0))
    work = jobs.work_done[asked, None] + jobs.step_work[asked, None] * STEPS_AHEAD
    quality = curves.of_jobs(asked).at(np.minimum(work, jobs.work_total[asked, None]))
    reaches = quality <= jobs.target[asked, None]
    steps[asked] = np.where(reaches.any(axis=1), STEPS_AHEAD[reaches.argmax(axis=1)], np.inf)
    return steps
