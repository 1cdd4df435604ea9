"""Group policies of papers, to compare Harmony with: machines of one's own, naive sharing, and Muri.

- `Isolated`, `ShortestFirst`: each job on machines of its own, as many as keep it computing for most of
  the time.
- `Colocated`: jobs share machines as they come, and nobody says who computes when.
- `Muri`: pairs of jobs by how well their stages interleave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.group_policies.arrangement import least_machines
from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.group_policies.harmony import QueueOrder, considered
from relaqs_lab.groups import Fleet, Group, GroupPlan, GroupView, Subtasks, TurnTaking


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

    >>> from relaqs_lab.groups import Subtasks, SubtaskTimes
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

    >>> from relaqs_lab.groups import SubtaskTimes
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


_SWEEPS = 20


@dataclass(frozen=True, slots=True)
class Muri:
    """Waiting jobs are matched in pairs of the highest interleaving efficiency, and start in order.

    Two jobs that use the cores and the network in alternation need max(c₁, n₂) + max(n₁, c₂) for an iteration
    of both. The efficiency is the mean use of both resources in that time. Muri has four resources and up to
    four jobs in a group; our jobs have two stages, so groups have two. A pair has the machines of its larger
    job. The jobs of a pair take turns here as Harmony's do, which is at least as fast as Muri's stages.

    Args:
        comp_share: as in `Isolated`.
        order: who starts first. Muri takes the shortest where the rest is known.
        turns: how a pair takes turns.

    Source: Zhao et al., Muri, SIGCOMM 2022, sections 3 and 4. It matches by Blossom; `matched` is greedy and
    then swaps partners.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> rows = [SubtaskTimes("a", 90.0, 2.0), SubtaskTimes("b", 90.0, 2.0), SubtaskTimes("c", 30.0, 9.0)]
    >>> plan = Muri().plan(GroupView(0.0, Fleet(36), Subtasks.of(rows)))
    >>> [g.jobs for g in plan.groups]
    [('a', 'b')]
    """

    comp_share: float = 0.56
    order: QueueOrder = "shortest"
    turns: TurnTaking = "pull_first"
    name: ClassVar[str] = "muri"

    def __post_init__(self) -> None:
        check_comp_share(self.comp_share)

    def plan(self, view: GroupView) -> GroupPlan:
        queue = considered(view.subtasks, self.order, by_phase=False)
        groups = self._completed(view, queue)
        running = {job for group in groups for job in group.jobs}
        rest = queue.of_jobs(np.array([job not in running for job in queue.ids], dtype=np.bool_))
        free = view.fleet.machines - sum(group.machines for group in groups)
        for group in self._pairs(rest, view.fleet):
            if group.machines <= free:
                groups.append(group)
                free -= group.machines
        return GroupPlan.of(view, tuple(groups), turns=self.turns)

    def _completed(self, view: GroupView, queue: Subtasks) -> list[Group]:
        """Return the groups that run; one that lost a job has the waiting one that suits it best."""
        running = {job for group in view.groups for job in group.jobs}
        groups = []
        for group in view.groups:
            waiting = [job for job in queue.ids if job not in running]
            fitting = [
                job
                for job in waiting
                if len(group.jobs) == 1
                and fits_together(queue, (*group.jobs, job), group.machines, view.fleet)
            ]
            if fitting:
                ids = (group.jobs[0], *fitting)
                both = queue.of_jobs(np.array([queue.ids.index(job) for job in ids]))
                worth = efficiency(both, np.full(len(ids), group.machines))[0, 1:]
                best = fitting[int(np.argmax(worth))]
                running.add(best)
                group = Group((*group.jobs, best), group.machines)
            groups.append(group)
        return groups

    def _pairs(self, jobs: Subtasks, fleet: Fleet) -> list[Group]:
        """Return the waiting jobs in pairs, in the order of the queue; alone where no other fits."""
        machines = machines_alone(jobs, fleet, self.comp_share)
        worth = efficiency(jobs, machines)
        larger = np.maximum(machines[:, None], machines[None, :])
        kept = jobs.input_bytes + jobs.model_bytes
        worth[(kept[:, None] + kept[None, :]) > larger * fleet.memory_bytes] = -np.inf
        partner = matched(worth)
        groups = []
        for one, other in enumerate(partner.tolist()):
            if other == one:
                groups.append(Group((jobs.ids[one],), int(machines[one])))
            elif one < other:
                groups.append(Group((jobs.ids[one], jobs.ids[other]), int(larger[one, other])))
        return groups


def efficiency(jobs: Subtasks, machines: IntArray) -> FloatArray:
    """Return how much two jobs use the cores and the network when they interleave, shape (n, n), 0 to 1.

    machines: what each job would have alone, shape (n,); a pair has the larger number.
    """
    places = np.maximum(machines[:, None], machines[None, :])
    model = GroupModel()
    comp = np.array([model.comp_seconds(jobs, row) for row in places.T]).T.reshape(places.shape)
    comm = np.array([model.comm_seconds(jobs, row) for row in places.T]).T.reshape(places.shape)
    both = np.maximum(comp, comm.T) + np.maximum(comm, comp.T)
    used = comp + comp.T + comm + comm.T
    return np.asarray(np.divide(used, 2 * both, out=np.zeros(places.shape), where=both > 0))


def matched(worth: FloatArray) -> IntArray:
    """Return the partner of each, shape (n,), so that the worth of all pairs is large; itself: it has none.

    The best pair first. Then two pairs change partners while that is worth more.

    Args:
        worth: of each pair, symmetric, shape (n, n); −inf where two cannot be together.

    >>> matched(np.array([[0, 3, 2, 0], [3, 0, 0, 2], [2, 0, 0, 0.5], [0, 2, 0.5, 0]])).tolist()
    [2, 3, 0, 1]
    """
    count = len(worth)
    partner = np.arange(count)
    rows, columns = np.triu_indices(count, 1)
    order = np.argsort(-worth[rows, columns], kind="stable")
    for one, other in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if partner[one] == one and partner[other] == other and worth[one, other] > -np.inf:
            partner[one], partner[other] = other, one
    for _ in range(_SWEEPS):
        if not _swept(worth, partner):
            break
    return partner


def _swept(worth: FloatArray, partner: IntArray) -> bool:
    """Change partners of two pairs wherever that is worth more, in place; return whether any were changed."""
    changed = False
    for one in range(len(partner)):
        for third in range(len(partner)):
            other, fourth = int(partner[one]), int(partner[third])
            if len({one, other, third, fourth}) < 4:
                continue
            present = worth[one, other] + worth[third, fourth]
            if worth[one, third] + worth[other, fourth] > present + 1e-12:
                partner[[one, third, other, fourth]] = third, one, fourth, other
                changed = True
    return changed
