"""Who gets the next core: policies, each one file, all behind `plan(view) -> Plan`.

Pure: a view of the jobs and the time in, a plan out. No clock, no threads, no randomness and no Dask live
here; the live driver and the simulator fill the view and carry the plan out.
"""

from relaqs.policies.fair import Fair
from relaqs.policies.fifo import Fifo
from relaqs.policies.index import Index
from relaqs.policies.least_attained_service import LeastAttainedService
from relaqs.policies.max_min import MaxMin
from relaqs.policies.max_sum import MaxSum
from relaqs.policies.registry import (
    DEFAULT_POLICY,
    POLICIES,
    PolicyError,
    chosen_policy,
    make_policy,
    why_cores_moved,
)
from relaqs.policies.shortest_remaining_time import ShortestRemainingTime
from relaqs.policies.utility import Utility, UtilityFunction
from relaqs.policies.weighted_fair import WeightedFair
from relaqs.sharing.division import Contest, divide, without_quality
from relaqs.sharing.fill import fill_evenly, fill_in_order
from relaqs.sharing.history import History, Observation
from relaqs.sharing.outlook import fit_quality_curves
from relaqs.sharing.plan import Plan
from relaqs.sharing.policy import Policy
from relaqs.sharing.view import Jobs, JobView, Kind, View

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Contest",
    "Fair",
    "Fifo",
    "History",
    "Index",
    "JobView",
    "Jobs",
    "Kind",
    "LeastAttainedService",
    "MaxMin",
    "MaxSum",
    "Observation",
    "Plan",
    "Policy",
    "PolicyError",
    "ShortestRemainingTime",
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
