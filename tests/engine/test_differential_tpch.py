"""Many more random queries than `test_differential.py` tries: over TPC-H."""

from __future__ import annotations

import pytest

from tests.engine.generated_sql import TPCH_SOURCES, Generated
from tests.engine.soundness import Tally
from tests.engine.test_differential import MANY, assert_intervals_hold, check, random_queries, tally
from tests.engine.world import World

__all__ = ["tally"]


@pytest.mark.slow
@pytest.mark.timeout(1200)  # thousands of queries in one test
@random_queries(TPCH_SOURCES, 0.6 * MANY)
def test_more_of_tpch(tpch: World, tally: Tally, query: Generated, seed: int, batches: int) -> None:
    check(tpch, query, seed, batches, tally)


@pytest.mark.slow
def test_certified_intervals_of_more_queries_hold(tally: Tally) -> None:
    assert_intervals_hold(tally)
