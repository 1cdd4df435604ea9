"""What nodes and devices carry while a plan is made: parts are put on and taken off."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.parts import WAITS
from relaqs.parts.resources import CORES, DEVICES
from relaqs.parts.view import PlacedView

ROUNDING = 1e-9
EVERY_NODE = slice(None)


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
    """

    def __init__(self, view: PlacedView, kept: BoolArray | None = None) -> None:
        """Start with the parts that are placed now, or only those of `kept`, shape (P,)."""
        nodes, parts = view.nodes, view.parts
        stays = parts.is_placed if kept is None else parts.is_placed & kept
        self.capacity, self.alive, self.demand = nodes.capacity, nodes.alive, parts.demand
        self.is_server = parts.is_server
        self.node, self.device = np.where(stays, parts.node, WAITS), np.where(stays, parts.device, WAITS)
        count, most = len(nodes), int(nodes.device_counts.max(initial=0))
        # Each resource is one piece of memory, since most questions are about all nodes at once.
        self._capacity = np.ascontiguousarray(nodes.capacity.T)
        self._limits: dict[float, FloatArray] = {}
        self.used = np.zeros_like(self._capacity).T
        self.node_parts = np.zeros(count, dtype=np.int64)
        self.device_used = np.where(np.arange(most) < nodes.device_counts[:, None], 0.0, np.inf)
        self.device_parts = np.zeros((count, most), dtype=np.int64)
        self.utilisation = np.zeros_like(self._capacity).T
        self.least_device = self.device_used.min(axis=1, initial=np.inf)
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

    def put(self, part: int, node: int, device: int = WAITS) -> None:
        """Put a part that stands nowhere on a node, and on a device of it."""
        self._count(part, node, device, 1)
        self.node[part], self.device[part] = node, device

    def take(self, part: int) -> None:
        """Take a part off the place where it stands."""
        self._count(part, int(self.node[part]), int(self.device[part]), -1)
        self.node[part] = self.device[part] = WAITS

    def _count(self, part: int, node: int, device: int, sign: int) -> None:
        self.used[node] += sign * self.demand[part]
        self.node_parts[node] += sign
        if not self.node_parts[node]:
            self.used[node] = 0.0  # and not what rounding leaves
        if device != WAITS:
            self.device_used[node, device] += sign * self.demand[part, DEVICES]
            self.device_parts[node, device] += sign
            if not self.device_parts[node, device]:
                self.device_used[node, device] = 0.0
            self.least_device[node] = self.device_used[node].min()
        self.utilisation[node] = relative_to(self.used[node], self.capacity[node])

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

    def overloaded(self, limit: float, nodes: slice = EVERY_NODE) -> BoolArray:
        """Return which living nodes have an overloaded resource or device, shape (n,)."""
        devices = self.overloaded_devices(limit, nodes).any(axis=1)
        return np.asarray(self.alive[nodes] & (devices | self.overloaded_resources(limit, nodes).any(axis=1)))

    def hosts(self, part: int, limit: float) -> BoolArray:
        """Return which living nodes can take a part within a limit, shape (N,).

        A part with a device needs room on the node's least loaded one.
        """
        wants, used = self.demand[part, CORES:, None], self.used.T[CORES:]
        within = used + wants <= self._limited(limit) + ROUNDING
        alone = (used <= ROUNDING) & (wants <= self._capacity[CORES:])
        possible = self.alive & (within | alone).all(axis=0)
        if self.is_server[part]:
            return np.asarray(possible)
        least = self.least_device
        room = (least + self.demand[part, DEVICES] <= limit + ROUNDING) | (least == 0.0)
        return np.asarray(possible & room)

    def _limited(self, limit: float) -> FloatArray:
        """Return this share of all cores, memory and network, shape (3, N)."""
        if limit not in self._limits:
            self._limits[limit] = limit * self._capacity[CORES:]
        return self._limits[limit]

    def least_loaded_device(self, node: int) -> int:
        """Return the device of a node that is used least, the first of several."""
        return int(self.device_used[node].argmin())

    def room(self, demand: FloatArray, limit: float) -> IntArray:
        """Return how many parts of one demand each living node can take within a limit, shape (N,).

        Args:
            demand: of each resource, shape (4,). Where it wants no share of a device, devices do not count.
        """
        share = demand[DEVICES]
        possible = self.alive
        if share > 0:  # of a full cluster, few nodes are looked at any closer
            least = self.least_device
            possible = possible & ((np.floor((limit - least + ROUNDING) / share) >= 1.0) | (least == 0.0))
        nodes = np.flatnonzero(possible)
        wants, used = demand[CORES:, None], self.used.T[CORES:, nodes]
        free = self._limited(limit)[:, nodes] - used + ROUNDING
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(wants > 0, free / wants, np.inf)
        alone = (used <= ROUNDING) & (wants <= self._capacity[CORES:, nodes])
        counts = np.where(alone, np.maximum(each, 1.0), each).min(axis=0)
        if share > 0:
            device_used = self.device_used[nodes]
            fits = np.floor((limit - device_used + ROUNDING) / share)
            fits = np.where(device_used == 0.0, np.maximum(fits, 1.0), np.maximum(fits, 0.0))
            counts = np.minimum(counts, fits @ np.ones(fits.shape[1]))
        counts = np.minimum(np.maximum(np.floor(counts), 0.0), len(self.node))
        found = np.zeros(len(possible), dtype=np.int64)
        found[nodes] = counts.astype(np.int64)
        return found


def relative_to(used: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return used / capacity, 0 where nothing is used, and infinity where there is nothing to use.

    >>> relative_to(np.array([1.0, 0.0, 1.0]), np.array([2.0, 0.0, 0.0])).tolist()
    [0.5, 0.0, inf]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(used > 0, used / capacity, 0.0)
