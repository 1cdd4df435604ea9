"""The warehouses that tests share, each with the databases that answer over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Oracle
from tests.engine.world import World


@pytest.fixture(scope="session")
def tpch(tpch_warehouse: Path, tpch_oracle: Oracle) -> World:
    return World.open(tpch_warehouse, tpch_oracle)


@pytest.fixture(scope="session")
def flights(flights_warehouse: Path, flights_oracle: Oracle) -> World:
    return World.open(flights_warehouse, flights_oracle)


@pytest.fixture(scope="session")
def flights_by_plane(flights_by_aircraft: Path, flights_oracle: Oracle) -> World:
    return World.open(flights_by_aircraft, flights_oracle)
