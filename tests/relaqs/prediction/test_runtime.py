"""What steps cost, and how many a budget buys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.prediction import Series, StepCosts, constant_cost, cost_per_size, line_cost

X = np.nan


def costs(next_step: float, growth: float = 0.0, spent: float = 0.0) -> StepCosts:
    return StepCosts(np.array([next_step]), np.array([growth]), np.array([spent]))


@pytest.mark.parametrize(
    ("step_costs", "budget", "steps"),
    [
        pytest.param(costs(2.0), 6.0, 3.0, id="constant"),
        pytest.param(costs(2.0), 1.0, 0.5, id="part of a step"),
        pytest.param(costs(2.0, spent=1.5), 0.5, 1.0, id="the step in hand is nearly paid"),
        pytest.param(costs(2.0, spent=1.5), 0.25, 0.5, id="half of what is left of it"),
        pytest.param(costs(2.0, growth=1.0), 2.0 + 3.0 + 4.0, 3.0, id="growing"),
        pytest.param(costs(2.0, growth=1.0, spent=1.0), 1.0 + 3.0 + 4.0, 3.0, id="growing, in hand"),
        pytest.param(costs(2.0, spent=5.0), 0.1, 1.0, id="a step that takes longer than expected ends soon"),
        pytest.param(costs(2.0), 0.0, 0.0, id="nothing"),
    ],
)
def test_steps_within_a_budget(step_costs: StepCosts, budget: float, steps: float) -> None:
    assert step_costs.steps_within(np.array([[budget]]))[0, 0] == pytest.approx(steps)


@given(st.floats(0.01, 100), st.floats(0, 10), st.floats(0, 0.9), st.floats(0, 1000))
def test_costs_of_what_a_budget_buys_are_the_budget(
    first: float, growth: float, spent: float, budget: float
) -> None:
    step_costs = costs(first, growth, spent * first)
    steps = step_costs.steps_within(np.array([[budget]]))
    assert step_costs.core_seconds_of(steps)[0, 0] == pytest.approx(budget, rel=1e-6, abs=1e-9)


def test_a_constant_cost_follows_the_newest_steps() -> None:
    series = Series.of(np.array([[1.0, 2.0, 3.0]] * 3), np.array([[2.0, 2.0, 2.0], [9.0, X, 3.0], [X, X, X]]))
    mean = (0.8 * 9 + 3) / 1.8
    assert constant_cost(series) == pytest.approx([2.0, mean, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("steps_cost", "slope", "offset"),
    [
        pytest.param([3.0, 5.0, 7.0, 9.0], 2.0, 1.0, id="a line"),
        pytest.param([4.0, 4.0, 4.0, 4.0], 0.0, 4.0, id="constant"),
        pytest.param([X, X, X, 4.0], 0.0, 4.0, id="one step"),
    ],
)
def test_a_refined_query_costs_more_each_step(steps_cost: list[float], slope: float, offset: float) -> None:
    found = line_cost(Series.of(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([steps_cost])))
    assert [each[0] for each in found] == pytest.approx([slope, offset])


def test_costs_that_fall_are_taken_as_constant() -> None:
    slope, offset = line_cost(Series.of(np.array([[1.0, 2.0]]), np.array([[5.0, 3.0]])))
    assert slope[0] == 0.0
    assert offset[0] == pytest.approx((0.8 * 5 + 3) / 1.8)


def test_the_cost_of_training_is_proportional_to_the_rows() -> None:
    rows = np.array([[1000.0, 2000.0, 500.0], [X, X, X]])
    found = cost_per_size(Series.of(rows, 0.003 * rows))
    assert found == pytest.approx([0.003, np.nan], nan_ok=True)
