"""Elastic jobs for the simulator: what each trains, when it comes, and what its user asked for.

How far rows of training bring a job, by the batch they came in.

How long a step takes on the slots that a job holds is the true time, which a policy only measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.gangs.speed import compute_seconds, efficiency, step_seconds


@dataclass(frozen=True, slots=True, eq=False)
class Convergence:
    """The way of a job to its end, in stages. Progress is counted in rows that came in batches of start_rows.

    A row in a larger batch brings less: (φ + B₀)/(φ + B) of progress, with the noise scale φ = B₀ · variance
    / square of the gradient in this stage (Pollux, OSDI 2021). Between two batches that were measured, square
    and variance are interpolated.

    Attributes:
        start_rows: B₀.
        stage_ends: the progress at which each stage is over, shape (S,), rising. The job ends with the last.
        batch_rows: the batches that were measured, shape (B,), rising.
        gradient_square: of each batch in each stage, shape (B, S).
        gradient_variance: the same.
        quality: how good the model is at the end of each stage, shape (S,).
        is_linear: every row counts alike, whatever the batch.

    >>> constant = Convergence.of_noise(start_rows=32.0, stage_rows=1000.0, noise_rows=[96.0, 480.0])
    >>> constant.worth(batch_rows=64.0, stage=0), constant.worth(batch_rows=64.0, stage=1)
    (0.8, 0.9411764705882353)
    >>> constant.rows_by_stage(batch_rows=64.0).tolist()
    [1250.0, 1062.5]
    """

    start_rows: float
    stage_ends: FloatArray
    batch_rows: FloatArray
    gradient_square: FloatArray
    gradient_variance: FloatArray
    quality: FloatArray
    is_linear: bool = False

    @classmethod
    def of_noise(
        cls,
        start_rows: float,
        stage_rows: float,
        noise_rows: list[float],
        *,
        quality: FloatArray | None = None,
        is_linear: bool = False,
    ) -> Convergence:
        """Return a way of equally long stages with a noise scale each, the same for every batch."""
        stages = len(noise_rows)
        rising = np.arange(1.0, stages + 1.0) / float(stages) if quality is None else quality
        return cls(
            start_rows,
            np.array([stage_rows * stage for stage in range(1, stages + 1)]),
            np.array([start_rows]),
            np.ones((1, stages)),
            np.array([noise_rows]) / start_rows,
            rising,
            is_linear,
        )

    @property
    def stages(self) -> int:
        return len(self.stage_ends)

    def noise_rows(self, batch_rows: float, stage: int) -> float:
        """Return the noise scale φ in rows that a job with this batch measures in a stage."""
        square = np.interp(batch_rows, self.batch_rows, self.gradient_square[:, stage])
        variance = np.interp(batch_rows, self.batch_rows, self.gradient_variance[:, stage])
        return float(self.start_rows * variance / square)

    def worth(self, batch_rows: float, stage: int) -> float:
        """Return the progress of one row in a batch of so many."""
        if self.is_linear:
            return 1.0
        return float(efficiency(batch_rows, self.start_rows, self.noise_rows(batch_rows, stage)))

    def rows_by_stage(self, batch_rows: float) -> FloatArray:
        """Return the rows that each stage takes if every batch has so many, shape (S,)."""
        worth = np.array([self.worth(batch_rows, stage) for stage in range(self.stages)])
        return np.asarray(np.diff(self.stage_ends, prepend=0.0) / worth)


class RateModel(Protocol):
    """What a job achieves in a placement."""

    def step_and_compute(self, placement: tuple[int, ...], slot_rows: float) -> tuple[float, float]:
        """Return the seconds of a step, and how many of them one piece computes.

        Args:
            placement: the slots on each node that is used, in the nodes' order.
            slot_rows: the rows that each slot computes at once.
        """
        ...


def seconds_a_step(
    rates: RateModel, placement: tuple[int, ...], slot_rows: float, pieces: float
) -> tuple[float, float]:
    """Return the seconds of a step in several pieces, and those in which one piece is computed."""
    step, compute = rates.step_and_compute(placement, slot_rows)
    return step + (pieces - 1) * compute, compute


@dataclass(frozen=True, slots=True, eq=False)
class FittedRates:
    """Seven numbers: the model of `relaqs.gangs.speed`.

    >>> import numpy as np
    >>> rates = FittedRates(np.array([0.1, 0.001, 0.05, 0.0, 0.21, 0.01, 1.0]))
    >>> rates.step_and_compute((2, 2), slot_rows=100)
    (0.43, 0.2)
    """

    speed: FloatArray

    def step_and_compute(self, placement: tuple[int, ...], slot_rows: float) -> tuple[float, float]:
        step = step_seconds(self.speed, sum(placement), len(placement), slot_rows)
        return float(step), float(compute_seconds(self.speed, slot_rows))


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
