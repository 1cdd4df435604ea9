"""Models that are cut into parts, on nodes with devices: what a placed policy sees and says, in columns.

A *part* is one partition of a model for one replica, or the server that adds gradients up. (MLFS calls it
a task.) A policy sees a `PlacedView`:

- the machines that parts are placed on, and what each of them has (`NodeResources`),
- the parts of jobs: what each needs, whom it feeds, and where it is (`Parts`),
- the jobs that are made of them: what they must reach, and how far they have come (`PlacedJobs`).

It says a `PlacedPlan`: where each part is, and which jobs end now. `Load` has what nodes and devices carry
while a plan is made: parts are put on and taken off.

Pure: no clock, no file, no thread, no random generator and no Dask live here. The policies themselves are
in `relaqs.placed_policies`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Protocol, cast, runtime_checkable

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.view import Columns, PolicyOf

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
class PlacedJobs(Columns):
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

    @property
    def iterations_left(self) -> FloatArray:
        """How many iterations each job still has to make, at least 0; shape (J,)."""
        return np.maximum(self.iterations_most - self.iterations_done, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedView:
    """All that one decision of a placed policy may depend on.

    Attributes:
        time_seconds: now, on the clock of the arrivals.
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


ROUNDING = 1e-9
EVERY_NODE = slice(None)


def cells_of(array: FloatArray) -> memoryview[float]:
    """Return a contiguous array's memory, row after row, as numbers that are read and written one by one.

    NumPy takes several times as long for one number.

    >>> array = np.zeros((2, 2))
    >>> cells_of(array)[3] = 5.0
    >>> array.tolist()
    [[0.0, 0.0], [0.0, 5.0]]
    """
    assert array.flags.c_contiguous
    return cast("memoryview[float]", array.reshape(-1).data)


class Load:
    """The demands of the parts that stand on each node and device. It changes as a policy places parts.

    A limit is a share of every capacity. A part that exceeds it alone may still have an empty device, or a
    resource that nobody uses. Otherwise nothing could ever host it. Such a part overloads nothing.

    Attributes:
        used: of each node's resources, shape (N, 4).
        device_used: of each device, shape (N, D); infinite where a node has fewer devices than others.
        utilisation: what is used of each node's resources, relative to what it has, shape (N, 4); 0 of
            nothing.
        least_device: the use of each node's least loaded device, shape (N,).
        device_parts: how many parts stand on each device, shape (N, D).
        node_parts: how many parts stand on each node, shape (N,).
        node, device: where each part of the view stands, shape (P,).
        changed: the nodes onto which parts were put, or off which they were taken, one after another. Who
            keeps something about nodes up to date reads on where it stopped.
    """

    def __init__(self, view: PlacedView, kept: BoolArray | None = None) -> None:
        """Start with the parts that are placed now, or only those of `kept`, shape (P,)."""
        nodes, parts = view.nodes, view.parts
        stays = parts.is_placed if kept is None else parts.is_placed & kept
        self.capacity, self.alive, self.demand = nodes.capacity, nodes.alive, parts.demand
        self.is_server = parts.is_server
        self.node, self.device = np.where(stays, parts.node, WAITS), np.where(stays, parts.device, WAITS)
        self.changed: list[int] = []
        count, most = len(nodes), int(nodes.device_counts.max(initial=0))
        self._count, self._most = count, most
        # Each resource is one piece of memory, since most questions are about all nodes at once.
        self._capacity = np.ascontiguousarray(nodes.capacity.T)
        self._limits: dict[float, tuple[FloatArray, FloatArray]] = {}
        used, utilisation = np.zeros((2, *self._capacity.shape))
        self.used, self.utilisation = used.T, utilisation.T
        self.node_parts = np.zeros(count, dtype=np.int64)
        self.device_used = np.where(np.arange(most) < nodes.device_counts[:, None], 0.0, np.inf)
        self.device_parts = np.zeros((count, most), dtype=np.int64)
        self.least_device = self.device_used.min(axis=1, initial=np.inf)
        self._demand_cells = cells_of(np.ascontiguousarray(parts.demand))
        self._capacity_cells, self._used_cells = cells_of(self._capacity), cells_of(used)
        self._utilisation_cells, self._least_cells = cells_of(utilisation), cells_of(self.least_device)
        self._device_cells = cells_of(self.device_used)
        standing = np.flatnonzero(stays)
        self.put_all(standing, self.node[standing], self.device[standing])

    def put_all(self, parts: IntArray, node: IntArray, device: IntArray) -> None:
        """Put parts that stand nowhere on nodes, and on devices of them, all at once."""
        self.node[parts], self.device[parts] = node, device
        np.add.at(self.used, node, self.demand[parts])
        np.add.at(self.node_parts, node, 1)
        on = device >= 0
        np.add.at(self.device_used, (node[on], device[on]), self.demand[parts[on], DEVICES])
        np.add.at(self.device_parts, (node[on], device[on]), 1)
        self.utilisation[node] = relative_to(self.used[node], self.capacity[node])
        self.least_device[node] = self.device_used[node].min(axis=1, initial=np.inf)
        self.changed += node.tolist()

    def put(self, part: int, node: int, device: int = WAITS) -> None:
        """Put a part that stands nowhere on a node, and on a device of it."""
        self._change(part, node, device, 1)
        self.node[part], self.device[part] = node, device

    def take(self, part: int) -> None:
        """Take a part off the place where it stands."""
        self._change(part, int(self.node[part]), int(self.device[part]), -1)
        self.node[part] = self.device[part] = WAITS

    def _change(self, part: int, node: int, device: int, sign: int) -> None:
        self.node_parts[node] += sign
        is_empty = not self.node_parts[node]
        first = len(RESOURCES) * part
        for at, wants in enumerate(self._demand_cells[first : first + len(RESOURCES)]):
            cell = at * self._count + node
            used = 0.0 if is_empty else self._used_cells[cell] + sign * wants  # 0, not what rounding leaves
            self._used_cells[cell] = used
            capacity = self._capacity_cells[cell]
            share = used / capacity if capacity else math.inf
            self._utilisation_cells[cell] = share if used > 0 else 0.0
        if device != WAITS:
            cell = node * self._most + device
            self.device_parts[node, device] += sign
            in_use = self._device_cells[cell] + sign * self._demand_cells[first + DEVICES]
            self._device_cells[cell] = in_use if self.device_parts[node, device] else 0.0
            self._least_cells[node] = min(self._uses(node))
        self.changed.append(node)

    def _uses(self, node: int) -> list[float]:
        """Return the use of each device of a node."""
        return list(self._device_cells[node * self._most : (node + 1) * self._most])

    def overloaded_resources(self, limit: float, nodes: slice = EVERY_NODE) -> BoolArray:
        """Return which resources but devices several parts use above a limit, shape (n, 4).

        nodes: those that are asked about, n of them.
        """
        over = (self.utilisation[nodes] > limit + ROUNDING) & (self.node_parts[nodes] > 1)[:, None]
        over[:, DEVICES] = False
        return np.asarray(over)

    def overloaded_devices(self, limit: float, nodes: slice = EVERY_NODE) -> BoolArray:
        """Return which devices several parts use above a limit, shape (n, D)."""
        return np.asarray((self.device_used[nodes] > limit + ROUNDING) & (self.device_parts[nodes] > 1))

    def overloaded(self, limit: float) -> BoolArray:
        """Return which living nodes have an overloaded resource or device, shape (N,)."""
        devices = self.overloaded_devices(limit).any(axis=1)
        return np.asarray(self.alive & (devices | self.overloaded_resources(limit).any(axis=1)))

    def hosts(self, part: int, limit: float) -> BoolArray:
        """Return which living nodes can take a part within a limit, shape (N,).

        A part with a device needs room on the node's least loaded one.
        """
        wants, used = self.demand[part, CORES:, None], self.used.T[CORES:]
        within = used + wants <= self._limited(limit)[1]
        within |= (used <= ROUNDING) & (wants <= self._capacity[CORES:])  # it may be there alone
        cores, memory, network = within
        possible = self.alive & cores & memory & network
        if self.is_server[part]:
            return np.asarray(possible)
        return np.asarray(possible & self.has_device(part, limit))

    def has_device(self, part: int, limit: float) -> BoolArray:
        """Return on which nodes the least loaded device can take a part, shape (N,)."""
        least = self.least_device
        return np.asarray((least + self.demand[part, DEVICES] <= limit + ROUNDING) | (least == 0.0))

    def has_room(self, part: int, node: int, limit: float) -> bool:
        """Return whether one node can take a part, as `hosts` says of all of them."""
        if not self.alive[node]:
            return False
        first = len(RESOURCES) * part
        for at in range(CORES, len(RESOURCES)):
            cell = at * self._count + node
            wants, used = self._demand_cells[first + at], self._used_cells[cell]
            capacity = self._capacity_cells[cell]
            if used + wants > limit * capacity + ROUNDING and (used > ROUNDING or wants > capacity):
                return False
        least = self._least_cells[node]
        within = least + self._demand_cells[first + DEVICES] <= limit + ROUNDING
        return within or least == 0.0 or bool(self.is_server[part])

    def _limited(self, limit: float) -> tuple[FloatArray, FloatArray]:
        """Return this share of all cores, memory and network, shape (3, N), and what counts as no more."""
        if limit not in self._limits:
            limited = limit * self._capacity[CORES:]
            self._limits[limit] = limited, limited + ROUNDING
        return self._limits[limit]

    def least_loaded_device(self, node: int) -> int:
        """Return the device of a node that is used least, the first of several."""
        uses = self._uses(node)
        return uses.index(min(uses))

    def room(self, demand: FloatArray, limit: float) -> IntArray:
        """Return how many parts of one demand each living node can take within a limit, shape (N,).

        Args:
            demand: of each resource, shape (4,). Where it wants no share of a device, devices do not count.
        """
        share = float(demand[DEVICES])
        possible = self.alive
        if share > 0:  # of a full cluster, few nodes are looked at any closer
            least = self.least_device
            possible = possible & ((np.floor((limit - least + ROUNDING) / share) >= 1.0) | (least == 0.0))
        nodes = np.flatnonzero(possible)
        counts = self.other_room(demand, limit, nodes)
        if share > 0:
            counts = np.minimum(counts, self.device_room(share, limit, nodes))
        found = np.zeros(len(possible), dtype=np.int64)
        found[nodes] = counts.astype(np.int64)
        return found

    def other_room(self, demand: FloatArray, limit: float, nodes: IntArray) -> FloatArray:
        """Return how many parts of one demand nodes can take, devices left out; whole numbers, shape (n,)."""
        counts = np.zeros(len(nodes)) + float(len(self.node))
        for resource, wants in enumerate(demand.tolist()):
            if resource != DEVICES and wants > 0:
                used = self.used.T[resource][nodes]
                fits = (self._limited(limit)[0][resource - CORES][nodes] - used + ROUNDING) / wants
                alone = (used <= ROUNDING) & (wants <= self._capacity[resource][nodes])
                np.minimum(counts, np.where(alone, np.maximum(fits, 1.0), fits), out=counts)
        return np.asarray(np.maximum(np.floor(counts), 0.0))

    def device_room(self, share: float, limit: float, nodes: IntArray) -> FloatArray:
        """Return how many parts that use this share of a device the devices of nodes can take, shape (n,)."""
        used = self.device_used[nodes]
        fits = np.floor((limit - used + ROUNDING) / share)
        fits = np.where(used == 0.0, np.maximum(fits, 1.0), np.maximum(fits, 0.0))
        return np.asarray(fits @ np.ones(fits.shape[1]))


def relative_to(used: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return used / capacity, 0 where nothing is used, and infinity where there is nothing to use.

    >>> relative_to(np.array([1.0, 0.0, 1.0]), np.array([2.0, 0.0, 0.0])).tolist()
    [0.5, 0.0, inf]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(used > 0, used / capacity, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPlan:
    """Where the parts of a view are until the next plan. A part has one place, or waits.

    Attributes:
        ids: the jobs of the view, in its order.
        node, device: of each part of the view, shape (P,); −1 where it waits, and as a server's device.
        stops: which jobs end now with the model that they have, shape (J,).
    """

    ids: tuple[str, ...]
    node: IntArray
    device: IntArray
    stops: BoolArray

    def __post_init__(self) -> None:
        assert self.node.shape == self.device.shape, (self.node.shape, self.device.shape)
        assert self.stops.shape == (len(self.ids),), self.stops.shape
        assert (self.device[self.node == WAITS] == WAITS).all()

    @classmethod
    def of(
        cls, view: PlacedView, node: IntArray, device: IntArray, stops: BoolArray | None = None
    ) -> PlacedPlan:
        """Return the plan for a view. Who uses it may rely on what is asserted here."""
        assert node.shape == (len(view.parts),), node.shape
        placed = node >= 0
        assert view.nodes.alive[node[placed]].all(), "a part is placed on a node that is not alive"
        on_devices = placed & ~view.parts.is_server
        assert (device[on_devices] >= 0).all()
        assert (device[on_devices] < view.nodes.device_counts[node[on_devices]]).all()
        stops = np.zeros(len(view.jobs), dtype=np.bool_) if stops is None else stops
        return cls(view.jobs.ids, node, device, stops)


def planned_in_order(view: PlacedView, plan: Callable[[PlacedView], PlacedPlan]) -> PlacedPlan:
    """Return the plan for a view, made in the one order of its jobs, parts and nodes (`in_order`)."""
    if view.is_in_order:
        return plan(view)
    ordered, jobs, parts, nodes = view.in_order()
    made = plan(ordered)
    node, device = np.full(len(parts), WAITS), np.full(len(parts), WAITS)
    node[parts] = np.where(made.node >= 0, nodes[made.node], WAITS) if len(nodes) else WAITS
    device[parts] = made.device
    stops = np.zeros(len(jobs), dtype=np.bool_)
    stops[jobs] = made.stops
    return PlacedPlan.of(view, node, device, stops)


@runtime_checkable
class PlacedPolicy(PolicyOf[PlacedView, PlacedPlan], Protocol):
    """A pure function from what is known to where parts are: equal views give equal plans.

    Tests hold laws for every placed policy of this package (`tests/relaqs/placed_policies/test_laws.py`).
    """
