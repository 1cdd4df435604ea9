"""What snapshots certify is held against the whole answer, group by group."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.held import WholeAnswer, coverage_over, without_limit
from relaqs.queries.snapshot import ApproximateColumn, Snapshot

ANSWER = pa.table({"k": ["a", "b"], "n": [10, 20], "first": ["x", "y"]})
COLUMNS = (
    ApproximateColumn("n", "n_low", "n_high", "n_certified", 1),
    ApproximateColumn("first", "first_low", "first_high", "first_certified", 2),
)


def snapshot(keys: list[str], low: list[float], certified: list[bool], *, is_exact: bool = False) -> Snapshot:
    """Return a snapshot whose intervals are 5 wide."""
    nothing = pa.nulls(len(keys), pa.string())
    unsure = pa.array([False] * len(keys))
    table = pa.table(
        [keys, low, nothing, low, [x + 5.0 for x in low], certified, nothing, nothing, unsure],
        names=[
            "k",
            "n",
            "first",
            "n_low",
            "n_high",
            "n_certified",
            "first_low",
            "first_high",
            "first_certified",
        ],
    )
    return Snapshot(table, COLUMNS, 0.5, 0.1, 0.95, "pointwise", 1, 2, 0.0, is_exact, "mergeable")


def test_numbers_are_looked_up_by_their_keys_and_text_is_no_number() -> None:
    shown = snapshot(["b", "a"], [16.0, 4.0], [True, True])
    look = WholeAnswer.of(shown, ANSWER).look(shown)
    assert look.truth.tolist() == [[20.0], [10.0]]
    assert look.held.tolist() == [[True], [False]]


def test_a_group_that_the_answer_does_not_have_is_a_miss() -> None:
    found = coverage_over([[snapshot(["a", "nowhere"], [8.0, 8.0], [True, True])]], ANSWER)
    assert found is not None
    assert (found.cells, found.coverage) == (2, 0.5)


def test_snapshots_of_all_orders_count_but_for_the_exact_ones() -> None:
    right, wrong = snapshot(["a"], [8.0], [True]), snapshot(["a"], [0.0], [True])
    unsure, exact = snapshot(["b"], [0.0], [False]), snapshot(["b"], [0.0], [True], is_exact=True)
    found = coverage_over([[right, unsure, exact], [right, right, wrong, exact]], ANSWER)
    assert found is not None
    assert (found.cells, found.certified_share, found.coverage) == (5, 0.8, 0.75)


def test_there_is_no_coverage_without_estimates() -> None:
    rows = Snapshot(ANSWER, (), 0.5, 0.0, 0.95, "pointwise", 1, 2, 0.0, False, "mergeable")
    assert coverage_over([[rows]], ANSWER) is None
    assert coverage_over([], ANSWER) is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select a from t order by a limit 3 offset 2", "SELECT a FROM t ORDER BY a"),
        (
            "with u as (select a from t limit 3) select a from u limit 1",
            "WITH u AS (SELECT a FROM t LIMIT 3) SELECT a FROM u",
        ),
    ],
)
def test_only_the_outermost_limit_goes(sql: str, expected: str) -> None:
    assert without_limit(sql) == expected
