"""The flights of 2013: their Parquet files, and the warehouse made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from relaqs_engine.layouts import add_static, shuffle

from tests.made_once import made_once


@pytest.fixture(scope="session")
def files(flights_files: Path) -> Path:
    return flights_files


@pytest.fixture(scope="session")
def warehouse(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        shuffle(str(files / "flights.parquet"), folder / "flights", partitions=20)
        add_static(str(files / "airlines.parquet"), folder / "airlines")

    return made_once(tmp_path_factory, "doors", make)
