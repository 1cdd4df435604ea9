"""One generation: refresh, crossover, mutation, reorder, selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.slot_policies.ones.crossover import crossed
from relaqs.slot_policies.ones.draws import Draws
from relaqs.slot_policies.ones.fill import filled
from relaqs.slot_policies.ones.genome import trimmed
from relaqs.slot_policies.ones.mutation import preempted
from relaqs.slot_policies.ones.refresh import refreshed
from relaqs.slot_policies.ones.reorder import reordered
from relaqs.slot_policies.ones.selection import best
from relaqs.slot_policies.ones.utilisation import SlotSeconds, scores

RowsLeft = Callable[[FloatArray], FloatArray]
"""Even numbers from 0 to 1, (n, J) → the rows that jobs still process in n draws, (n, J)."""

# The streams of one generation's draws.
REFRESH, FILL, PARENTS, GENES, MUTANTS, LOSES, SCORE, START = range(8)


@dataclass(frozen=True, slots=True, eq=False)
class Evolution:
    """What stays the same from one generation to the next.

    Attributes:
        costs: what slots cost.
        rows_left: what is drawn of the jobs' remaining work.
        is_new: which jobs have never run, shape (J,).
        executed_seconds: how long each job has run, shape (J,).
        population: how many schedules live on.
        mutation: the rate at which a job of a mutant loses its slots.
        crossover: whether genes of pairs are mixed. If not, children are as their parents.
    """

    costs: SlotSeconds
    rows_left: RowsLeft
    is_new: BoolArray
    executed_seconds: FloatArray
    population: int
    mutation: float
    crossover: bool = True

    def after(self, genomes: IntArray, draws: Draws) -> IntArray:
        """Return the next generation, the best schedule first. genomes: at least one, shape (K, G)."""
        jobs, size = len(self.costs.most), self.population
        rows = self.rows_left(draws.uniform(REFRESH, len(genomes), jobs))
        parents = refreshed(genomes, rows, self.costs, self.is_new, self.executed_seconds)
        children = np.concatenate([self._children(parents, draws), self._mutants(parents, draws)])
        rows = self.rows_left(draws.uniform(FILL, size, jobs))
        children = filled(children, np.concatenate([rows] * 3), self.costs)
        every = np.concatenate([parents, reordered(children, jobs)])
        rows = self.rows_left(draws.uniform(SCORE, 1, jobs))[0]
        return every[best(every, scores(every, rows, self.costs), size)]

    def _children(self, parents: IntArray, draws: Draws) -> IntArray:
        size, slots = self.population, parents.shape[1]
        pairs = draws.integers(PARENTS, len(parents), 2, size)
        to_first = draws.uniform(GENES, size, slots) < (0.5 if self.crossover else 1.0)
        children = crossed(parents[pairs[0]], parents[pairs[1]], to_first)
        return trimmed(reordered(children, len(self.costs.most)), self.costs.most)

    def _mutants(self, parents: IntArray, draws: Draws) -> IntArray:
        chosen = parents[draws.integers(MUTANTS, len(parents), self.population)]
        loses = draws.uniform(LOSES, self.population, len(self.costs.most)) < self.mutation
        return preempted(chosen, loses)


def random_schedules(count: int, slots: int, jobs: int, draws: Draws) -> IntArray:
    """Return schedules with a random job on each slot, shape (count, slots): the paper's first population."""
    return draws.integers(START, jobs, count, slots)
