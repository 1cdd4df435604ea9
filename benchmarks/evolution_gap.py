"""How near the evolution of ONES comes to the exact optimum of its own objective, equation 3.

    python -m benchmarks.evolution_gap [--seeds 20]

50 jobs on 64 slots, a population of 64. The rows that jobs still need are known and the same in all draws, so
that the score of a schedule is one number. Both have all slots at work: the optimum over all numbers of slots
is that of running nothing, which the second table shows. The third draws what jobs need, as the policy does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from relaqs_lab.slot_baselines import least_sum, least_sums
from rich.console import Console
from rich.table import Table

from benchmarks.slot_views import random_view
from relaqs.sharing.gangs import Gangs
from relaqs.slot_policies.ones import (
    BetaQuantiles,
    Draws,
    Evolution,
    RowsLeft,
    SlotSeconds,
    random_schedules,
    rows_left,
    scores,
    slot_rows,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

JOBS, NODES, SLOTS_OF_A_NODE = 50, 16, 4
SLOTS = NODES * SLOTS_OF_A_NODE
GENERATIONS = (1, 5, 10, 30, 60)
USED = (0, 8, 16, 32, 48, 64)


@dataclass(frozen=True)
class Instance:
    """Fifty jobs, what their slots cost, and the passes that they still need."""

    gangs: Gangs
    costs: SlotSeconds
    passes_left: FloatArray
    seed: int

    @classmethod
    def of(cls, seed: int) -> Instance:
        view = random_view(JOBS, NODES, SLOTS_OF_A_NODE, seed)
        gangs = view.gangs
        most = np.minimum(gangs.rows_most / slot_rows(gangs), SLOTS).astype(np.int64)
        passes = np.maximum(gangs.passes_done * np.random.default_rng(seed).lognormal(0, 1, JOBS), 1.0)
        return cls(gangs, SlotSeconds.of(gangs, most, view.nodes.usable_slots), passes, seed)

    @property
    def rows(self) -> FloatArray:
        return self.gangs.rows_done * self.passes_left / self.gangs.passes_done

    def optima(self) -> FloatArray:
        """Return the least score with just 0, 1, …, 64 slots at work."""
        return least_sums(self.rows[:, None] * self.costs.packed, self.costs.most, SLOTS)

    def optimum(self) -> IntArray:
        """Return the slots of each job in the best schedule with all slots at work."""
        return least_sum(self.rows[:, None] * self.costs.packed, self.costs.most, SLOTS)

    def fixed(self, even: FloatArray) -> FloatArray:
        """Return the rows that jobs need, the same in all draws."""
        return np.broadcast_to(self.rows, even.shape)

    def drawn(self, certainty: float) -> RowsLeft:
        """Return what draws the rows that jobs need. certainty: how many times the passes seen count."""
        passes = self.gangs.passes_done
        quantiles = BetaQuantiles.of(certainty * passes, certainty * self.passes_left)
        return lambda even: rows_left(self.gangs.rows_done, quantiles.at(even))

    def evolved(self, generations: int, sampled: RowsLeft) -> list[float]:
        """Return the score of the first schedule after each generation, relative to the optimum."""
        evolution = Evolution(
            costs=self.costs,
            rows_left=sampled,
            is_new=np.zeros(JOBS, dtype=np.bool_),
            executed_seconds=self.gangs.executed_seconds,
            population=SLOTS,
            mutation=0.2,
        )
        least = self.optima()[SLOTS]
        genomes, found = random_schedules(SLOTS, SLOTS, JOBS, Draws(self.seed, 0)), []
        for generation in range(1, generations + 1):
            genomes = evolution.after(genomes, Draws(self.seed, generation))
            found.append(float(scores(genomes[:1], self.rows, self.costs)[0] / least))
        return found


def gap(seed: int, generations: int = 30) -> float:
    """Return the score after so many generations, relative to the optimum."""
    instance = Instance.of(seed)
    return instance.evolved(generations, instance.fixed)[-1]


def gap_table(instances: list[Instance]) -> Table:
    table = Table(title="Score of the evolution, relative to the exact optimum with all slots at work")
    for heading in ("generations", "mean ± error", "median", "worst", "within 1.10"):
        table.add_column(heading, justify="right")
    every = np.array([each.evolved(GENERATIONS[-1], each.fixed) for each in instances])
    for generations in GENERATIONS:
        table.add_row(str(generations), *_told(every[:, generations - 1]))
    return table


def draws_table(instances: list[Instance]) -> Table:
    table = Table(title="The same after 30 generations, where what jobs need is drawn")
    for heading in ("passes seen count", "mean ± error", "median", "worst", "within 1.10"):
        table.add_column(heading, justify="right")
    for certainty in (1.0, 10.0, 100.0):
        found = np.array([each.evolved(30, each.drawn(certainty))[-1] for each in instances])
        table.add_row(f"{certainty:.0f} ×", *_told(found))
    return table


def _told(found: FloatArray) -> list[str]:
    error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
    within = f"{(found <= 1.10).sum()} of {len(found)}"
    return [f"{found.mean():.3f} ± {error:.3f}", f"{np.median(found):.3f}", f"{found.max():.2f}", within]


def empty_table(instances: list[Instance]) -> Table:
    table = Table(title="The least score by slots at work, relative to that of all 64; jobs that run then")
    for heading in ("slots at work", "least score", "jobs that run"):
        table.add_column(heading, justify="right")
    optima = np.array([each.optima() / each.optima()[SLOTS] for each in instances])
    for used in USED:
        cost = [each.rows[:, None] * each.costs.packed for each in instances]
        runs = [
            (least_sum(c, each.costs.most, used) > 0).sum() for c, each in zip(cost, instances, strict=True)
        ]
        table.add_row(str(used), f"{optima[:, used].mean():.3f}", f"{np.mean(runs):.1f}")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    instances = [Instance.of(seed) for seed in range(parser.parse_args(arguments).seeds)]
    console = Console(width=120)
    console.print(gap_table(instances), empty_table(instances), draws_table(instances))


if __name__ == "__main__":
    main()
