"""What a view may hold: histories bounded in memory, jobs as columns, and nothing that makes no sense."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from relaqs.prediction import SUBLINEAR, WINDOW, Curves
from relaqs.sharing.view import History, Jobs, JobView, Kind, Observation, Plan, View
from tests.relaqs.policies.views import query, training, view


def test_a_history_keeps_the_newest_and_remembers_the_rest() -> None:
    history = History()
    for step in range(1, 101):
        history = history.followed_by(Observation(step, 100.0 / step, 1.0, 0.5))
    assert history.newest.shape == (WINDOW, 4)
    assert history.newest[-1].tolist() == [100.0, 1.0, 1.0, 0.5]
    assert (history.count, history.first_quality, history.largest_change) == (100, 100.0, 50.0)


def test_qualities_that_are_unknown_at_first() -> None:
    history = History().followed_by(
        *(Observation(i, q, 1.0) for i, q in enumerate([math.inf, math.inf, 0.5, 0.4]))
    )
    assert history.first_quality == 0.5
    assert history.largest_change == pytest.approx(0.1)


def test_a_history_is_a_value() -> None:
    before = History()
    before.followed_by(Observation(1.0, 2.0, 3.0))
    assert before.count == 0
    assert np.isnan(before.newest).all()


def test_jobs_are_columns_in_the_order_of_the_rows() -> None:
    jobs = Jobs.of(
        [query("a", 3, weight=2.0), training("b", 20, cores_most=4.0), JobView("c", Kind.FOREIGN, 7.0)]
    )
    assert jobs.ids == ("a", "b", "c")
    assert jobs.kind.tolist() == [Kind.QUERY, Kind.TRAINING, Kind.FOREIGN]
    assert jobs.weight.tolist() == [2.0, 1.0, 1.0]
    assert jobs.cores_most.tolist() == [math.inf, 4.0, math.inf]
    assert jobs.arrival_seconds.tolist() == [0.0, 0.0, 7.0]
    assert jobs.count.tolist() == [3, 20, 0]
    assert jobs.work_done.tolist() == [3 / 50, 20.0, 0.0]
    assert jobs.quality.shape == (3, WINDOW)


def test_some_of_the_jobs() -> None:
    jobs = Jobs.of([query("a", 3), training("b", 20), query("c", 5)])
    assert jobs.of_jobs(np.array([True, False, True])).ids == ("a", "c")
    assert jobs.of_jobs(np.array([2, 0])).count.tolist() == [5, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: query("a", 3, weight=0.0), "job 'a' has weight 0.0; it must be a finite number above 0"),
        (lambda: query("a", 3, weight=math.nan), "has weight nan"),
        (lambda: query("a", 3, cores_most=0.0), "has cores_most 0.0"),
        (
            lambda: query("a", 3, step_core_seconds=math.nan),
            "has folded 3 steps, but its next one is given as",
        ),
        (lambda: view(query("a", 3), query("a", 4)), "two jobs of a view have the same id"),
        (lambda: view(cores=-1.0), "capacity_cores is -1.0"),
        (lambda: view(cores=math.inf), "capacity_cores is inf"),
        (lambda: view(epoch_seconds=0.0), "epoch_seconds is 0.0"),
        (
            lambda: replace(
                view(query("a", 3)), curves=Curves((SUBLINEAR,), np.zeros(2, int), np.zeros((2, 5)))
            ),
            "2 curves for 1 jobs",
        ),
    ],
)
def test_views_that_make_no_sense(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("cores", [[5.0, 4.0], [-1.0, 2.0], [math.nan, 1.0], [1.0]], ids=repr)
def test_no_plan_breaks_its_promise(cores: list[float]) -> None:
    with pytest.raises(AssertionError):
        Plan(("a", "b"), np.array(cores), 8.0)


def test_a_view_can_be_of_no_jobs_at_all() -> None:
    empty = View(0.0, 4.0, Jobs.of([]))
    assert len(empty.jobs) == 0
    assert empty.jobs.quality.shape == (0, WINDOW)
