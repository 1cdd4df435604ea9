"""The index policy: cores go where the error falls most for a core-second.

The theory in half a page. A job's error E falls as it uses core-seconds. We predict E by a curve: √(1/x − 1)
of the share x of the rows for a query, scaled to its newest interval, and one of SLAQ's curves for a loss.
The **index** of a job is

    the largest  (E(now) − E(after h more core-seconds)) / h   over all horizons h,

the best rate at which its error can fall. Why not simply the rate of the next step? Because a step may gain
little although the steps after it gain much, as where a loss falls slowly at first. This is the index of
Gittins 1979, for gains that are certain.

A job's index falls as the job is served. So the policy does not serve one job until the next plan: it serves
each as long as its index is the highest. That is the greedy allocation of `relaqs.sharing.division`. Greedy
allocation needs curves that bend one way, so it works on their concave envelopes. The slope of the envelope
is the index.

Example. Two queries read 1 % of their rows in a core-second. One has read 1 %, the other 50 %. By √(1/x − 1)
the error of the first falls by 29 % with the next core-second, the error of the second by 2 %. The first is
served until their slopes are equal.

A new job has no curve. We do not know what its first result costs. After x core-seconds without a result we
assume a probability of 1/x that the next core-second brings it. A new job therefore starts first, and falls
back if it is slow. A training run reads all its data twice before its first loss, and falls behind queries
that end in the meantime.

Why not serve the largest error first? That is `max_min`. It serves the largest error even where the same
cores would lower another error more. What was measured and decided: docs/decisions/0010-sharing-cores.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.division import Contest, Floored, divide, divide_greedily, without_quality
from relaqs.sharing.outlook import Hopes, is_predictable
from relaqs.sharing.view import Plan, View

FAR_DOUBLINGS = 6  # of the horizon: 64 times what a job is likely to get until the next plan


@dataclass(frozen=True, slots=True)
class Index(Floored):
    """The job with the highest index gets the next core. It is the default policy, by the name "relaqs".

    Measured: the integral of the error over time is at most 1 % above the least possible one (found by
    dynamic programming) where each job has a result. It is 0.4 to 7 % above where three jobs are new and
    their worth is unknown. On 12 staggered simulated queries it is 0.74 to 0.80 of fair sharing's. A good
    part of this comes from serving new jobs first. On simulated training it is 0.44 of fair sharing's, and
    0.68 with `new_first=False`.

    Args:
        minimum_share: what every job gets at least, as a fraction of its fair share (see `divide`).
        new_first: serve new jobs first. If False, they wait on their fair share for two results. That is the
            better choice where first steps are long.
        normalised: compare errors that are 1 at each job's first result (see `Outlook.of`).

    >>> from relaqs.policies import History, Index, Jobs, JobView, Kind, Observation, View
    >>> step = {"step_work": 0.01, "step_core_seconds": 1.0}
    >>> seen = [Observation(0.01 * i, 0.4 / i**0.5, 1.0) for i in range(1, 41)]
    >>> early = JobView("early", Kind.QUERY, 0.0, history=History().followed_by(*seen[:2]), **step)
    >>> late = JobView("late", Kind.QUERY, 0.0, history=History().followed_by(*seen), **step)
    >>> cores = Index().plan(View(2.0, 8.0, Jobs.of([early, late]))).cores_by_job()
    >>> cores["early"] > cores["late"]
    True
    """

    new_first: bool = True
    normalised: bool = True
    name: ClassVar[str] = "index"
    is_work_conserving: ClassVar[bool] = True
    why_more: ClassVar[str] = "its answer gains more from them"
    why_less: ClassVar[str] = "other answers gain more from them"

    def plan(self, view: View) -> Plan:
        reserved = without_quality(view.jobs) if self.new_first else ~is_predictable(view.jobs)
        return divide(view, self.share_out, minimum_share=self.minimum_share, reserved=reserved)

    def share_out(self, contest: Contest) -> FloatArray:
        """Return what each job of the contest gets on top of its floor, shape (J,)."""
        hopes = Hopes(contest, normalised=self.normalised)

        def made(chosen: IntArray, core_seconds: FloatArray) -> FloatArray:
            return hopes.made(chosen, core_seconds, lambda _, errors: -errors)

        return divide_greedily(contest, made, far_doublings=FAR_DOUBLINGS)
