"""Who holds which slots: slot policies, all behind `plan(view) -> SlotPlan`.

Pure: a view of the gangs and the machines in, a plan out. No clock, no thread, no file and no `numpy.random`
live here. A policy that searches draws its numbers from its seed. Here are what others begin with, planning
in the order of arrival, and the simplest policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.sharing.gangs import SlotPlan, SlotView, packed


def planned_by_arrival(view: SlotView, plan: Callable[[SlotView], SlotPlan]) -> SlotPlan:
    """Return the plan for a view whose jobs are put in order of arrival first, and then by id.

    Without a job or without a slot there is nothing to plan, and what is remembered stays.
    """
    gangs = view.gangs
    if not len(gangs) or not view.nodes.usable_slots.any():
        nothing = np.zeros(gangs.held.shape, dtype=np.int64)
        return SlotPlan.of(view, nothing, np.zeros(len(gangs)), view.memory)
    order = np.array(sorted(range(len(gangs)), key=lambda i: (gangs.arrival_seconds[i], gangs.ids[i])))
    planned = plan(view.of_jobs(order))
    back = np.argsort(order)
    return SlotPlan.of(view, planned.slots_by_node[back], planned.batch_rows[back], planned.memory)


@dataclass(frozen=True, slots=True)
class EqualSlots:
    """Slots go round, one to each job, the oldest first, while there are some.

    A job trains with as many times its first batch as it has slots, up to its largest batch. Of the jobs that
    have more slots than others, it is those that hold them already.

    >>> from relaqs.sharing.gangs import Gang, Gangs
    >>> from relaqs.sharing.gangs import Nodes
    >>> jobs = Gangs.of([Gang("a"), Gang("b"), Gang("c", rows_most=32.0, slot_rows_least=32.0)], nodes=1)
    >>> EqualSlots().plan(SlotView(0.0, Nodes.equal(1, slots=8), jobs)).slots_by_id()
    {'a': 4, 'b': 3, 'c': 1}
    """

    name: ClassVar[str] = "equal_slots"
    reads_speeds: ClassVar[bool] = False

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, _equal)


def _equal(view: SlotView) -> SlotPlan:
    gangs, total = view.gangs, int(view.nodes.usable_slots.sum())
    most = np.minimum(gangs.slots_most, total).astype(np.int64)
    counts = _dealt(most, gangs.slots, total)
    smallest_last = np.argsort(-counts, kind="stable")
    slots = packed(counts, gangs.held, view.nodes, smallest_last)
    batch = np.minimum(gangs.start_rows * np.maximum(counts, 1), gangs.rows_most)
    return SlotPlan.of(view, slots, np.maximum(batch, np.minimum(gangs.slot_rows_least, gangs.rows_most)))


def _dealt(most: IntArray, held: IntArray, total: int) -> IntArray:
    """Return the slots of each job, shape (E,): level by level, the last to those who hold more."""
    counts = np.zeros_like(most)
    while total and (counts < most).any():
        wants = np.flatnonzero(counts < most)
        first = wants[np.argsort(held[wants] <= counts[wants], kind="stable")][:total]
        counts[first] += 1
        total -= len(first)
    return counts
