"""Harmony: jobs that compute share machines with jobs that communicate; and groups by what they bring.

`Harmony` follows its paper. `HarmonyProgress` groups by the fall of the loss and the ends that are ahead,
with a bound on waiting. For a plan,

1. the jobs of a view are taken in order, with times for all (`considered`). A view in which nothing has
   changed since the last plan needs no search.
2. Where a job came or ended, groups are changed as little as is worth it (`Regrouping`).
3. Else they are searched for anew (`arrangement.py`, `prefixes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs_lab.group_policies.arrangement import MOST_JOBS, WAITS, Arrangement, climbed, least_machines
from relaqs_lab.group_policies.group_model import Goal, GroupModel
from relaqs_lab.group_policies.prefixes import PrefixSearch, Refinement, StopRule
from relaqs_lab.groups import Fleet, Group, GroupPlan, GroupView, Lost, Subtasks, TurnTaking

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
