"""Least attained service: whoever has had least is served, whatever is known of its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaqs.arrays import FloatArray
from relaqs.sharing.division import Contest, check_share, divide
from relaqs.sharing.fill import fill_evenly
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


@dataclass(frozen=True, slots=True)
class LeastAttainedService:
    """Cores go to the jobs with the fewest core-seconds a weight, until they have caught up with the next.

    The fluid form: until the next plan, the least served are brought to a common level, so that equals share.
    Source: Nuyens, Wierman 2008, The Foreground-Background queue: a survey. minimum_share: see `divide`.
    """

    minimum_share: float = 0.0
    name: ClassVar[str] = "least_attained_service"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

    def plan(self, view: View) -> Plan:
        return divide(view, _to_one_level, minimum_share=self.minimum_share)


def _to_one_level(contest: Contest) -> FloatArray:
    jobs = contest.jobs
    # Core-seconds so far, as the cores that would have given them within this epoch.
    attained_cores = jobs.attained_core_seconds / contest.view.epoch_seconds + contest.floor_cores
    return fill_evenly(contest.cores, jobs.weight, contest.room_cores, attained_cores)
