"""Many more random queries than `test_differential.py` tries: over the flights."""

from __future__ import annotations

import pytest

from tests.engine.generated_sql import FLIGHTS_SOURCES, Generated
from tests.engine.soundness import Tally
from tests.engine.test_differential import MANY, assert_intervals_hold, check, random_queries, tally
from tests.engine.world import World

__all__ = ["tally"]


@pytest.mark.slow
@pytest.mark.timeout(1200)  # thousands of queries in one test
@random_queries(FLIGHTS_SOURCES, 0.25 * MANY)
def test_more_of_flights(flights: World, tally: Tally, query: Generated, seed: int, batches: int) -> None:
    check(flights, query, seed, batches, tally)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # thousands of queries in one test
@random_queries(FLIGHTS_SOURCES, 0.15 * MANY)
def test_more_of_flights_clustered_by_aircraft(
    flights_by_plane: World, tally: Tally, query: Generated, seed: int, batches: int
) -> None:
    check(flights_by_plane, query, seed, batches, tally)


@pytest.mark.slow
def test_certified_intervals_of_more_queries_hold(tally: Tally) -> None:
    assert_intervals_hold(tally)
