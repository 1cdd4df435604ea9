"""What the next step of a job does and costs."""

from __future__ import annotations

import numpy as np
import pytest

from relaqs.jobs.job import JobDescription
from relaqs.prediction.curves import WINDOW
from relaqs.scheduling.desk import LEAST_CORE_SECONDS, Account, refresh, steps_ahead
from relaqs.sharing.outlook import fit_quality_curves
from relaqs.sharing.view import Jobs, Kind


def ahead(
    work: list[float], core_seconds: list[float], *, total: float = 1.0, grows: bool = False, count: int = 0
) -> list[float]:
    """Return [work, core-seconds, growth] of the next step of one job with these steps behind it."""
    padding = [np.nan] * (WINDOW - len(work))
    columns = [np.array([padding + each]) for each in (work, core_seconds)]
    counts = np.array([count or len(work)])
    [row] = steps_ahead(columns[0], columns[1], counts, np.array([total]), np.array([grows]))
    return row.tolist()


def test_a_step_is_like_the_last_one_at_the_cost_of_work_so_far() -> None:
    assert ahead([0.1, 0.3], [1.0, 2.0]) == pytest.approx([0.2, 2.0, 0.0])


def test_the_last_step_does_what_is_left() -> None:
    assert ahead([0.4, 0.8], [1.0, 1.0]) == pytest.approx([0.2, 0.5, 0.0])


def test_training_costs_the_same_each_pass() -> None:
    assert ahead([1.0, 2.0, 3.0], [0.5, 0.5, 0.5], total=np.inf) == pytest.approx([1.0, 0.5, 0.0])


def test_growing_costs_follow_a_line() -> None:
    """Equal steps at 1, 2 and 3 core-seconds: the next is 4, and each further one costs one more."""
    assert ahead([0.1, 0.2, 0.3], [1.0, 2.0, 3.0], grows=True) == pytest.approx([0.1, 4.0, 1.0])
    assert ahead([0.1, 0.2, 0.3], [1.0, 1.0, 1.0], grows=True) == pytest.approx([0.1, 1.0, 0.0])


def test_once_the_first_step_is_forgotten_its_work_is_not_guessed() -> None:
    """A core-second a step; the oldest one kept is not the first, which made all work before it."""
    work = [100.0 + step for step in range(WINDOW)]
    assert ahead(work, [1.0] * WINDOW, total=np.inf, count=100)[1] == pytest.approx(1.0)


def test_a_step_too_quick_to_measure_costs_something() -> None:
    assert ahead([0.5], [0.0]) == [0.5, LEAST_CORE_SECONDS, 0.0]


@pytest.mark.parametrize("kind", Kind)
def test_a_job_without_reports_has_the_curve_that_fits_what_is_known_of_it(kind: Kind) -> None:
    account = Account.of(JobDescription("new", kind, weight=3.0, target=0.1), now_seconds=7.0)
    refresh([account])
    expected = fit_quality_curves(Jobs.of([account.view()]))
    assert account.curve is not None
    assert account.curve.chosen == expected.chosen[0]
    np.testing.assert_array_equal(account.curve.parameters, expected.parameters[0])
