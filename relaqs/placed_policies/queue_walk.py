"""The walk through the queue of parts: an order of jobs, a node for each part, and who leaves a full node.

Who is overloaded, and which parts leave an overloaded node.

The host, or the part that leaves, that is most like an ideal one: the least Euclidean distance.

Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, sections 3.3.2 and 3.3.3. The paper puts bytes and shares into
one distance. As they are, the bytes decide alone; here they are relative to the most of them, unless a
policy says otherwise.

How far nodes are from the ideal hosts of parts, kept up to date while a load changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.sharing.parts import (
    CORES,
    DEVICES,
    NETWORK,
    RESOURCES,
    WAITS,
    Load,
    Parts,
    PlacedPlan,
    PlacedView,
    cells_of,
    relative_to,
)


class Traffic:
    """The flows of a view's parts, by part. Computed where it is asked for, since most parts stay."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._jobs: dict[int, dict[int, list[tuple[int, float]]]] = {}

    @cached_property
    def _by_job(self) -> tuple[IntArray, IntArray]:
        """The flows' positions by job, and where each job's begin among them."""
        job = self._parts.job[self._parts.flows[:, 0]]
        order = np.argsort(job, kind="stable")
        jobs = int(self._parts.job.max(initial=-1)) + 1
        return order, np.searchsorted(job[order], np.arange(jobs + 1))

    def with_nodes(self, part: int, node: IntArray) -> dict[int, float]:
        """Return the bytes that a part exchanges with nodes in an iteration, by node; with others, none.

        Args:
            node: where each part stands, shape (P,); −1: nowhere.
        """
        job = int(self._parts.job[part])
        if job not in self._jobs:
            self._jobs[job] = self._of_job(job)
        exchanged: dict[int, float] = {}
        for other, size in self._jobs[job].get(part, ()):
            place = int(node[other])
            if place >= 0:
                exchanged[place] = exchanged.get(place, 0.0) + size
        return exchanged

    def _of_job(self, job: int) -> dict[int, list[tuple[int, float]]]:
        """Return the parts that each part of a job exchanges bytes with, and how many, in order of flows."""
        order, starts = self._by_job
        flows = order[starts[job] : starts[job + 1]]
        found: dict[int, list[tuple[int, float]]] = {}
        ends, sizes = self._parts.flows[flows].tolist(), self._parts.flow_bytes[flows].tolist()
        for (sender, receiver), size in zip(ends, sizes, strict=True):
            found.setdefault(sender, []).append((receiver, size))
            if sender != receiver:
                found.setdefault(receiver, []).append((sender, size))
        return found


MEGABYTE = 1e6
SLOWED_SHARE = 0.1  # of the processor's use, while something moves: Beloglazov and Buyya 2012


def slowed_by_moving(
    cores_share: float, state_bytes: float, bytes_per_second: float, period_seconds: float
) -> float:
    """Return by how much a part slows down in a period in which it moves, as a share of a node's cores.

    Args:
        cores_share: what it uses of the node's cores.
        state_bytes: what is moved. bytes_per_second: the network that it is moved over.

    >>> slowed_by_moving(0.5, state_bytes=15e9, bytes_per_second=1e9, period_seconds=60.0)
    0.0125
    """
    return SLOWED_SHARE * cores_share * state_bytes / bytes_per_second / period_seconds


def slowed_on_nodes(view: PlacedView, part: int) -> FloatArray:
    """Return by how much a part slows down by moving to each node in a period, shape (N,); 0 if new."""
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


def host_distances(
    utilisation: FloatArray,
    exchanged: FloatArray,
    degradation: FloatArray,
    underloaded: BoolArray,
    *,
    bytes_relative: bool = True,
) -> FloatArray:
    """Return how far each node is from the ideal host of a part, shape (N,).

    The ideal host has, of each resource, the least utilisation of the underloaded nodes. With the part, it
    exchanges the most bytes of these, and the part does not slow down by moving there.

    Args:
        utilisation: of each node's resources, shape (N, 4).
        exchanged: the bytes that the part exchanges with each node in an iteration, shape (N,).
        degradation: by how much the part slows down by moving to each node, shape (N,).
        underloaded: the nodes that the ideal one is made of, shape (N,), at least one.
        bytes_relative: bytes count relative to the most of them; if not, in megabytes.
    """
    ideal = np.where(underloaded, utilisation.T, np.inf).min(axis=1)
    most = exchanged.max(where=underloaded, initial=0.0)
    lacks = (most - exchanged) / ((most if most > 0 else 1.0) if bytes_relative else MEGABYTE)
    first, second, third, fourth = (utilisation.T - ideal[:, None]) ** 2  # sums along short rows are slow
    return np.asarray(np.sqrt(first + second + third + fourth + lacks**2 + degradation**2))


def mover_distances(
    utilisation: FloatArray, exchanged: FloatArray, overloaded: BoolArray, *, bytes_relative: bool = True
) -> FloatArray:
    """Return how far each part of a node is from the ideal one to leave it, shape (C,).

    The ideal part uses the most of each resource that is overloaded and the least of the others. It exchanges
    no bytes with the parts that stay.

    Args:
        utilisation: what each part uses, relative to what the node has, shape (C, 4).
        exchanged: the bytes that each part exchanges with others of the node in an iteration, shape (C,).
        overloaded: which resources are, shape (4,).
        bytes_relative: as for `host_distances`.
    """
    ideal = np.where(overloaded, utilisation.max(axis=0), utilisation.min(axis=0))
    most = exchanged.max()
    moved = exchanged / ((most if most > 0 else 1.0) if bytes_relative else MEGABYTE)
    return np.asarray(np.sqrt(((utilisation - ideal) ** 2).sum(axis=1) + moved**2))


def take_movers(
    load: Load,
    priority: FloatArray,
    traffic: Traffic,
    limit: float,
    *,
    lowest_share: float = 0.1,
    bytes_relative: bool = True,
) -> list[int]:
    """Take parts off every overloaded node until it is not, and return them in the order in which they left.

    The part that is nearest to the ideal one leaves first. While a device of the node is overloaded, only the
    parts on such devices with the lowest priorities may leave, at least one.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.3.3.

    Args:
        load: what stands where; it is changed.
        priority: of each part, shape (P,).
        limit: above which a resource or a device is overloaded.
        lowest_share: of the parts on overloaded devices, those that may leave.
        bytes_relative: as in `relaqs.placed_policies.queue_walk`.
    """
    left = []
    for node in np.flatnonzero(load.overloaded(limit)).tolist():
        members, alone = np.flatnonzero(load.node == node), slice(node, node + 1)
        while True:
            devices = load.overloaded_devices(limit, alone)[0]
            overloaded = load.overloaded_resources(limit, alone)[0]
            overloaded[DEVICES] = devices.any()
            if not overloaded.any():
                break
            candidates = _candidates(load, members, devices, priority, lowest_share)
            exchanged = [traffic.with_nodes(part, load.node).get(node, 0.0) for part in candidates.tolist()]
            utilisation = relative_to(load.demand[candidates], load.capacity[node])
            distance = mover_distances(
                utilisation, np.array(exchanged), overloaded, bytes_relative=bytes_relative
            )
            part = int(candidates[distance.argmin()])
            load.take(part)
            members = members[members != part]
            left.append(part)
    return left


def _candidates(
    load: Load, members: IntArray, devices: BoolArray, priority: FloatArray, lowest_share: float
) -> IntArray:
    """Return those of a node's parts that may leave it. devices: which of its devices are overloaded."""
    if not devices.any():
        return members
    there = members[(load.device[members] >= 0) & devices[load.device[members]]]
    count = max(1, math.ceil(lowest_share * len(there)))
    return np.sort(there[np.argsort(priority[there], kind="stable")[:count]])


def cluster_load(load: Load, *, normalised: bool = False) -> float:
    """Return the mean over living nodes of the length of their utilisations; 0 without such nodes.

    Four resources that are used to 45 % each have a length of 0.9.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.5.

    Args:
        normalised: divide by the root of the number of resources, so that 0.9 means 90 % of each.
    """
    if not load.alive.any():
        return 0.0
    lengths = np.linalg.norm(load.utilisation[load.alive], axis=1)
    return float(lengths.mean()) / (math.sqrt(NETWORK + 1) if normalised else 1.0)


class Choices(Protocol):
    """What a policy chooses in a walk; all else is the walk's. One is made for each walk."""

    def priorities(self) -> FloatArray:
        """Return how soon each part comes, shape (P,), higher first. The lowest leave a full node."""
        ...

    def ranks(self, queue: IntArray) -> FloatArray:
        """Return how soon each job comes, shape (J,), higher first. queue: the parts that wait."""
        ...

    def node(self, part: int) -> int:
        """Return the node of a part, one of the walk's hosts, or −1 where there are none."""
        ...


class QueueWalk:
    """One plan that is made part by part, on a load that fills up.

    From an overloaded node parts join the queue, and move once they have a host. One that finds none waits.
    A part without a host is passed over, and the walk goes on.

    Attributes:
        load: what stands where; it changes as parts are placed.
        underloaded: the nodes that may get parts, shape (N,).
        turns: where they are noted, the jobs that were placed, each with those that had room at its turn,
            itself the first.
    """

    def __init__(self, view: PlacedView, limit: float, *, notes_turns: bool = False) -> None:
        """Start with the parts that are placed now.

        Args:
            limit: a node is overloaded above this share.
            notes_turns: find out at each turn which jobs have room. A plan needs only the first of them.
        """
        self.view, self.limit, self._notes_turns = view, limit, notes_turns
        self.load, self.traffic = Load(view), Traffic(view.parts)
        self.underloaded = self.load.alive.copy()
        self._takes_parts = False
        self.turns: list[tuple[int, IntArray]] = []

    def plan(
        self,
        choices: Choices,
        *,
        gang: bool = True,
        migrates: bool = True,
        lowest_share: float = 0.1,
        bytes_relative: bool = True,
    ) -> PlacedPlan:
        """Return the plan of one walk. The arguments are those of `relaqs.placed_policies.mlf_h.MlfH`."""
        load = self.load
        waits = ~self.view.parts.is_placed
        too_much = migrates and bool(load.overloaded(self.limit).any())
        if waits.any() or too_much:
            priority = choices.priorities()
            if too_much:
                movers = take_movers(
                    load,
                    priority,
                    self.traffic,
                    self.limit,
                    lowest_share=lowest_share,
                    bytes_relative=bytes_relative,
                )
                waits[movers] = True
            self.underloaded = load.alive & ~load.overloaded(self.limit)
            self._takes_parts = bool(self.underloaded.any())
            place = self._place_jobs if gang else self._place_parts
            place(np.flatnonzero(waits), priority, choices)
        return PlacedPlan.of(self.view, load.node, load.device)

    def hosts(self, part: int) -> BoolArray:
        """Return which nodes have room for a part, shape (N,)."""
        return self.load.hosts(part, self.limit) & self.underloaded

    def _place_parts(self, queue: IntArray, priority: FloatArray, choices: Choices) -> None:
        """Place the parts of a queue one by one, those of the highest priority first.

        Nodes only fill up in a walk. So a part that asks for no less than one that found no host finds none.
        """
        queue = queue[np.argsort(-priority[queue], kind="stable")]
        hopeless = np.zeros(len(queue), dtype=np.bool_)
        demand = self.load.demand[queue]
        for at, part in enumerate(queue.tolist()):
            if not hopeless[at] and not self._place(part, choices):
                hopeless |= (demand >= demand[at]).all(axis=1)

    def _place_jobs(self, queue: IntArray, priority: FloatArray, choices: Choices) -> None:
        """Place all waiting parts of a job or none, the job of the highest rank first.

        Where one of them finds no host, no part of the job stays anywhere.
        """
        jobs = self.view.parts.job[queue]  # the view is in order of jobs, and so is the queue
        starts = np.searchsorted(jobs, np.arange(len(self.view.jobs) + 1))
        waiting = np.flatnonzero(np.diff(starts))
        order = waiting[np.argsort(-choices.ranks(queue)[waiting], kind="stable")]
        stands = np.zeros(len(self.view.jobs), dtype=np.bool_)
        stands[self.view.parts.job[self.load.node != WAITS]] = True
        rooms = _Rooms(self, queue)
        at = 0
        while at < len(order):
            rest = order[at:]
            visited = ~rooms.hopeless[rest] | stands[rest]
            if not visited.any():
                return
            first = int(visited.argmax())
            job = int(rest[first])
            fits = rooms.may_have(job)
            rivals = rest[rooms.may_all_have(rest)] if fits and self._notes_turns else rest[:0]
            parts = queue[starts[job] : starts[job + 1]]
            if fits and self._place_all(parts, priority, choices):
                self.turns.append((job, rivals))
            elif stands[job]:
                self._leave(job)
                rooms.hopeless[:] = False
            at += first + 1

    def _place_all(self, parts: IntArray, priority: FloatArray, choices: Choices) -> bool:
        parts = parts[np.argsort(-priority[parts], kind="stable")]
        for at, part in enumerate(parts.tolist()):
            if not self._place(part, choices):
                for placed in parts[:at].tolist():
                    self.load.take(placed)
                return False
        return True

    def _leave(self, job: int) -> None:
        members = np.arange(*np.searchsorted(self.view.parts.job, [job, job + 1]))
        for part in members[self.load.node[members] != WAITS].tolist():
            self.load.take(part)

    def _place(self, part: int, choices: Choices) -> bool:
        """Put a part onto the node that is chosen, and return whether one has room."""
        load = self.load
        node = choices.node(part) if self._takes_parts else WAITS
        if node == WAITS:
            return False
        load.put(part, node, WAITS if load.is_server[part] else load.least_loaded_device(node))
        return True


class _Rooms:
    """Which jobs have room, by the least that one of a job's parts asks for of each resource.

    Attributes:
        hopeless: jobs that have none, shape (J,). Nodes only fill up while parts are placed. So a job that
            asks for no less than one without room has none either, until parts leave.
    """

    def __init__(self, walk: QueueWalk, queue: IntArray) -> None:
        self._walk, load, count = walk, walk.load, len(walk.view.jobs)
        on_device = queue[~load.is_server[queue]]
        job = walk.view.parts.job[on_device]
        self._wanted = np.bincount(job, minlength=count)
        self._least = np.full((load.demand.shape[1], count), np.inf)
        for least, demand in zip(self._least, load.demand[on_device].T, strict=True):
            np.minimum.at(least, job, demand)
        self._devices: dict[float, _DeviceRoom] = {}
        self.hopeless = np.zeros(count, dtype=np.bool_)

    def may_have(self, job: int) -> bool:
        """Return False where a job has more parts than would fit of the smallest of them.

        A job of which only a server waits may always have room.
        """
        if self.hopeless[job] or not self._wanted[job]:
            return not self.hopeless[job]
        if self._fits(job):
            return True
        no_less = self._wanted >= self._wanted[job]
        for least in self._least:
            no_less &= least >= least[job]
        self.hopeless |= no_less
        return False

    def may_all_have(self, jobs: IntArray) -> BoolArray:
        """Return the same for several jobs, shape (n,)."""
        return np.array([self.may_have(job) for job in jobs.tolist()], dtype=np.bool_)

    def _fits(self, job: int) -> bool:
        """Return whether a job's parts fit, asking first what is asked fast: whether devices are enough."""
        walk, least, wanted = self._walk, self._least[:, job], self._wanted[job]
        share = float(least[DEVICES])
        if not share > 0:
            return bool(walk.load.room(least, walk.limit)[walk.underloaded].sum() >= wanted)
        if share not in self._devices:
            self._devices[share] = _DeviceRoom(walk, share)
        room = self._devices[share].now()
        nodes = room.nonzero()[0]
        room = room[nodes]
        if room.sum() < wanted:
            return False
        return bool(np.minimum(room, walk.load.other_room(least, walk.limit, nodes)).sum() >= wanted)


class _DeviceRoom:
    """How many parts of one share of a device fit onto devices; only changed nodes are looked at again."""

    def __init__(self, walk: QueueWalk, share: float) -> None:
        self._walk, self._share = walk, share
        self._room = np.zeros(len(walk.view.nodes))
        self._seen = len(walk.load.changed)
        self._look_at(np.flatnonzero(walk.underloaded))

    def now(self) -> FloatArray:
        """Return how many fit onto each node, shape (N,); none where no part may come."""
        walk, load = self._walk, self._walk.load
        changed = set(load.changed[self._seen :])
        if changed:
            self._seen = len(load.changed)
            nodes = np.array(list(changed))
            self._look_at(nodes[walk.underloaded[nodes]])
        return self._room

    def _look_at(self, nodes: IntArray) -> None:
        self._room[nodes] = self._walk.load.device_room(self._share, self._walk.limit, nodes)


class HostDistances:
    """What the function `host_distances` returns, to the bit, for part after part of a walk.

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
