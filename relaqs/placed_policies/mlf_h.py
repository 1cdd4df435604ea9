"""MLF-H: parts by priority, each on the node that is most like an ideal one, and off nodes with too much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.load import Load
from relaqs.parts.parts import WAITS
from relaqs.parts.plan import PlacedPlan, planned_in_order
from relaqs.parts.resources import CORES, DEVICES, NETWORK
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.ideal import host_distances, slowed_by_moving
from relaqs.placed_policies.overload import take_movers
from relaqs.placed_policies.priority import PartPriority
from relaqs.placed_policies.traffic import Traffic


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
        load = Load(view)
        waits = ~view.parts.is_placed
        too_much = self.migrates and bool(load.overloaded(self.limit).any())
        if not waits.any() and not too_much:
            return PlacedPlan.of(view, load.node, load.device)
        priority, traffic = self.priority.of_parts(view), Traffic(view.parts)
        if too_much:
            movers = take_movers(
                load,
                priority,
                traffic,
                self.limit,
                lowest_share=self.lowest_share,
                bytes_relative=self.bytes_relative,
            )
            waits[movers] = True
        walk = _Walk(self, view, load, traffic)
        if self.gang:
            walk.place_jobs(np.flatnonzero(waits), priority)
        else:
            walk.place_parts(np.flatnonzero(waits), priority)
        return PlacedPlan.of(view, load.node, load.device)


class _Walk:
    """One walk through the queue, on a load that fills up."""

    def __init__(self, policy: MlfH, view: PlacedView, load: Load, traffic: Traffic) -> None:
        self._policy, self._view, self._load, self._traffic = policy, view, load, traffic
        self._underloaded = load.alive & ~load.overloaded(policy.limit)
        self._starts = np.searchsorted(
            view.parts.job, np.arange(len(view.jobs) + 1)
        )  # it is in order of jobs
        self._rooms: dict[tuple[float, float], int] = {}

    def place_parts(self, queue: IntArray, priority: FloatArray) -> None:
        """Place the parts of a queue one by one, those of the highest priority first.

        Nodes only fill up in a walk. So a part that asks for no less than one that found no host finds none.
        """
        queue = queue[np.argsort(-priority[queue], kind="stable")]
        hopeless = np.zeros(len(queue), dtype=np.bool_)
        demand = self._load.demand[queue]
        for at, part in enumerate(queue.tolist()):
            if not hopeless[at] and not self._place(part):
                hopeless |= (demand >= demand[at]).all(axis=1)

    def place_jobs(self, queue: IntArray, priority: FloatArray) -> None:
        """Place all waiting parts of a job or none, the job with the part of the highest priority first.

        Where one of them finds no host, no part of the job stays anywhere.
        """
        jobs = self._view.parts.job
        ranked = np.where(self._view.parts.is_server, -np.inf, priority)
        best = np.full(len(self._view.jobs), -np.inf)
        np.maximum.at(best, jobs[queue], ranked[queue])
        starts = np.searchsorted(jobs[queue], np.arange(len(best) + 1))
        waiting = np.flatnonzero(np.diff(starts))
        for job in waiting[np.argsort(-best[waiting], kind="stable")].tolist():
            parts = queue[starts[job] : starts[job + 1]]
            if not (self._may_fit(parts) and self._place_all(parts, priority)):
                self._leave(job)

    def _may_fit(self, parts: IntArray) -> bool:
        """Return False where fewer parts like the smallest of these would fit than there are."""
        demand = self._load.demand[parts[~self._load.is_server[parts]]]
        if not len(demand):
            return True
        key = float(demand[:, DEVICES].min()), float(demand[:, CORES].min())
        if key not in self._rooms:
            rooms = self._load.room(np.array([*key, 0.0, 0.0]), self._policy.limit)
            self._rooms[key] = int(rooms[self._underloaded].sum())
        return self._rooms[key] >= len(demand)

    def _place_all(self, parts: IntArray, priority: FloatArray) -> bool:
        parts = parts[np.argsort(-priority[parts], kind="stable")]
        for at, part in enumerate(parts.tolist()):
            if not self._place(part):
                for placed in parts[:at].tolist():
                    self._load.take(placed)
                return False
        self._rooms.clear()
        return True

    def _leave(self, job: int) -> None:
        first, end = self._starts[job], self._starts[job + 1]
        for part in (first + np.flatnonzero(self._load.node[first:end] != WAITS)).tolist():
            self._load.take(part)
            self._rooms.clear()

    def _place(self, part: int) -> bool:
        """Put a part onto the best node that has room, and return whether there is one."""
        load, policy = self._load, self._policy
        hosts = load.hosts(part, policy.limit) & self._underloaded
        if not hosts.any():
            return False
        exchanged = np.zeros(len(hosts))
        if policy.uses_traffic:
            exchanged = self._traffic.with_nodes(part, load.node, len(hosts))
        distance = host_distances(
            load.utilisation,
            exchanged,
            self._degradation(part),
            self._underloaded,
            bytes_relative=policy.bytes_relative,
        )
        node = int(np.where(hosts, distance, np.inf).argmin())
        load.put(part, node, WAITS if load.is_server[part] else load.least_loaded_device(node))
        return True

    def _degradation(self, part: int) -> FloatArray:
        """Return by how much a part slows down by moving to each node in a period, shape (N,); 0 if new."""
        view = self._view
        origin = int(view.parts.node[part])
        capacity = view.nodes.capacity[origin]
        if origin == WAITS or not (capacity[NETWORK] > 0 and capacity[CORES] > 0):
            return np.zeros(len(view.nodes))
        slowed = slowed_by_moving(
            float(view.parts.demand[part, CORES] / capacity[CORES]),
            float(view.parts.state_bytes[part]),
            float(capacity[NETWORK]),
            view.period_seconds,
        )
        return np.where(np.arange(len(view.nodes)) == origin, 0.0, slowed)
