"""Elastic jobs for the simulator: what each trains, when it comes, and what its user asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from relaqs_lab.simulation.machines.convergence import Convergence
from relaqs_lab.simulation.machines.rates import RateModel


@dataclass(frozen=True, slots=True, eq=False)
class Trainable:
    """A model with its data: how fast a step is, how far rows bring it, and which batches it takes.

    Attributes:
        pass_rows: the rows of its data.
        slot_rows_least: a slot gets at least so many rows of each step.
        slot_rows_most: a slot computes at most so many rows at once.
        rows_most: the largest batch.
    """

    name: str
    pass_rows: float
    rates: RateModel
    convergence: Convergence
    slot_rows_least: float
    slot_rows_most: float
    rows_most: float

    @property
    def start_rows(self) -> float:
        return self.convergence.start_rows


@dataclass(frozen=True, slots=True, eq=False)
class ElasticJob:
    """One job of a workload.

    Attributes:
        slots_asked: how many slots its user asked for, for policies that give no other number.
        rows_asked: the batch that its user asked for.
    """

    name: str
    trains: Trainable
    arrival_seconds: float
    slots_asked: int = 1
    rows_asked: float = math.nan

    def __post_init__(self) -> None:
        if not self.slots_asked >= 1:
            raise ValueError(f"job {self.name!r} asks for {self.slots_asked} slots; it must be 1 or more")


@dataclass(frozen=True, slots=True, eq=False)
class GangWorkload:
    """Elastic jobs in the order of their arrival. name: in words that tell this workload from others."""

    name: str
    jobs: tuple[ElasticJob, ...]

    def __post_init__(self) -> None:
        if not self.jobs:
            raise ValueError(f"the workload {self.name!r} has no jobs")
        times = [job.arrival_seconds for job in self.jobs]
        if times != sorted(times):
            raise ValueError(f"the jobs of the workload {self.name!r} are not in the order of their arrival")
        if len({job.name for job in self.jobs}) != len(self.jobs):
            raise ValueError(f"two jobs of the workload {self.name!r} have the same name")

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[ElasticJob]:
        return iter(self.jobs)
