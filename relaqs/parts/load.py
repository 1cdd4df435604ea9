"""What nodes and devices carry while a plan is made: parts are put on and taken off."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.view import CORES, DEVICES, RESOURCES, WAITS, PlacedView

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
