"""Harmony: jobs that compute share machines with jobs that communicate; and groups by what they bring.

`Harmony` follows its paper. `HarmonyProgress` groups by the fall of the loss and the ends that are ahead,
with a bound on waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs_lab.group_policies.arrangement import MOST_JOBS, WAITS, Arrangement, climbed
from relaqs_lab.group_policies.considered import QueueOrder, Settled, considered
from relaqs_lab.group_policies.group_model import Goal, GroupModel
from relaqs_lab.group_policies.prefixes import PrefixSearch, Refinement, StopRule
from relaqs_lab.group_policies.regroup import Regrouping, arrangement_of
from relaqs_lab.groups import Fleet, GroupPlan, GroupView, Subtasks, TurnTaking


@dataclass(frozen=True, slots=True)
class Harmony:
    """Groups whose jobs together compute for as long as they communicate, changed as rarely as is worth it.

    While one job of a group computes, another pulls or pushes its parameters. Which jobs are together and on
    how many machines is Algorithm 1 (`PrefixSearch`); what changes when a job comes or ends is `Regrouping`.
    Rows that do not fit into memory lie on disk (`spilled_shares`). A job whose times are not known yet is
    taken to be like the mean of the others. A view in which nothing has changed since the last plan gets that
    plan again, without a search (`Settled`).

    Args:
        order: who is considered first within a phase: "arrival" as in the paper, or "shortest".
        turns: how the jobs of a group take turns.
        spills: rows may lie on disk.
        cpu_weight, literal: as in `GroupModel`.
        stop, tolerance, refined: as in `PrefixSearch`.
        gain, similar: as in `Regrouping`.
        profiles: a job's times are not known before it has made some iterations. If not, they are told.

    Source: Lee et al., Harmony, ICDCS 2021.

    >>> from relaqs_lab.groups import Subtasks, SubtaskTimes
    >>> from relaqs_lab.groups import Fleet
    >>> jobs = Subtasks.of([SubtaskTimes("computes", 90.0, 2.0), SubtaskTimes("sends", 30.0, 9.0)])
    >>> plan = Harmony().plan(GroupView(0.0, Fleet(11), jobs))
    >>> [(group.jobs, group.machines) for group in plan.groups]
    [(('computes', 'sends'), 11)]
    """

    order: QueueOrder = "arrival"
    turns: TurnTaking = "pull_first"
    spills: bool = True
    cpu_weight: float = 2 / 3
    literal: bool = False
    stop: StopRule = "best"
    tolerance: float = 0.01
    refined: Refinement = "rule"
    gain: float = 0.05
    similar: float = 0.05
    profiles: bool = True
    name: ClassVar[str] = "harmony"

    def __post_init__(self) -> None:
        _ = self.rules  # which refuse what they do not accept
        if self.turns == "shared" and self.spills:
            raise ValueError("turns is 'shared', where no row can be spilled; give spills=False, too")

    @property
    def rules(self) -> Regrouping:
        """By which groups are made and changed."""
        model = GroupModel(self.cpu_weight, self.literal)
        search = PrefixSearch(model, self.stop, self.tolerance, self.spills, refined=self.refined)
        return Regrouping(search, self.gain, self.similar)

    def plan(self, view: GroupView) -> GroupPlan:
        if not len(view.subtasks):
            return GroupPlan.of(view, (), turns=self.turns)
        before = view.memory if isinstance(view.memory, Settled) else None
        if before is not None and (plan := before.same(view, self.turns)) is not None:
            return plan
        return Settled.remembering(view, self._decided(view))

    def _decided(self, view: GroupView) -> GroupPlan:
        found = self.rules.regrouped(view, considered(view.subtasks, self.order))
        if found is None:
            return GroupPlan.of(view, (), turns=self.turns)
        return GroupPlan.of(view, found.groups(), found.spilled_by_id(), self.turns)


_CLIMBED = 1  # prefixes, those that are worth most
_JOINING = 40  # jobs that wait, the first ones, which may join a group while climbing


@dataclass(frozen=True, slots=True)
class HarmonyProgress:
    """The groups whose iterations are worth most a second to all who wait, and a bound on waiting.

    Harmony uses the machines well, whoever it is that uses them. Here what counts is what jobs hold up
    while they are not done: weight · (loss + end) each. Jobs are ranked by what an iteration brings for
    what it takes of all cores and of all networks. It brings the larger one of what it takes from the loss,
    and of what each iteration to the job's end brings on average, the end included: Gittins's index of a
    job whose course is known. Machines that serve a job make all wait that are ranked behind it. So a
    second of them is worth what these and the job itself hold up together, and groups make Σ of this · what
    an iteration takes / T_g large (`held_up`). Where all jobs hold up the same it is the use of machines,
    as for Harmony.

    Algorithm 1 makes groups of the first jobs by rank, for several numbers of jobs. From the best of these,
    and from the groups as they are, it climbs (`climbed`), where jobs that wait change places with others
    as well.

    Args:
        end: what an end is worth, where the whole fall of a job's loss is worth 1.
        longest_wait_seconds: who has been in no group for so long in all comes first, and is not taken out of
            its group any more.
        gain: nothing changes for less, relative to what the groups as they are are worth.
        turns, spills: as in `Harmony`.
        literal: as in `GroupModel`.
        asks_every_seconds: how often it wants to be asked, besides when jobs come, are known and end.
        profiles: as in `Harmony`.

    Source: ours. The index: Gittins, Bandit processes and dynamic allocation indices, JRSS B 41, 1979. The
    fall of the loss as what counts: Zhang et al., SLAQ, SoCC 2017.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> rows = [SubtaskTimes("a", 90.0, 9.0, iterations_left=500.0)]
    >>> rows += [SubtaskTimes("b", 90.0, 9.0, iterations_left=2.0)]
    >>> plan = HarmonyProgress().plan(GroupView(0.0, Fleet(1), Subtasks.of(rows)))
    >>> [group.jobs for group in plan.groups]
    [('b',)]
    """

    end: float = 0.4
    longest_wait_seconds: float = 86_400.0
    gain: float = 0.05
    turns: TurnTaking = "pull_first"
    spills: bool = True
    literal: bool = False
    asks_every_seconds: float = 3600.0
    profiles: bool = True
    name: ClassVar[str] = "harmony_progress"

    def __post_init__(self) -> None:
        for name in ("end", "longest_wait_seconds", "gain"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 or more")
        if not self.asks_every_seconds > 0:
            raise ValueError(f"asks_every_seconds is {self.asks_every_seconds}; give a number above 0")

    @property
    def search(self) -> PrefixSearch:
        """By which groups of the first jobs are made."""
        return PrefixSearch(GroupModel(literal=self.literal), spills=self.spills)

    def plan(self, view: GroupView) -> GroupPlan:
        if not len(view.subtasks):
            return GroupPlan.of(view, (), turns=self.turns)
        found = self._best(view)
        if found is None:
            return GroupPlan.of(view, (), turns=self.turns)
        return GroupPlan.of(view, found.groups(), found.spilled_by_id(), self.turns)

    def _best(self, view: GroupView) -> Arrangement | None:
        jobs = considered(view.subtasks, by_phase=False)
        is_overdue = jobs.waited_seconds >= self.longest_wait_seconds
        first = np.lexsort((-density(jobs, self.end), ~is_overdue))
        jobs, is_overdue = jobs.of_jobs(first), is_overdue[first]
        value = held_up(jobs, self.end)
        starts = self._prefixes(jobs, value, is_overdue, view.fleet)
        present = None
        if view.groups:
            present = arrangement_of(jobs, view.groups, view.fleet, self.search)
            starts.append(present)
        options = [each for start in starts for each in (start, self._climbed(start, jobs, is_overdue, view))]
        best = max(options, key=lambda each: self._rank(each, jobs, value, is_overdue), default=None)
        if present is None or best is None:
            return best
        served, worth = self._rank(best, jobs, value, is_overdue)
        now_served, now_worth = self._rank(present, jobs, value, is_overdue)
        return best if served > now_served or worth > now_worth * (1 + self.gain) else present

    def _prefixes(
        self, jobs: Subtasks, value: FloatArray, is_overdue: BoolArray, fleet: Fleet
    ) -> list[Arrangement]:
        """Return the best groups of the first jobs, for the numbers of them that are worth most."""
        sizes = np.unique(np.round(np.geomspace(1, len(jobs), self.search.prefixes)).astype(np.int64))
        tried = (self.search.arranged(jobs.of_jobs(np.arange(size)), fleet) for size in sizes.tolist())
        found = [each for each in tried if each is not None]
        found.sort(key=lambda each: self._rank(each, jobs, value, is_overdue), reverse=True)
        return found[:_CLIMBED]

    def _rank(
        self, found: Arrangement, jobs: Subtasks, value: FloatArray, is_overdue: BoolArray
    ) -> tuple[int, float]:
        """Return how many who waited for too long are in groups, and what all groups are worth a second."""
        chosen = positions(found.jobs, jobs)
        worth = float((value[chosen] / found.times.seconds[found.group]).sum())
        return int(is_overdue[chosen].sum()), worth

    def _climbed(
        self, start: Arrangement, jobs: Subtasks, is_overdue: BoolArray, view: GroupView
    ) -> Arrangement:
        """Return what climbing makes of a start; the start itself where too many jobs are in groups."""
        if len(start.jobs) > MOST_JOBS:
            return start
        place = {job: i for i, job in enumerate(start.jobs.ids)}
        waiting = [i for i, job in enumerate(jobs.ids) if job not in place][:_JOINING]
        running = [i for i, job in enumerate(jobs.ids) if job in place]
        chosen = jobs.of_jobs(np.array(running + waiting, dtype=np.int64))
        group = np.array([start.group[place[job]] if job in place else WAITS for job in chosen.ids])
        model = self.search.model
        goal = Goal.worth_a_second(
            chosen, view.fleet, model, held_up(jobs, self.end)[running + waiting], spills=self.spills
        )
        may_wait = ~is_overdue[running + waiting]
        found = climbed(goal, group, start.machines, may_wait=may_wait)
        inside = found.group != WAITS
        if not inside.any():
            return start
        return Arrangement.of(chosen.of_jobs(inside), found.group[inside], found.machines, view.fleet, model)


def values(jobs: Subtasks, end: float) -> FloatArray:
    """Return what an iteration of each job is worth, shape (n,), where the whole fall of a loss is worth 1.

    end: what the end of a job is worth.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> falls = SubtaskTimes("falls", loss=1.0, loss_fall=0.5, iterations_left=100.0)
    >>> ends = SubtaskTimes("ends", loss=0.1, loss_fall=0.01, iterations_left=2.0)
    >>> values(Subtasks.of([falls, ends]), end=1.0).tolist()
    [0.5, 0.55]
    """
    left = np.where(np.isnan(jobs.iterations_left), np.inf, np.maximum(jobs.iterations_left, 1.0))
    loss = np.where(np.isnan(jobs.loss), 1.0, jobs.loss)
    value = np.fmax(jobs.loss_fall, (loss + end) / left)
    usual = float(value[value > 0].mean()) if (value > 0).any() else 1.0
    return np.asarray(jobs.weight * np.where(value > 0, value, usual))


def taken(jobs: Subtasks) -> FloatArray:
    """Return what an iteration takes of all cores and of all networks, shape (n,), 2 for all jobs together.

    Both are as dear as they are wanted: each is worth the same for all jobs together.
    """
    work, comm = jobs.comp_machine_seconds, jobs.comm_seconds
    shares = [part / total for part in (work, comm) if (total := float(part.sum())) > 0]
    both = np.sum(shares, axis=0) if shares else np.ones(len(jobs))
    return np.maximum(both, 1e-300)


def density(jobs: Subtasks, end: float) -> FloatArray:
    """Return the value of an iteration for what it takes, shape (n,)."""
    return np.asarray(values(jobs, end) / taken(jobs))


def held_up(jobs: Subtasks, end: float) -> FloatArray:
    """Return what an iteration of each job is worth to it and to all behind it, shape (n,).

    If one machine served jobs one after another by rank, each second of its work would delay the fall of all
    that is left of the job and of those behind it. So this is the slope of the whole cost to come, where what
    jobs hold up is taken to fall at their ends.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> jobs = [SubtaskTimes("a", 60.0, 4.0, iterations_left=9.0)]
    >>> jobs += [SubtaskTimes("b", 60.0, 4.0, iterations_left=3.0)]
    >>> held_up(Subtasks.of(jobs), end=1.0).tolist()
    [2.0, 4.0]
    """
    rank = density(jobs, end)
    held = jobs.weight * (np.where(np.isnan(jobs.loss), 1.0, jobs.loss) + end)
    order = np.argsort(-rank, kind="stable")
    behind = np.empty(len(jobs))
    behind[order] = held[order][::-1].cumsum()[::-1]
    return np.asarray(behind * taken(jobs))


def positions(of: Subtasks, among: Subtasks) -> IntArray:
    """Return where some jobs are among others, shape (n,)."""
    place = {job: i for i, job in enumerate(among.ids)}
    return np.array([place[job] for job in of.ids], dtype=np.int64)
