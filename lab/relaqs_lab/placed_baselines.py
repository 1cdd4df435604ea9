"""Placed policies of papers, to compare ours with: whole jobs in an order of each paper's own.

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

from relaqs.placed_policies.mlf_h import longest_path_below
from relaqs.placed_policies.whole_jobs import LIMIT, device_seconds_left, device_shares, packed, runs
from relaqs.sharing.parts import DEVICES, ROUNDING, Load, PlacedPlan, PlacedView, planned_in_order


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
