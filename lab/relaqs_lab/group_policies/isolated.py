"""Each job on machines of its own, as many as keep it computing for most of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs_lab.group_policies.considered import QueueOrder, considered
from relaqs_lab.group_policies.spill import least_machines
from relaqs_lab.groups.plan import GroupPlan
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet, Group, GroupView


@dataclass(frozen=True, slots=True)
class Isolated:
    """Each job has the most machines on which it computes for at least some share of the time.

    Its rows and parameters are in memory. Who runs goes on. Jobs that wait start in order, where there are
    enough machines.

    Args:
        comp_share: of an iteration, that a job computes. The paper's isolated jobs have 0.932 / 1.65 = 0.56.
        order: who starts first.
        backfill: a job that has enough machines may start before one that has not.
        machines: of each job, whatever it computes, where its memory does not need more. None: by comp_share.

    Source: the baseline "isolated" of Lee et al., Harmony, ICDCS 2021, section V-A, which does not say the
    machines of a job or the order; both are our reading. With backfill it is like Optimus and SLAQ, which the
    paper names, in that machines do not idle.

    >>> from relaqs_lab.groups.subtasks import Subtasks, SubtaskTimes
    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0), SubtaskTimes("b", 60.0, 2.0)])
    >>> plan = Isolated().plan(GroupView(0.0, Fleet(32), jobs))
    >>> [(group.jobs, group.machines) for group in plan.groups]
    [(('a',), 12)]
    """

    comp_share: float = 0.56
    order: QueueOrder = "arrival"
    backfill: bool = False
    machines: int | None = None
    name: ClassVar[str] = "isolated"

    def __post_init__(self) -> None:
        check_comp_share(self.comp_share)
        if self.machines is not None and self.machines < 1:
            raise ValueError(f"machines is {self.machines}; give 1 or more, or None")

    def plan(self, view: GroupView) -> GroupPlan:
        queue = considered(view.subtasks, self.order, by_phase=False)
        if self.machines is None:
            machines = machines_alone(queue, view.fleet, self.comp_share)
        else:
            machines = np.maximum(
                min(self.machines, view.fleet.machines), machines_in_memory(queue, view.fleet)
            )
        return GroupPlan.of(view, alone(view, queue, machines, backfill=self.backfill))


@dataclass(frozen=True, slots=True)
class ShortestFirst(Isolated):
    """Isolated jobs, those first that need least to their end, and no machine idles that a job could have."""

    order: QueueOrder = "shortest"
    backfill: bool = True
    name: ClassVar[str] = "shortest_first"


def check_comp_share(comp_share: float) -> None:
    """Raise ValueError where it is no share of an iteration for which `machines_alone` has machines."""
    if not 0 < comp_share < 1:
        raise ValueError(f"comp_share is {comp_share}; give a number between 0 and 1, such as 0.56")


def machines_alone(jobs: Subtasks, fleet: Fleet, comp_share: float) -> IntArray:
    """Return the most machines of each job on which it computes for this share of its iteration, shape (n,).

    COMP takes W/m + s and COMM N·(1 − 1/m) + e. There are as many at least as its memory needs, which may be
    more than there are: then it never runs.
    """
    work, comm = jobs.comp_machine_seconds, jobs.comm_seconds
    slope = comp_share * (comm + jobs.comm_fixed_seconds) - (1 - comp_share) * jobs.comp_fixed_seconds
    share = (1 - comp_share) * work + comp_share * comm
    most = np.divide(share, slope, out=np.full(len(jobs), np.inf), where=slope > 0)
    least = machines_in_memory(jobs, fleet)
    wanted = np.clip(np.floor(np.minimum(most, fleet.machines) * (1 + 1e-12)), 1, fleet.machines)
    return np.asarray(np.maximum(wanted.astype(np.int64), least))


def machines_in_memory(jobs: Subtasks, fleet: Fleet) -> IntArray:
    """Return the fewest machines of each job whose memory has its rows and parameters, shape (n,)."""
    return least_machines(jobs, np.arange(len(jobs)), len(jobs), fleet, spills=False)


def alone(view: GroupView, queue: Subtasks, machines: IntArray, *, backfill: bool) -> tuple[Group, ...]:
    """Return the groups that run, and after them one for each job of the queue that can start."""
    running = {job for group in view.groups for job in group.jobs}
    groups = list(view.groups)
    free = view.fleet.machines - sum(group.machines for group in groups)
    for job, wanted in zip(queue.ids, machines.tolist(), strict=True):
        if job in running:
            continue
        if wanted <= free:
            groups.append(Group((job,), wanted))
            free -= wanted
        elif not backfill and wanted <= view.fleet.machines:
            break
    return tuple(groups)
