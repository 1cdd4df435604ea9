"""How far rows of training bring a job, by the batch they came in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.gangs.batches import efficiency


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
