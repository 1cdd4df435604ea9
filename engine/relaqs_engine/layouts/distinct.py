"""How many different values a column has: estimated from a sample, and then counted in all rows.

**From a sample**, the first partitions, comes the order of magnitude. Values that the sample has three times
or more are taken for all of their kind. The number of rarer ones comes from those that it has once and twice:
right where these are about equally frequent, and too low elsewhere, by a factor of four at worst in what was
tried.

**In all rows** few values are counted. Of many values only those are counted whose hash is below a bound, a
share p of them:

    count(DISTINCT x) FILTER (hash(x) < p · 2^64) / p    p is such that about 20,000 values are counted

Each value is below the bound or not, however often it occurs. So k values of n = k / p are counted, and the
standard error of n is √((1 − p) / k) of it: 0.7 %. COUNT(DISTINCT x) begins with that (`rewrite/method.py`).

Sources: the estimator of the sample is the unsmoothed first-order jackknife of Haas, Naughton, Seshadri,
Stokes 1995, Sampling-based estimation of the number of distinct values of an attribute (VLDB), of rare values
alone. Counting below a bound is adaptive sampling: Flajolet 1990, On adaptive sampling, Computing 43.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from relaqs_engine.duck import Cursor, parquet_rows, quote_name
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    BLOCK_COUNT,
    KEPT_HASHES,
    Column,
    DistinctCount,
    GroupCounts,
    Partition,
)
from relaqs_engine.layouts.number_types import FLOATS, WHOLE_NUMBERS
from relaqs_engine.layouts.sources import RESERVED_PREFIX

SAMPLE_ROWS = 200_000
FEW_SAMPLE_ROWS = 25_000
"""Enough for the order of magnitude, where values are counted afterwards or an append should cost little."""
FEW_VALUES = 32_768
"""So many are all counted."""
HASHED_VALUES = 20_000
"""About how many are counted of a column with more."""
HASHES = 1 << 64
"""How many there may be."""
_FEWEST_HASHED = 13_000  # ± 2 % at the confidence that `rewrite` asks for
_VERY_FEW_VALUES = 4_096  # of a column that is counted together with others: that takes half as long
_FEW_ROWS = 100_000  # likewise
_COLUMNS_AT_ONCE = 32
COUNTED_FILES_AT_ONCE = 128  # as many as a table usually has: fewer take longer
_COUNTED_TYPES = WHOLE_NUMBERS | FLOATS | {"DECIMAL", "VARCHAR", "BOOLEAN", "DATE", "TIME", "UUID"}
_COUNTED_TYPES |= {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"}
_FILES_AT_ONCE = 50  # DuckDB may hold all files of a statement open, and a process few
GROUPED_ROWS = 200_000
"""About how many rows are looked at for the numbers of values by group, of each column."""
_MOST_GROUPS = 400  # so many numbers the manifest has of a column
_MOST_THINGS = 3  # columns
_ROWS_OF_THINGS = 2_000_000  # of these columns together: each makes a layout dearer, so a large one has one
_FEWEST_GROUPED = 2_000  # values of all groups together; of fewer, the rows that are read soon say more
_MOST_SHARE = 0.8  # of the rows; with more values, each is of one row, and is counted as a row
_GROUP_TYPES = (WHOLE_NUMBERS - {"HUGEINT", "UHUGEINT"}) | {"VARCHAR", "BOOLEAN", "DATE"}
_THING_TYPES = WHOLE_NUMBERS | {"VARCHAR", "UUID"}
_SAMPLE = f"{RESERVED_PREFIX}sample"
_UNIT = f"{RESERVED_PREFIX}unit"
_VALUES = f"{RESERVED_PREFIX}values"


def distinct_counts(
    cursor: Cursor,
    files_of: Callable[[Sequence[Partition]], Sequence[Path]],
    partitions: Sequence[Partition],
    columns: Sequence[str],
    key: Sequence[str],
    sample_rows: int,
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


def with_counted_values(
    cursor: Cursor, files: Sequence[Path], columns: Sequence[Column], row_count: int
) -> tuple[Column, ...]:
    """Return the columns with what is known of their distinct values by all rows of some files.

    Nothing is known of types of which equal values might have different hashes, such as nested ones.

    Args:
        cursor: of a database that may read the files.
        files: of Parquet.
        columns: with `distinct_count` of the right order of magnitude.
        row_count: of the files.
    """
    counted = [column for column in columns if files and column.type.split("(")[0] in _COUNTED_TYPES]
    found: dict[str, DistinctCount] = {}
    few = [each for each in counted if row_count <= _FEW_ROWS or each.distinct_count <= _VERY_FEW_VALUES]
    for first in range(0, len(few), _COLUMNS_AT_ONCE):
        names = [column.name for column in few[first : first + _COLUMNS_AT_ONCE]]
        numbers = _values_below(cursor, files, names, HASHES)
        found |= dict(zip(names, numbers, strict=True))
    for column in counted:
        if column.name not in found:
            found[column.name] = _counted(cursor, files, column, row_count)
    return tuple(
        replace(each, distinct=found[each.name], distinct_count=round(found[each.name].least))
        if each.name in found
        else each
        for each in columns
    )


def _counted(cursor: Cursor, files: Sequence[Path], column: Column, row_count: int) -> DistinctCount:
    """Return the number of values of a column, where need be by those whose hash is below a bound."""
    values = column.distinct_count
    while True:
        bound = HASHES if values <= FEW_VALUES else math.floor(HASHED_VALUES / values * HASHES)
        (found,) = _values_below(cursor, files, [column.name], bound)
        if bound == HASHES:
            return found
        share, counted = bound / HASHES, found.least
        if counted >= _FEWEST_HASHED:
            number = min(counted / share, row_count - column.null_count)
            return DistinctCount(number, number, math.sqrt((1.0 - share) / counted))
        values = min(values // 2, round(counted / share))  # the sample's number was too high


def _values_below(
    cursor: Cursor, files: Sequence[Path], names: Sequence[str], bound: int
) -> list[DistinctCount]:
    """Return how many values of columns have a hash below a bound, all where the bound is beyond hashes."""
    lists = ", ".join(f"list(DISTINCT {quote_name(name)}) AS v{i}" for i, name in enumerate(names))
    hashed = ", ".join(map(quote_name, names))
    below = f" WHERE hash({hashed}) < {bound}::UBIGINT" if bound < HASHES else ""
    into = f"CREATE OR REPLACE TEMP TABLE {_VALUES} AS"
    for first in range(0, len(files), COUNTED_FILES_AT_ONCE):
        table = parquet_rows(files[first : first + COUNTED_FILES_AT_ONCE])
        cursor.run(f"{into} SELECT {lists} FROM {table}{below}")
        into = f"INSERT INTO {_VALUES}"
    found = [_number_of(cursor, f"SELECT unnest(v{i}) AS v FROM {_VALUES}") for i in range(len(names))]
    cursor.run(f"DROP TABLE {_VALUES}")
    return found


def _number_of(cursor: Cursor, values: str) -> DistinctCount:
    """Return how many different values `v` a query returns, with their hashes where they are few."""
    ((count,),) = cursor.rows(f"SELECT count(DISTINCT v) FROM ({values})")
    if count <= KEPT_HASHES:
        hashes = cursor.rows(f"SELECT DISTINCT hash(v) FROM ({values}) WHERE v IS NOT NULL")
        if len(hashes) == count:
            return DistinctCount.of_hashes(each for (each,) in hashes)
    return DistinctCount(count, count, 0.0)


def with_values_by_group(
    cursor: Cursor, files: Sequence[Path], columns: Sequence[Column], row_count: int, key: Sequence[str]
) -> tuple[Column, ...]:
    """Return the columns with the numbers of values by group, of those that look like numbers of things.

    A value and all of its rows are looked at, or none of them. About GROUPED_ROWS rows are.

    Args:
        cursor: of a database that may read the files.
        files: of Parquet.
        columns: with what is known of their values over all rows.
        row_count: of the files.
        key: the columns of the cluster key. One that is alone is left out: its values are units.
    """
    groups = few_valued(columns)
    things = [
        each for each in columns if groups and _are_things(each, row_count) and [each.name] != list(key)
    ]
    things.sort(key=lambda each: each.type == "VARCHAR")
    count = min(max(_ROWS_OF_THINGS // max(row_count, 1), 1), _MOST_THINGS)
    bound = min(HASHES, GROUPED_ROWS * HASHES // max(row_count, 1))
    found = {each.name: counted_by_group(cursor, files, each, groups, bound) for each in things[:count]}
    return tuple(replace(each, by_group=found.get(each.name, ())) for each in columns)


def few_valued(columns: Sequence[Column], most: int = _MOST_GROUPS) -> list[Column]:
    """Return the columns that tell groups apart: those with fewest values, so many together at most."""
    few = [each for each in columns if each.distinct and each.distinct.hashes and each.type in _GROUP_TYPES]
    few.sort(key=lambda each: each.distinct_count)
    groups: list[Column] = []
    for each in few:
        if each.distinct_count + sum(group.distinct_count for group in groups) <= most:
            groups.append(each)
    return groups


def _are_things(column: Column, row_count: int) -> bool:
    """Whether a column may be of things that rows are of, such as customers: many, with several rows each."""
    if column.type not in _THING_TYPES or column.distinct is None or column.distinct.hashes:
        return False
    counted = column.distinct_count * min(1.0, GROUPED_ROWS / row_count)
    is_worth_it = counted >= min(column.distinct_count, _FEWEST_GROUPED)
    return is_worth_it and 0 < column.distinct_count < _MOST_SHARE * row_count


def counted_by_group(
    cursor: Cursor, files: Sequence[Path], column: Column, groups: Sequence[Column], bound: int
) -> tuple[GroupCounts, ...]:
    """Return how many values of a column have a hash below a bound, among the rows of each group.

    Args:
        cursor: of a database that may read the files.
        files: of Parquet.
        column: whose values are counted.
        groups: the columns by which they are, with the hashes of their values.
        bound: up to HASHES, for all values.
    """
    value = quote_name(column.name)
    below = f" WHERE hash({value}) < {bound}::UBIGINT" if bound < HASHES else ""
    keys = ", ".join(f"{quote_name(group.name)} AS g{i}" for i, group in enumerate(groups))
    into = f"CREATE OR REPLACE TEMP TABLE {_VALUES} AS"
    for first in range(0, len(files), COUNTED_FILES_AT_ONCE):
        table = parquet_rows(files[first : first + COUNTED_FILES_AT_ONCE])
        cursor.run(f"{into} SELECT {value} AS v, {keys} FROM {table}{below}")
        into = f"INSERT INTO {_VALUES}"
    counts = []
    for i, group in enumerate(groups):
        found = cursor.rows(
            f"SELECT CASE WHEN g{i} IS NOT NULL THEN hash(g{i}) END, count(DISTINCT v) "
            f"FROM {_VALUES} GROUP BY g{i}"
        )
        counted = {hashed: int(count) for hashed, count in found}
        hashes = group.distinct.hashes if group.distinct else ()
        of_each = tuple(counted.get(hashed, 0) for hashed in (*hashes, None))
        counts.append(GroupCounts(group.name, of_each, bound / HASHES))
    cursor.run(f"DROP TABLE {_VALUES}")
    return tuple(counts)


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
