"""What a group policy begins with: the jobs of a view in order, with times for all, and what is settled.

What was decided on already: a view in which nothing has changed since needs no search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.groups import Fleet, GroupPlan, GroupView, Subtasks, TurnTaking

QueueOrder: TypeAlias = Literal["arrival", "shortest"]
"""Who is considered first: who came first, or who needs the fewest machine-seconds to the end."""

_FEW_COMPUTED = 16.0  # machine-seconds of COMP a second of COMM, where nothing is known of any job


def considered(jobs: Subtasks, order: QueueOrder = "arrival", *, by_phase: bool = True) -> Subtasks:
    """Return the jobs in order, and with the mean of the others' times where a job's own are not known.

    Running jobs come first, then paused, profiled and new ones (A3 of the reading of Algorithm 1). Within
    these they come by arrival, or by what they need to the end. Ties go by id, so the order of a view changes
    nothing.

    Args:
        jobs: any jobs.
        order: within a phase.
        by_phase: if not, the phases count alike.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> jobs = Subtasks.of([SubtaskTimes("b", 60.0, 4.0, arrival_seconds=5.0), SubtaskTimes("a")])
    >>> found = considered(jobs)
    >>> found.ids, found.comp_machine_seconds.tolist()
    (('a', 'b'), [60.0, 60.0])
    """
    filled = with_means(jobs)
    rank = np.argsort(np.argsort(np.array(jobs.ids, dtype=object)))
    phase = jobs.phase if by_phase else np.zeros(len(jobs), dtype=np.int64)
    first = filled.arrival_seconds if order == "arrival" else needed(filled)
    return filled.of_jobs(np.lexsort((rank, filled.arrival_seconds, first, phase)))


def needed(jobs: Subtasks) -> FloatArray:
    """Return the seconds of each job to its end on 16 machines; of one iteration where no end is known."""
    left = np.where(np.isnan(jobs.iterations_left), 1.0, jobs.iterations_left)
    return np.asarray(left * (jobs.comp_machine_seconds / 16 + jobs.comm_seconds))


def with_means(jobs: Subtasks) -> Subtasks:
    """Return the jobs, those with unknown times as the mean of the others."""
    known = jobs.is_known
    if known.all():
        return jobs
    comp = float(jobs.comp_machine_seconds[known].mean()) if known.any() else _FEW_COMPUTED
    comm = float(jobs.comm_seconds[known].mean()) if known.any() else 1.0
    return replace(
        jobs,
        comp_machine_seconds=np.where(known, jobs.comp_machine_seconds, comp),
        comm_seconds=np.where(known, jobs.comm_seconds, comm),
    )


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
