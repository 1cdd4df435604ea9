"""MLF-H: parts by priority, each on the node that is most like an ideal one, and off nodes with too much.

A part's priority is what it brings to learning, and how urgent its computing is. It counts what its
descendants bring, discounted by distance: over all paths, or each descendant once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.placed_policies.queue_walk import HostDistances, QueueWalk
from relaqs.sharing.parts import WAITS, Parts, PlacedPlan, PlacedView, planned_in_order

PATHS = ("all", "once")


def with_descendants(parts: Parts, own: FloatArray, discount: float, paths: str = "all") -> FloatArray:
    """Return what each part has with its descendants, shape (P,).

    Over all paths it is x = own + discount · the sum of x over the children. A descendant that is reached by
    several paths counts once for each, so that it grows exponentially with layers that are fully connected.
    Once: own + the sum of discount^d · own over the descendants, d being the least number of edges to each.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, equations 3 and 5, are the sum over all paths.

    Args:
        own: what each part has by itself, shape (P,).
        discount: for each edge, from 0 to below 1.
        paths: one of PATHS.
    """
    if paths == "once":
        return _each_once(parts, own, discount)
    total = own.copy()
    for parent, child in _edges_from_below(parts):
        total += discount * np.bincount(parent, weights=total[child], minlength=len(total))
    return total


def longest_path_below(parts: Parts) -> FloatArray:
    """Return the longest sum of alone_seconds over the parts below each part, itself left out; shape (P,)."""
    below = np.zeros(len(parts))
    for parent, child in _edges_from_below(parts):
        np.maximum.at(below, parent, below[child] + parts.alone_seconds[child])
    return below


def _edges_from_below(parts: Parts) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield parents and children, level by level of the parents, the deepest first."""
    parent_level = parts.level[parts.edges[:, 0]]
    small = np.min_scalar_type(-1 - int(parent_level.max(initial=0)))  # small integers are sorted faster
    order = np.argsort(-parent_level.astype(small), kind="stable")
    starts = np.flatnonzero(np.diff(parent_level[order], prepend=-1))
    for chosen in np.split(order, starts[1:]) if len(order) else ():
        yield parts.edges[chosen, 0], parts.edges[chosen, 1]


def _each_once(parts: Parts, own: FloatArray, discount: float) -> FloatArray:
    total = own.copy()
    edge_job = parts.job[parts.edges[:, 0]]
    for job in np.unique(edge_job):
        members = np.flatnonzero(parts.job == job)
        place = np.searchsorted(members, parts.edges[edge_job == job])
        distance = _distances(len(members), tuple(map(tuple, place.tolist())))
        total[members] = np.where(np.isfinite(distance), discount**distance, 0.0) @ own[members]
    return total


@lru_cache(maxsize=256)
def _distances(count: int, edges: tuple[tuple[int, int], ...]) -> FloatArray:
    """Return the least number of edges from each part of a job to each other, (n, n); infinity: no path."""
    distance = np.full((count, count), np.inf)
    np.fill_diagonal(distance, 0.0)
    for parent, child in edges:
        distance[parent, child] = 1.0
    for middle in range(count):
        distance = np.minimum(distance, distance[:, middle, None] + distance[middle])
    return distance


LATE = ("none", "keep")


@dataclass(frozen=True, slots=True)
class PartPriority:
    """The priority of each part: P = α·P_ML + (1 − α)·P_C.

    For a part without children, with the job in its iteration I and δl the fall of its loss:

        P_ML = urgency · (1 / I) · (δl of iteration I − 1 / the sum of δl) · (share of the parameters)
        P_C  = γ_d / (deadline − now) + γ_r / (time left) + γ_w · (time in the queue)

    Every other part adds γ times what its children have, to both. A server has the highest priority.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, equations 2 to 6; the numbers are those of its section 4.1.
    The paper leaves open what the other arguments say.

    Args:
        alpha: α. gamma: γ. gamma_deadline: γ_d. gamma_remaining: γ_r. gamma_waiting: γ_w.
        unit_seconds: the unit of all times in P_C. In seconds, waiting alone would count; in hours, all do.
        least_seconds: time left, and time to the deadline, count as no less than this.
        late: what the deadline's term is once it has passed: "none", 0; or "keep", as if least_seconds were
            left.
        paths: how descendants count: "all" paths, or each "once".
        uses_urgency: False leaves the urgency out, to see what it does.

    >>> PartPriority(gamma_deadline=-1.0)
    Traceback (most recent call last):
    ...
    ValueError: gamma_deadline is -1.0; give a finite number, 0 or more
    """

    alpha: float = 0.3
    gamma: float = 0.8
    gamma_deadline: float = 0.3
    gamma_remaining: float = 0.3
    gamma_waiting: float = 0.35
    unit_seconds: float = 3600.0
    least_seconds: float = 60.0
    late: str = "none"
    paths: str = "all"
    uses_urgency: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or not 0 <= self.gamma < 1:
            raise ValueError(
                f"alpha is {self.alpha} and gamma is {self.gamma}; alpha must be from 0 to 1, gamma below 1"
            )
        for name in ("gamma_deadline", "gamma_remaining", "gamma_waiting"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        for name in ("unit_seconds", "least_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite number above 0")
        if self.late not in LATE or self.paths not in PATHS:
            raise ValueError(
                f"late is {self.late!r} and paths is {self.paths!r}; give one of {LATE} and one of {PATHS}"
            )

    def of_parts(self, view: PlacedView) -> FloatArray:
        """Return the priority of each part, shape (P,); infinite for servers."""
        parts = view.parts  # descendants add up, so both terms go down the graph at once
        own = self.alpha * self.learning(view) + (1 - self.alpha) * self.computing(view)
        return np.where(parts.is_server, np.inf, with_descendants(parts, own, self.gamma, self.paths))

    def learning(self, view: PlacedView) -> FloatArray:
        """Return equation 2 for each part alone, shape (P,).

        The share of the last fall of the loss is 1 up to the second iteration, and while no loss is known.
        It is 0 where the loss has risen in all, and at most 1.
        """
        jobs, parts = view.jobs, view.parts
        iteration = np.floor(jobs.iterations_done) + 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            fallen = np.where(jobs.loss_fallen > 0, jobs.loss_fallen_last / jobs.loss_fallen, 0.0)
        unknown = (iteration <= 2) | np.isnan(jobs.loss_fallen_last)
        fallen = np.where(unknown, 1.0, np.clip(fallen, 0.0, 1.0))
        urgency = jobs.urgency if self.uses_urgency else np.ones(len(jobs))
        return np.asarray((urgency / iteration * fallen)[parts.job] * parts.size_share)

    def computing(self, view: PlacedView) -> FloatArray:
        """Return equation 4 for each part alone, shape (P,).

        A part's deadline is that of its job, less what the parts below it compute in one iteration. Its time
        left is what it computes alone in all iterations that are left. It waits since it last entered the
        queue, and not while it is placed.
        """
        jobs, parts = view.jobs, view.parts
        to_deadline = jobs.deadline_seconds[parts.job] - longest_path_below(parts) - view.time_seconds
        left = jobs.iterations_left[parts.job] * parts.alone_seconds
        waits = np.maximum(view.time_seconds - parts.queued_since_seconds, 0.0)
        waits = np.where(np.isnan(parts.queued_since_seconds), 0.0, waits)
        unit, least = self.unit_seconds, self.least_seconds
        deadline = unit / np.maximum(to_deadline, least)
        if self.late == "none":
            deadline = np.where(to_deadline > 0, deadline, 0.0)
        return np.asarray(
            self.gamma_deadline * deadline
            + self.gamma_remaining * unit / np.maximum(left, least)
            + self.gamma_waiting * waits / unit
        )


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
        bytes_relative: as in `relaqs.placed_policies.queue_walk`.
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
