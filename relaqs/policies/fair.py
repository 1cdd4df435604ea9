"""Fair sharing: as many cores for each job, what one cannot use going to the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.sharing.fill import fill_evenly
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


@dataclass(frozen=True, slots=True)
class Fair:
    """Max-min fairness among equals, whatever the weights: what the thesis and SLAQ compare with."""

    name: ClassVar[str] = "fair"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        cores = fill_evenly(view.capacity_cores, np.ones(len(jobs)), jobs.cores_most)
        return Plan(jobs.ids, cores, view.capacity_cores)
