"""Which estimates are worth what they cost beside the query as a whole."""

from __future__ import annotations

import pytest
from relaqs_engine.execution.state import EstimateCosts, distinct_in_all


def test_estimates_from_many_rows_wait_until_twice_as_much_was_read() -> None:
    costs, fractions = EstimateCosts(scan_seconds=0.2), (0.01, 0.015, 0.0199, 0.03, 0.05)
    due = [costs.is_due(rows=2_000_000, fraction=fraction) for fraction in fractions]
    assert due == [True, False, True, False, True]
    assert all(costs.is_due(rows=10_000, fraction=fraction) for fraction in (0.06, 0.07))


def test_sql_around_answers_has_a_budget_of_time() -> None:
    costs = EstimateCosts(scan_seconds=0.4)  # 1.1 s for estimates
    assert [costs.allow(rows) for rows in (60_000, 60_000, 1_000)] == [True, False, True]


def test_answers_of_very_many_rows_are_computed_as_a_whole() -> None:
    assert EstimateCosts(scan_seconds=0.4).are_too_many(400_000, fraction=0.01)


@pytest.mark.parametrize(
    ("distinct", "listed", "last"),
    [(0, 100_000, 5), (0, 6_000_000, 3), (0, 60_000_000, 1), (1_000_000, 0, 5), (1_400_000, 0, 0)],
)
def test_the_more_values_are_listed_the_earlier_the_whole_query_runs(
    distinct: int, listed: int, last: int
) -> None:
    fractions = (0.01, 0.02, 0.04, 0.08, 0.16, 1.0)
    assert EstimateCosts(scan_seconds=1.5).last_of_values(fractions, distinct, listed) == last


def test_values_that_come_in_each_task_are_returned_by_each() -> None:
    assert distinct_in_all(2_500, 0.01, values=2_500, tasks=14) == 35_000  # dates
    assert distinct_in_all(12_000, 0.01, values=1_200_000, tasks=10) == 1_200_000  # hardly one comes twice
