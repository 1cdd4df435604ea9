"""One at a time: the oldest job has all the slots that it can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs.gangs.packing import packed
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.view import SlotView
from relaqs.slot_policies.arrival_order import planned_by_arrival


@dataclass(frozen=True, slots=True)
class OneAtATime:
    """The oldest job gets all the slots that its largest batch can fill, and the next oldest what is left.

    Every job trains with the largest batch that it takes for its slots.

    >>> from relaqs.gangs.gangs import Gang, Gangs
    >>> from relaqs.gangs.nodes import Nodes
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
