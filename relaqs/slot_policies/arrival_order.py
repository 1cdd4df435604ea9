"""Planning in the order of arrival, so that the order of a view's jobs changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relaqs.gangs.plan import SlotPlan
from relaqs.gangs.view import SlotView


def planned_by_arrival(view: SlotView, plan: Callable[[SlotView], SlotPlan]) -> SlotPlan:
    """Return the plan for a view whose jobs are put in order of arrival first, and then by id.

    Without a job or without a slot there is nothing to plan, and what is remembered stays.
    """
    gangs = view.gangs
    if not len(gangs) or not view.nodes.usable_slots.any():
        nothing = np.zeros(gangs.held.shape, dtype=np.int64)
        return SlotPlan.of(view, nothing, np.zeros(len(gangs)), view.memory)
    order = np.array(sorted(range(len(gangs)), key=lambda i: (gangs.arrival_seconds[i], gangs.ids[i])))
    planned = plan(view.of_gangs(order))
    back = np.argsort(order)
    return SlotPlan.of(view, planned.slots_by_node[back], planned.batch_rows[back], planned.memory)
