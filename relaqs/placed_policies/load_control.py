"""MLF-C: while the cluster has too much to do, jobs end as soon as they have the accuracy that they need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from relaqs_bootstrap.arrays import BoolArray

from relaqs.parts.load import Load
from relaqs.parts.plan import PlacedPlan, PlacedPolicy
from relaqs.parts.view import WAITS, PlacedView
from relaqs.placed_policies.mlf_rl import MlfRl
from relaqs.placed_policies.queue_walk import cluster_load


@dataclass(frozen=True, slots=True)
class PlacedLoadControl:
    """A policy whose jobs may end early, once they have the accuracy that their users need.

    While the cluster is overloaded, they end then. It is so if a part waits after the plan, or if the mean
    length of the nodes' utilisations is above `limit`. Otherwise a job ends once its accuracy has stopped
    rising as well: by less than `gain_least` in the last tenth of its iterations.

    A job says whether it may end early (`PlacedJobs.may_stop`).

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.5. Its OptStop extrapolates the accuracy to the last
    iteration (Domhan et al. 2015). Here a job that has stopped rising stands in for that.

    Args:
        inner: says where parts are.
        limit: of the mean length; with four resources, 0.9 is 45 % of each.
        normalised: divide the length by the root of the number of resources.
        gain_least: of accuracy; 0 lets only the overload end jobs.
    """

    inner: PlacedPolicy
    limit: float = 0.9
    normalised: bool = False
    gain_least: float = 0.005

    @property
    def name(self) -> str:
        return f"{self.inner.name}, stops"

    def plan(self, view: PlacedView) -> PlacedPlan:
        plan = self.inner.plan(view)
        return replace(plan, stops=plan.stops | self._stops(view, plan))

    def _stops(self, view: PlacedView, plan: PlacedPlan) -> BoolArray:
        jobs = view.jobs
        enough = jobs.may_stop & (jobs.accuracy >= jobs.accuracy_required)
        if not enough.any():
            return np.asarray(enough)
        if self._is_overloaded(view, plan):
            return np.asarray(enough)
        return np.asarray(enough & (jobs.accuracy_gain < self.gain_least))

    def _is_overloaded(self, view: PlacedView, plan: PlacedPlan) -> bool:
        if (plan.node == WAITS).any():
            return True
        parts = replace(
            view.parts,
            node=plan.node,
            device=plan.device,
            queued_since_seconds=np.full(len(plan.node), np.nan),
        )
        load = Load(replace(view, parts=parts))
        return cluster_load(load, normalised=self.normalised) > self.limit + 1e-9


@dataclass(frozen=True, slots=True)
class Mlfs:
    """MLF-RL with MLF-C: all of MLFS, once MLF-RL has learned from MLF-H.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.

    Args:
        weights: as in MLF-RL.
        control_limit: the limit of MLF-C.

    Raises:
        ValueError: as MLF-RL does.
    """

    weights: str | None = None
    control_limit: float = 0.9
    inner: MlfRl = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", MlfRl(self.weights))

    @property
    def name(self) -> str:
        return "mlfs"

    @property
    def control(self) -> PlacedLoadControl:
        """The rule by which jobs end early."""
        return PlacedLoadControl(self.inner, self.control_limit)

    def plan(self, view: PlacedView) -> PlacedPlan:
        return self.control.plan(view)
