"""What a placed policy sees: the time, the machines, the jobs, and their parts.

- The machines that parts are placed on, and what each of them has.
- The parts of jobs as columns: what each needs, whom it feeds, and where it is.
- Jobs that are made of parts, as columns: what they must reach, and how far they have come.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

RESOURCES = ("devices", "cores", "memory_bytes", "network_bytes_per_second")
"""The columns of every demand and capacity. A part's demand of devices is a share of one device."""

DEVICES, CORES, MEMORY, NETWORK = range(len(RESOURCES))


@dataclass(frozen=True, slots=True, eq=False)
class NodeResources:
    """N machines as columns.

    Attributes:
        ids: the machines' names.
        capacity: what each has of each resource, shape (N, 4), columns as in RESOURCES. Devices are whole.
        alive: which machines can be used now, shape (N,).

    Raises:
        ValueError: two machines have one name, a shape is wrong, or a capacity is negative or unknown.

    >>> nodes = NodeResources.equal(count=2, devices=4, cores=32.0)
    >>> nodes.ids, nodes.device_counts.tolist(), len(nodes)
    (('node 00', 'node 01'), [4, 4], 2)
    """

    ids: tuple[str, ...]
    capacity: FloatArray
    alive: BoolArray

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(set(self.ids)) != count:
            raise ValueError("two nodes have the same id; give each machine a name of its own")
        if self.capacity.shape != (count, len(RESOURCES)) or self.alive.shape != (count,):
            raise ValueError(
                f"there are {count} nodes, but capacity has shape {self.capacity.shape} and alive has shape "
                f"{self.alive.shape}; they must be ({count}, {len(RESOURCES)}) and ({count},)"
            )
        if not (self.capacity >= 0).all():
            raise ValueError("a capacity is negative or NaN; give 0 or more")

    @classmethod
    def equal(
        cls,
        count: int,
        devices: int,
        cores: float = 32.0,
        memory_bytes: float = 244e9,
        network_bytes_per_second: float = 1.25e9,
    ) -> NodeResources:
        """Return machines that are all alike. The defaults are those of MLFS's cloud machines.

        Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 4.1: 4 GPUs, 32 cores, 244 GB. Its network is
        taken to be 10 Gbit/s.
        """
        row = [float(devices), cores, memory_bytes, network_bytes_per_second]
        width = max(len(str(count - 1)), 2)
        names = tuple(f"node {i:0{width}}" for i in range(count))
        return cls(names, np.tile(row, (count, 1)), np.ones(count, dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def device_counts(self) -> IntArray:
        """The devices of each machine, shape (N,)."""
        return self.capacity[:, DEVICES].astype(np.int64)


WAITS = -1
"""Stands for a node or a device where a part has none. A server has a node and no device."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """P parts as columns of shape (P,), with E edges of data flow and F flows of bytes.

    Attributes:
        job: the position of each part's job in the view.
        index: its number within its job.
        replica: the copy of the model that it belongs to; −1 for a server.
        level: the longest path from a part without parents; its children have higher levels.
        is_server: whether it adds gradients up, and needs no device.
        size_share: its parameters, relative to those of the model.
        demand: what it uses now, or would use, of each resource; shape (P, 4), columns as in RESOURCES.
        state_bytes: what must be moved when it moves.
        alone_seconds: what it computes in an iteration, where nothing contends.
        node, device: where it is; −1 while it waits, and as the device of a server.
        queued_since_seconds: since when it waits, on the view's clock; NaN while it is placed.
        edges: parent and child, positions of parts, shape (E, 2).
        flows: sender and receiver, positions of parts, shape (F, 2). Equal pairs may come twice.
        flow_bytes: what is sent in an iteration, shape (F,).

    Raises:
        ValueError: a shape is wrong, an edge or a flow leaves its job, an edge does not lead to a higher
            level, or a demand is negative.
    """

    job: IntArray
    index: IntArray
    replica: IntArray
    level: IntArray
    is_server: BoolArray
    size_share: FloatArray
    demand: FloatArray
    state_bytes: FloatArray
    alone_seconds: FloatArray
    node: IntArray
    device: IntArray
    queued_since_seconds: FloatArray
    edges: IntArray
    flows: IntArray
    flow_bytes: FloatArray

    def __post_init__(self) -> None:
        count = len(self.job)
        for name in _PART_COLUMNS:
            if len(getattr(self, name)) != count:
                raise ValueError(f"{name} has {len(getattr(self, name))} rows for {count} parts")
        if self.demand.shape != (count, len(RESOURCES)) or not (self.demand >= 0).all():
            raise ValueError(
                f"demand has shape {self.demand.shape} or is negative somewhere; it must be "
                f"({count}, {len(RESOURCES)}) and 0 or more"
            )
        for name in ("edges", "flows"):
            pairs = getattr(self, name)
            if pairs.ndim != 2 or pairs.shape[1] != 2:
                raise ValueError(f"{name} has shape {pairs.shape}; it must be (n, 2)")
            if (self.job[pairs[:, 0]] != self.job[pairs[:, 1]]).any():
                raise ValueError(f"one of {name} leads from one job to another; parts feed their own job")
        if (self.level[self.edges[:, 0]] >= self.level[self.edges[:, 1]]).any():
            raise ValueError(
                "an edge does not lead to a higher level; the parts of a job must form no circle"
            )
        if self.flow_bytes.shape != (len(self.flows),):
            raise ValueError(f"flow_bytes has shape {self.flow_bytes.shape} for {len(self.flows)} flows")

    def __len__(self) -> int:
        return len(self.job)

    @property
    def is_placed(self) -> BoolArray:
        """Which parts have a node now, shape (P,)."""
        return np.asarray(self.node >= 0)

    def in_order(self, order: IntArray, job: IntArray) -> Parts:
        """Return the same parts in another order.

        Args:
            order: the positions of the parts, all of them, in the new order.
            job: the new position of each present position of a job.
        """
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        columns = {name: getattr(self, name)[order] for name in _PART_COLUMNS}
        edges, flows = place[self.edges], place[self.flows]
        by_parent = np.lexsort([edges[:, 1], edges[:, 0]])
        by_sender = np.lexsort([self.flow_bytes, flows[:, 1], flows[:, 0]])
        return Parts(
            **columns
            | {
                "job": job[columns["job"]],
                "edges": edges[by_parent],
                "flows": flows[by_sender],
                "flow_bytes": self.flow_bytes[by_sender],
            }
        )


_PART_COLUMNS = tuple(
    each.name for each in fields(Parts) if each.name not in ("edges", "flows", "flow_bytes")
)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedJobs:
    """J jobs as columns of shape (J,). An iteration is once through the job's data.

    Attributes:
        arrival_seconds: when each came, on the view's clock.
        weight: the user's priority for sharing.
        urgency: how urgent the job is, from 0 to 10.
        deadline_seconds: when it should have ended, on the view's clock.
        iterations_done: so far; a fraction is the iteration in hand.
        iterations_most: after so many it ends by itself.
        iteration_seconds: what one takes where nothing contends.
        loss_fallen_last: by how much the last whole iteration lowered the loss; NaN before the second loss.
        loss_fallen: by how much the loss has fallen since the first one; NaN before the second loss.
        loss_fall_rate: the fall of an iteration, mean of the last few; NaN before the second loss.
        accuracy: of the best model so far; NaN before the first iteration ends.
        accuracy_gain: of the last tenth of iterations_most; NaN before these.
        accuracy_required: what the user needs.
        attained_device_seconds: the devices that the job has held, over time.
        may_stop: whether the job may end before iterations_most once it has the accuracy.
    """

    ids: tuple[str, ...]
    arrival_seconds: FloatArray
    weight: FloatArray
    urgency: FloatArray
    deadline_seconds: FloatArray
    iterations_done: FloatArray
    iterations_most: FloatArray
    iteration_seconds: FloatArray
    loss_fallen_last: FloatArray
    loss_fallen: FloatArray
    loss_fall_rate: FloatArray
    accuracy: FloatArray
    accuracy_gain: FloatArray
    accuracy_required: FloatArray
    attained_device_seconds: FloatArray
    may_stop: BoolArray

    def __post_init__(self) -> None:
        count = len(self.ids)
        if len(set(self.ids)) != count:
            raise ValueError("two jobs of a view have the same id; a job can be in a view once")
        for name in _JOB_COLUMNS:
            if getattr(self, name).shape != (count,):
                raise ValueError(f"{name} has shape {getattr(self, name).shape}; it must be ({count},)")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def iterations_left(self) -> FloatArray:
        """How many iterations each job still has to make, at least 0; shape (J,)."""
        return np.maximum(self.iterations_most - self.iterations_done, 0.0)

    def of_jobs(self, chosen: IntArray) -> PlacedJobs:
        """Return the columns of the jobs at these positions."""
        columns = {name: getattr(self, name)[chosen] for name in _JOB_COLUMNS}
        return PlacedJobs(ids=tuple(self.ids[i] for i in chosen), **columns)


_JOB_COLUMNS = tuple(each.name for each in fields(PlacedJobs) if each.name != "ids")


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
