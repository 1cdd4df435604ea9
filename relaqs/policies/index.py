"""The index policy: cores go where the error falls most for a core-second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.arrays import FloatArray, IntArray
from relaqs.sharing.division import Contest, check_share, divide, without_quality
from relaqs.sharing.greedy import allocate_greedily
from relaqs.sharing.outlook import Outlook, is_predictable
from relaqs.sharing.plan import Plan
from relaqs.sharing.view import View

NEW_CORE_SECONDS = 0.05  # one ordinary task: no first result is expected for less
FIRST_RESULT_WORTH = 0.1  # of a job's error, which begins at 1 there: what it gains comes after
FAR_DOUBLINGS = 6  # of the horizon: 64 times what a job is likely to get until the next plan


@dataclass(frozen=True, slots=True)
class Index:
    """A job's index is the largest (E(now) − E(after h)) / cost(h) over horizons h; the highest is served.

    E follows √(1/x − 1) from a query's newest interval, and SLAQ's curves for a loss. The index falls as a
    job is served, so until the next plan each is served as far as it stays the highest: the greedy allocation
    on concave envelopes, whose slope is the index. New jobs, without a curve yet, go first, the sooner the
    less they have used: nothing is worth as much as a first result, and it tells what a job is worth.

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
        hopes = _Hopes(contest, self.normalised)

        def gains(chosen: IntArray, units: FloatArray) -> FloatArray:
            made = hopes.made(chosen, contest.core_seconds(chosen, units))
            return contest.jobs.weight[chosen][:, None] * made

        units = allocate_greedily(gains, contest.most_units, contest.units, far_doublings=FAR_DOUBLINGS)
        return contest.unit_cores * units


class _Hopes:
    """How much each job's normalised error will fall by core-seconds. Known jobs have curves for that.

    We do not know what a new job's first result costs. After x core-seconds without one, we assume a
    probability of 1 / x for each further core-second. So a new job starts before all others, and drops back
    if it is slow. Example: a training run reads all its data twice before its first loss, and drops behind
    queries that end in that time.
    """

    def __init__(self, contest: Contest, normalised: bool) -> None:
        self._is_new = ~is_predictable(contest.jobs)
        self._used = contest.jobs.attained_core_seconds + NEW_CORE_SECONDS
        self._row = np.cumsum(~self._is_new) - 1  # of each known job in the outlook
        known = contest.view.of_jobs(~self._is_new)
        self._outlook = Outlook.of(known, normalised=normalised) if len(known.jobs) else None

    def made(self, chosen: IntArray, core_seconds: FloatArray) -> FloatArray:
        """Return the gains of some jobs, from any zero point, shape (len(chosen), K)."""
        gains = np.empty(core_seconds.shape)
        new = self._is_new[chosen]
        used = self._used[chosen[new]][:, None]
        gains[new] = FIRST_RESULT_WORTH * np.log1p(core_seconds[new] / used)
        if self._outlook is not None:
            gains[~new] = -self._outlook.errors(self._row[chosen[~new]], core_seconds[~new])
        return gains
