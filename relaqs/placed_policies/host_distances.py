"""How far nodes are from the ideal hosts of parts, kept up to date while a load changes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.parts.load import cells_of
from relaqs.parts.parts import WAITS
from relaqs.parts.resources import RESOURCES
from relaqs.placed_policies.ideal import MEGABYTE, host_distances, slowed_on_nodes
from relaqs.placed_policies.queue_walk import QueueWalk


class HostDistances:
    """What `relaqs.placed_policies.ideal.host_distances` returns, to the bit, for part after part of a walk.

    Placing a part changes one node. So the squares of what nodes are off the ideal host are kept, and only
    those of changed nodes are computed again. When the least use of a resource changes, the ideal host does,
    and all are. A part that is new slows down nowhere, and exchanges bytes with few nodes.
    """

    def __init__(self, walk: QueueWalk, *, bytes_relative: bool = True) -> None:
        """Start with what stands where now, and at least one node that may get parts.

        Args:
            bytes_relative: as for `host_distances`.
        """
        self._view, self._load, self._underloaded = walk.view, walk.load, walk.underloaded
        self._relative = bytes_relative
        self._seen = len(self._load.changed)
        self._given = self._load.utilisation.T
        self._used = np.where(self._underloaded, self._given, np.inf)
        self._squares = np.empty(len(self._underloaded))
        self._given_cells, self._used_cells = cells_of(self._given), cells_of(self._used)
        self._square_cells = cells_of(self._squares)
        self._least_used = [int(each.argmin()) for each in self._used]  # a node for each resource
        self._ideal: list[float] = []
        self._follow_ideal()

    def to(self, part: int, exchanged: Mapping[int, float]) -> FloatArray:
        """Return how far each node is from the ideal host, shape (N,); infinity where no part may come.

        Args:
            exchanged: the bytes that the part exchanges in an iteration, by node.
        """
        if self._view.parts.node[part] != WAITS:
            return self._of_mover(part, exchanged)
        self._catch_up()
        most = max((size for node, size in exchanged.items() if self._underloaded[node]), default=0.0)
        if not most > 0:
            return np.asarray(np.sqrt(self._squares))
        unit = most if self._relative else MEGABYTE
        lacks = most / unit
        distances = np.sqrt(self._squares + lacks * lacks)
        for node, size in exchanged.items():
            lacks = (most - size) / unit
            distances[node] = math.sqrt(self._square_cells[node] + lacks * lacks)
        return np.asarray(distances)

    def _of_mover(self, part: int, exchanged: Mapping[int, float]) -> FloatArray:
        amounts = np.zeros(len(self._underloaded))
        amounts[list(exchanged)] = list(exchanged.values())
        slowed = slowed_on_nodes(self._view, part)
        utilisation, under = self._load.utilisation, self._underloaded
        distances = host_distances(utilisation, amounts, slowed, under, bytes_relative=self._relative)
        return np.where(under, distances, np.inf)

    def _catch_up(self) -> None:
        """Do what the changes since the last time ask for."""
        changed = self._load.changed[self._seen :]
        self._seen += len(changed)
        left: set[int] = set()  # resources of which another node may be used least now
        for node in changed:
            if self._underloaded[node]:
                left |= self._note(node)
        for resource in left:
            self._least_used[resource] = int(self._used[resource].argmin())
        if any(self._least(resource) != self._ideal[resource] for resource in left):
            self._follow_ideal()

    def _note(self, node: int) -> set[int]:
        """Note the use of a node, and return the resources of which it may not be used least any more."""
        total, left = 0.0, set()
        for resource, (ideal, least_used) in enumerate(zip(self._ideal, self._least_used, strict=True)):
            cell = resource * len(self._squares) + node
            used = self._used_cells[cell] = self._given_cells[cell]
            if node == least_used or used < ideal:
                left.add(resource)
            off = used - ideal
            total += off * off
        self._square_cells[node] = total
        return left

    def _least(self, resource: int) -> float:
        return self._used_cells[resource * len(self._squares) + self._least_used[resource]]

    def _follow_ideal(self) -> None:
        """Compute all squares, since the ideal host is another one."""
        least = [self._least(resource) for resource in range(len(RESOURCES))]
        self._ideal = [each if math.isfinite(each) else 0.0 for each in least]  # infinite: all use of nothing
        first, second, third, fourth = (self._used - np.array(self._ideal)[:, None]) ** 2
        self._squares[:] = first + second + third + fourth
