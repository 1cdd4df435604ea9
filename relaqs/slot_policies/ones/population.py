"""What ONES remembers from one plan to the next: its schedules and the batch limits, frozen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import IntArray

from relaqs.gangs.nodes import Nodes
from relaqs.slot_policies.ones.genome import IDLE


@dataclass(frozen=True, slots=True)
class Population:
    """Schedules by the names of jobs and nodes, so that they outlive both.

    Two populations are equal if all their schedules are. They can be pickled.

    Attributes:
        generation: how many generations there have been.
        jobs: the jobs' ids; a gene is a position here.
        nodes: the ids of the nodes, and the slots of each.
        genes: the schedules as bytes of 32-bit numbers.
        limits: the doublings of each job's batch limit and the passes counted in it, in the order of jobs.
    """

    generation: int
    jobs: tuple[str, ...]
    nodes: tuple[tuple[str, int], ...]
    genes: bytes
    limits: tuple[tuple[float, float], ...]

    @classmethod
    def of(
        cls,
        generation: int,
        ids: tuple[str, ...],
        nodes: Nodes,
        genomes: IntArray,
        limits: dict[str, tuple[float, float]],
    ) -> Population:
        """Return the population of some schedules, shape (K, G)."""
        slots = tuple(zip(nodes.ids, nodes.usable_slots.tolist(), strict=True))
        return cls(
            generation, ids, slots, genomes.astype(np.int32).tobytes(), tuple(limits[each] for each in ids)
        )

    def limits_by_id(self) -> dict[str, tuple[float, float]]:
        """Return the doublings and the passes counted of each job."""
        return dict(zip(self.jobs, self.limits, strict=True))

    def on(self, ids: tuple[str, ...], nodes: Nodes) -> IntArray:
        """Return the schedules for the jobs and nodes there are now, shape (K, G).

        Slots of jobs that ended and slots that are new are IDLE.
        """
        row = {name: position for position, name in enumerate(ids)}
        now = np.array([*(row.get(name, IDLE) for name in self.jobs), IDLE])
        width = sum(slots for _, slots in self.nodes)
        before = now[np.frombuffer(self.genes, dtype=np.int32).reshape(-1, width)]
        starts = dict(zip((name for name, _ in self.nodes), _starts([s for _, s in self.nodes]), strict=True))
        had = dict(self.nodes)
        usable = nodes.usable_slots.tolist()
        genomes = np.full((len(before), sum(usable)), IDLE)
        for name, slots, start in zip(nodes.ids, usable, _starts(usable), strict=True):
            kept = min(slots, had.get(name, 0))
            old = starts.get(name, 0)
            genomes[:, start : start + kept] = before[:, old : old + kept]
        return genomes


def _starts(slots: list[int]) -> list[int]:
    return [sum(slots[:node]) for node in range(len(slots))]
