"""The flights of 2013: their Parquet files, and the warehouse made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from relaqs_engine.layouts import add_static, shuffle

from benchmarks import flights


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    flights.write_parquet(folder)
    return folder


@pytest.fixture(scope="session")
def warehouse(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doors") / "warehouse"
    shuffle(str(files / "flights.parquet"), folder / "flights", partitions=20)
    add_static(str(files / "airlines.parquet"), folder / "airlines")
    return folder
