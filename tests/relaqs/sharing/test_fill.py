"""Cores handed out evenly up to a level, or in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.sharing.division import fill_evenly, fill_in_order

INF = np.inf


@pytest.mark.parametrize(
    ("cores", "weight", "most", "start", "expected"),
    [
        pytest.param(9, [1, 1, 1], [INF, INF, INF], None, [3, 3, 3], id="even"),
        pytest.param(9, [1, 2, 6], [INF, INF, INF], None, [1, 2, 6], id="by weight"),
        pytest.param(
            9, [1, 1, 1], [1, INF, INF], None, [1, 4, 4], id="what one cannot use goes to the others"
        ),
        pytest.param(9, [1, 1, 1], [1, 2, 3], None, [1, 2, 3], id="nobody can use more"),
        pytest.param(0, [1, 1], [INF, INF], None, [0, 0], id="nothing"),
        pytest.param(
            4, [1, 1, 1], [INF, INF, INF], [0, 1, 9], [2.5, 1.5, 0], id="up to the level of the others"
        ),
        pytest.param(6, [1, 2], [INF, INF], [4, 0], [0, 6], id="the level is by weight"),
        pytest.param(9, [1, 2], [INF, INF], [4, 0], [1 / 3, 26 / 3], id="the level is by weight, both"),
    ],
)
def test_fill_evenly(cores, weight, most, start, expected) -> None:
    began = None if start is None else np.array(start, dtype=float)
    assert fill_evenly(cores, np.array(weight, float), np.array(most, float), began) == pytest.approx(
        expected
    )


@st.composite
def fills(draw: st.DrawFn) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    count = draw(st.integers(1, 8))

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)))

    return (
        draw(st.floats(0, 100)),
        column(st.floats(0.1, 10)),
        column(st.floats(0, 50)),
        column(st.floats(0, 50)),
    )


@given(fills())
def test_a_fill_uses_all_and_reaches_one_level(
    fill: tuple[float, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    cores, weight, most, start = fill
    shares = fill_evenly(cores, weight, most, start)
    assert shares.sum() == pytest.approx(min(cores, most.sum()))
    assert ((shares >= 0) & (shares <= most + 1e-9)).all()
    # Nobody who got something stands higher than somebody who could have taken more.
    level = (start + shares) / weight
    served, hungry = shares > 1e-6, shares < most - 1e-6
    if served.any() and hungry.any():
        assert level[served].max() <= level[hungry].min() + 1e-6


@pytest.mark.parametrize(
    ("cores", "order", "most", "expected"),
    [
        (5, [2, 0, 1], [3, INF, 1], [3, 1, 1]),
        (5, [1, 0, 2], [3, INF, 1], [0, 5, 0]),
        (0, [0, 1], [1, 1], [0, 0]),
        (5, [0, 1], [1, 1], [1, 1]),
    ],
)
def test_fill_in_order(cores, order, most, expected) -> None:
    assert fill_in_order(cores, np.array(order), np.array(most, float)).tolist() == expected
