"""Slot policies by arrival: equal slots for all jobs, and all slots for the oldest.

Planning goes in the order of arrival, so that the order of a view's jobs changes nothing.
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


@dataclass(frozen=True, slots=True)
class OneAtATime:
    """The oldest job gets all the slots that its largest batch can fill, and the next oldest what is left.

    Every job trains with the largest batch that it takes for its slots.

    >>> from relaqs.sharing.gangs import Gang, Gangs
    >>> from relaqs.sharing.gangs import Nodes
    >>> jobs = Gangs.of([Gang("new", 5.0), Gang("old", rows_most=96.0, slot_rows_least=32.0)], nodes=1)
    >>> OneAtATime().plan(SlotView(9.0, Nodes.equal(1, slots=4), jobs)).slots_by_id()
    {'new': 1, 'old': 3}
    """

    name: ClassVar[str] = "one_at_a_time"
    reads_speeds: ClassVar[bool] = False

    def plan(self, view: SlotView) -> SlotPlan:
        return planned_by_arrival(view, _oldest_first)


def _oldest_first(view: SlotView) -> SlotPlan:
    gangs, total = view.gangs, int(view.nodes.usable_slots.sum())
    most = np.minimum(gangs.slots_most, total).astype(np.int64)
    before = np.cumsum(most) - most
    counts = np.clip(total - before, 0, most)
    slots = packed(counts, gangs.held, view.nodes, np.arange(len(gangs)))
    fitting = np.where(np.isinf(gangs.slot_rows_most), gangs.start_rows, gangs.slot_rows_most)
    batch = np.clip(fitting * np.maximum(counts, 1), gangs.start_rows, gangs.rows_most)
    return SlotPlan.of(view, slots, batch)
