"""What a policy decides: a share of the cores for each job, and room for more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from relaqs.arrays import FloatArray

ROUNDING = 1e-9  # relative, of sums of shares


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Who gets how much until the next plan: cores.sum() ≤ capacity_cores, always.

    cores: core-seconds per second of each job in `ids`, shape (J,); a share, not a set of machines: 0.25 is a
    quarter of a core's time. A policy may also say where a job's tasks run (node ids), how many rows its next
    mini-batch takes, which jobs belong together on a node, and which jobs are to stop.
    """

    ids: tuple[str, ...]
    cores: FloatArray
    capacity_cores: float
    placement: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    batch_rows: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()
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
