"""The seven numbers of a job's speed, found again from the steps that they make."""

from __future__ import annotations

import numpy as np
import pytest

from relaqs.prediction.throughput import Measured, fit_speed
from relaqs.sharing.gangs import compute_seconds, step_seconds

PLACES = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 8), (4, 16), (8, 32))  # nodes, slots


def measured(speed: np.ndarray, places: tuple[tuple[int, int], ...], rows: tuple[int, ...]) -> Measured:
    steps = Measured()
    for nodes, slots in places:
        for each in rows:
            step = float(step_seconds(speed, slots, nodes, each))
            steps.add(nodes, slots, each, float(compute_seconds(speed, each)), step)
    return steps


@pytest.mark.parametrize("seed", range(5))
def test_the_numbers_are_recovered(seed: int) -> None:
    random = np.random.default_rng(seed)
    low = np.array([0.05, 0.0005, 0.01, 0.001, 0.1, 0.002, 1.0])
    speed = random.uniform(low, np.array([0.2, 0.005, 0.1, 0.01, 0.4, 0.02, 4.0]))
    assert fit_speed(measured(speed, PLACES, (16, 64, 128))) == pytest.approx(speed, rel=0.02)


def test_what_was_never_measured_costs_little() -> None:
    speed = np.array([0.1, 0.001, 0.05, 0.01, 0.2, 0.02, 1.5])
    alone = fit_speed(measured(speed, ((1, 1),), (16, 64)))
    assert alone[:2] == pytest.approx(speed[:2])
    assert (alone[2:6] < 1e-6).all()
    here = fit_speed(measured(speed, ((1, 1), (1, 2), (1, 4)), (16, 64)))
    assert here[4:6] == pytest.approx(here[2:4] * 1.1)


def test_nothing_measured_is_nothing_known() -> None:
    assert np.isnan(fit_speed(Measured())).all()
