"""Muri: pairs of jobs whose stages interleave best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.group_policies.colocated import fits_together
from relaqs_lab.group_policies.considered import QueueOrder, considered
from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.group_policies.isolated import check_comp_share, machines_alone
from relaqs_lab.groups.plan import GroupPlan, TurnTaking
from relaqs_lab.groups.subtasks import Subtasks
from relaqs_lab.groups.view import Fleet, Group, GroupView

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

    >>> from relaqs_lab.groups.subtasks import SubtaskTimes
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
