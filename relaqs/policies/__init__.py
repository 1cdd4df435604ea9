"""Who gets the next core: policies, each one file, all behind `plan(view) -> Plan`.

Pure: a view of the jobs and the time in, a plan out. No clock, no threads, no randomness and no Dask live
here; the live driver and the simulator fill the view and carry the plan out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaqs_bootstrap import on_first_use

if TYPE_CHECKING:
    from relaqs.policies.deadlines import Deadlines
    from relaqs.policies.fair import Fair, MaxMin, WeightedFair
    from relaqs.policies.index import Index
    from relaqs.policies.load_control import LoadControl
    from relaqs.policies.max_sum import MaxSum, Utility, UtilityFunction
    from relaqs.policies.milestones import Milestones
    from relaqs.policies.ordered import Fifo, LeastAttainedService, ShortestRemainingTime
    from relaqs.policies.registry import (
        DEFAULT_POLICY,
        POLICIES,
        PolicyError,
        chosen_policy,
        make_policy,
        why_cores_moved,
    )
    from relaqs.sharing.division import Contest, divide, fill_evenly, fill_in_order, without_quality
    from relaqs.sharing.outlook import fit_quality_curves
    from relaqs.sharing.view import History, Jobs, JobView, Kind, Observation, Plan, Policy, Stop, View

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Contest",
    "Deadlines",
    "Fair",
    "Fifo",
    "History",
    "Index",
    "JobView",
    "Jobs",
    "Kind",
    "LeastAttainedService",
    "LoadControl",
    "MaxMin",
    "MaxSum",
    "Milestones",
    "Observation",
    "Plan",
    "Policy",
    "PolicyError",
    "ShortestRemainingTime",
    "Stop",
    "Utility",
    "UtilityFunction",
    "View",
    "WeightedFair",
    "chosen_policy",
    "divide",
    "fill_evenly",
    "fill_in_order",
    "fit_quality_curves",
    "make_policy",
    "why_cores_moved",
    "without_quality",
]

__getattr__, __dir__ = on_first_use(__name__)
