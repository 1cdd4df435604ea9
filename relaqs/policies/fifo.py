"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.division import Contest, check_share, divide, fill_in_order
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


@dataclass(frozen=True, slots=True)
class Fifo:
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
    why_more: ClassVar[str] = "it is older than the others"
    why_less: ClassVar[str] = "older jobs are served first"
    serves_in_order: ClassVar[bool] = True  # of two equal jobs, one is first

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

    def plan(self, view: View) -> Plan:
        return divide(view, _in_order_of_arrival, minimum_share=self.minimum_share)


def _in_order_of_arrival(contest: Contest) -> FloatArray:
    jobs = contest.jobs
    order = np.lexsort([np.array(jobs.ids), jobs.arrival_seconds])
    return fill_in_order(contest.cores, order, contest.room_cores)
