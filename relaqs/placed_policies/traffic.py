"""Who sends how much to whom, found job by job."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.parts import Parts


class Traffic:
    """The flows of a view's parts, by part. Computed where it is asked for, since most parts stay."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._jobs: dict[int, Mapping[int, tuple[IntArray, FloatArray]]] = {}

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
        job = int(self._parts.job[part])
        if job not in self._jobs:
            self._jobs[job] = self._of_job(job)
        if part not in self._jobs[job]:
            return np.zeros(count)
        others, sizes = self._jobs[job][part]
        place = node[others]
        known = place >= 0
        exchanged = np.bincount(place[known], weights=sizes[known], minlength=count)
        return np.asarray(exchanged, dtype=np.float64)

    def _of_job(self, job: int) -> dict[int, tuple[IntArray, FloatArray]]:
        """Return the parts that each part of a job exchanges bytes with, and how many, in order of flows."""
        order, starts = self._by_job
        flows = order[starts[job] : starts[job + 1]]
        if not len(flows):
            return {}
        sender, receiver = self._parts.flows[flows].T
        back = sender != receiver
        part, other = np.concatenate([sender, receiver[back]]), np.concatenate([receiver, sender[back]])
        flow = np.concatenate([flows, flows[back]])
        by_part = np.lexsort([flow, part])
        parts, first = np.unique(part[by_part], return_index=True)
        own = zip(
            np.split(other[by_part], first[1:]),
            np.split(self._parts.flow_bytes[flow[by_part]], first[1:]),
            strict=True,
        )
        return dict(zip(parts.tolist(), own, strict=True))
