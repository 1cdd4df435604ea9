"""The index policy: cores go where the error falls most for a core-second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.arrays import FloatArray, IntArray
from relaqs.policies.division import Contest, check_share, divide, without_quality
from relaqs.policies.fill import fill_evenly
from relaqs.policies.greedy import allocate_greedily
from relaqs.policies.outlook import Outlook, is_predictable
from relaqs.policies.plan import Plan
from relaqs.policies.view import View

FAR_DOUBLINGS = 6  # of the horizon: 64 times what a job is likely to get until the next plan


@dataclass(frozen=True, slots=True)
class Index:
    """A job's index is the largest (E(now) − E(after h)) / cost(h) over horizons h; the highest is served.

    E follows √(1/x − 1) from a query's newest interval, and SLAQ's curves for a loss. The index falls as a
    job is served, so until the next plan each is served as far as it stays the highest: the greedy allocation
    on concave envelopes, whose slope is the index. New jobs, without a curve yet, go first: nothing is worth
    as much as a first result, and it is what tells a job's worth.

    Measured: at most 1 % above the least possible integral of the error over time (dynamic programming)
    where each job has a result, 0.4 to 7 % where three are new and nobody knows what they will be worth. On
    12 staggered simulated queries 0.74 to 0.80 of fair sharing's. Serving new jobs first is a good part of
    it: on simulated training 0.44 of fair sharing's, 0.68 if they wait for two losses on their fair share
    (`new_first=False`), which is the choice where first steps are long.
    Named after Gittins 1979, whose index it is for gains that are certain. minimum_share: a fraction of the
    fair share. normalised: see `Outlook.of`.
    """

    minimum_share: float = 0.1
    new_first: bool = True
    normalised: bool = True
    name: ClassVar[str] = "index"

    def __post_init__(self) -> None:
        check_share("minimum_share", self.minimum_share)

    def plan(self, view: View) -> Plan:
        reserved = without_quality(view.jobs) if self.new_first else ~is_predictable(view.jobs)
        return divide(view, self._share_out, minimum_share=self.minimum_share, reserved=reserved)

    def _share_out(self, contest: Contest) -> FloatArray:
        is_new = ~is_predictable(contest.jobs)
        room = np.where(is_new, contest.room_cores, 0.0)
        cores = fill_evenly(contest.cores, contest.jobs.weight, room)
        known = contest.among(~is_new, contest.cores - cores.sum())
        if len(known.jobs) and known.cores > 0:
            cores[~is_new] = self._highest_first(known)
        return cores

    def _highest_first(self, contest: Contest) -> FloatArray:
        outlook = Outlook.of(contest.view, normalised=self.normalised)

        def gains(chosen: IntArray, units: FloatArray) -> FloatArray:
            errors = outlook.errors(chosen, contest.core_seconds(chosen, units))
            return -contest.jobs.weight[chosen][:, None] * errors

        units = allocate_greedily(gains, contest.most_units, contest.units, far_doublings=FAR_DOUBLINGS)
        return contest.unit_cores * units
