"""How long a step of a job takes on the slots that it holds: the true time, which a policy only measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from relaqs_bootstrap.arrays import FloatArray

from relaqs.gangs.speed import compute_seconds, step_seconds


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
