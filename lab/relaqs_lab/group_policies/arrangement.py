"""Arrangements: jobs in groups on machines, what the model says of them, and how one is made better.

What memory lacks lies on disk: the rows with the least cost of reading. An arrangement is made better by
climbing: jobs, pairs of jobs and machines change groups while that is worth most. Of a few groups all are
tried, of many the worst.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs_lab.group_policies.group_model import COUNT, Goal, GroupModel, GroupTimes
from relaqs_lab.groups import Fleet, Group, Subtasks


def spilled_shares(jobs: Subtasks, group: IntArray, machines: IntArray, fleet: Fleet) -> FloatArray:
    """Return α of each job, shape (n,): the share of its rows on disk, so that each group fits into memory.

    A byte on disk is read and decoded once an iteration, and the jobs of a group make equally many. So it
    costs 1/disk + decode seconds, and a fractional knapsack, cheapest byte first, has the least cost exactly.
    Of equal costs the job with the most rows goes first, so that few jobs read from the disk. Where a group
    does not fit even without rows, all its α are 1.

    Args:
        jobs: n jobs.
        group: the group of each, shape (n,).
        machines: of each group, shape (G,).
        fleet: the machines' memory and disks.

    >>> from relaqs_lab.groups import SubtaskTimes
    >>> slow = SubtaskTimes("slow", input_bytes=4e9, decode_seconds_per_byte=1e-9)
    >>> jobs = Subtasks.of([slow, SubtaskTimes("fast", input_bytes=4e9)])
    >>> spilled_shares(jobs, np.array([0, 0]), np.array([2]), Fleet(2, memory_bytes=3e9)).tolist()
    [0.0, 0.5]
    """
    lacking = np.bincount(group, jobs.input_bytes + jobs.model_bytes, len(machines))
    lacking = lacking - machines * fleet.memory_bytes
    shares = np.zeros(len(jobs))
    if (lacking <= 0).all():
        return shares
    order = np.lexsort((-jobs.input_bytes, jobs.decode_seconds_per_byte, group))
    own, sizes = group[order], jobs.input_bytes[order]
    before = np.cumsum(sizes) - sizes
    first = np.flatnonzero(np.r_[True, own[1:] != own[:-1]])
    before -= np.repeat(before[first], np.diff(np.r_[first, len(own)]))
    taken = np.clip(lacking[own] - before, 0.0, sizes)
    shares[order] = np.divide(taken, sizes, out=np.zeros(len(jobs)), where=sizes > 0)
    return shares


def least_machines(jobs: Subtasks, group: IntArray, count: int, fleet: Fleet, *, spills: bool) -> IntArray:
    """Return how many machines each of `count` groups needs for its memory, shape (count,), at least 1.

    spills: all rows may lie on disk; if not, all are kept in memory.
    """
    kept = jobs.model_bytes if spills else jobs.model_bytes + jobs.input_bytes
    needed = np.bincount(group, kept, count) / fleet.memory_bytes
    return np.asarray(np.maximum(np.ceil(needed * (1 - 1e-12)), 1), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """n jobs in G groups. Shapes: group and spilled (n,), machines (G,).

    Attributes:
        jobs: those that run.
        group: the group of each.
        machines: of each group.
        spilled: α of each job.
        times: what the iterations of the groups are made of.
        cpu, net: U over all machines of the fleet, idle ones too: equation 4.
        score: both as one number.
    """

    jobs: Subtasks
    group: IntArray
    machines: IntArray
    spilled: FloatArray
    times: GroupTimes
    cpu: float
    net: float
    score: float

    @classmethod
    def of(
        cls, jobs: Subtasks, group: IntArray, machines: IntArray, fleet: Fleet, model: GroupModel
    ) -> Arrangement:
        """Return jobs in groups on machines of a fleet; what does not fit into memory is spilled."""
        spilled = spilled_shares(jobs, group, machines, fleet)
        own = machines[group]
        read = spilled * jobs.input_bytes / own
        times = GroupTimes.of(
            model.comp_seconds(jobs, own) + read * jobs.decode_seconds_per_byte,
            model.comm_seconds(jobs, own),
            read / fleet.disk_bytes_per_second,
            group,
            len(machines),
        )
        cpu, net = times.utilisation(machines, fleet.machines)
        return cls(jobs, group, machines, spilled, times, cpu, net, model.score(cpu, net))

    def groups(self) -> tuple[Group, ...]:
        """Return the groups, each with its jobs in the order of the columns."""
        names = np.array(self.jobs.ids, dtype=object)
        return tuple(
            Group(tuple(names[self.group == i]), int(count)) for i, count in enumerate(self.machines.tolist())
        )

    def spilled_by_id(self) -> dict[str, float]:
        """Return α of the jobs with rows on disk."""
        return {self.jobs.ids[i]: float(self.spilled[i]) for i in np.flatnonzero(self.spilled > 0).tolist()}


WAITS = -1
_OFFSETS = np.array([0, 1, -1, 2, -2, 4, -4, 8, -8])  # machines that change groups together
_LEAST_GAIN = 1e-9  # relative to what all groups are worth


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Who is where. Shapes: group (n,), from 0, or WAITS; machines (G,).

    worth: the sum of the goal over all groups.
    """

    group: IntArray
    machines: IntArray
    worth: float


def climbed(
    goal: Goal,
    group: IntArray,
    machines: IntArray,
    *,
    may_wait: BoolArray | None = None,
    changes: int = 200_000,
) -> Grouped:
    """Return better groups of the same jobs on the same machines, or the same ones.

    The change that is worth most is made, again and again, while there is one: a job goes to another group,
    takes up to 8 machines along or leaves as many behind, or opens a group of its own; two jobs swap their
    groups; machines go from one group to another; two groups become one. This is our own: the paper swaps
    pairs of jobs only, and gives out machines by a rule.

    Args:
        goal: of n jobs.
        group: the group of each, shape (n,), from 0, or WAITS.
        machines: of each group, shape (G,).
        may_wait: which jobs may be taken out of their groups; then those that wait may join. None: nobody.
        changes: how many are looked at, about. It ends this without a clock.

    >>> import numpy as np
    >>> from relaqs_lab.group_policies.group_model import GroupModel
    >>> from relaqs_lab.groups import Subtasks, SubtaskTimes
    >>> from relaqs_lab.groups import Fleet
    >>> rows = [SubtaskTimes("a", 90.0, 2.0), SubtaskTimes("b", 90.0, 2.0)]
    >>> rows += [SubtaskTimes("c", 20.0, 9.0), SubtaskTimes("d", 20.0, 9.0)]
    >>> goal = Goal.use(Subtasks.of(rows), Fleet(20), GroupModel(), spills=True)
    >>> climbed(goal, np.array([0, 0, 1, 1]), np.array([10, 10])).group.tolist()
    [1, 0, 0, 1]
    """
    climb = _Climb(goal, group, machines, may_wait)
    while changes > 0 and climb.step():
        changes -= climb.looked_at
    return climb.grouped()


class _Climb:
    """Groups have the places 0 to G − 1. After them are one without jobs and machines, and those who wait."""

    def __init__(self, goal: Goal, group: IntArray, machines: IntArray, may_wait: BoolArray | None) -> None:
        self.goal, self.may_wait = goal, may_wait
        self.slope, self.base = goal.slope, goal.base
        self.group = np.where(group == WAITS, len(machines) + 1, group).astype(np.int64)
        self.machines = np.concatenate([machines, [0, 0]]).astype(np.int64)
        self.looked_at = 0
        self._count_again()

    @property
    def _spare(self) -> int:
        return len(self.machines) - 2

    @property
    def _waiting(self) -> int:
        return len(self.machines) - 1

    def grouped(self) -> Grouped:
        is_group = self.sums[: self._spare, COUNT] > 0.5
        number = np.concatenate([np.where(is_group, np.cumsum(is_group) - 1, WAITS), [WAITS, WAITS]])
        worth = float(self.worth[: self._spare].sum())
        return Grouped(number[self.group], self.machines[: self._spare][is_group], worth)

    def step(self) -> bool:
        """Make the best change; return whether there was one."""
        giver, taker, out, back, offset = self._changes()
        gain = self._gain(giver, taker, out, back, offset)
        self.looked_at = len(gain)
        best = int(np.argmax(gain))
        merged, first, second = self._best_merger()
        total = float(self.worth[: self._spare].sum())
        least = _LEAST_GAIN * max(abs(total), 1e-300)
        if max(gain[best], merged) <= least:
            return False
        if merged > gain[best]:
            self.group[self.group == second] = first
            self.machines[first] += self.machines[second]
            self.machines[second] = 0
        else:
            moved = int(_OFFSETS[offset[best]])
            self.machines[giver[best]] -= moved
            self.machines[taker[best]] += moved
            nobody = len(self.group)
            if out[best] != nobody:
                self.group[out[best]] = taker[best]
            if back[best] != nobody:
                self.group[back[best]] = giver[best]
        self._tidy()
        self._count_again()
        return True

    def _tidy(self) -> None:
        """Keep one place without machines, and number the others anew."""
        kept = np.flatnonzero(self.machines > 0)
        number = np.full(len(self.machines), len(kept) + 1)
        number[kept] = np.arange(len(kept))
        self.group = number[self.group]
        self.machines = np.concatenate([self.machines[kept], [0, 0]])

    def _count_again(self) -> None:
        """Compute the sums of all groups, and who is longest in each on so many machines more or fewer."""
        count, jobs = len(self.machines), len(self.group)
        member = np.zeros((count, jobs))
        member[self.group, np.arange(jobs)] = 1.0
        self.sums = member @ self.goal.features[:-1]
        around = np.maximum(self.machines[:, None] + _OFFSETS[None, :], 1)
        alone = self.slope[None, None, :-1] / around[:, :, None] + self.base[None, None, :-1]
        alone = np.where(member[:, None, :] > 0, alone, 0.0)
        self.longest_job = alone.argmax(axis=2)
        self.longest = alone.max(axis=2)
        np.put_along_axis(alone, self.longest_job[:, :, None], 0.0, axis=2)
        self.second_longest = alone.max(axis=2)
        self.worth = self.goal.of_groups(self.sums, self.longest[:, 0], self.machines)
        self.worth[self._waiting] = 0.0

    def _changes(self) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
        """Return all changes: two places, who goes to the second, who to the first, and which offset."""
        jobs, nobody = np.arange(len(self.group)), len(self.group)
        places, offsets = np.arange(self._waiting), np.arange(len(_OFFSETS))
        inside = jobs[self.group != self._waiting]
        moves = [part.ravel() for part in np.meshgrid(inside, places, offsets, indexing="ij")]
        parts = [(self.group[moves[0]], moves[1], moves[0], np.full(len(moves[0]), nobody), moves[2])]
        row, column = np.triu_indices(len(jobs), 1)
        parts.append((self.group[row], self.group[column], row, column, np.zeros(len(row), dtype=np.int64)))
        given = [part.ravel() for part in np.meshgrid(places, places, offsets[1::2], indexing="ij")]
        none = np.full(len(given[0]), nobody)
        parts.append((given[0], given[1], none, none, given[2]))
        if self.may_wait is not None:
            parts.extend(self._from_and_to_waiting(inside, places))
        found = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        is_change = found[0] != found[1]
        if self.may_wait is not None:
            may = np.append(self.may_wait, True)
            goes_to_wait = (found[1] == self._waiting) & ~may[found[2]]
            is_change &= ~goes_to_wait & ~((found[0] == self._waiting) & ~may[found[3]])
        else:
            is_change &= (found[0] != self._waiting) & (found[1] != self._waiting)
        giver, taker, out, back, offset = (column[is_change] for column in found)
        return giver, taker, out, back, offset

    def _from_and_to_waiting(
        self, inside: IntArray, places: IntArray
    ) -> list[tuple[IntArray, IntArray, IntArray, IntArray, IntArray]]:
        """Return the changes in which one job begins to wait, or stops to."""
        nobody = len(self.group)
        outside = np.flatnonzero(self.group == self._waiting)
        joins = [part.ravel() for part in np.meshgrid(outside, places[:-1], indexing="ij")]
        zero = np.zeros(len(joins[0]), dtype=np.int64)
        joining = (zero + self._waiting, joins[1], joins[0], zero + nobody, zero)
        zero = np.zeros(len(inside), dtype=np.int64)
        leaving = (self.group[inside], zero + self._waiting, inside, zero + nobody, zero)
        return [joining, leaving]

    def _gain(
        self, giver: IntArray, taker: IntArray, out: IntArray, back: IntArray, offset: IntArray
    ) -> FloatArray:
        moved = _OFFSETS[offset]
        change = self.goal.features[out] - self.goal.features[back]
        opposite = np.where(offset == 0, 0, offset + np.where(offset % 2 == 1, 1, -1))
        after = self._after(giver, -change, out, back, opposite, -moved)
        after += self._after(taker, change, back, out, offset, moved)
        gain = after - self.worth[giver] - self.worth[taker]
        return np.asarray(np.where(np.isnan(gain), -np.inf, gain))

    def _after(
        self,
        place: IntArray,
        change: FloatArray,
        leaves: IntArray,
        comes: IntArray,
        offset: IntArray,
        moved: IntArray,
    ) -> FloatArray:
        """Return the worth of a group of each change after it."""
        machines = self.machines[place] + moved
        left = np.where(
            self.longest_job[place, offset] == leaves,
            self.second_longest[place, offset],
            self.longest[place, offset],
        )
        joined = self.slope[comes] / np.maximum(machines, 1) + self.base[comes]
        worth = self.goal.of_groups(self.sums[place] + change, np.maximum(left, joined), machines)
        return np.where(place == self._waiting, 0.0, worth)

    def _best_merger(self) -> tuple[float, int, int]:
        """Return what it gains to make one group of two, and which two."""
        first, second = np.triu_indices(self._spare, 1)
        if not len(first):
            return -np.inf, 0, 0
        machines = self.machines[first] + self.machines[second]
        jobs = np.arange(len(self.group))
        is_in = (self.group[None, jobs] == first[:, None]) | (self.group[None, jobs] == second[:, None])
        alone = self.slope[None, :-1] / machines[:, None] + self.base[None, :-1]
        longest = np.where(is_in, alone, 0.0).max(axis=1)
        worth = self.goal.of_groups(self.sums[first] + self.sums[second], longest, machines)
        gain = worth - self.worth[first] - self.worth[second]
        best = int(np.argmax(gain))
        return float(gain[best]), int(first[best]), int(second[best])


MOST_GROUPS = 12  # that change at once
MOST_JOBS = 160  # in them


def better(start: Arrangement, goal: Goal, fleet: Fleet, model: GroupModel) -> Arrangement:
    """Return an arrangement of the same jobs with a score as high or higher.

    Where there are many groups, those change that use the least of their machines, 12 of them or so few that
    they have 160 jobs: to look at all pairs of jobs takes time in the square of their number.

    Args:
        start: n jobs in groups.
        goal: of these jobs in this order.
        fleet, model: of both.
    """
    seconds = start.times.seconds
    used = goal.cpu * start.times.comp / seconds + goal.net * start.times.comm / seconds
    order = np.argsort(used, kind="stable")
    sizes = np.bincount(start.group, minlength=len(used))[order]
    chosen = order[:MOST_GROUPS][np.cumsum(sizes[:MOST_GROUPS]) <= MOST_JOBS]
    if not len(chosen):
        return start
    jobs = np.flatnonzero(np.isin(start.group, chosen))
    number = np.full(len(used), -1)
    number[chosen] = np.arange(len(chosen))
    found = climbed(goal.of_jobs(jobs), number[start.group[jobs]], start.machines[chosen])
    kept = np.setdiff1d(np.arange(len(used)), chosen)
    number[kept] = np.arange(len(kept))
    group = number[start.group]
    group[jobs] = len(kept) + found.group
    machines = np.concatenate([start.machines[kept], found.machines])
    after = Arrangement.of(start.jobs, group, machines, fleet, model)
    return after if after.score > start.score else start
