"""The walk through the queue of parts: an order of jobs, a node for each part, and who leaves a full node."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.load import Load
from relaqs.parts.parts import WAITS
from relaqs.parts.plan import PlacedPlan
from relaqs.parts.resources import DEVICES
from relaqs.parts.view import PlacedView
from relaqs.placed_policies.overload import take_movers
from relaqs.placed_policies.traffic import Traffic


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
