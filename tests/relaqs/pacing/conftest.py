"""Points of two classes, and a session over them, for runs of models and functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from relaqs import Session, connect, shuffle
from tests.made_once import made_once


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        x, z, noise = (f"hash(i * {k}) % 1000 / 1000" for k in (1, 7, 13))
        rows = f"SELECT {x} AS x, {z} AS z, {x} + {z} + {noise} / 2 > 1.2 AS late FROM range(6000) AS r(i)"
        shuffle(duckdb.sql(rows), folder / "points", partitions=10)

    return made_once(tmp_path_factory, "late-points", make)


@pytest.fixture(scope="module")
def db(warehouse: Path) -> Iterator[Session]:
    with connect(warehouse, threads=2) as session:
        yield session
