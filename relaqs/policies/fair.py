"""Fair sharing: the same number of cores for every job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.sharing.division import fill_evenly
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


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
    why_more: ClassVar[str] = "the cores are shared evenly"
    why_less: ClassVar[str] = "the cores are shared evenly"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        cores = fill_evenly(view.capacity_cores, np.ones(len(jobs)), jobs.cores_most)
        return Plan(jobs.ids, cores, view.capacity_cores)
