"""MLF-H: parts by priority, each on the node that is most like an ideal one, and off nodes with too much."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.parts import WAITS
from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.host_distances import HostDistances
from relaqs.placed_policies.priority import PartPriority
from relaqs.placed_policies.queue_walk import QueueWalk

ASKED_ALONE = 8  # nodes, each of which costs a tenth of what all do


@dataclass(frozen=True, slots=True)
class MlfH:
    """Parts wait in a queue by priority, and each gets the node nearest to its ideal host, if one has room.

    From an overloaded node the parts nearest to an ideal mover join the queue, and move once they have a
    host. One that finds none waits. A part without a host is passed over, and the walk goes on.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, sections 3.3.1 to 3.3.3; limit and lowest_share are those of
    its section 4.1.

    Args:
        priority: how parts are ordered.
        limit: a node or a device is overloaded above this share of what it has.
        lowest_share: of the parts on a node's overloaded devices, those with the lowest priorities that may
            leave.
        gang: all parts of a job are placed or none. The paper places parts one by one. Then jobs that are
            placed in part hold devices and wait for each other.
        migrates: False leaves overloaded nodes as they are.
        uses_traffic: False leaves the bytes between parts out of the choice of a node.
        bytes_relative: as in `relaqs.placed_policies.ideal`.
    """

    priority: PartPriority = field(default_factory=PartPriority)
    limit: float = 0.9
    lowest_share: float = 0.1
    gang: bool = True
    migrates: bool = True
    uses_traffic: bool = True
    bytes_relative: bool = True
    name: ClassVar[str] = "mlf_h"

    def __post_init__(self) -> None:
        for name in ("limit", "lowest_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above 0, at most 1")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        walk = QueueWalk(view, self.limit)
        return walk.plan(
            ByPriority(self, walk),
            gang=self.gang,
            migrates=self.migrates,
            lowest_share=self.lowest_share,
            bytes_relative=self.bytes_relative,
        )


class ByPriority:
    """What MLF-H chooses: jobs by the highest priority of a part, nodes by their distance from the ideal."""

    def __init__(self, policy: MlfH, walk: QueueWalk) -> None:
        self._policy, self._walk = policy, walk
        self._priority = np.empty(0)

    def priorities(self) -> FloatArray:
        self._priority = self._policy.priority.of_parts(self._walk.view)
        return self._priority

    def ranks(self, queue: IntArray) -> FloatArray:
        parts = self._walk.view.parts
        ranked = np.where(parts.is_server[queue], -np.inf, self._priority[queue])
        best = np.full(len(self._walk.view.jobs), -np.inf)
        np.maximum.at(best, parts.job[queue], ranked)
        return best

    def node(self, part: int) -> int:
        """Return the nearest node that has room.

        Devices are what is short mostly. So of the nodes with room on a device, a few are asked one by one
        before all are.
        """
        walk = self._walk
        exchanged = walk.traffic.with_nodes(part, walk.load.node) if self._policy.uses_traffic else {}
        distance = self._distances.to(part, exchanged)
        if not walk.load.is_server[part]:
            distance = np.where(walk.load.has_device(part, walk.limit), distance, np.inf)
        for _ in range(ASKED_ALONE):
            node = int(distance.argmin())
            if not distance[node] < np.inf:
                break
            if walk.load.has_room(part, node, walk.limit):
                return node
            distance[node] = np.inf
        hosts = walk.hosts(part).nonzero()[0]
        return int(hosts[distance[hosts].argmin()]) if len(hosts) else WAITS

    @cached_property
    def _distances(self) -> HostDistances:
        """Made when the first part is placed, since then the walk knows which nodes may get parts."""
        return HostDistances(self._walk, bytes_relative=self._policy.bytes_relative)
