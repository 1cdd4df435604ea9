"""Deadlines: what can still be on time gets the cores it needs for that, and the index shares out the rest.

The theory in half a page. A deadline is met or missed; to be early gains nothing. So a job with a deadline
needs a rate: its core-seconds to its goal, for each second that is left. ElasticFlow (Gu et al. 2023, ASPLOS)
calls this the minimum satisfactory share, and admits jobs while their shares fit. Nobody is turned away here.
Instead the jobs are looked at in the order of their deadlines, which is optimal as long as all can be met
(Jackson 1955, for one machine; cores are one here, since shares may be any number). Where the work up to
some deadline exceeds the core-seconds there are until then, somebody must be late: of the jobs so far the one
whose work is largest for its urgency is given up (Moore 1968, with weights). Those kept get their rates, in
this order.

The goal of a job is its target, its required accuracy or its end, whichever is predicted to come first of
those that were asked for. A job that is not predicted to reach it in time is not kept, and one of which
nothing is known yet has no rate. What is left over goes to everybody by the index (`relaqs.policies.index`),
with the urgency as a further weight; so does everything where there are no deadlines.

Example. Eight cores. A run needs 100 core-seconds in 20 seconds, another 90 in 20: together 190 of the 160
that there are. With equal urgency the first is given up, and the second gets 4.5 cores; with twice its
urgency the first is kept, and gets 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.policies.index import Index
from relaqs.policies.ordered import remaining_core_seconds
from relaqs.sharing.division import Contest, check_share, divide, fill_in_order, without_quality
from relaqs.sharing.outlook import is_predictable, step_costs
from relaqs.sharing.view import Jobs, Plan, View

HEADROOM = 1.25  # predicted work is off by so much, and late is late


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Jobs that can still meet their deadlines get the cores they need for it; `index` divides the others.

    Args:
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).
        headroom: how many times its predicted work a job is given cores for.

    >>> from relaqs.policies import Deadlines, History, Jobs, JobView, Kind, Observation, View
    >>> seen = History().followed_by(*(Observation(float(k), 1 / k, 1.0) for k in range(1, 4)))
    >>> run = {"history": seen, "step_work": 1.0, "step_core_seconds": 1.0, "work_total": 83.0}
    >>> rows = [JobView("due", Kind.TRAINING, 0.0, deadline_seconds=20.0, **run)]
    >>> rows.append(JobView("not due", Kind.TRAINING, 0.0, **run))
    >>> cores = Deadlines(minimum_share=0.0).plan(View(0.0, 8.0, Jobs.of(rows))).cores_by_job()
    >>> cores["due"] >= 5.0 - 1e-9  # 80 core-seconds in 20 s, and a quarter more
    True
    """

    minimum_share: float = 0.1
    headroom: float = HEADROOM
    name: ClassVar[str] = "deadlines"
    why_more: ClassVar[str] = "its deadline can still be met"
    why_less: ClassVar[str] = "other deadlines can still be met"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)
        if not 1 <= self.headroom < np.inf:
            raise ValueError(f"headroom is {self.headroom}; it must be 1 or more, such as 1.25")

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        urgent = replace(view, jobs=replace(jobs, weight=jobs.weight * jobs.urgency))
        return divide(
            urgent, self._share_out, minimum_share=self.minimum_share, reserved=without_quality(jobs)
        )

    def _share_out(self, contest: Contest) -> FloatArray:
        jobs = contest.jobs
        work = self.headroom * core_seconds_to_goal(contest.view)
        seconds = jobs.deadline_seconds - contest.view.time_seconds
        kept = jobs_in_time(work, seconds, jobs, contest.cores + contest.floor_cores.sum())
        asked = np.zeros(len(jobs))
        asked[kept] = np.maximum(work[kept] / seconds[kept] - contest.floor_cores[kept], 0.0)
        promised = fill_in_order(contest.cores, kept, np.minimum(asked, contest.room_cores))
        left = max(contest.cores - promised.sum(), 0.0)
        rest = replace(contest, floor_cores=contest.floor_cores + promised, cores=left)
        return promised + Index().share_out(rest)


def core_seconds_to_goal(view: View) -> FloatArray:
    """Return what each job needs to its target, its required accuracy or its end, shape (J,).

    NaN: nothing is known of the job yet. inf: no goal is in sight.
    """
    jobs = view.jobs
    known = is_predictable(jobs) & np.isfinite(jobs.step_core_seconds)
    steps = np.maximum(jobs.work_needed - jobs.work_done, 0.0) / np.where(known, jobs.step_work, 1.0)
    with np.errstate(invalid="ignore"):
        to_accuracy = step_costs(jobs).core_seconds_of(steps[:, None])[:, 0]
    is_asked = np.isfinite(jobs.accuracy_required)
    to_end = remaining_core_seconds(view)
    to_accuracy = np.where(np.isinf(steps), np.inf, to_accuracy)
    goal = np.where(is_asked & ~np.isnan(jobs.work_needed), to_accuracy, to_end)
    return np.where(known, goal, np.nan)


def jobs_in_time(work: FloatArray, seconds: FloatArray, jobs: Jobs, cores: float) -> IntArray:
    """Return the jobs that can all be on time with so many cores, as positions, by their deadlines, (K,).

    Args:
        work: core-seconds that each job needs, shape (J,), NaN where that is unknown.
        seconds: until its deadline, shape (J,).
        jobs: their weights have their urgency in them.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        can = (seconds > 0) & np.isfinite(seconds) & np.isfinite(work) & (work <= jobs.cores_most * seconds)
    order = np.lexsort([np.array(jobs.ids), seconds])
    worth = work / jobs.weight  # what one is given up for
    kept: list[int] = []
    total = 0.0
    for job in order[can[order]].tolist():
        kept.append(job)
        total += work[job]
        if total > cores * seconds[job]:
            late = max(kept, key=lambda each: (worth[each], jobs.ids[each]))
            kept.remove(late)
            total -= work[late]
    return np.array(kept, dtype=np.int64)
