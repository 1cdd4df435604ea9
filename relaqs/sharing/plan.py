"""What a policy decides: a share of the cores for each job, and which jobs are to stop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

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
