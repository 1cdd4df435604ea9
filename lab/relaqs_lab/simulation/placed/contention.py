"""How long an iteration of each running job takes, when parts share devices, cores and networks.

The parts of all jobs are in one table, job after job: what never changes while they run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.parts import CORES, DEVICES, MEMORY, NETWORK, RESOURCES, NodeResources
from relaqs_lab.simulation.placed.placed_workload import (
    BATCH_MEMORY_BYTES,
    SERVER_CORES,
    STATE_BYTES,
    WORKER_CORES,
    PlacedJob,
    PlacedWorkload,
    shape_of,
)

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


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """What running jobs do in an iteration, shape (n,).

    Attributes:
        seconds: that it takes.
        sent_bytes: between nodes.
    """

    seconds: FloatArray
    sent_bytes: FloatArray


def pace_of(
    table: PartTable,
    jobs: IntArray,
    works: BoolArray,
    node: IntArray,
    device: IntArray,
    demand: FloatArray,
    nodes: NodeResources,
) -> Pace:
    """Return the pace of the running jobs.

    A part is slower than alone by what is asked of its device, or of its node's cores, beyond what there is.
    The parts of a level start when those of the level above have sent all that they send. What goes between
    nodes takes its bytes over the network of the busier end, which is slower by what all jobs ask of it. A
    job of copies of which only some are whole makes an iteration in as many times the time.

    Args:
        jobs: the running jobs' positions, shape (n,).
        works: which parts of the table compute, shape (P,).
        node, device: of each part of the table, shape (P,).
        demand: of each part of the table now, shape (P, 4).
    """
    rows, owner = rows_of(table.starts, jobs)
    active = works[rows]
    working = _working_copies(table, rows[active], owner[active], len(jobs))
    compute = _compute_seconds(table, rows[active], node, device, demand, nodes)
    stages = int(table.stages[jobs].max(initial=1))
    longest = np.zeros((len(jobs), stages))
    np.maximum.at(longest, (owner[active], table.level[rows[active]]), compute)
    alone = np.zeros((len(jobs), stages))
    np.maximum.at(alone, (owner[active], table.level[rows[active]]), table.alone_seconds[rows[active]])
    sending, sent = _sending_seconds(table, jobs, works, node, nodes, alone.sum(axis=1), stages)
    seconds = (longest.sum(axis=1) + sending) * table.copies(jobs) / np.maximum(working, 1)
    return Pace(seconds, sent)


def _working_copies(table: PartTable, rows: IntArray, owner: IntArray, count: int) -> IntArray:
    copy = table.replica[rows]
    first = np.unique(copy[copy >= 0], return_index=True)[1]
    return np.bincount(owner[copy >= 0][first], minlength=count)


def _compute_seconds(
    table: PartTable,
    rows: IntArray,
    node: IntArray,
    device: IntArray,
    demand: FloatArray,
    nodes: NodeResources,
) -> FloatArray:
    most = int(nodes.device_counts.max(initial=1))
    place = node[rows]
    cores = np.bincount(place, weights=demand[rows, CORES], minlength=len(nodes))
    on_device = device[rows] >= 0
    spot = place * most + np.maximum(device[rows], 0)
    shares = np.bincount(
        spot, weights=np.where(on_device, demand[rows, DEVICES], 0.0), minlength=len(nodes) * most
    )
    slower = np.maximum(cores / np.maximum(nodes.capacity[:, CORES], 1e-9), 1.0)[place]
    slower = np.where(on_device, np.maximum(slower, shares[spot]), slower)
    return np.asarray(table.alone_seconds[rows] * slower)


def _sending_seconds(
    table: PartTable,
    jobs: IntArray,
    works: BoolArray,
    node: IntArray,
    nodes: NodeResources,
    alone_seconds: FloatArray,
    stages: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds in which each job sends in an iteration, and the bytes between nodes."""
    flows, owner = rows_of(table.flow_starts, jobs)
    ends = table.flows[flows]
    crosses = works[ends[:, 0]] & works[ends[:, 1]] & (node[ends[:, 0]] != node[ends[:, 1]])
    if not crosses.any():
        return np.zeros(len(jobs)), np.zeros(len(jobs))
    owner, sizes = owner[crosses], table.flow_bytes[flows[crosses]]
    stage, ends = table.flow_stage[flows[crosses]], node[ends[crosses]]
    count, bandwidth = len(nodes), nodes.capacity[:, NETWORK]
    step = owner * stages + stage
    cells, cell = np.unique(np.concatenate([step * count + side for side in ends.T]), return_inverse=True)
    busiest, asked = np.zeros(len(cells)), np.zeros(count)
    for side, at in zip(ends.T, np.split(cell, 2), strict=True):  # what a node sends, and what it receives
        busiest = np.maximum(busiest, np.bincount(at, weights=sizes, minlength=len(cells)))
        each = np.bincount(side, weights=sizes / alone_seconds[owner], minlength=count)
        asked = np.maximum(asked, each)
    rate = np.maximum(bandwidth, 1e-9) / np.maximum(asked / np.maximum(bandwidth, 1e-9), 1.0)
    longest = np.zeros(len(jobs) * stages)
    np.maximum.at(longest, cells // count, busiest / rate[cells % count])
    seconds = longest.reshape(len(jobs), stages).sum(axis=1)
    return seconds, np.bincount(owner, weights=sizes, minlength=len(jobs)).astype(np.float64)
