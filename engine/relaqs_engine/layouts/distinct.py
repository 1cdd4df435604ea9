"""How many different values a column has, estimated from the first partitions: a random sample of its rows.

Counting them needs every value of every column, and the planner wants the order of magnitude. A small table
is in the sample as a whole, and its counts are exact.

Values that the sample has three times or more are taken for all of their kind. The number of rarer ones comes
from those that it has once and twice: right where these are about equally frequent, and too low elsewhere, by
a factor of four at worst in what was tried.

Source: the estimator is the unsmoothed first-order jackknife of Haas, Naughton, Seshadri, Stokes 1995,
Sampling-based estimation of the number of distinct values of an attribute (VLDB), of rare values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from relaqs_engine.duck import Cursor, parquet_rows, quote_name
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT, Partition
from relaqs_engine.layouts.sources import RESERVED_PREFIX

SAMPLE_ROWS = 200_000
_FILES_AT_ONCE = 50  # DuckDB may hold all files of a statement open, and a process few
_SAMPLE = f"{RESERVED_PREFIX}sample"
_UNIT = f"{RESERVED_PREFIX}unit"


def distinct_counts(
    cursor: Cursor,
    files_of: Callable[[Sequence[Partition]], Sequence[Path]],
    partitions: Sequence[Partition],
    columns: Sequence[str],
    key: Sequence[str],
    sample_rows: int = SAMPLE_ROWS,
) -> tuple[int, ...]:
    """Return how many different values each column has, NULL not counted.

    Args:
        cursor: of a database that may read the files.
        files_of: gives the files of partitions.
        partitions: all of them, in order.
        columns: names.
        key: SQL of the cluster key's columns; empty where the sampling unit is a row. What is counted is
            units: a value that all rows of a unit share is in the sample with all of them or not at all.
        sample_rows: about how many rows to sample.
    """
    count, blocks = size_of_sample(partitions, sample_rows)
    unit = f"hash({', '.join(key)})" if key else "0"
    into = f"CREATE OR REPLACE TEMP TABLE {_SAMPLE} AS"
    files = files_of(partitions[:count])
    for first in range(0, len(files), _FILES_AT_ONCE):
        table = parquet_rows(files[first : first + _FILES_AT_ONCE])
        cursor.run(f"{into} SELECT *, {unit} AS {_UNIT} FROM {table} WHERE {BLOCK_COLUMN} < {blocks}")
        into = f"INSERT INTO {_SAMPLE}"
    in_sample = sum(sum(partition.block_rows[:blocks]) for partition in partitions[:count])
    rows = sum(partition.row_count for partition in partitions)
    counted = "DISTINCT " + _UNIT if key else "*"
    found = [_estimate(cursor, name, counted, in_sample / max(rows, 1)) for name in columns]
    cursor.run(f"DROP TABLE {_SAMPLE}")
    return tuple(found)


def jackknife(singles: int, pairs: int, share: float) -> float:
    """Return how many different values there are of those as rare as the ones a sample has once or twice.

    Args:
        singles: values that the sample has once.
        pairs: values that it has twice.
        share: of all sampling units that are in the sample.

    >>> round(jackknife(singles=100, pairs=0, share=0.01))
    10000
    """
    if not singles + pairs:
        return 0.0
    return (singles + pairs) / (1.0 - (1.0 - share) * singles / (singles + 2 * pairs))


def _estimate(cursor: Cursor, name: str, counted: str, share: float) -> int:
    column = quote_name(name)
    ((singles, pairs, others),) = cursor.rows(
        "SELECT count(*) FILTER (units = 1), count(*) FILTER (units = 2), count(*) FILTER (units > 2) "
        f"FROM (SELECT count({counted}) AS units FROM {_SAMPLE} WHERE {column} IS NOT NULL GROUP BY {column})"
    )
    return int(others) + round(jackknife(singles, pairs, share))


def size_of_sample(partitions: Sequence[Partition], sample_rows: int) -> tuple[int, int]:
    """Return how many partitions, and how many blocks of each, have about so many rows."""
    rows, count = 0, 0
    while count < len(partitions) and rows < sample_rows:
        rows, count = rows + partitions[count].row_count, count + 1
    return count, max(1, min(BLOCK_COUNT, round(BLOCK_COUNT * sample_rows / max(rows, 1))))
