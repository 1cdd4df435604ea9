"""Random queries: the last answer is DuckDB's own on the original files, each before it is sound."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.engine.generated_forms import forms
from tests.engine.generated_parameters import with_parameters
from tests.engine.generated_shapes import shapes
from tests.engine.generated_sql import FLIGHTS_SOURCES, TPCH_SOURCES, From, Generated, queries
from tests.engine.soundness import Tally
from tests.engine.world import World

# RELAQS_EXAMPLES=5000 tries so many, others each time. An ordinary run tries the same ones always.
EXAMPLES = int(os.environ.get("RELAQS_EXAMPLES", "0"))
FEW, MANY = EXAMPLES or 120, EXAMPLES or 1200


def any_query(sources: Sequence[From]) -> st.SearchStrategy[Generated]:
    """Return queries of one level of aggregates, shapes around them and other forms, with parameters too."""
    around, others = (st.sampled_from(sources).flatmap(each) for each in (shapes, forms))
    found = st.one_of(queries(sources), queries(sources), around, others, others)
    return st.one_of(found, with_parameters(found))


def random_queries(sources: Sequence[From], examples: float) -> Callable[[Any], Any]:
    """Give a test so many queries, each with a seed and a number of mini-batches; each test gets its own."""
    drawn = given(query=any_query(sources), seed=st.integers(0, 9), batches=st.sampled_from([2, 3]))
    chosen = settings(
        max_examples=round(examples),
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: chosen(drawn(test))


def check(world: World, query: Generated, seed: int, batches: int, tally: Tally) -> None:
    how: dict[str, Any] = {"ordered": query.ordered, "params": query.params}
    try:
        world.check(query.sql, seed=seed, batches=batches, tally=tally, **how)
    except duckdb.InternalException:  # a fault of DuckDB's, which has no answer to compare with
        reject()


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@random_queries(TPCH_SOURCES, 0.6 * FEW)
def test_tpch(tpch: World, tally: Tally, query: Generated, seed: int, batches: int) -> None:
    check(tpch, query, seed, batches, tally)


@random_queries(FLIGHTS_SOURCES, 0.25 * FEW)
def test_flights(flights: World, tally: Tally, query: Generated, seed: int, batches: int) -> None:
    check(flights, query, seed, batches, tally)


@random_queries(FLIGHTS_SOURCES, 0.15 * FEW)
def test_flights_clustered_by_aircraft(
    flights_by_plane: World, tally: Tally, query: Generated, seed: int, batches: int
) -> None:
    check(flights_by_plane, query, seed, batches, tally)


def test_certified_intervals_of_all_these_queries_hold(tally: Tally) -> None:
    assert_intervals_hold(tally)


def assert_intervals_hold(tally: Tally) -> None:
    """Cells of a query move together, like about a hundred independent ones: 95 % and 2.6 standard errors."""
    if not tally.answers:
        pytest.skip("run alone: the tests above count the cells")
    assert tally.certified >= 500
    assert 0.89 <= tally.held / tally.certified <= 1.0
