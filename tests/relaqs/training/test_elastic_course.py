"""How rates, noise and rows follow each other from step to step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.training.elastic.course import ElasticBatch, Noise, TrainingCourse, WarmUp, gain, scale_of


@given(st.integers(0, 6), st.floats(0.0, 1e9))
def test_a_gain_lies_between_nothing_and_linear(doublings: int, noise_rows: float) -> None:
    rows = 64 << doublings
    assert 1.0 <= gain(rows, 64, noise_rows) <= rows / 64 * (1 + 1e-12)


def test_rates_by_rule() -> None:
    assert scale_of("linear", 512, 64, math.nan) == 8.0
    assert scale_of("sqrt", 256, 64, math.nan) == 2.0
    assert scale_of("none", 512, 64, 1.0) == 1.0
    assert scale_of("gain", 256, 64, math.nan) == 2.0  # not known: the root
    assert scale_of("gain", 512, 64, 0.0) == 1.0  # no noise: a larger step is worth no more
    assert scale_of("gain", 512, 64, math.inf) == 8.0


def test_a_higher_rate_is_warmed_up_and_a_lower_one_counts_at_once() -> None:
    warm_up = WarmUp(scale=2.0, step=10)
    assert [warm_up.scale_at(step, 4.0, 4) for step in (10, 11, 12, 13, 14)] == [2.5, 3.0, 3.5, 4.0, 4.0]
    assert warm_up.scale_at(10, 1.0, 4) == 1.0
    assert warm_up.scale_at(10, 4.0, 0) == 4.0


def gradients(random: np.random.Generator, pieces: int, rows: int, signal: float) -> list[np.ndarray]:
    """Return the gradient sums of pieces. A row's numbers have the mean `signal` and the variance 1."""
    return [random.normal(signal, 1.0, (rows, 10)).sum(axis=0) for _ in range(pieces)]


@pytest.mark.parametrize("pieces", [1, 2, 8])
def test_noise_is_found_from_pieces_and_from_steps_of_one_piece(pieces: int) -> None:
    """φ is 1 / 0.25² = 16. Its relative error is about that of |G|², √(4·φ/rows)/√steps, 3 % at most here."""
    random = np.random.default_rng(0)
    noise, kept = Noise(), []
    for _ in range(4000):
        found = gradients(random, pieces, 16, signal=0.25)
        squares = sum(float(each @ each) / 16 for each in found)
        noise = noise.after((sum(found),), squares, pieces, 16 * pieces)
        if noise.weight:
            kept.append((noise.variance / noise.weight, noise.square / noise.weight))
    variance, square = np.array(kept).mean(axis=0)
    assert variance == pytest.approx(10.0, rel=0.03)
    assert variance / square == pytest.approx(16.0, rel=0.06)


def test_a_batch_grows_as_the_noise_allows_and_never_shrinks() -> None:
    rule = ElasticBatch(start_rows=64, rows_most=512, settle_steps=10)

    def rows_at(noise_rows: float, *, batch: int = 64, step: int = 10) -> int:
        noise = Noise(variance=noise_rows, square=1.0, weight=1.0)
        return rule.rows(TrainingCourse(None, batch, step=step, noise=noise))

    # (φ + 128) / (φ + 64) is 1.15 at φ = 363.
    assert [rows_at(362.0), rows_at(363.0)] == [64, 128]
    assert rows_at(363.0, step=9) == 64  # not settled
    assert rows_at(0.0, batch=256) == 256
    assert rows_at(1e9, batch=512) == 512  # no more than the most


def test_without_gradients_a_batch_doubles_after_each_pass() -> None:
    rule = ElasticBatch(start_rows=64, rows_most=128, settle_steps=10)
    assert rule.rows(TrainingCourse(None, 64, step=100, passes=0)) == 64
    assert rule.rows(TrainingCourse(None, 64, step=100, passes=1)) == 128
    assert rule.rows(TrainingCourse(None, 128, step=200, passes=2, changed_passes=1)) == 128


@given(st.integers(0, 5), st.floats(0.0, 1e9), st.integers(0, 1000))
def test_rows_at_most_double(doublings: int, noise_rows: float, step: int) -> None:
    rule = ElasticBatch(start_rows=16, rows_most=512, settle_steps=20)
    course = TrainingCourse(None, 16 << doublings, step=step, noise=Noise(noise_rows, 1.0, 1.0))
    assert rule.rows(course) in (16 << doublings, 32 << doublings)
    assert rule.rows(course) <= 512
