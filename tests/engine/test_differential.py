"""Random queries: the last answer is DuckDB's own on the original files, each before it is sound."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.generated_shapes import shapes
from tests.engine.generated_sql import FLIGHTS_SOURCES, TPCH_SOURCES, From, Generated, queries
from tests.engine.soundness import Tally
from tests.engine.world import World

# RELAQS_EXAMPLES=5000 tries so many, others each time. An ordinary run tries the same ones always.
EXAMPLES = int(os.environ.get("RELAQS_EXAMPLES", "0"))
BATCHES = st.sampled_from([2, 3])


def share_of_examples(share: float) -> Callable[[Any], Any]:
    return settings(
        max_examples=round(share * (EXAMPLES or 1000)),
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def any_query(sources: Sequence[From]) -> st.SearchStrategy[Generated]:
    """Return queries of one level of aggregates, and shapes around them."""
    return st.one_of(queries(sources), queries(sources), st.sampled_from(sources).flatmap(shapes))


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@share_of_examples(0.6)
@given(query=any_query(TPCH_SOURCES), seed=st.integers(0, 9), batches=BATCHES)
def test_tpch(tpch: World, tally: Tally, query: Generated, seed: int, batches: int | None) -> None:
    tpch.check(query.sql, ordered=query.ordered, seed=seed, batches=batches, tally=tally)


@share_of_examples(0.25)
@given(query=any_query(FLIGHTS_SOURCES), seed=st.integers(0, 9), batches=BATCHES)
def test_flights(flights: World, tally: Tally, query: Generated, seed: int, batches: int | None) -> None:
    flights.check(query.sql, ordered=query.ordered, seed=seed, batches=batches, tally=tally)


@share_of_examples(0.15)
@given(query=any_query(FLIGHTS_SOURCES), seed=st.integers(0, 9), batches=BATCHES)
def test_flights_clustered_by_aircraft(
    flights_by_plane: World, tally: Tally, query: Generated, seed: int, batches: int | None
) -> None:
    flights_by_plane.check(query.sql, ordered=query.ordered, seed=seed, batches=batches, tally=tally)


def test_certified_intervals_of_all_these_queries_hold(tally: Tally) -> None:
    """Cells of a query move together, like about a hundred independent ones: 95 % and 2.6 standard errors."""
    if not tally.answers:
        pytest.skip("run alone: the tests above count the cells")
    assert tally.certified >= 1000
    assert 0.89 <= tally.held / tally.certified <= 1.0
