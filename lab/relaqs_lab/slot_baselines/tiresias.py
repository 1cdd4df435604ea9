"""Tiresias: whole gangs, those that have used little first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.gangs.gangs import Gangs
from relaqs.gangs.packing import packed
from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.view import SlotView


@dataclass(frozen=True, slots=True)
class Tiresias:
    """Each job has the slots and the batch that its user asked for, or none; two queues say who comes first.

    A job begins in the first queue. Once it has used `threshold_slot_seconds` it goes to the end of the
    second. Within a queue, the first come are served first; who does not fit is passed over. Running jobs are
    stopped where jobs before them need the slots.

    Source: Gu et al., Tiresias, NSDI 2019: discretised two-dimensional least attained service.

    >>> from relaqs.gangs.gangs import Gang
    >>> from relaqs.gangs.nodes import Nodes
    >>> old = Gang("old", slots_asked=3, attained_slot_seconds=9e4, held=(3,))
    >>> jobs = Gangs.of([old, Gang("new", 5.0, slots_asked=2)], nodes=1)
    >>> Tiresias().plan(SlotView(60.0, Nodes.equal(1, slots=4), jobs)).slots_by_id()
    {'old': 0, 'new': 2}
    """

    threshold_slot_seconds: float = 16 * 3600.0
    name: ClassVar[str] = "tiresias"
    reads_speeds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.threshold_slot_seconds > 0:
            raise ValueError(f"threshold_slot_seconds is {self.threshold_slot_seconds}; it must be above 0")

    def plan(self, view: SlotView) -> SlotPlan:
        gangs = view.gangs
        demoted = self._demoted(view)
        place = {name: at for at, name in enumerate(demoted)}
        rank = np.array([place.get(name, -1) for name in gangs.ids], dtype=np.int64)
        order = np.lexsort([np.array(gangs.ids), gangs.arrival_seconds, rank])
        counts = _served_in_order(asked_slots(view), order, int(view.nodes.usable_slots.sum()))
        slots = packed(counts, gangs.held, view.nodes, order, tight=False)
        return SlotPlan.of(view, slots, asked_rows(gangs), memory=demoted)

    def _demoted(self, view: SlotView) -> tuple[str, ...]:
        """Return the ids of the second queue, in the order in which they came to it."""
        gangs = view.gangs
        known = view.memory if isinstance(view.memory, tuple) else ()
        used = gangs.attained_slot_seconds >= self.threshold_slot_seconds - 1e-6
        by_arrival = np.lexsort([np.array(gangs.ids), gangs.arrival_seconds])
        new = [gangs.ids[job] for job in by_arrival if used[job] and gangs.ids[job] not in known]
        there = set(gangs.ids)
        return (*(name for name in known if name in there), *new)


def asked_slots(view: SlotView) -> IntArray:
    """Return the slots that each job's user asked for, 1 if none, and at most all there are; shape (E,)."""
    total = int(view.nodes.usable_slots.sum())
    return np.clip(view.gangs.slots_asked, 1, max(total, 1))


def asked_rows(gangs: Gangs) -> FloatArray:
    """Return the batch that each job's user asked for, or the one it starts with; shape (E,)."""
    return np.where(np.isnan(gangs.rows_asked), gangs.start_rows, gangs.rows_asked)


def _served_in_order(asked: IntArray, order: IntArray, slots: int) -> IntArray:
    counts = np.zeros_like(asked)
    for job in order:
        if asked[job] <= slots:
            counts[job] = asked[job]
            slots -= int(asked[job])
    return counts
