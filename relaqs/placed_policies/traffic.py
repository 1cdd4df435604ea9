"""Who sends how much to whom, found job by job."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.parts.parts import Parts


class Traffic:
    """The flows of a view's parts, by part. Computed where it is asked for, since most parts stay."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._jobs: dict[int, dict[int, list[tuple[int, float]]]] = {}

    @cached_property
    def _by_job(self) -> tuple[IntArray, IntArray]:
        """The flows' positions by job, and where each job's begin among them."""
        job = self._parts.job[self._parts.flows[:, 0]]
        order = np.argsort(job, kind="stable")
        jobs = int(self._parts.job.max(initial=-1)) + 1
        return order, np.searchsorted(job[order], np.arange(jobs + 1))

    def with_nodes(self, part: int, node: IntArray) -> dict[int, float]:
        """Return the bytes that a part exchanges with nodes in an iteration, by node; with others, none.

        Args:
            node: where each part stands, shape (P,); −1: nowhere.
        """
        job = int(self._parts.job[part])
        if job not in self._jobs:
            self._jobs[job] = self._of_job(job)
        exchanged: dict[int, float] = {}
        for other, size in self._jobs[job].get(part, ()):
            place = int(node[other])
            if place >= 0:
                exchanged[place] = exchanged.get(place, 0.0) + size
        return exchanged

    def _of_job(self, job: int) -> dict[int, list[tuple[int, float]]]:
        """Return the parts that each part of a job exchanges bytes with, and how many, in order of flows."""
        order, starts = self._by_job
        flows = order[starts[job] : starts[job + 1]]
        found: dict[int, list[tuple[int, float]]] = {}
        ends, sizes = self._parts.flows[flows].tolist(), self._parts.flow_bytes[flows].tolist()
        for (sender, receiver), size in zip(ends, sizes, strict=True):
            found.setdefault(sender, []).append((receiver, size))
            if sender != receiver:
                found.setdefault(receiver, []).append((sender, size))
        return found
