"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.arrays import FloatArray
from relaqs.sharing.division import Contest, check_share, divide
from relaqs.sharing.fill import fill_in_order
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


@dataclass(frozen=True, slots=True)
class Fifo:
    """The job that came first gets all it can use, then the next; weights do not count.

    minimum_share: see `divide`.
    """

    minimum_share: float = 0.0
    name: ClassVar[str] = "fifo"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

    def plan(self, view: View) -> Plan:
        return divide(view, _in_order_of_arrival, minimum_share=self.minimum_share)


def _in_order_of_arrival(contest: Contest) -> FloatArray:
    jobs = contest.jobs
    order = np.lexsort([np.array(jobs.ids), jobs.arrival_seconds])
    return fill_in_order(contest.cores, order, contest.room_cores)
