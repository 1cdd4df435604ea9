"""When a job may stop after a step: at its target, or when nobody would see the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaqs.progress import StopReason, StopRules, answer_pixels, curve_pixels

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("rules", "quality", "change_pixels", "reason"),
    [
        (StopRules(), 0.0, 0.0, None),
        (StopRules(target=0.05), 0.05, INF, StopReason.TARGET),
        (StopRules(target=0.05), 0.051, INF, None),
        (StopRules(target=0.05), NAN, INF, None),
        (StopRules(target=-3.5), -4.0, INF, StopReason.TARGET),
        (StopRules(pixels=1.0), INF, 0.99, StopReason.NO_VISIBLE_CHANGE),
        (StopRules(pixels=1.0), INF, 1.0, None),
        (StopRules(target=0.1, pixels=1.0), 0.05, 0.1, StopReason.TARGET),
        (StopRules(target=0.1, pixels=1.0), 0.5, 0.1, StopReason.NO_VISIBLE_CHANGE),
    ],
)
def test_reasons(rules: StopRules, quality: float, change_pixels: float, reason: StopReason | None) -> None:
    assert rules.reason(quality, change_pixels) is reason


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"target": NAN}, "the target is nan"),
        ({"target": INF}, "the target is inf"),
        ({"pixels": 0.0}, "pixels is 0.0; it must be a finite number above 0"),
        ({"pixels": -1.0}, "pixels is -1.0"),
    ],
)
def test_rules_that_could_not_be_meant(rule: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StopRules(**rule)


@pytest.mark.parametrize(
    ("values", "half_widths", "certified", "pixels"),
    [
        pytest.param([[50], [100]], [[1], [2]], [[1], [1]], 4.0, id="bars from 0 to the largest"),
        pytest.param([[-100], [100]], [[1], [2]], [[1], [1]], 2.0, id="bars on both sides of 0"),
        pytest.param([[100, 1]], [[1, 0.5]], [[1, 1]], 100.0, id="each column has its own axis"),
        pytest.param([[50], [100]], [[1], [2]], [[1], [0]], INF, id="a cell is not certified"),
        pytest.param([[50], [NAN]], [[1], [NAN]], [[1], [1]], INF, id="a cell is unknown"),
        pytest.param([[0], [0]], [[0], [0]], [[1], [1]], 0.0, id="all zero and exact"),
        pytest.param([[5], [9]], [[0], [0]], [[1], [1]], 0.0, id="exact"),
    ],
)
def test_pixels_of_an_answer(values, half_widths, certified, pixels: float) -> None:
    found = answer_pixels(
        np.array(values, float), np.array(half_widths, float), np.array(certified, bool), height_pixels=200
    )
    assert found == pytest.approx(pixels)


def test_an_answer_without_a_number_does_not_move() -> None:
    nothing = np.empty((3, 0))
    assert answer_pixels(nothing, nothing, nothing.astype(bool), 200) == 0.0


@pytest.mark.parametrize(
    ("qualities", "pixels"),
    [
        pytest.param(
            [10, 6, 4, 3.9, 3.8, 3.8], 0.1 / 6.2 * 100, id="the largest of the newest three changes"
        ),
        pytest.param([10, 6, 4], INF, id="too few steps"),
        pytest.param([INF, INF, 10, 6, 4, 4], 4 / 6 * 100, id="unknown at first"),
        pytest.param([10, 4, 3, 4, 3], 1 / 7 * 100, id="going to and fro is to be seen"),
        pytest.param([5, 5, 5, 5], 0.0, id="never moved"),
    ],
)
def test_pixels_of_a_curve(qualities: list[float], pixels: float) -> None:
    assert curve_pixels(qualities, height_pixels=100) == pytest.approx(pixels)
