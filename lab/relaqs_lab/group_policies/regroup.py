"""What happens to groups when a job comes or ends: as little as is worth it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs_lab.group_policies.arrangement import Arrangement, least_machines
from relaqs_lab.group_policies.prefixes import PrefixSearch
from relaqs_lab.groups import Fleet, Group, GroupView, Lost, Subtasks

_BUNCH_OF = 20  # waiting jobs, the oldest, whose pairs are compared with a job that ended


@dataclass(frozen=True, slots=True)
class Regrouping:
    """The rules by which groups change.

    A job that ended is replaced by one that waits and is similar, else by two that are so together. A job
    that came, and waits alone, joins the group in which it raises u most, if it does in any. Else Algorithm 1
    is run over some groups and all jobs that wait: first the groups that lost a job, then those with the
    fewest jobs, more and more of them. Of these outcomes the one with the fewest groups is taken, unless
    another one is better by the gain. Nothing changes for less than the gain.

    Args:
        search: Algorithm 1.
        gain: by which u must grow, relative to what it is.
        similar: how far two numbers may be apart, relative to the larger one.
        subsets: how many numbers of groups are tried, evenly between one and all.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B4, where gain and similar are 5 %.
    """

    search: PrefixSearch = field(default_factory=PrefixSearch)
    gain: float = 0.05
    similar: float = 0.05
    subsets: int = 4

    def __post_init__(self) -> None:
        for name in ("gain", "similar"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}; give a number from 0 to below 1, such as 0.05")
        if self.subsets < 1:
            raise ValueError(f"subsets is {self.subsets}; give 1 or more")

    def regrouped(self, view: GroupView, jobs: Subtasks) -> Arrangement | None:
        """Return who runs with whom; None where no job fits into the machines.

        Args:
            view: the machines, the groups as they are, and who was lost.
            jobs: the view's jobs in the order in which they are considered, all with known times.
        """
        if not view.groups:
            return self.search.best(jobs, view.fleet)
        present = arrangement_of(jobs, view.groups, view.fleet, self.search)
        patched = self._patched(view, jobs, present)
        if patched is not None:
            return patched
        if present.score * (1 + self.gain) > 1:  # no arrangement can be better by the gain, since u ≤ 1
            return present
        return self._best_of(view, jobs, present)

    def _patched(self, view: GroupView, jobs: Subtasks, present: Arrangement) -> Arrangement | None:
        """Return the groups with one job or two more, where a rule for one group says so; else None."""
        waiting = waiting_jobs(view, jobs)
        groups = list(view.groups)
        for lost in view.lost:
            found = self._similar(jobs, waiting, lost, groups[lost.group].machines)
            joined = _joined(groups, lost.group, tuple(jobs.ids[i] for i in found))
            if found and self._fits(jobs, joined, view.fleet):
                groups, waiting = joined, np.setdiff1d(waiting, found)
        if groups != list(view.groups):
            return arrangement_of(jobs, tuple(groups), view.fleet, self.search)
        if len(waiting) != 1 or view.lost:
            return None
        newcomer = (jobs.ids[int(waiting[0])],)
        options = [_joined(groups, i, newcomer) for i in range(len(groups))]
        fitting = [each for each in options if self._fits(jobs, each, view.fleet)]
        tried = [arrangement_of(jobs, tuple(each), view.fleet, self.search) for each in fitting]
        best = max(tried, key=lambda each: each.score, default=None)
        return best if best is not None and best.score > present.score else None

    def _similar(self, jobs: Subtasks, waiting: IntArray, lost: Lost, machines: int) -> list[int]:
        """Return the position of a waiting job that is as the lost one, or of two that are so together."""
        model, places = self.search.model, np.full(len(jobs), machines)
        comp, comm = model.comp_seconds(jobs, places), model.comm_seconds(jobs, places)
        gone_comp = lost.comp_machine_seconds / machines
        gone_comm = lost.comm_seconds * (1.0 if model.literal else 1.0 - 1.0 / machines)
        oldest = waiting[:_BUNCH_OF].tolist()
        for bunch in [*((i,) for i in waiting.tolist()), *combinations(oldest, 2)]:
            computes, sends = float(comp[list(bunch)].sum()), float(comm[list(bunch)].sum())
            is_as_long = self._close(computes + sends, gone_comp + gone_comm)
            if is_as_long and self._close(computes * gone_comm, sends * gone_comp):
                return list(bunch)
        return []

    def _close(self, one: float, other: float) -> bool:
        return abs(one - other) <= self.similar * max(one, other)

    def _fits(self, jobs: Subtasks, groups: list[Group], fleet: Fleet) -> bool:
        chosen, group = _members(jobs, tuple(groups))
        machines = np.array([each.machines for each in groups])
        needed = least_machines(chosen, group, len(groups), fleet, spills=self.search.spills)
        return bool((needed <= machines).all())

    def _best_of(self, view: GroupView, jobs: Subtasks, present: Arrangement) -> Arrangement:
        chosen: Arrangement | None = None
        for count in np.unique(np.linspace(1, len(view.groups), self.subsets).astype(np.int64)).tolist():
            found = self._with_groups(view, jobs, count)
            if found is None:
                continue
            if chosen is None or found.score >= chosen.score * (1 + self.gain):
                chosen = found
        if chosen is None or chosen.score < present.score * (1 + self.gain):
            return present
        return chosen

    def _with_groups(self, view: GroupView, jobs: Subtasks, count: int) -> Arrangement | None:
        """Return the outcome of Algorithm 1 over so many groups, all jobs that wait and all idle machines."""
        broken = {lost.group for lost in view.lost}
        order = sorted(
            range(len(view.groups)),
            key=lambda i: (i not in broken, len(view.groups[i].jobs), view.groups[i].jobs),
        )
        opened, kept = order[:count], [view.groups[i] for i in sorted(order[count:])]
        free = view.fleet.machines - sum(group.machines for group in kept)
        members = {job for i in opened for job in view.groups[i].jobs}
        waiting = {jobs.ids[i] for i in waiting_jobs(view, jobs).tolist()}
        taking_part = np.array([job in members or job in waiting for job in jobs.ids])
        found = self.search.best(jobs.of_jobs(taking_part), replace(view.fleet, machines=free))
        if found is None:
            return None
        return arrangement_of(jobs, (*kept, *found.groups()), view.fleet, self.search)


def arrangement_of(
    jobs: Subtasks, groups: tuple[Group, ...], fleet: Fleet, search: PrefixSearch
) -> Arrangement:
    """Return some groups as an arrangement: what the model says of them."""
    chosen, group = _members(jobs, groups)
    machines = np.array([each.machines for each in groups])
    return Arrangement.of(chosen, group, machines, fleet, search.model)


def waiting_jobs(view: GroupView, jobs: Subtasks) -> IntArray:
    """Return the positions of the jobs that are in no group."""
    grouped = {job for group in view.groups for job in group.jobs}
    return np.array([i for i, job in enumerate(jobs.ids) if job not in grouped], dtype=np.int64)


def _members(jobs: Subtasks, groups: tuple[Group, ...]) -> tuple[Subtasks, IntArray]:
    position = {job: i for i, job in enumerate(jobs.ids)}
    members = np.array([position[job] for group in groups for job in group.jobs], dtype=np.int64)
    sizes = [len(group.jobs) for group in groups]
    return jobs.of_jobs(members), np.repeat(np.arange(len(groups)), sizes)


def _joined(groups: list[Group], at: int, more: tuple[str, ...]) -> list[Group]:
    """Return the groups, one of them with more jobs."""
    return [replace(group, jobs=group.jobs + more) if i == at else group for i, group in enumerate(groups)]
