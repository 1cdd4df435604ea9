"""What a placed policy sees: the time, the machines, the jobs, and their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.jobs import PlacedJobs
from relaqs.parts.parts import WAITS, Parts
from relaqs.parts.resources import NodeResources


@dataclass(frozen=True, slots=True, eq=False)
class PlacedView:
    """All that one decision of a placed policy may depend on.

    Attributes:
        time_seconds: now, on the clock of the arrivals.
        nodes: the machines.
        jobs: those that have come and not ended.
        parts: of all these jobs, waiting or placed. None is on a machine that is not alive.
        period_seconds: the time until the next plan.

    Raises:
        ValueError: a part names a job, node or device that is not there, or its machine is not alive.
    """

    time_seconds: float
    nodes: NodeResources
    jobs: PlacedJobs
    parts: Parts
    period_seconds: float = 60.0

    def __post_init__(self) -> None:
        parts, nodes = self.parts, self.nodes
        if len(parts) and not (parts.job.min() >= 0 and parts.job.max() < len(self.jobs)):
            raise ValueError(f"a part names a job that is not there; there are {len(self.jobs)} jobs")
        placed = parts.is_placed
        if (parts.node >= len(nodes)).any() or not nodes.alive[parts.node[placed]].all():
            raise ValueError("a part is on a node that is not there or not alive; its node must be −1")
        on_devices = placed & ~parts.is_server
        if (parts.device[~on_devices] != WAITS).any() or (
            (parts.device[on_devices] < 0)
            | (parts.device[on_devices] >= nodes.device_counts[parts.node[on_devices]])
        ).any():
            raise ValueError("a part's device is not one of its node, or a waiting part or a server has one")

    @property
    def is_in_order(self) -> bool:
        """Whether `in_order` would change nothing."""
        jobs, parts = self.jobs, self.parts
        arrival = jobs.arrival_seconds
        later = arrival[1:] > arrival[:-1]
        named = np.array([a < b for a, b in pairwise(jobs.ids)], dtype=np.bool_)
        return bool(
            (later | ((arrival[1:] == arrival[:-1]) & named)).all()
            and all(a < b for a, b in pairwise(self.nodes.ids))
            and _rise(parts.job, parts.index)
            and _rise(parts.edges[:, 0], parts.edges[:, 1])
            and _rise(parts.flows[:, 0], parts.flows[:, 1], parts.flow_bytes)
        )

    def in_order(self) -> tuple[PlacedView, IntArray, IntArray, IntArray]:
        """Return the view in its one order, and the positions that its jobs, parts and nodes had here.

        Jobs come by arrival and then by id, parts by job and index, and nodes by id. So a policy that breaks
        ties by position gives the same plan whatever order a view is in.
        """
        jobs = np.array(
            sorted(range(len(self.jobs)), key=lambda i: (self.jobs.arrival_seconds[i], self.jobs.ids[i])),
            dtype=np.int64,
        )
        nodes = np.array(sorted(range(len(self.nodes)), key=self.nodes.ids.__getitem__), dtype=np.int64)
        job_place, node_place = np.argsort(jobs), np.argsort(nodes)
        parts = np.lexsort([self.parts.index, job_place[self.parts.job]])
        ordered = self.parts.in_order(parts, job_place)
        node = ordered.node.copy()
        node[node >= 0] = node_place[node[node >= 0]]
        view = replace(
            self,
            nodes=NodeResources(
                tuple(self.nodes.ids[i] for i in nodes), self.nodes.capacity[nodes], self.nodes.alive[nodes]
            ),
            jobs=self.jobs.of_jobs(jobs),
            parts=replace(ordered, node=node),
        )
        return view, jobs, parts, nodes


def _rise(*columns: IntArray | FloatArray) -> bool:
    """Return whether rows never fall, compared by the first column, then by the next."""
    undecided = np.ones(max(len(columns[0]) - 1, 0), dtype=np.bool_)
    for column in columns:
        if (undecided & (column[1:] < column[:-1])).any():
            return False
        undecided &= column[1:] == column[:-1]
    return True
