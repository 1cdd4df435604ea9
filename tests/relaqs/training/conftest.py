"""scikit-learn's bundled data, laid out, beside the same rows as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from relaqs import Session, connect, shuffle
from tests.made_once import made_once

PARTITIONS = 7  # not a power of two, so that some partition has no neighbour to be added to
_LOADERS = {
    "cancer": load_breast_cancer,
    "diabetes": load_diabetes,
    "digits": load_digits,
    "wine": load_wine,
}


@dataclass(frozen=True)
class Data:
    """A table as its library has it. sql: the same rows in the warehouse, the target last."""

    features: pd.DataFrame
    target: NDArray[Any]
    sql: str


@pytest.fixture(scope="session")
def data() -> dict[str, Data]:
    found = {}
    for name, load in _LOADERS.items():
        values, target = load(return_X_y=True)
        names = [f"x{i}" for i in range(values.shape[1])]
        found[name] = Data(pd.DataFrame(values, columns=names), target, f"SELECT * FROM {name}")
    return found


@pytest.fixture(scope="session")
def training_warehouse(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Data]) -> Path:
    """The tables, and `wine_text`, whose target is text: its classes' names."""

    def make(warehouse: Path) -> None:
        for name, each in data.items():
            table = pa.table({**dict(each.features), "y": each.target})
            shuffle(table, warehouse / name, partitions=PARTITIONS)
        named = np.array(["barbera", "grignolino", "barolo"])[data["wine"].target]
        table = pa.table({**dict(data["wine"].features), "y": named})
        shuffle(table, warehouse / "wine_text", partitions=PARTITIONS)

    return made_once(tmp_path_factory, "training", make)


@pytest.fixture(scope="module")
def db(training_warehouse: Path) -> Iterator[Session]:
    with connect(training_warehouse, threads=2) as session:
        yield session
