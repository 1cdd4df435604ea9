"""Which jobs run: the first ones, as many as use the machines best.

At first, those with similar iterations are together, and in each group a balance. Jobs are then swapped
between groups while both become better balanced. Machines go one after another to the group that computes
most for what it sends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.group_policies.arrangement import Arrangement, better, least_machines
from relaqs_lab.group_policies.group_model import Goal, GroupModel, group_counts, summed
from relaqs_lab.groups import Fleet, Subtasks


def filled(comp: FloatArray, comm: FloatArray, count: int, band: int = 8) -> IntArray:
    """Return the group of each job, shape (n,): `count` groups whose numbers of jobs differ by two at most.

    Jobs are sorted by their iteration, the longest first, so that long ones are together and none of a group
    waits for one. Groups are filled in bands of at most `band`. The jobs of a band are dealt to its groups to
    and fro, in the order of T_cpu − T_net, so that each group has some that compute and some that send.

    Args:
        comp, comm: T_cpu and T_net of each of n jobs, on equal machines. Ties go by position.
        count: of groups; at most n.
        band: how many groups are filled together.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B3; how the greedy filling balances is our reading.

    >>> filled(np.array([9.0, 1.0, 8.0, 2.0]), np.array([1.0, 9.0, 2.0, 8.0]), count=2).tolist()
    [0, 0, 1, 1]
    """
    total = len(comp)
    assert 1 <= count <= total, (count, total)
    longest_first = np.argsort(-(comp + comm), kind="stable")
    bands = -(-count // band)
    first_group = np.arange(bands + 1) * count // bands
    first_job = first_group * total // count
    in_band = np.repeat(np.arange(bands), np.diff(first_job))
    order = longest_first[np.lexsort(((comm - comp)[longest_first], in_band))]
    width = np.diff(first_group)[in_band]
    place = np.arange(total) - first_job[in_band]
    row, column = place // width, place % width
    column = np.where(row % 2 == 1, width - 1 - column, column)
    group = np.empty(total, dtype=np.int64)
    group[order] = first_group[in_band] + column
    return group


def exchanged(lean: FloatArray, group: IntArray, count: int, most: int = 200) -> IntArray:
    """Return the group of each job after swaps, shape (n,).

    The imbalance of a group is |Σ lean| over its jobs. The most imbalanced group and the one that leans most
    to the other side swap the pair of jobs after which the sum of both imbalances is least. This goes on
    while the sum falls, so it ends; and it makes `most` swaps at most.

    Args:
        lean: T_cpu − T_net of each job on equal machines, shape (n,).
        group: the group of each job, shape (n,).
        count: of groups.
        most: the swaps.

    Source: Lee et al., Harmony, ICDCS 2021, section IV-B3.

    >>> exchanged(np.array([3.0, 2.0, -2.0, -3.0]), np.array([0, 0, 1, 1]), count=2).tolist()
    [1, 0, 0, 1]
    """
    group = group.copy()
    sums = np.bincount(group, lean, count)
    for _ in range(most):
        worst = int(np.argmax(np.abs(sums)))
        other = int(np.argmin(sums * np.sign(sums[worst])))
        if other == worst:
            break
        mine, theirs = np.flatnonzero(group == worst), np.flatnonzero(group == other)
        moved = lean[mine][:, None] - lean[theirs][None, :]
        left = np.abs(sums[worst] - moved) + np.abs(sums[other] + moved)
        best = int(np.argmin(left))
        present = abs(sums[worst]) + abs(sums[other])
        if left.flat[best] >= present * (1 - 1e-9):
            break
        row, column = divmod(best, len(theirs))
        group[mine[row]], group[theirs[column]] = other, worst
        sums[worst] -= moved[row, column]
        sums[other] += moved[row, column]
    return group


_TRIES = 60  # of λ, where the interval that it is in is halved each time or made smaller
_BY_ONE = 8  # machines that are given one by one at the end, where there are few groups


def apportioned(jobs: Subtasks, group: IntArray, least: IntArray, total: int, model: GroupModel) -> IntArray:
    """Return the machines of each group, shape (G,), `total` of them together.

    Each group has what it needs at least. Then machine after machine goes to the group with the largest
    ΣT_cpu / ΣT_net on the machines that it has. This is an apportionment by divisors (Adams's, where equation
    2 is taken literally), so it needs no loop over machines: a group has the least m at which its ratio is λ
    or below, and a bisection finds the λ at which all are given. Ties go to the first group.

    Args:
        jobs: n jobs.
        group: the group of each, shape (n,).
        least: what each group has at least, shape (G,); together `total` or fewer.
        total: the machines.
        model: the times on so many machines.

    Source: Lee et al., Harmony, ICDCS 2021, Algorithm 1, line 8, says "the most computation-intensive group";
    the ratio is our reading of it.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0), SubtaskTimes("b", 30.0, 4.0)])
    >>> apportioned(jobs, np.array([0, 1]), np.array([1, 1]), 9, GroupModel(literal=True)).tolist()
    [6, 3]
    """
    assert least.sum() <= total, (least, total)
    ratio = Ratio.of(jobs, group, len(least), model)
    low, high, machines = 0.0, ratio.bound(least), least.copy()
    guess = min(ratio.of_equal(total), high)
    for _ in range(_TRIES):
        tried = np.maximum(least, ratio.least_machines(guess, total))
        spare = total - int(tried.sum())
        if spare < 0:
            low = guess
        else:
            high, machines = guess, tried
            if spare <= max(_BY_ONE, len(least) // 50):
                break
        # ratios are about inverse to machines, which are rounded up by a half of one on average
        half = len(least) / 2
        aimed = guess * (total - spare - half) / max(total - half, 1.0)
        guess = aimed if low < aimed < high else (low + high) / 2
    for _ in range(total - int(machines.sum())):
        machines[int(np.argmax(ratio.at(machines)))] += 1
    return machines


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """ΣT_cpu / ΣT_net of each group, as a function of its machines. Columns of shape (G,), sums over jobs.

    own_share: of what is sent on one machine, 1 where a machine sends itself nothing, else 0.
    """

    work: FloatArray
    fixed: FloatArray
    comm: FloatArray
    comm_fixed: FloatArray
    own_share: float

    @classmethod
    def of(cls, jobs: Subtasks, group: IntArray, count: int, model: GroupModel) -> Ratio:
        work = summed(jobs.comp_machine_seconds, group, count)
        comm = summed(jobs.comm_seconds, group, count)
        if model.literal:
            return cls(work, np.zeros(count), comm, np.zeros(count), 0.0)
        fixed = summed(jobs.comp_fixed_seconds, group, count)
        return cls(work, fixed, comm, summed(jobs.comm_fixed_seconds, group, count), 1.0)

    def at(self, machines: IntArray) -> FloatArray:
        """Return the ratio of each group on so many machines; infinite where nothing is sent."""
        comm = self.comm * (1.0 - self.own_share / machines) + self.comm_fixed
        comp = self.work / machines + self.fixed
        return np.asarray(np.divide(comp, comm, out=np.full(len(comp), np.inf), where=comm > 0))

    def bound(self, least: IntArray) -> float:
        """Return a finite ratio that no group exceeds with one machine more than its least."""
        ratios = np.concatenate([self.at(least), self.at(least + 1)])
        return float(max(ratios[np.isfinite(ratios)].max(initial=0.0), 1e-300))

    def of_equal(self, total: int) -> float:
        """Return the mean ratio if all groups have equal machines; 0 where none is finite."""
        ratios = self.at(np.full(len(self.work), max(total // len(self.work), 1)))
        finite = ratios[np.isfinite(ratios)]
        return float(finite.mean()) if len(finite) else 0.0

    def least_machines(self, ratio: float, most: int) -> IntArray:
        """Return the fewest machines of each group with this ratio or less; most + 1 where there are none."""
        slope = ratio * (self.comm + self.comm_fixed) - self.fixed
        needed = self.work + self.own_share * ratio * self.comm
        found = np.divide(needed, slope, out=np.full(len(slope), np.inf), where=slope > 0)
        machines = np.maximum(np.ceil(np.minimum(found, most + 1)), 1).astype(np.int64)
        fewer = np.maximum(machines - 1, 1)  # the division may have rounded up by one
        return np.asarray(np.where(self.at(fewer) <= ratio, fewer, machines))


StopRule: TypeAlias = Literal["best", "first"]
"""When the loop over prefixes ends: after all of them, or at the first that is no better."""

Refinement: TypeAlias = Literal["rule", "climb"]
"""Whether groups are as the rule of the paper makes them, or made better from there."""

FEW_JOBS = 12
CLIMBED = 8  # prefixes of few jobs, the best ones by the rule
CLIMBED_OF_MANY = 2  # prefixes of more jobs, and starts of each
AROUND = 2  # numbers of groups, to either side of the rule's


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """Algorithm 1: groups and machines for the first jobs of a list, for as many of them as is best.

    Args:
        model: the times, and how the use of machines is one number.
        stop: "best" takes the best prefix of all. "first" is the loop as it is written: it adds a job
            while u grows, and stops at the first that adds nothing, which is after one job or a few.
        tolerance: of the prefixes with a u within this of the best, the one with the fewest jobs is taken.
        spills: rows may lie on disk. If not, a group has the machines that keep all rows in memory.
        band, swaps: as in `filled` and `exchanged`.
        prefixes: how many are tried where there are more jobs, geometrically spaced.
        refined: "climb" takes the best prefixes of the rule, and climbs from several numbers of groups
            (`better`). "rule" is the paper's.

    Source: Lee et al., Harmony, ICDCS 2021, Algorithm 1.
    """

    model: GroupModel = field(default_factory=GroupModel)
    stop: StopRule = "best"
    tolerance: float = 0.01
    spills: bool = True
    band: int = 8
    swaps: int = 200
    prefixes: int = 16
    refined: Refinement = "rule"

    def __post_init__(self) -> None:
        if self.stop not in ("best", "first"):
            raise ValueError(f"stop is {self.stop!r}; give 'best' or 'first'")
        if self.refined not in ("rule", "climb"):
            raise ValueError(f"refined is {self.refined!r}; give 'rule' or 'climb'")
        if self.tolerance < 0:
            raise ValueError(f"tolerance is {self.tolerance}; give 0 or more")

    def best(self, jobs: Subtasks, fleet: Fleet) -> Arrangement | None:
        """Return the arrangement of the prefix to run, None where not even the first job fits into memory."""
        if self.stop == "first":
            return self._until_no_better(jobs, fleet)
        tried = self._tried(jobs, fleet)
        if self.refined == "climb":
            likely = sorted(tried, key=lambda count: (-tried[count].score, count))
            likely = likely[: CLIMBED if len(jobs) <= FEW_JOBS else CLIMBED_OF_MANY]
            tried |= {count: self.improved(tried[count], fleet) for count in likely}
        return self.preferred(tried)

    def preferred(self, tried: dict[int, Arrangement]) -> Arrangement | None:
        """Return the one with the fewest jobs among those within the tolerance of the best; None of none."""
        if not tried:
            return None
        top = max(each.score for each in tried.values())
        return next(tried[count] for count in sorted(tried) if tried[count].score >= top - self.tolerance)

    def arranged(self, jobs: Subtasks, fleet: Fleet) -> Arrangement | None:
        """Return all these jobs in groups, lines 6 to 8; None where they do not fit into memory."""
        counts = group_counts(jobs, fleet.machines, self.model)
        found = [each for count in counts if (each := self._grouped(jobs, count, fleet)) is not None]
        if not found and 1 not in counts and (whole := self._grouped(jobs, 1, fleet)) is not None:
            found = [whole]
        return max(found, key=lambda each: each.score, default=None)

    def _grouped(self, jobs: Subtasks, count: int, fleet: Fleet) -> Arrangement | None:
        equal = np.full(len(jobs), fleet.machines / count)
        comp, comm = self.model.comp_seconds(jobs, equal), self.model.comm_seconds(jobs, equal)
        group = exchanged(comp - comm, filled(comp, comm, count, self.band), count, self.swaps)
        least = least_machines(jobs, group, count, fleet, spills=self.spills)
        if least.sum() > fleet.machines:
            return None
        machines = apportioned(jobs, group, least, fleet.machines, self.model)
        return Arrangement.of(jobs, group, machines, fleet, self.model)

    def improved(self, found: Arrangement, fleet: Fleet) -> Arrangement:
        """Return the best that climbing makes of the same jobs, from several numbers of groups.

        Each number of groups is filled twice: in bands, and one group after another. Of many jobs the best
        of these starts are climbed from.
        """
        jobs, present = found.jobs, len(found.machines)
        most = min(len(jobs), fleet.machines)
        counts = range(max(present - AROUND, 1), min(present + AROUND, most) + 1)
        fills = (self, replace(self, band=1))
        tried = (each._grouped(jobs, count, fleet) for count in counts for each in fills)
        starts = sorted((each for each in tried if each is not None), key=lambda each: -each.score)
        starts = [found, *starts][: None if len(jobs) <= FEW_JOBS else CLIMBED_OF_MANY]
        goal = Goal.use(jobs, fleet, self.model, spills=self.spills)
        return max((better(each, goal, fleet, self.model) for each in starts), key=lambda each: each.score)

    def _tried(self, jobs: Subtasks, fleet: Fleet) -> dict[int, Arrangement]:
        counts = np.arange(1, len(jobs) + 1)
        if len(jobs) > self.prefixes:
            counts = np.unique(np.round(np.geomspace(1, len(jobs), self.prefixes)).astype(np.int64))
        tried: dict[int, Arrangement] = {}
        for count in counts.tolist():
            found = self.arranged(jobs.of_jobs(np.arange(count)), fleet)
            if found is not None:
                tried[count] = found
        return tried

    def _until_no_better(self, jobs: Subtasks, fleet: Fleet) -> Arrangement | None:
        best: Arrangement | None = None
        for count in range(1, len(jobs) + 1):
            found = self.arranged(jobs.of_jobs(np.arange(count)), fleet)
            if found is None or (best is not None and found.score <= best.score + 1e-12):
                break
            best = found
        return best
