"""Weighted fair sharing: cores in proportion to the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaqs.sharing.division import fill_evenly
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


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
    why_more: ClassVar[str] = "the cores are shared by weight"
    why_less: ClassVar[str] = "the cores are shared by weight"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        cores = fill_evenly(view.capacity_cores, jobs.weight, jobs.cores_most)
        return Plan(jobs.ids, cores, view.capacity_cores)
