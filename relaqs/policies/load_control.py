"""Load control: when there are too few cores, what is good enough ends, so that the others get on.

The theory in half a page. Most training runs come near their last accuracy early, and then make passes that
gain little. A user may say so beforehand: "stop at my best accuracy, or at the required one, if others need
the cores" (`may_stop=` of `Session.train`). This policy wraps another one, which shares the cores out. When
the cluster is overloaded it stops the runs that are good enough by what their users allow, and no others. On
a cluster that is not, every run goes on to where its user wants it.

The source is MLF-C of Wang, Liu, Shen 2020, Job Scheduling for Large-Scale Machine Learning Clusters
(CoNEXT), section 3.5. There a cluster is overloaded if a task waits, or if the mean over machines of the norm
of their utilisations is above h_s = 0.9. Here one resource is shared, the cores, and a policy hands all of
them out while one job can use them. So the second condition read literally is true whenever anybody works,
and load control is always on (`normalised=False`). Otherwise a job counts with the one core without which a
task of it waits: the load is the number of jobs for each core.

Example. Nine runs share eight cores. Two have their required accuracy and may stop there: both end. The next
plan is for seven runs, which is a load of 7/8, below 0.9: nobody else is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray

from relaqs.policies.index import Index
from relaqs.sharing.view import Jobs, Kind, Plan, Policy, View


@dataclass(frozen=True, slots=True)
class LoadControl:
    """Shares cores out as another policy does, and stops runs that are good enough while too many ask.

    `relaqs.connect(policy="load_control:fair")` wraps the policy `fair`; "load_control" alone wraps `index`.

    Args:
        inner: shares the cores out.
        most_load: the cluster is overloaded above this load.
        normalised: the load is the number of jobs for each core. False: it is the share of the cores that are
            handed out, as the paper's text has it.

    >>> from relaqs.policies import Fair, Jobs, JobView, Kind, View
    >>> done = {"accuracy": 0.96, "accuracy_required": 0.95}
    >>> rows = [
    ...     JobView("allowed", Kind.TRAINING, 0.0, may_stop_required=True, **done),
    ...     JobView("not allowed", Kind.TRAINING, 0.0, **done),
    ... ]
    >>> busy, calm = (View(1.0, cores, Jobs.of(rows)) for cores in (2.0, 8.0))
    >>> LoadControl(Fair()).plan(busy).stops, LoadControl(Fair()).plan(calm).stops
    (('allowed',), ())
    """

    inner: Policy = field(default_factory=Index)
    most_load: float = 0.9
    normalised: bool = True
    why_more: ClassVar[str] = "the policy behind load control decided so"
    why_less: ClassVar[str] = "the policy behind load control decided so"

    def __post_init__(self) -> None:
        if not self.most_load >= 0:
            raise ValueError(f"most_load is {self.most_load}; it must be 0 or more, such as 0.9")

    @classmethod
    def of_text(cls, text: str, most_load: float = 0.9, normalised: bool = True) -> LoadControl:
        """Return load control around the policy of a name.

        >>> LoadControl.of_text("fair").inner
        Fair()

        Raises:
            PolicyError: there is no such policy.
        """
        from relaqs.policies.registry import make_policy

        return cls(make_policy(text), most_load, normalised)

    @property
    def name(self) -> str:
        """The word "load_control" and the policy behind it, so that records tell them apart."""
        return f"load_control:{self.inner.name}"

    @property
    def serves_in_order(self) -> bool:
        """Whether the policy behind it serves equal jobs one after another."""
        return bool(getattr(self.inner, "serves_in_order", False))

    def plan(self, view: View) -> Plan:
        plan = self.inner.plan(view)
        if not self._is_overloaded(view, plan):
            return plan
        ends = np.array(view.jobs.ids, dtype=object)[is_good_enough(view.jobs)].tolist()
        return replace(plan, stops=tuple(dict.fromkeys((*plan.stops, *ends))))

    def _is_overloaded(self, view: View, plan: Plan) -> bool:
        asked = len(view.jobs) if self.normalised else plan.cores.sum()
        return bool(asked > self.most_load * view.capacity_cores)


def is_good_enough(jobs: Jobs) -> BoolArray:
    """Return which runs are at a stop that their users allow, shape (J,)."""
    at_required = jobs.may_stop_required & (jobs.accuracy >= jobs.accuracy_required)
    return jobs.is_kind(Kind.TRAINING) & (at_required | (jobs.may_stop_best & jobs.is_best))
