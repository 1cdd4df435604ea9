"""Who sends how much to whom, found job by job."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.parts import Parts


class Traffic:
    """The flows of a view's parts, by part. Computed where it is asked for, since most parts stay."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @cached_property
    def _by_job(self) -> tuple[IntArray, IntArray]:
        """The flows' positions by job, and where each job's begin among them."""
        job = self._parts.job[self._parts.flows[:, 0]]
        order = np.argsort(job, kind="stable")
        jobs = int(self._parts.job.max(initial=-1)) + 1
        return order, np.searchsorted(job[order], np.arange(jobs + 1))

    def with_nodes(self, part: int, node: IntArray, count: int) -> FloatArray:
        """Return the bytes that a part exchanges with each node in an iteration, shape (count,).

        Args:
            node: where each part stands, shape (P,); −1: nowhere.
        """
        order, starts = self._by_job
        job = int(self._parts.job[part])
        flows = order[starts[job] : starts[job + 1]]
        ends, size = self._parts.flows[flows], self._parts.flow_bytes[flows]
        other = np.where(ends[:, 0] == part, ends[:, 1], np.where(ends[:, 1] == part, ends[:, 0], -1))
        place = np.where(other >= 0, node[other], -1)
        known = place >= 0
        return np.bincount(place[known], weights=size[known], minlength=count).astype(np.float64)
