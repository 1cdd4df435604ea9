"""All parts of a workload's jobs in one table, job after job: what never changes while they run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.resources import CORES, DEVICES, MEMORY, NETWORK, RESOURCES, NodeResources
from relaqs_lab.simulation.placed.models import (
    BATCH_MEMORY_BYTES,
    SERVER_CORES,
    STATE_BYTES,
    WORKER_CORES,
    shape_of,
)
from relaqs_lab.simulation.placed.workload import PlacedJob, PlacedWorkload

FLOW_MOST_SHARE = 0.1  # of what a node sends in an iteration: a short job sends less, or it would only send
NETWORK_MOST_SHARE = 0.1  # of a node's network, that a part asks for
SWING_SECONDS = 1200.0, 3600.0  # the least and the most time in which a part's demand goes up and down
_SWINGS = 2  # a stream of the workload's seed


@dataclass(frozen=True, slots=True, eq=False)
class PartTable:
    """Parts, edges and flows of all jobs, in the order of the jobs. Positions are those of the table.

    Attributes:
        starts: where each job's parts begin, shape (J + 1,); copy_starts, edge_starts and flow_starts
            likewise.
        replica: a number of its own for each copy of a model, −1 for servers.
        demand: on average, of each resource, shape (P, 4).
        swing_seconds, swing_phase: of the part's demand of devices and cores.
        stages: the steps of an iteration of each job, shape (J,).
    """

    starts: IntArray
    job: IntArray
    index: IntArray
    replica: IntArray
    copy_starts: IntArray
    level: IntArray
    is_server: BoolArray
    size_share: FloatArray
    demand: FloatArray
    state_bytes: FloatArray
    alone_seconds: FloatArray
    swing_seconds: FloatArray
    swing_phase: FloatArray
    edge_starts: IntArray
    edges: IntArray
    flow_starts: IntArray
    flows: IntArray
    flow_bytes: FloatArray
    flow_stage: IntArray
    stages: IntArray

    @classmethod
    def of(cls, workload: PlacedWorkload, nodes: NodeResources, seed: int) -> PartTable:
        """Return the table of a workload's parts. seed: of how demands go up and down."""
        jobs = workload.jobs
        shapes = [shape_of(job.algorithm.cut, job.devices, job.by_server) for job in jobs]
        counts = np.array([len(shape.level) for shape in shapes])
        starts = np.concatenate([[0], np.cumsum(counts)])
        owner = np.repeat(np.arange(len(jobs)), counts)
        copies = np.array([int(shape.replica.max()) + 1 for shape in shapes])
        copy_starts = np.concatenate([[0], np.cumsum(copies)])
        replica = np.concatenate([shape.replica for shape in shapes])
        flow_bytes = [_flow_bytes(job) * shape.flow_scale for job, shape in zip(jobs, shapes, strict=True)]
        flows = np.concatenate([shape.flows + start for shape, start in zip(shapes, starts, strict=False)])
        edges = np.concatenate([shape.edges + start for shape, start in zip(shapes, starts, strict=False)])
        seconds = np.array([job.iteration_seconds for job in jobs])
        sent = np.concatenate(flow_bytes)
        is_server = np.concatenate([shape.is_server for shape in shapes])
        parameters = np.array([job.algorithm.parameters for job in jobs])[owner]
        share = np.concatenate([shape.size_share for shape in shapes])
        state = STATE_BYTES * parameters * np.where(is_server, 1.0, share)
        random = np.random.default_rng([seed, _SWINGS])
        traffic = np.bincount(flows.ravel(), weights=np.repeat(sent, 2), minlength=len(owner))
        most = NETWORK_MOST_SHARE * float(nodes.capacity[:, NETWORK].min())
        demand = np.zeros((len(owner), len(RESOURCES)))
        devices = np.array([job.algorithm.device_share for job in jobs])[owner]
        demand[:, DEVICES] = np.where(is_server, 0.0, devices)
        demand[:, CORES] = np.where(is_server, SERVER_CORES, WORKER_CORES)
        demand[:, MEMORY] = state + BATCH_MEMORY_BYTES
        demand[:, NETWORK] = np.minimum(traffic / seconds[owner], most)
        return cls(
            starts=starts,
            job=owner,
            index=np.arange(len(owner)) - starts[owner],
            replica=np.where(replica < 0, -1, replica + copy_starts[owner]),
            copy_starts=copy_starts,
            level=np.concatenate([shape.level for shape in shapes]),
            is_server=is_server,
            size_share=share,
            demand=demand,
            state_bytes=state,
            alone_seconds=np.concatenate([shape.time_share for shape in shapes]) * seconds[owner],
            swing_seconds=random.uniform(*SWING_SECONDS, len(owner)),
            swing_phase=random.uniform(0.0, 2 * math.pi, len(owner)),
            edge_starts=np.concatenate([[0], np.cumsum([len(shape.edges) for shape in shapes])]),
            edges=edges,
            flow_starts=np.concatenate([[0], np.cumsum([len(shape.flows) for shape in shapes])]),
            flows=flows,
            flow_bytes=sent,
            flow_stage=np.concatenate([shape.flow_stage for shape in shapes]),
            stages=np.array([shape.stages for shape in shapes]),
        )

    def __len__(self) -> int:
        return len(self.job)

    def copies(self, jobs: IntArray) -> IntArray:
        """Return how many copies of their model jobs have, shape (n,)."""
        return self.copy_starts[jobs + 1] - self.copy_starts[jobs]

    def demand_at(self, rows: IntArray, seconds: float, swing: float) -> FloatArray:
        """Return what parts use at a moment, shape (n, 4): their mean demand, up and down by a share of it.

        Memory and network do not swing.
        """
        demand = self.demand[rows].copy()
        angle = 2 * math.pi * seconds / self.swing_seconds[rows] + self.swing_phase[rows]
        factor = 1.0 + swing * np.sin(angle)
        demand[:, DEVICES] *= factor
        demand[:, CORES] *= factor
        return demand


def _flow_bytes(job: PlacedJob) -> float:
    network = 1.25e9  # 10 Gbit/s, whatever the cluster has
    return min(job.flow_bytes, FLOW_MOST_SHARE * job.iteration_seconds * network)


def rows_of(starts: IntArray, chosen: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of some groups of a table, one after another, and the position of each row's group.

    >>> rows_of(np.array([0, 2, 5]), np.array([1, 0]))
    (array([2, 3, 4, 0, 1]), array([0, 0, 0, 1, 1]))
    """
    counts = starts[chosen + 1] - starts[chosen]
    group = np.repeat(np.arange(len(chosen)), counts)
    before = np.concatenate([[0], np.cumsum(counts)])[:-1]
    return np.arange(len(group)) + np.repeat(starts[chosen] - before, counts), group
