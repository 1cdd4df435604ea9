"""A predictor that is told what no live run knows, and is then off by as much as is asked for."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs.gangs.gangs import Gangs
from relaqs.slot_policies.ones.draws import Draws


@dataclass(frozen=True, slots=True)
class KnownPasses:
    """The passes that jobs still need, times a factor of each job: exp(error · z), with z normal.

    A job's factor is the same at every plan, and follows from its id and the seed. So what a study finds is
    what errors of this size cost, whatever the method that makes them.

    Args:
        error: one deviation of the factor's logarithm. 0: all is known.
        seed: of the factors.
    """

    error: float = 0.0
    seed: int = 0
    needs_rows_left: ClassVar[bool] = True  # the simulator tells them

    def __post_init__(self) -> None:
        if not 0 <= self.error < math.inf:
            raise ValueError(f"error is {self.error}; give a finite number, 0 or more")

    def __call__(self, gangs: Gangs, finished: FloatArray) -> FloatArray:
        normal = np.array([_normal(self.seed, name) for name in gangs.ids])
        return np.asarray(gangs.rows_left / gangs.pass_rows * np.exp(self.error * normal))


def _normal(seed: int, name: str) -> float:
    """Return a number of a normal distribution that follows from a name, by Box and Muller's formula."""
    above_zero, angle = 1.0 - Draws(seed, zlib.crc32(name.encode())).uniform(0, 2)
    return math.sqrt(-2.0 * math.log(above_zero)) * math.cos(2.0 * math.pi * angle)
