"""Least attained service: the job that has used least is served first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.division import Contest, check_share, divide, fill_evenly
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


@dataclass(frozen=True, slots=True)
class LeastAttainedService:
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
    why_more: ClassVar[str] = "it has used less than the others"
    why_less: ClassVar[str] = "others have used less"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

    def plan(self, view: View) -> Plan:
        return divide(view, _to_one_level, minimum_share=self.minimum_share)


def _to_one_level(contest: Contest) -> FloatArray:
    jobs = contest.jobs
    # Core-seconds so far, as the cores that would have given them within this epoch.
    attained_cores = jobs.attained_core_seconds / contest.view.epoch_seconds + contest.floor_cores
    return fill_evenly(contest.cores, jobs.weight, contest.room_cores, attained_cores)
