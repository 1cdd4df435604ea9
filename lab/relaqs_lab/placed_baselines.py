"""Placed policies to compare ours with: whole jobs, all parts or none, on few nodes.

`packed` serves jobs in an order, and passes over who does not fit. Policies differ in the order alone.

- Fair sharing: who has had least of the devices comes first.
- Slack index: urgency for each device-second, for jobs that can still be in time. It is our own.
- Earliest deadline first, and least work left first.
- ElasticFlow with jobs of fixed size: first who can still be in time, by slack.
- Gandiva: first come first served, and one part off each overloaded device in every round.
- Graphene: jobs with little work left first, on the nodes with the free resources that suit them best.
- HyperSched on parts: jobs that still gain accuracy before their deadline; the others pause.
- SLAQ on parts: devices to the jobs with the loss that falls most for them.
- Tiresias on parts: two queues by device-time, first come first served within each.

`relaqs.policies.registry` finds them by entry points, so a cluster can run them, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.placed_policies.mlf_h import longest_path_below
from relaqs.sharing.parts import (
    CORES,
    DEVICES,
    ROUNDING,
    WAITS,
    Load,
    PlacedPlan,
    PlacedView,
    planned_in_order,
    relative_to,
)
from relaqs_lab.mlf_rl import device_seconds_left, device_shares, iterations_to_accuracy


def runs(view: PlacedView) -> BoolArray:
    """Return which jobs have a part that is placed, shape (J,)."""
    running = np.zeros(len(view.jobs), dtype=np.bool_)
    running[view.parts.job[view.parts.is_placed]] = True
    return running


FITS = ("tight", "dot")
LIMIT = 0.9  # of a device and of every resource, for all policies alike


def packed(
    view: PlacedView, order: IntArray, *, preempts: bool, limit: float = LIMIT, fit: str = "tight"
) -> PlacedPlan:
    """Return the plan that serves jobs in an order. Who does not fit is passed over. Nobody moves.

    A job that runs keeps its places. With `preempts`, one that comes earlier in the order and finds no room
    beside all running jobs takes that of later ones, who wait again.

    Args:
        view: in its one order.
        order: the positions of all jobs.
        preempts: whether a running job may have to wait for one before it.
        limit: how much of each device and resource is used at most.
        fit: "tight" takes the node with least room that can have the whole job, and else those with most
            room. "dot" takes the nodes whose free resources are most like what a part needs (Grandl et al.,
            Tetris, SIGCOMM 2014).
    """
    return _Filling(view, limit, fit).filled(order, preempts=preempts)


class _Filling:
    def __init__(self, view: PlacedView, limit: float, fit: str) -> None:
        assert fit in FITS, fit
        self._view, self._limit, self._fit = view, limit, fit
        parts, count = view.parts, len(view.jobs)
        total = np.bincount(parts.job, minlength=count)
        self._starts = np.concatenate([[0], np.cumsum(total)])  # the view is in order of jobs
        placed = np.bincount(parts.job[parts.is_placed], minlength=count)
        self.runs: BoolArray = (placed == total) & (total > 0)
        on_device = ~parts.is_server
        self._device_parts = np.bincount(parts.job[on_device], minlength=count)
        self._demand = np.zeros((count, parts.demand.shape[1]))
        np.maximum.at(self._demand, parts.job[on_device], parts.demand[on_device])
        self.everyone = Load(view, self.runs[parts.job])
        self._rooms: dict[int, dict[bytes, int]] = {}

    def filled(self, order: IntArray, *, preempts: bool) -> PlacedPlan:
        waits = ~self.runs[order]
        if not preempts or not (self.runs[order] & (np.cumsum(waits) > 0)).any():  # or nobody must make way
            for job in order[waits].tolist():
                self._place(job, self.everyone)
            return self._plan(self.everyone)
        firm = Load(self._view, np.zeros(len(self._view.parts), dtype=np.bool_))
        new = np.zeros(len(self._view.nodes), dtype=np.bool_)  # nodes with newcomers
        for job in order.tolist():
            if self.runs[job]:
                self._keep(job, firm, new)
            elif (places := self._place(job, self.everyone, firm)) is not None:
                new[places[0]] = True
        return self._plan(firm)

    def _plan(self, load: Load) -> PlacedPlan:
        return PlacedPlan.of(self._view, load.node, load.device)

    def _keep(self, job: int, firm: Load, new: BoolArray) -> None:
        """Let a running job stay where it is, or take it off everywhere if one before it has its room."""
        parts, members = self._view.parts, self._members(job)
        self._rooms.pop(id(firm), None)
        if not new[parts.node[members]].any():
            firm.put_all(members, parts.node[members], parts.device[members])
            return
        for at, part in enumerate(members.tolist()):
            node, device = int(parts.node[part]), int(parts.device[part])
            if new[node] and not self._has_room(firm, part, node, device):
                for kept in members[:at].tolist():
                    firm.take(kept)
                for each in members.tolist():
                    if self.everyone.node[each] != WAITS:
                        self.everyone.take(each)
                self._rooms.pop(id(self.everyone), None)
                return
            firm.put(part, node, device)

    def _has_room(self, load: Load, part: int, node: int, device: int) -> bool:
        if not load.has_room(part, node, self._limit):
            return False
        used = 0.0 if device == WAITS else load.device_used[node, device]
        return bool(used == 0.0 or used + load.demand[part, DEVICES] <= self._limit + ROUNDING)

    def _place(self, job: int, beside: Load, firm: Load | None = None) -> tuple[IntArray, IntArray] | None:
        """Put a job beside all others, or else only beside those that are firm. Return its places."""
        places = self._places(job, beside)
        if places is None and firm is not None:
            places = self._places(job, firm)
        if places is None:
            return None
        for load in (beside,) if firm is None else (beside, firm):
            load.put_all(self._members(job), *places)
            self._rooms.pop(id(load), None)
        return places

    def _members(self, job: int) -> IntArray:
        return np.arange(self._starts[job], self._starts[job + 1])

    def _room(self, job: int, load: Load) -> int:
        """Return how many parts like the largest of a job all nodes can take, by devices and cores."""
        demand = self._demand[job] * (1, 1, 0, 0)
        known = self._rooms.setdefault(id(load), {})
        key = demand.tobytes()
        if key not in known:
            known[key] = int(load.room(demand, self._limit).sum())
        return known[key]

    def _places(self, job: int, load: Load) -> tuple[IntArray, IntArray] | None:
        """Return a node and a device for each part of a job, or None where it does not fit as a whole."""
        wanted = int(self._device_parts[job])
        if self._room(job, load) < wanted:
            return None
        room = load.room(self._demand[job], self._limit)
        if room.sum() < wanted:
            return None
        members = self._members(job)
        nodes = iter(self._nodes(wanted, room, self._demand[job], load).tolist())
        placed: list[int] = []
        for part in [*members[~load.is_server[members]], *members[load.is_server[members]]]:
            node = self._server_node(part, load, placed) if load.is_server[part] else next(nodes)
            device = WAITS if load.is_server[part] or node == WAITS else self._device(int(part), node, load)
            if node == WAITS or (device == WAITS and not load.is_server[part]):
                break
            load.put(int(part), node, device)
            placed.append(int(part))
        places = load.node[members].copy(), load.device[members].copy()
        for part in placed:
            load.take(part)
        return places if len(placed) == len(members) else None

    def _nodes(self, wanted: int, room: IntArray, demand: FloatArray, load: Load) -> IntArray:
        """Return the node of each of so many parts, in their order, shape (wanted,)."""
        if self._fit == "dot":
            free = 1.0 - np.minimum(load.utilisation, 1.0)
            order = np.argsort(-(free * relative_to(demand, load.capacity)).sum(axis=1), kind="stable")
        elif (whole := room >= wanted).any():
            order = np.array([np.where(whole, room, np.iinfo(np.int64).max).argmin()])
        else:
            order = np.argsort(-room, kind="stable")
        return np.repeat(order, room[order])[:wanted]

    def _device(self, part: int, node: int, load: Load) -> int:
        """Return the fullest device of a node that has room for a part, −1 if none has."""
        used = load.device_used[node]
        fits = (used + load.demand[part, DEVICES] <= self._limit + ROUNDING) | (used == 0.0)
        return int(np.where(fits, used, -1.0).argmax()) if fits.any() else WAITS

    def _server_node(self, part: int, load: Load, placed: list[int]) -> int:
        """Return the first node of a job's parts that can have its server, else that with most free cores."""
        hosts = load.hosts(part, self._limit)
        beside = [int(load.node[other]) for other in placed if hosts[load.node[other]]]
        if beside:
            return beside[0]
        free = np.where(hosts, load.capacity[:, CORES] - load.used[:, CORES], -1.0)
        return int(free.argmax()) if hosts.any() else WAITS


@dataclass(frozen=True, slots=True)
class FairDevices:
    """Jobs in the order of the device-seconds that they have had, for each unit of weight.

    A job needs all its devices at once, so that a fair share is one over time. It is counted in whole steps
    of `step_device_seconds`. Within a step, running jobs stay, and others come by arrival. This stands for
    the fair scheduler of Borg, under which MLFS's evaluation ran TensorFlow.

    Args:
        step_device_seconds: the smaller, the fairer, and the more jobs are preempted.
    """

    step_device_seconds: float = 3600.0
    name: ClassVar[str] = "fair"

    def __post_init__(self) -> None:
        if not self.step_device_seconds > 0:
            raise ValueError(f"step_device_seconds is {self.step_device_seconds}; it must be above 0")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        step = np.floor(jobs.attained_device_seconds / jobs.weight / self.step_device_seconds)
        return packed(view, np.lexsort([~runs(view), step]), preempts=True)


@dataclass(frozen=True, slots=True)
class SlackIndex:
    """Whole jobs by what a device-second brings: an end in time, by its urgency, or else just an end.

    A job's work is the device-seconds that are left until it ends. With `accuracy_ends`, it is those until it
    has the accuracy that its user needs, as its last gains suggest. A job that can still end by its deadline
    counts with its urgency above the mean one, `late_share` of that if it cannot. A running job counts `stay`
    times, and so makes way only for one that is clearly better.

    Args:
        late_share: of a job that cannot meet its deadline, relative to one that can.
        urgency_power: 0 leaves the urgency out, 1 lets a job of urgency 10 count ten times one of 1.
        accuracy_ends: jobs end when they have the accuracy that is needed, where a rule says so.
        stay: how much better a job must be to take the place of another.
    """

    late_share: float = 0.5
    urgency_power: float = 0.5
    accuracy_ends: bool = True
    stay: float = 1.5
    name: ClassVar[str] = "slack_index"

    def __post_init__(self) -> None:
        if not 0 <= self.late_share <= 1 or not self.stay >= 1 or not self.urgency_power >= 0:
            raise ValueError(
                f"late_share is {self.late_share}, stay {self.stay} and urgency_power {self.urgency_power}; "
                "give from 0 to 1, 1 or more, and 0 or more"
            )

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        iterations = iterations_to_accuracy(view) if self.accuracy_ends else jobs.iterations_left
        seconds = np.maximum(iterations, 1.0) * jobs.iteration_seconds
        in_time = view.time_seconds + seconds <= jobs.deadline_seconds
        worth = np.maximum(jobs.urgency, 1.0) ** self.urgency_power * np.where(in_time, 1.0, self.late_share)
        index = worth / (seconds * device_shares(view)) * np.where(runs(view), self.stay, 1.0)
        return packed(view, np.argsort(-index, kind="stable"), preempts=True)


@dataclass(frozen=True, slots=True)
class EarliestDeadline:
    """Whole jobs by their deadlines. A running job makes way for one with an earlier deadline.

    Source: Liu and Layland, Scheduling Algorithms for Multiprogramming, Journal of the ACM 1973.
    """

    name: ClassVar[str] = "edf"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        return packed(view, np.argsort(view.jobs.deadline_seconds, kind="stable"), preempts=True)


@dataclass(frozen=True, slots=True)
class LeastWorkLeft:
    """Whole jobs by the device-seconds that they have left. A running job makes way for one with less.

    Source: Schrage, Operations Research 1968: the shortest remaining time first has the least mean time on
    one machine. Counting by device-seconds is A-SRPT's way (arXiv 2501.05563).
    """

    name: ClassVar[str] = "srpt"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        return packed(view, np.argsort(device_seconds_left(view), kind="stable"), preempts=True)


@dataclass(frozen=True, slots=True)
class ElasticFlow:
    """Deadlines that can be met are served first, and what cannot be met comes by least work left.

    ElasticFlow gives each admitted job the fewest devices that meet its deadline, and the rest to those whose
    speed gains most. Here a job runs on the devices that it was cut for, or waits. So its least satisfactory
    share is one of time, and what is left of the admission is the order: jobs that must start soon come
    before those with slack, in steps of `slack_step_seconds`, and less work first within a step.

    Source: Gu et al., ElasticFlow, ASPLOS 2023. It rejects jobs; here nobody is rejected.
    """

    slack_step_seconds: float = 1800.0
    name: ClassVar[str] = "elastic_flow"

    def __post_init__(self) -> None:
        if not self.slack_step_seconds > 0:
            raise ValueError(f"slack_step_seconds is {self.slack_step_seconds}; it must be above 0")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        slack = jobs.deadline_seconds - view.time_seconds - jobs.iterations_left * jobs.iteration_seconds
        step = np.floor(np.maximum(slack, 0.0) / self.slack_step_seconds)
        late = slack < 0
        order = np.lexsort([device_seconds_left(view), np.where(late, 0.0, step), late])
        return packed(view, order, preempts=True)


@dataclass(frozen=True, slots=True)
class Gandiva:
    """Jobs by arrival. The part that uses least of an overloaded device moves to the least used device.

    Source: Xiao et al., Gandiva, OSDI 2018: packing and migration. Its growing, shrinking and time slices are
    left out: here parts have the devices that they were cut for.
    """

    name: ClassVar[str] = "gandiva"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        load = Load(view)
        for node, device in np.argwhere(load.overloaded_devices(LIMIT)).tolist():
            there = np.flatnonzero((load.node == node) & (load.device == device))
            part = int(there[view.parts.demand[there, DEVICES].argmin()])
            load.take(part)
            load.put(part, *self._target(part, (node, device), load))
        relieved = PlacedPlan.of(view, load.node, load.device)
        served = packed(_moved(view, relieved), np.arange(len(view.jobs)), preempts=False)
        return PlacedPlan.of(view, served.node, served.device)

    def _target(self, part: int, origin: tuple[int, int], load: Load) -> tuple[int, int]:
        """Return the least used device that has room for a part; where it was if none has."""
        hosts = load.hosts(part, LIMIT)
        used = np.where(hosts[:, None], load.device_used, np.inf)
        node, device = np.unravel_index(int(used.argmin()), used.shape) if used.size else origin
        free = used[node, device]
        fits = free == 0.0 or free + load.demand[part, DEVICES] <= LIMIT + ROUNDING
        return (int(node), int(device)) if fits else origin


def _moved(view: PlacedView, plan: PlacedPlan) -> PlacedView:
    """Return the view as if what a plan moves had moved."""
    return replace(view, parts=replace(view.parts, node=plan.node, device=plan.device))


@dataclass(frozen=True, slots=True)
class Graphene:
    """Whole jobs by the time on their longest path that is left, times the largest share of a device.

    Nodes are taken by the dot product of a part's demand and the free resources. Nobody is preempted.

    Source: Grandl et al., Graphene, OSDI 2016. It orders the tasks of a job by what follows them and how hard
    they are to pack. Here a job's parts run together, so that this order is one of jobs: the least first, as
    in its score for many jobs.
    """

    name: ClassVar[str] = "graphene"

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        parts, jobs = view.parts, view.jobs
        path, share = np.zeros(len(jobs)), np.zeros(len(jobs))
        np.maximum.at(path, parts.job, longest_path_below(parts) + parts.alone_seconds)
        np.maximum.at(share, parts.job, parts.demand[:, DEVICES])
        order = np.argsort(path * jobs.iterations_left * share, kind="stable")
        return packed(view, order, preempts=False, fit="dot")


@dataclass(frozen=True, slots=True)
class HyperSched:
    """Whole jobs by the accuracy that they would gain before their deadline, at the rate of the last while.

    What gained less than `gain_least` in the last tenth of its iterations, or is past its deadline, comes
    after all others, by arrival. A job without such a measurement comes first. A running job counts `stay`
    times.

    Source: Liaw et al., HyperSched, SoCC 2019. It pauses trials that do not gain. Here they only come last:
    every job is to end.
    """

    gain_least: float = 0.005
    stay: float = 1.5
    name: ClassVar[str] = "hypersched"

    def __post_init__(self) -> None:
        if not self.stay >= 1 or not self.gain_least >= 0:
            raise ValueError(f"stay is {self.stay} and gain_least is {self.gain_least}; give 1 and 0 or more")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        time_left = np.maximum(jobs.deadline_seconds - view.time_seconds, 0.0)
        iterations = np.minimum(time_left / jobs.iteration_seconds, jobs.iterations_left)
        gain = jobs.accuracy_gain / (0.1 * jobs.iterations_most) * iterations
        gain = np.where(jobs.accuracy_gain < self.gain_least, 0.0, gain)
        gain = np.where(np.isnan(gain), np.where(time_left > 0, np.inf, 0.0), gain)
        return packed(
            view,
            np.argsort(-gain * np.where(runs(view), self.stay, 1.0), kind="stable"),
            preempts=True,
        )


@dataclass(frozen=True, slots=True)
class SlaqDevices:
    """Whole jobs by how much a device-second lowers their loss, relative to all that it has fallen.

    The next iterations are expected to do what the last few did. A job that has reported no two losses comes
    first. A running job counts `stay` times, so that equal jobs do not take turns.

    Source: Zhang et al., SLAQ, SoCC 2017: it maximises the normalised fall of the loss in the next epoch.
    """

    stay: float = 1.5
    name: ClassVar[str] = "slaq"

    def __post_init__(self) -> None:
        if not self.stay >= 1:
            raise ValueError(f"stay is {self.stay}; give 1 or more")

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        jobs = view.jobs
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = np.where(jobs.loss_fallen > 0, jobs.loss_fall_rate / jobs.loss_fallen, 0.0)
        gain = np.where(np.isnan(jobs.loss_fallen), np.inf, np.maximum(fall, 0.0))
        gain = gain / (jobs.iteration_seconds * device_shares(view)) * np.where(runs(view), self.stay, 1.0)
        return packed(view, np.argsort(-gain, kind="stable"), preempts=True)


@dataclass(frozen=True, slots=True)
class TiresiasDevices:
    """Whole jobs, those that have held devices for less than the threshold first, then by arrival.

    Source: Gu et al., Tiresias, NSDI 2019: discretised two-dimensional least attained service.

    Args:
        threshold_device_seconds: what a job may use in the first queue.
    """

    threshold_device_seconds: float = 5 * 3600.0
    name: ClassVar[str] = "tiresias"

    def __post_init__(self) -> None:
        if not self.threshold_device_seconds > 0:
            raise ValueError(
                f"threshold_device_seconds is {self.threshold_device_seconds}; it must be above 0"
            )

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        second = view.jobs.attained_device_seconds >= self.threshold_device_seconds
        return packed(view, np.argsort(second, kind="stable"), preempts=True)
