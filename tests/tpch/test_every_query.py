"""All 22 queries end with DuckDB's own answer, with second layouts and without; most are estimated before."""

from __future__ import annotations

from pathlib import Path

import pytest
from relaqs_engine.plans.plan import Mode
from relaqs_tpch import QUERIES, query

from tests.conftest import Oracle
from tests.engine.world import World

# Those that need a second layout, and those for which none would do.
NEED_SECOND_LAYOUTS = {2, 13, 16, 17}
RUN_EXACTLY = {11, 20, 22}


@pytest.fixture(scope="module")
def once(tpch_warehouse: Path, tpch_oracle: Oracle) -> World:
    return World.open(tpch_warehouse, tpch_oracle)


@pytest.fixture(scope="module")
def twice(tpch_laid_out_twice: Path, tpch_oracle: Oracle) -> World:
    return World.open(tpch_laid_out_twice, tpch_oracle)


@pytest.mark.parametrize("number", QUERIES)
@pytest.mark.parametrize("layouts", ["once", "twice"])
def test_the_last_answer_is_duckdbs(number: int, layouts: str, request: pytest.FixtureRequest) -> None:
    world: World = request.getfixturevalue(layouts)
    world.check(query(number), ordered=True)


def progressive(world: World) -> set[int]:
    return {number for number in QUERIES if world.plan(query(number)).mode is not Mode.EXACT}


def test_all_but_four_are_progressive_with_second_layouts(once: World, twice: World) -> None:
    assert progressive(once) >= set(QUERIES) - RUN_EXACTLY - NEED_SECOND_LAYOUTS
    assert progressive(twice) >= set(QUERIES) - RUN_EXACTLY


@pytest.mark.parametrize(
    ("number", "streams"),
    [
        (2, {"part@part", "partsupp@part"}),
        (13, {"customer@customer", "orders@customer"}),
        (14, {"lineitem"}),  # part is small enough to be read whole
        (16, {"partsupp@part"}),
        (17, {"lineitem@part", "part@part"}),
        (18, {"lineitem", "orders"}),
        (21, {"lineitem", "orders"}),
    ],
)
def test_a_query_reads_the_layouts_that_make_it_local(number: int, streams: set[str], twice: World) -> None:
    plan = twice.plan(query(number))
    assert {stream.table for stream in plan.streams} == streams
    named = {name for name in streams for reason in plan.reasons if f"the layout {name} holds" in reason}
    assert named == {name for name in streams if "@" in name}
