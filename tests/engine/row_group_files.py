"""Parquet files of made-up trips, with many row groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_trips(path: Path, rows: int = 200_000, row_groups: int = 200) -> Path:
    """Write trips: `id` and `day` rise with the rows, all else is random."""
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "id": np.arange(rows),
            "day": np.arange(rows) // 1000,
            "zone": random.integers(0, 5, rows),
            "fare": random.uniform(1, 90, rows).round(2),
            "km": pa.array(random.exponential(5, rows), mask=random.random(rows) < 0.1),
            "name": pa.array(random.choice(["a", "b", "c"], rows)),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=-(-rows // row_groups))
    return path
