"""Random queries: the last answer is DuckDB's own on the original files, each before it is well formed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.generated_sql import FLIGHTS_SOURCES, TPCH_SOURCES, Generated, queries
from tests.engine.world import World

# RELAQS_EXAMPLES=5000 tries so many, others each time. An ordinary run tries the same ones always.
EXAMPLES = int(os.environ.get("RELAQS_EXAMPLES", "0"))
BATCHES = st.sampled_from([2, 3, 4])


def share_of_examples(share: float) -> Callable[[Any], Any]:
    return settings(
        max_examples=round(share * (EXAMPLES or 330)),
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@share_of_examples(0.6)
@given(query=queries(TPCH_SOURCES), seed=st.integers(0, 9), batches=BATCHES)
def test_tpch(tpch: World, query: Generated, seed: int, batches: int | None) -> None:
    tpch.check(query.sql, ordered=query.ordered, seed=seed, batches=batches)


@share_of_examples(0.25)
@given(query=queries(FLIGHTS_SOURCES), seed=st.integers(0, 9), batches=BATCHES)
def test_flights(flights: World, query: Generated, seed: int, batches: int | None) -> None:
    flights.check(query.sql, ordered=query.ordered, seed=seed, batches=batches)


@share_of_examples(0.15)
@given(query=queries(FLIGHTS_SOURCES), seed=st.integers(0, 9), batches=BATCHES)
def test_flights_clustered_by_aircraft(
    flights_by_plane: World, query: Generated, seed: int, batches: int | None
) -> None:
    flights_by_plane.check(query.sql, ordered=query.ordered, seed=seed, batches=batches)
