"""How a job's accuracy rises and its loss falls with its iterations, noise included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_lab.simulation.placed.models import Algorithm

FIRST_LOSS, LAST_LOSS = 2.3, 0.1
ACCURACY_NOISE, LOSS_NOISE = 0.004, 0.02  # one deviation; the second is of the loss's logarithm
TAU_SPREAD = 0.3  # one deviation of the logarithm of a job's τ


@dataclass(frozen=True, slots=True, eq=False)
class LearningCurve:
    """What a job has after 0, 1, … iterations, shape (I + 1,).

    Attributes:
        accuracy: of the best model so far; it never falls. 0 at first.
        loss: after each iteration. It may rise for a while.
    """

    accuracy: FloatArray
    loss: FloatArray


def learning_curve(algorithm: Algorithm, iterations: int, random: np.random.Generator) -> LearningCurve:
    """Return one run of an algorithm, drawn around its form (`Algorithm`)."""
    tau = algorithm.tau * float(np.exp(random.normal(0.0, TAU_SPREAD)))
    share = np.arange(iterations + 1) / iterations
    risen = 1.0 - np.exp(-share / tau) if algorithm.is_exponential else share / (share + tau)
    accuracy = algorithm.accuracy_end * risen + random.normal(0.0, ACCURACY_NOISE, iterations + 1)
    accuracy[0] = 0.0
    loss = LAST_LOSS + (FIRST_LOSS - LAST_LOSS) * (1.0 - risen)
    return LearningCurve(
        accuracy=np.maximum.accumulate(np.clip(accuracy, 0.0, 1.0)),
        loss=loss * np.exp(random.normal(0.0, LOSS_NOISE, iterations + 1)),
    )
