"""What a policy decides: a share of the cores for each job, and which jobs are to stop; and the door to every
policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.view import View

ROUNDING = 1e-9  # relative, of sums of shares


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Who gets how much until the next plan. Always: cores.sum() ≤ capacity_cores.

    Example: a quarter of one core for job "a" and the rest for job "b", while job "c" is to end.

    >>> plan = Plan(("a", "b"), np.array([0.25, 0.75]), capacity_cores=1.0, stops=("c",))
    >>> plan.cores_by_job()
    {'a': 0.25, 'b': 0.75}

    Attributes:
        ids: the jobs of the view, in its order.
        cores: what each of them gets, in core-seconds a second, shape (J,). It is a share of time, and not a
            set of machines: 0.25 is a quarter of one core's time.
        capacity_cores: the cores that were shared.
        stops: jobs that end now with the results they have, as if their user had called `stop()`. An id
            that is not among the jobs changes nothing. Tasks of other programs cannot be stopped.
    """

    ids: tuple[str, ...]
    cores: FloatArray
    capacity_cores: float
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.cores.shape == (len(self.ids),), (self.cores.shape, len(self.ids))
        assert np.isfinite(self.cores).all(), self.cores
        assert (self.cores >= 0).all(), self.cores
        assert self.cores.sum() <= self.capacity_cores * (1 + ROUNDING), (
            self.cores.sum(),
            self.capacity_cores,
        )

    def cores_by_job(self) -> dict[str, float]:
        """Return the cores of each job by its id."""
        return dict(zip(self.ids, self.cores.tolist(), strict=True))


@runtime_checkable
class Policy(Protocol):
    """A pure function from what is known to who gets the cores: equal views give equal plans.

    A policy may also have two texts, `why_more` and `why_less`. A dashboard shows them where cores move to a
    job or away from it, as in "+2 cores: it is older than the others". A policy that serves equal jobs one
    after another, instead of sharing between them, says so by `serves_in_order = True`.

    Tests hold laws for every policy of this package (`tests/relaqs/policies/test_laws.py`). It never gives
    out more than the capacity. It gives out all of it while jobs could use it. The order of the jobs in the
    view changes nothing. More weight never means fewer cores. Equal jobs get equal shares, unless the policy
    serves jobs in order.

    Example: a policy of your own. The job with the earliest deadline is served first, and a job whose
    deadline has passed ends with the answer that it has.

    >>> import numpy as np
    >>> from relaqs.policies import Jobs, JobView, Kind, Plan, View, fill_in_order
    >>> class EarliestDeadline:
    ...     name = "earliest_deadline"
    ...
    ...     def plan(self, view):
    ...         jobs = view.jobs
    ...         order = np.lexsort([np.array(jobs.ids), jobs.deadline_seconds])
    ...         cores = fill_in_order(view.capacity_cores, order, jobs.cores_most)
    ...         late = np.array(jobs.ids)[jobs.deadline_seconds < view.time_seconds].tolist()
    ...         return Plan(jobs.ids, cores, view.capacity_cores, stops=tuple(late))
    >>> rows = [
    ...     JobView("relaxed", Kind.QUERY, 0.0, deadline_seconds=60.0),
    ...     JobView("urgent", Kind.QUERY, 0.0, cores_most=3.0, deadline_seconds=12.0),
    ...     JobView("late", Kind.QUERY, 0.0, cores_most=1.0, deadline_seconds=9.0),
    ... ]
    >>> plan = EarliestDeadline().plan(View(10.0, 8.0, Jobs.of(rows)))
    >>> plan.cores_by_job()
    {'relaxed': 4.0, 'urgent': 3.0, 'late': 1.0}
    >>> plan.stops
    ('late',)

    `relaqs.connect(policy=EarliestDeadline())` uses it.
    """

    @property
    def name(self) -> str:
        """The name that settings, records and messages know it by."""
        ...

    def plan(self, view: View) -> Plan:
        """Return who gets how many cores until the next plan."""
        ...
