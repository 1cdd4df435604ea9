"""Who is owed cores before a policy chooses, and who gets what it leaves over: the same for every policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.fill import fill_evenly
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import Jobs, Kind, View

UNITS_PER_JOB = 4  # at least, on average: where jobs outnumber cores, a unit is part of a core
FEWEST_UNITS = 256  # so that shares of few cores are as fine as those of many


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """The jobs a policy chooses among, and what it may hand out.

    floor_cores: what each has already by its minimum share, shape (J,). cores: still to be handed out.
    """

    view: View
    floor_cores: FloatArray
    cores: float

    @property
    def jobs(self) -> Jobs:
        return self.view.jobs

    @property
    def room_cores(self) -> FloatArray:
        """What each job could use of the cores, shape (J,)."""
        return np.clip(self.jobs.cores_most - self.floor_cores, 0.0, self.cores)

    @property
    def units(self) -> int:
        """How many equal parts the cores are handed out in: one core each, less where cores are few."""
        return max(math.ceil(self.cores), UNITS_PER_JOB * len(self.jobs), FEWEST_UNITS)

    @property
    def unit_cores(self) -> float:
        return self.cores / self.units

    @property
    def most_units(self) -> IntArray:
        """The units each job can use, shape (J,)."""
        most = np.floor(np.minimum(self.room_cores / max(self.unit_cores, 1e-300) + 1e-9, self.units))
        return most.astype(np.int64)

    def among(self, chosen: BoolArray, cores: float) -> Contest:
        """Return the contest for other cores among some of the jobs only."""
        return Contest(self.view.of_jobs(chosen), self.floor_cores[chosen], max(cores, 0.0))

    def core_seconds(self, chosen: IntArray, units: FloatArray) -> FloatArray:
        """Return what some jobs use until the next plan, given so many units, (len(chosen), len(units))."""
        cores = self.floor_cores[chosen][:, None] + units * self.unit_cores
        return cores * self.view.epoch_seconds


DivisionRule = Callable[[Contest], FloatArray]
"""A contest → what each of its jobs gets on top of its floor, shape (J,), in sum at most its cores."""


def divide(
    view: View, rule: DivisionRule, *, minimum_share: float = 0.0, reserved: BoolArray | None = None
) -> Plan:
    """Return the plan that gives the reserved jobs their fair share, the others a minimum, and asks the rule.

    minimum_share: a fraction of each job's fair share, in [0, 1]; 1 is fair sharing. reserved: which jobs get
    just their fair share, shape (J,). The fair share of a job is by weight and never more than it can use.
    What the rule does not hand out, because nobody gains by it, goes to all evenly: no core idles while a job
    can use it.
    """
    jobs = view.jobs
    fair = fill_evenly(view.capacity_cores, jobs.weight, jobs.cores_most)
    is_reserved = np.zeros(len(jobs), dtype=bool) if reserved is None else reserved
    cores = np.where(is_reserved, fair, minimum_share * fair)
    contenders = ~is_reserved
    left = view.capacity_cores - cores.sum()
    if contenders.any() and left > 0:
        cores[contenders] += rule(Contest(view.of_jobs(contenders), cores[contenders], left))
    unclaimed = max(view.capacity_cores - cores.sum(), 0.0)
    cores = cores + fill_evenly(unclaimed, jobs.weight, np.maximum(jobs.cores_most - cores, 0.0))
    return Plan(jobs.ids, cores, view.capacity_cores)


def without_quality(jobs: Jobs) -> BoolArray:
    """Return which jobs have no quality that work improves, and get their fair share instead, shape (J,)."""
    return jobs.is_kind(Kind.EXACT, Kind.FOREIGN)


def check_share(name: str, share: float) -> None:
    """Raise ValueError if the share is not in [0, 1]."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{name} is {share}; it must be between 0 and 1, a fraction of the fair share")
