"""What is foreseen of accuracies: curves of its own families, calibration, and when a run is at its best."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from relaqs.prediction.accuracy import FEWEST, FEWEST_PASSES, accuracy_ahead, foresee

FloatArray = NDArray[np.float64]
END = 60.0
NOISE = 0.003
CURVES = 400


def family_curves(random: np.random.Generator, count: int, steps: int) -> FloatArray:
    """Accuracies of runs that follow the families, with noise, shape (count, steps)."""
    x = np.arange(1.0, steps + 1)
    top, rise = random.uniform(0.7, 0.98, count), random.uniform(0.1, 0.5, count)
    shapes = [
        lambda: x ** -random.uniform(0.5, 2.0),
        lambda: np.exp(-((random.uniform(0.05, 0.5) * x) ** random.uniform(0.5, 1.2))),
        lambda: 1 / (1 + random.uniform(0.2, 2.0) * x + random.uniform(0.0, 0.5) * x * x),
    ]
    fall = np.stack([shapes[i % len(shapes)]() for i in range(count)])
    return top[:, None] - rise[:, None] * fall + random.normal(scale=NOISE, size=(count, steps))


@pytest.mark.parametrize("seen", [10, 20, 40])
def test_90_percent_intervals_cover_the_end(seen: int) -> None:
    curves = family_curves(np.random.default_rng(1), CURVES, int(END))
    passes = np.tile(np.arange(1.0, seen + 1), (CURVES, 1))
    forecast = foresee(passes, curves[:, :seen], np.full((CURVES, 1), END))
    low, high = forecast.quantile(0.05)[:, 0], forecast.quantile(0.95)[:, 0]
    covered = (low <= curves[:, -1]) & (curves[:, -1] <= high)
    # Of 400 curves with a true coverage of 0.9, fewer than 0.853 are covered once in a thousand times.
    assert covered.mean() >= 0.9 - 3.1 * np.sqrt(0.09 / CURVES)
    last = curves[:, seen - 1]
    assert (high - low).mean() < 2 * 1.645 * np.std(curves[:, -1] - last) + 0.1
    assert np.abs(forecast.mean[:, 0] - curves[:, -1]).mean() < np.abs(last - curves[:, -1]).mean() + NOISE


def test_a_longer_way_ahead_is_less_certain() -> None:
    curves = family_curves(np.random.default_rng(2), 30, 20)
    ahead = np.tile([25.0, 50.0, 200.0, 1000.0], (30, 1))
    forecast = foresee(np.tile(np.arange(1.0, 21), (30, 1)), curves, ahead)
    widths = (forecast.quantile(0.95) - forecast.quantile(0.05)).mean(axis=0)
    assert (np.diff(widths) > 0).all()


def test_runs_do_not_see_each_other() -> None:
    curves = family_curves(np.random.default_rng(3), 5, 20)
    passes, ahead = np.tile(np.arange(1.0, 21), (5, 1)), np.full((5, 2), [40.0, 80.0])
    together = foresee(passes, curves, ahead).mean
    for job in range(5):
        one = slice(job, job + 1)
        assert foresee(passes[one], curves[one], ahead[one]).mean == pytest.approx(together[one], abs=1e-12)


def test_gaps_behind_a_shorter_run_change_nothing() -> None:
    curves = family_curves(np.random.default_rng(4), 1, 12)
    passes, ahead = np.arange(1.0, 13)[None, :], np.array([[60.0]])
    gap = np.full((1, 5), np.nan)
    padded = foresee(np.hstack([passes, gap]), np.hstack([curves, gap]), ahead)
    assert padded.mean == pytest.approx(foresee(passes, curves, ahead).mean, abs=1e-12)


def test_too_few_accuracies_are_refused() -> None:
    with pytest.raises(ValueError, match=f"a run has 3 accuracies; give at least {FEWEST}"):
        foresee(np.arange(1.0, 4)[None, :], np.full((1, 3), 0.5), np.array([[9.0]]))


def test_a_run_is_at_its_best_when_it_is_flat_and_not_while_it_rises() -> None:
    x = np.arange(1.0, 41)
    noise = np.random.default_rng(5).normal(scale=1e-3, size=(3, 40))
    curves = np.stack([np.full(40, 0.9), 0.9 - 0.4 / x**0.4, 0.9 - 0.4 * np.exp(-x / 3)]) + noise
    required, most = np.full(3, np.nan), np.full(3, 60.0)
    assert accuracy_ahead(curves, required, most).is_best.tolist() == [True, False, True]


def test_nothing_is_said_of_young_runs() -> None:
    seen = np.full((1, FEWEST_PASSES - 1), 0.5)
    ahead = accuracy_ahead(seen, np.array([0.9]), np.array([60.0]))
    assert not ahead.is_best[0]
    assert np.isnan(ahead.passes_needed[0])


def test_the_passes_to_the_required_accuracy() -> None:
    x = np.arange(1.0, 21)
    curves = np.tile(0.9 - 0.4 / x, (3, 1))
    required = np.array([0.8, 0.885, 0.99])
    ahead = accuracy_ahead(curves, required, np.full(3, 60.0))
    assert ahead.passes_needed[0] == 20  # it is there
    assert 25 <= ahead.passes_needed[1] <= 29  # 0.4 / 0.015 is 26.7
    assert ahead.passes_needed[2] == np.inf
    assert ahead.is_best[2]
