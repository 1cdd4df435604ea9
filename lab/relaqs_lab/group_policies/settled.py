"""What was decided on already: a view in which nothing has changed since needs no search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relaqs_lab.groups.plan import GroupPlan, TurnTaking
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet, GroupView

_DECIDED_BY = (
    "comp_machine_seconds",
    "comp_fixed_seconds",
    "comm_seconds",
    "comm_fixed_seconds",
    "input_bytes",
    "model_bytes",
    "decode_seconds_per_byte",
)


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """A plan, and what it was made of. It travels as `GroupPlan.memory` and `GroupView.memory`.

    A view in which the machines, the jobs and their times are those of then, and the groups those of the
    plan, gets the same plan again. What moves while jobs run (the time, their phases, what they have left)
    does not count: it alone is no reason to move a job.

    Attributes:
        fleet, subtasks: of the view that the plan was made for.
        plan: what was decided, without a memory of its own.
    """

    fleet: Fleet
    subtasks: Subtasks
    plan: GroupPlan

    @classmethod
    def remembering(cls, view: GroupView, plan: GroupPlan) -> GroupPlan:
        """Return the plan, with what it was made of as its memory."""
        return GroupPlan(plan.groups, plan.spilled, plan.turns, cls(view.fleet, view.subtasks, plan))

    def same(self, view: GroupView, turns: TurnTaking) -> GroupPlan | None:
        """Return the plan of then, with its memory, where nothing has changed; else None."""
        is_same = (
            not view.lost
            and view.fleet == self.fleet
            and turns == self.plan.turns
            and set(view.groups) == set(self.plan.groups)
            and _have_equal_times(view.subtasks, self.subtasks)
        )
        return GroupPlan(self.plan.groups, self.plan.spilled, turns, self) if is_same else None


def _have_equal_times(one: Subtasks, other: Subtasks) -> bool:
    if one.ids != other.ids:
        place = {job: i for i, job in enumerate(other.ids)}
        if len(one) != len(other) or not all(job in place for job in one.ids):
            return False
        other = other.of_jobs(np.array([place[job] for job in one.ids], dtype=np.int64))
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in _DECIDED_BY
    )
