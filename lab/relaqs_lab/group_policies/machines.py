"""How many machines each group has: one after another to the group that computes most for what it sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_lab.group_policies.group_model import GroupModel, summed
from relaqs_lab.groups.subtasks import Subtasks

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

    >>> from relaqs_lab.groups.subtasks import SubtaskTimes
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
