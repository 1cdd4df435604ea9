"""The best groups there are: of few jobs by trying everything, of more by simulated annealing.

Memory is taken to be enough. What groups are worth is u, as in `GroupModel`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.groups import Subtasks

PLACES = 12  # groups at most, where they are annealed
HOT, COLD = 1e-2, 1e-6  # in units of u
STEPS_OF_MACHINES = np.array([0, 0, 0, 1, -1, 2, -2, 4, -4, 8])


def best_of_prefixes(jobs: Subtasks, machines: int, model: GroupModel) -> FloatArray:
    """Return the highest u of all partitions of the first 1, 2, … n jobs on any machines each, shape (n,).

    The best partition of a set is a group with its first job and the best partition of the others, on the
    machines that are left. So sets are gone through from small to large, and nothing is left out.
    """
    count = len(jobs)
    is_in = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    alone = np.array([_worth_of_sets(jobs, is_in, each, machines, model) for each in range(1, machines + 1)])
    worth = np.concatenate([np.full((1, 1 << count), -np.inf), alone]).T  # by set and machines
    best = np.full((1 << count, machines + 1), -np.inf)
    best[0] = 0.0
    for whole in range(1, 1 << count):
        first = whole & -whole
        rest = whole ^ first
        groups, subset = [], rest
        while True:
            groups.append(subset | first)
            if subset == 0:
                break
            subset = (subset - 1) & rest
        one, others = worth[groups], best[[whole ^ group for group in groups]]
        for given in range(1, machines + 1):
            found = (one[:, given, None] + others[:, : machines + 1 - given]).max(axis=0)
            best[whole, given:] = np.maximum(best[whole, given:], found)
    return np.array([best[(1 << size) - 1, machines] for size in range(1, count + 1)])


def _worth_of_sets(jobs: Subtasks, is_in: IntArray, own: int, machines: int, model: GroupModel) -> FloatArray:
    places = np.full(len(jobs), own)
    comp, comm = model.comp_seconds(jobs, places), model.comm_seconds(jobs, places)
    computes, sends = is_in @ comp, is_in @ comm
    seconds = np.max([computes, sends, (is_in * (comp + comm)).max(axis=1)], axis=0)
    used = own * (model.cpu_weight * computes + (1 - model.cpu_weight) * sends) / machines
    found: FloatArray = np.divide(used, seconds, out=np.full(len(is_in), -np.inf), where=seconds > 0)
    return found


def annealed(
    workloads: Sequence[Subtasks],
    starts: Sequence[tuple[IntArray, IntArray]],
    machines: int,
    model: GroupModel,
    steps: int,
    seed: int = 0,
) -> FloatArray:
    """Return the highest u that annealing found for each workload, all jobs in groups, shape (w,).

    All workloads take a step at once: a job goes to another group, two jobs swap, or machines move, and what
    is worse is taken with the probability of Metropolis. It cools from 0.01 to 10⁻⁶ of u.

    Args:
        workloads: w of them, with n jobs each.
        starts: groups and machines of each; PLACES groups at most.
        machines: of all groups together.
        steps: of each workload.

    Source: Kirkpatrick et al., Optimization by Simulated Annealing, Science 220, 1983.
    """
    state = _Annealing(workloads, starts, machines, model, np.random.default_rng(seed))
    for step in range(steps):
        state.step(HOT * (COLD / HOT) ** (step / steps))
    return state.best


class _Annealing:
    """Arrays of w workloads, n jobs and PLACES groups."""

    def __init__(
        self,
        workloads: Sequence[Subtasks],
        starts: Sequence[tuple[IntArray, IntArray]],
        machines: int,
        model: GroupModel,
        random: np.random.Generator,
    ) -> None:
        self.random, self.model, self.all_machines = random, model, machines
        self.work = np.array([jobs.comp_machine_seconds for jobs in workloads])
        self.comm = np.array([jobs.comm_seconds for jobs in workloads])
        self.group = np.array([group for group, _ in starts])
        self.machines = np.zeros((len(workloads), PLACES), dtype=np.int64)
        for row, (_, given) in enumerate(starts):
            self.machines[row, : len(given)] = given
        self.rows = np.arange(len(workloads))
        numbers = range(PLACES)
        self.worth = np.array([self._worth(np.full(len(workloads), g), self.group) for g in numbers]).T
        self.best: FloatArray = self.worth.sum(axis=1)

    def _worth(self, place: IntArray, group: IntArray, moved: IntArray | int = 0) -> FloatArray:
        """Return what one group of each workload is worth; `group` is that of each job, shape (w, n)."""
        own = self.machines[self.rows, place] + moved
        is_in = group == place[:, None]
        divided = np.maximum(own, 1)[:, None]
        own_share = 0.0 if self.model.literal else 1.0
        comp = np.where(is_in, self.work / divided, 0.0)
        comm = np.where(is_in, self.comm * (1.0 - own_share / divided), 0.0)
        computes, sends = comp.sum(axis=1), comm.sum(axis=1)
        seconds = np.maximum(np.maximum(computes, sends), (comp + comm).max(axis=1))
        used = own * (self.model.cpu_weight * computes + (1 - self.model.cpu_weight) * sends)
        worth = np.divide(used, seconds * self.all_machines, out=np.zeros(len(own)), where=seconds > 0)
        return np.asarray(np.where((seconds > 0) & (own < 1) | (own < 0), -np.inf, worth))

    def step(self, temperature: float) -> None:
        random, count, jobs = self.random, len(self.rows), self.group.shape[1]
        out, back = random.integers(0, jobs, count), random.integers(0, jobs, count)
        kind = random.uniform(size=count)
        giver = self.group[self.rows, out]
        taker = np.where(kind < 0.4, self.group[self.rows, back], random.integers(0, PLACES, count))
        moved = STEPS_OF_MACHINES[random.integers(0, len(STEPS_OF_MACHINES), count)]
        is_last = (self.group == giver[:, None]).sum(axis=1) == 1
        moved = np.where((kind >= 0.4) & (kind < 0.8) & is_last, self.machines[self.rows, giver], moved)
        after = self.group.copy()
        swaps, goes = kind < 0.4, kind < 0.8
        after[self.rows[goes], out[goes]] = taker[goes]
        after[self.rows[swaps], back[swaps]] = giver[swaps]
        here, there = self._worth(giver, after, -moved), self._worth(taker, after, moved)
        change = here + there - self.worth[self.rows, giver] - self.worth[self.rows, taker]
        taken = (giver != taker) & (change > temperature * np.log(random.uniform(1e-300, 1.0, count)))
        rows = self.rows[taken]
        self.group[rows] = after[rows]
        for place, worth, sign in ((giver, here, -1), (taker, there, 1)):
            self.machines[rows, place[rows]] += sign * moved[rows]
            self.worth[rows, place[rows]] = worth[rows]
        self.best = np.maximum(self.best, self.worth.sum(axis=1))
