"""The objective of ONES, solved exactly instead of searched: equation 3 by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.gangs import SlotPlan, SlotView, packed
from relaqs.slot_policies.arrival_order import planned_by_arrival
from relaqs.slot_policies.ones import Predictor, Progress, SlotSeconds, by_ended_jobs, rows_left, slot_rows


@dataclass(frozen=True, slots=True)
class ExactUtilisation:
    """The least slot-seconds of running jobs, while no slot is idle that could work.

    ONES searches for this by evolution (`relaqs.slot_policies.ones`). Once each job's slots are side by side,
    a schedule's score depends on nothing but how many slots each job has. The score is then a sum over jobs,
    and a knapsack finds the least one: exactly, without draws, and faster than one generation.

    What each job still needs is taken at its expected progress, where ONES draws it. A job may have as many
    slots as its user allows, with its start batch on each. A running job at most doubles at once.

    The least sum of all is that of no job running, since jobs that wait count nothing. So this takes the
    least sum among the schedules with as many slots at work as can be.

    Args:
        predictor: tells the passes that jobs still need.

    >>> from relaqs.sharing.gangs import Gang, Gangs
    >>> from relaqs.sharing.gangs import Nodes
    >>> jobs = [Gang("short", rows_done=1e4, rows_most=64.0), Gang("long", rows_done=1e6, rows_most=64.0)]
    >>> view = SlotView(0.0, Nodes.equal(1, slots=2), Gangs.of(jobs, nodes=1))
    >>> ExactUtilisation().plan(view).slots_by_id()
    {'short': 2, 'long': 0}
    """

    predictor: Predictor = by_ended_jobs
    name: ClassVar[str] = "exact_utilisation"

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, self._plan)

    def _plan(self, view: SlotView) -> SlotPlan:
        gangs, usable = view.gangs, view.nodes.usable_slots
        most = _slots_most(view)
        costs = SlotSeconds.of(gangs, most, usable)
        rows = rows_left(gangs.rows_done, Progress.of(gangs, view.finished, self.predictor).mean)
        slots = least_sum(rows[:, None] * costs.packed, most, int(usable.sum()))
        held = np.where(view.nodes.alive, gangs.held, 0)
        places = packed(slots, held, view.nodes, np.argsort(-slots, kind="stable"))
        return SlotPlan.of(view, places, slot_rows(gangs) * slots)


def _slots_most(view: SlotView) -> IntArray:
    gangs = view.gangs
    rows = np.where(gangs.is_running, np.minimum(gangs.rows_most, 2.0 * gangs.batch_rows), gangs.rows_most)
    most = np.minimum(np.floor(rows / slot_rows(gangs) + 1e-9), view.nodes.usable_slots.sum())
    return np.asarray(np.maximum(most, 1).astype(np.int64))


def least_sum(cost: FloatArray, most: IntArray, slots: int) -> IntArray:
    """Return the slots of each job with the least sum of costs, of those that use as many slots as can be.

    Args:
        cost: of 0, 1, … slots of each job, shape (J, C + 1).
        most: the slots that each job may have, at most C, shape (J,).
        slots: how many there are.

    >>> least_sum(np.array([[0.0, 3.0, 3.5], [0.0, 1.0, 9.0]]), np.array([2, 2]), slots=2).tolist()
    [2, 0]
    """
    choices, _ = _table(cost, most, slots)
    left = min(slots, int(most.sum()))
    taken = np.zeros(len(cost), dtype=np.int64)
    for job in range(len(cost) - 1, -1, -1):
        taken[job] = choices[job, left]
        left -= taken[job]
    return taken


def least_sums(cost: FloatArray, most: IntArray, slots: int) -> FloatArray:
    """Return the least sum of costs if just 0, 1, …, `slots` slots are used. Infinite: it cannot be."""
    return _table(cost, most, slots)[1]


def _table(cost: FloatArray, most: IntArray, slots: int) -> tuple[IntArray, FloatArray]:
    """Return the slots of each job, by how many are used up to it, (J, slots + 1), and the least sums."""
    least = np.full(slots + 1, np.inf)
    least[0] = 0.0
    choices = np.zeros((len(cost), slots + 1), dtype=np.int64)
    used = np.arange(slots + 1)
    for job, own in enumerate(np.minimum(most, slots).tolist()):
        before = np.concatenate([np.full(own, np.inf), least])
        window = np.lib.stride_tricks.sliding_window_view(before, own + 1)[:, ::-1]  # used − 0, used − 1, …
        sums = window + cost[job, : own + 1]
        choices[job] = sums.argmin(axis=1)
        least = sums[used, choices[job]]
    return choices, least
