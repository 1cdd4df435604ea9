"""Weighted fair sharing: cores in proportion to the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaqs.sharing.fill import fill_evenly
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View


@dataclass(frozen=True, slots=True)
class WeightedFair:
    """Weighted max-min fairness (Bertsekas, Gallager 1992, Data Networks, ch. 6)."""

    name: ClassVar[str] = "weighted_fair"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        cores = fill_evenly(view.capacity_cores, jobs.weight, jobs.cores_most)
        return Plan(jobs.ids, cores, view.capacity_cores)
