"""Small tables to lay out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ORDER_COUNT = 3_000


@pytest.fixture(scope="session")
def lines() -> pa.Table:
    """Lines of 3,000 orders, 1 to 7 lines each, with an id, a text, a number and a NULL now and then."""
    random = np.random.default_rng(20)
    order = np.repeat(np.arange(ORDER_COUNT), random.integers(1, 8, ORDER_COUNT))
    price = random.gamma(2.0, 50.0, len(order)).round(2)
    return pa.table(
        {
            "id": np.arange(len(order)),
            "order_id": order,
            "price": pa.array(price, mask=random.random(len(order)) < 0.01),
            "mode": random.choice(["AIR", "RAIL", "SHIP"], len(order)),
        }
    )


@pytest.fixture(scope="session")
def lines_file(lines: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "lines.parquet"
    pq.write_table(lines, path)
    return path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write columns to a Parquet file of the test's own folder and return its path."""

    def write_columns(name: str, columns: dict[str, object] | pa.Table) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path)
        return path

    return write_columns
