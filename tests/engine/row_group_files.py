"""Parquet files of made-up trips, with many row groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from relaqs_bootstrap.arrays import FloatArray


def write_trips(path: Path, rows: int = 200_000, row_groups: int = 200) -> Path:
    """Write trips: `id` and `day` rise with the rows, all else is random.

    Of floats a footer does not say whether they have NaN, so that nothing would be certified of them.
    """
    random = np.random.default_rng(0)
    fares, kms = random.uniform(1, 90, rows), random.exponential(5, rows)
    table = pa.table(
        {
            "id": np.arange(rows),
            "day": np.arange(rows) // 1000,
            "zone": random.integers(0, 5, rows),
            "fare": decimals(fares, 2),
            "km": decimals(np.where(random.random(rows) < 0.1, np.nan, kms), 6),
            "name": pa.array(random.choice(["a", "b", "c"], rows)),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=-(-rows // row_groups))
    return path


def decimals(numbers: FloatArray, digits: int) -> pa.Array:
    """Return numbers rounded to so many digits, NULL where they are NaN."""
    return pa.array(numbers.round(digits), from_pandas=True).cast(pa.decimal128(18, digits), safe=False)
