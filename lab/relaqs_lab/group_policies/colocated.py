"""Naive co-location: jobs share machines as they come, and nobody says who computes when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaqs_lab.group_policies.considered import QueueOrder, considered
from relaqs_lab.group_policies.isolated import check_comp_share, machines_alone
from relaqs_lab.group_policies.spill import least_machines
from relaqs_lab.groups.plan import GroupPlan, TurnTaking
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet, Group, GroupView


@dataclass(frozen=True, slots=True)
class Colocated:
    """A job joins the first group with room, else it opens one on the machines that it would have alone.

    A group has room where it has fewer than `together` jobs and memory for one more. Who runs stays where it
    is.

    Args:
        comp_share: as in `Isolated`.
        together: the most jobs in a group.
        turns: "shared" is naive. With "fifo" the jobs take turns by subtasks, but nobody chooses them.
        order: who starts first.
        backfill: as in `Isolated`.

    Source: the baseline "naively co-located" of Lee et al., Harmony, ICDCS 2021, section V-A, which is the
    way of Gandiva. How many machines such jobs have is not said; this is our reading.

    >>> from relaqs_lab.groups.subtasks import SubtaskTimes
    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0), SubtaskTimes("b", 60.0, 2.0)])
    >>> [(g.jobs, g.machines) for g in Colocated().plan(GroupView(0.0, Fleet(32), jobs)).groups]
    [(('a', 'b'), 12)]
    """

    comp_share: float = 0.56
    together: int = 2
    turns: TurnTaking = "shared"
    order: QueueOrder = "arrival"
    backfill: bool = False
    name: ClassVar[str] = "colocated"

    def __post_init__(self) -> None:
        check_comp_share(self.comp_share)
        if self.together < 2:
            raise ValueError(f"together is {self.together}; give 2 or more, or take the policy 'isolated'")

    def plan(self, view: GroupView) -> GroupPlan:
        queue = considered(view.subtasks, self.order, by_phase=False)
        machines = machines_alone(queue, view.fleet, self.comp_share)
        running = {job for group in view.groups for job in group.jobs}
        groups = list(view.groups)
        for job, wanted in zip(queue.ids, machines.tolist(), strict=True):
            if job in running:
                continue
            place = self._room_for(job, groups, queue, view.fleet)
            if place is not None:
                groups[place] = Group((*groups[place].jobs, job), groups[place].machines)
            elif wanted <= view.fleet.machines - sum(group.machines for group in groups):
                groups.append(Group((job,), wanted))
            elif not self.backfill and wanted <= view.fleet.machines:
                break
        return GroupPlan.of(view, tuple(groups), turns=self.turns)

    def _room_for(self, job: str, groups: list[Group], jobs: Subtasks, fleet: Fleet) -> int | None:
        for place, group in enumerate(groups):
            if len(group.jobs) < self.together and fits_together(
                jobs, (*group.jobs, job), group.machines, fleet
            ):
                return place
        return None


def fits_together(jobs: Subtasks, ids: tuple[str, ...], machines: int, fleet: Fleet) -> bool:
    """Return whether some jobs' rows and parameters fit into the memory of so many machines."""
    chosen = jobs.of_jobs(np.array([jobs.ids.index(job) for job in ids]))
    one = np.zeros(len(ids), dtype=np.int64)
    return int(least_machines(chosen, one, 1, fleet, spills=False)[0]) <= machines
