"""Completion rate: one configuration for each job, those by which jobs come to their ends fastest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.gangs.packing import packed_on_whole_nodes
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.view import SlotView
from relaqs.slot_policies.arrival_order import planned_by_arrival
from relaqs.slot_policies.ones.utilisation import Predictor, Progress, by_ended_jobs, known_speed
from relaqs.slot_policies.sia import Sia, SlotOptions, best_batch, largest_sum

LEAST_BETA = 1.5  # the mean of 1/Y is infinite at 1


@dataclass(frozen=True, slots=True)
class CompletionRate:
    """The policy that gives slots where they raise jobs' speeds most, by how many jobs wait for each.

    The configurations, their goodput, and what a change costs are those of Sia, and as there the best choice
    of one for each job is found exactly, by a knapsack. Two things differ.

    A job counts by who waits for it. Say that jobs end in the order of the time that each would still need
    alone on one slot. A second saved on a job is then a second for it and for each job with a longer way. So
    a job counts by the number of these, by weight: by a power of it, since the times are only predicted.

    No job waits while there are slots for all. A job without slots costs 2 by default, where one with a
    single slot costs 1. So the first slot of a job is worth more than any other one, where Sia lets jobs wait
    while others have several.

    How far a job has come is a Beta distribution, as in ONES. Its mean of 1 / Y has a closed form, where Y is
    what the job still needs, so nothing is drawn. Until some jobs have ended, nothing tells how long a job
    is. Jobs then go in the order in which they came. To prefer the one that has done least would let all of
    them end late, at about the same time.

    Args:
        fairness: p, as in Sia.
        waiting_cost: λ, as in Sia.
        order: to which power a job counts by the number of those that wait for it. At 0 all count alike.
        pause_seconds: how long a job stands still when its slots change, until pauses have been measured.
        minimum_share: a job that has had less than this part of its fair share of slots since it came gets a
            slot first.
        predictor: tells the passes that jobs still need.

    Source: the order and what depends on it are those of Berg, Vesilo and Harchol-Balter, heSRPT, 2020, for
    jobs of known lengths that speed up alike. The rest: Jayaram Subramanya et al., Sia, SOSP 2023.

    >>> from relaqs.gangs.view import Gang, Gangs
    >>> from relaqs.gangs.view import Nodes
    >>> speed = (0.01, 0.001, 0.05, 0.0, 0.1, 0.0, 1.0)
    >>> jobs = [Gang(name, rows_done=rows, speed=speed) for name, rows in (("short", 1e4), ("long", 1e6))]
    >>> view = SlotView(0.0, Nodes.equal(1, slots=1), Gangs.of(jobs, nodes=1))
    >>> CompletionRate(predictor=lambda gangs, finished: gangs.passes_done).plan(view).slots_by_id()
    {'short': 1, 'long': 0}
    """

    fairness: float = -0.5
    waiting_cost: float = 2.0
    order: float = 0.5
    pause_seconds: float = 1.0
    minimum_share: float = 0.1
    predictor: Predictor = by_ended_jobs
    name: ClassVar[str] = "completion_rate"

    def __post_init__(self) -> None:
        self._of_all_alike()
        if not 0 <= self.order <= 1:
            raise ValueError(f"order is {self.order}; give a number from 0 to 1")
        if not 0 <= self.minimum_share <= 1:
            raise ValueError(f"minimum_share is {self.minimum_share}; give a number from 0 to 1")

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._planned)

    def _planned(self, view: SlotView) -> SlotPlan:
        gangs, options = view.gangs, SlotOptions.of(view)
        counts_as = weight_behind(1.0 / self._seconds_alone(view), gangs.weight) ** self.order
        worth = self._of_all_alike().worth(view, options) * counts_as[options.job]
        first = _is_starving(view, self.minimum_share)[options.job]
        most = worth.max(where=np.isfinite(worth), initial=0.0)
        worth = np.where(first, worth + most * len(gangs), worth)
        total = int(view.nodes.usable_slots.sum())
        counts = largest_sum(options.job, options.slots, worth, len(gangs), total)
        held = np.where(view.nodes.alive, gangs.held, 0)
        slots = packed_on_whole_nodes(counts, held, view.nodes)
        return SlotPlan.of(view, slots, options.batches(gangs, counts))

    def _of_all_alike(self) -> Sia:
        """Return the policy for which it makes no difference who waits for a job."""
        return Sia(self.fairness, self.waiting_cost, self.pause_seconds)

    def _seconds_alone(self, view: SlotView) -> FloatArray:
        """Return the time that each job would still need alone on one slot, over its weight, shape (E,).

        A job whose speed is unknown is as fast as the middle one of the others. Where too few jobs have ended
        to tell, all need the same.
        """
        gangs = replace(view.gangs, speed=known_speed(view.gangs.speed))
        progress = Progress.of(gangs, view.finished, self.predictor)
        if not progress.is_predicted.any():
            return 1.0 / gangs.weight
        done = np.maximum(gangs.rows_done, gangs.pass_rows)
        of_row = progress.alpha / ((np.maximum(progress.beta, LEAST_BETA) - 1.0) * done)
        one = np.ones(len(gangs), dtype=np.int64)
        useful, _ = best_batch(gangs, np.arange(len(gangs)), one, one)
        return np.asarray(1.0 / (gangs.weight * of_row * useful))


def _is_starving(view: SlotView, minimum_share: float) -> BoolArray:
    """Return which jobs have had less than their minimum of slot-seconds since they came, shape (E,)."""
    gangs = view.gangs
    fair = gangs.weight / gangs.weight.sum() * view.nodes.usable_slots.sum()
    due = minimum_share * fair * np.maximum(view.time_seconds - gangs.arrival_seconds, 0.0)
    return np.asarray(gangs.attained_slot_seconds < due)


def weight_behind(rate: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weight of each job and of those behind it, shape (E,). Of equal ones the first is before.

    rate: one over the time that a job still needs. The highest is the first to end.

    >>> weight_behind(np.array([0.1, 0.5, 0.1]), np.array([1.0, 1.0, 2.0])).tolist()
    [3.0, 4.0, 2.0]
    """
    last_first = len(rate) - 1 - np.argsort(rate[::-1], kind="stable")
    behind = np.empty(len(rate))
    behind[last_first] = np.cumsum(weight[last_first])
    return behind
