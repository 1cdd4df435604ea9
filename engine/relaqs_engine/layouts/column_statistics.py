"""What is known of a table's columns: found in one pass over its files, or while it was written.

**How many different values a column has** is estimated from a sample, and then counted in all rows.

**From a sample**, the first partitions, comes the order of magnitude. Values that the sample has three
times or more are taken for all of their kind. The number of rarer ones comes from those that it has once
and twice: right where these are about equally frequent, and too low elsewhere, by a factor of four at
worst in what was tried.

**In all rows** few values are counted. Of many values only those are counted whose hash is below a bound,
a share p of them:

    count(DISTINCT x) FILTER (hash(x) < p · 2^64) / p    p is such that about 20,000 values are counted

Each value is below the bound or not, however often it occurs. So k values of n = k / p are counted, and the
standard error of n is √((1 − p) / k) of it: 0.7 %. COUNT(DISTINCT x) begins with that (`rewrite/method.py`).

Sources: the estimator of the sample is the unsmoothed first-order jackknife of Haas, Naughton, Seshadri,
Stokes 1995, Sampling-based estimation of the number of distinct values of an attribute (VLDB), of rare
values alone. Counting below a bound is adaptive sampling: Flajolet 1990, On adaptive sampling, Computing
43.

**Ends by group.** Between which ends a column's values lie among the rows with each value of another
column.

    airports:  latitude in −90…84, of Portugal's 32…42, of Norway's 58…81

An average is certified once no unread row could move it far. In the group of Portugal that is a latitude of
32 or 42, and not one of −90. So the ends by group certify averages by country after a tenth of the rows.

Ends are kept where they are much closer together than those of the whole column. A sample of the rows
tells where that is. Only these columns are then looked at in all rows.

**Zones.** Ends of columns by ranges of the values of another column, of any type with an order.

    quantity 1…1: price 901…2,099    quantity 2…2: 1,802…4,198    …    quantity 50…50: 45,050…104,950

No row has a quantity below 13 and a price above 49,888 (see docs/internals/journey-of-a-query.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import IntArray

from relaqs_engine.duck import Cursor, parquet_rows, quote_name, quote_text
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    BLOCK_COUNT,
    FLOATS,
    KEPT_HASHES,
    WHOLE_NUMBERS,
    Column,
    DistinctCount,
    GroupCounts,
    GroupEnds,
    Layout,
    Partition,
    Scalar,
    Zones,
    is_number,
)
from relaqs_engine.layouts.sources import RESERVED_PREFIX

_PYTHON_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_PYTHON_VALUES = (*_PYTHON_NUMBERS, "FLOAT", "DOUBLE", "BOOLEAN", "DECIMAL")
_WITHOUT_ORDER = ("STRUCT", "MAP", "UNION", "VARIANT", "BLOB", "GEOMETRY", '"NULL"')
NEARLY_ALL = 0.8
"""Distinct values are counted to a few percent, so this share of the rows counts as all different."""

_LONGEST_TEXT = 256
"""Characters of the longest minimum or maximum kept: every client reads the manifest."""


class SeenValues:
    """What was seen of the values while rows were laid out: each column's ends, and how many are NULL."""

    def __init__(self) -> None:
        self._ends: list[pa.RecordBatch] = []
        self._null_counts = np.zeros(0, dtype=np.int64)

    def add(self, ends: pa.RecordBatch, null_counts: IntArray) -> None:
        """Take in some rows. ends: a column each, as `ends_of` gives them. null_counts: of each column."""
        self._ends.append(ends)
        self._null_counts = null_counts + (self._null_counts if self._null_counts.size else 0)

    def extremes(self, cursor: Cursor, columns: Sequence[tuple[str, str]]) -> list[Extremes]:
        """Return the extremes of the columns, given as (name, DuckDB type)."""
        ends = pa.Table.from_batches(self._ends)
        with cursor.registered(relaqs_ends=ends):
            (values,) = cursor.rows(f"SELECT {_listed(_ends, columns)} FROM relaqs_ends")
        nulls = self._null_counts.tolist()
        return [Extremes(values[2 * i], values[2 * i + 1], nulls[i]) for i in range(len(columns))]


@dataclass(frozen=True, slots=True)
class Extremes:
    """Of a column: the least and the greatest value as the database returns them, and how many are NULL."""

    minimum: Any
    maximum: Any
    null_count: int


def column_statistics(
    cursor: Cursor,
    files: Sequence[Path],
    columns: Sequence[tuple[str, str]],
    table: str = "",
    *,
    keys_exactly: bool = False,
) -> tuple[Column, ...]:
    """Return the statistics of the columns, given as (name, DuckDB type), over all files together.

    Args:
        cursor: of a DuckDB that may read the files.
        table: stands for the files after FROM. By default the names of their folders say nothing about
            columns.
        keys_exactly: whether values are counted exactly where nearly all are different.
    """
    table = table or parquet_rows(files)
    (values,) = cursor.rows(f"SELECT {_listed(_expressions, columns)}, count(*) FROM {table}")
    extremes = [Extremes(*values[4 * i : 4 * i + 3]) for i in range(len(columns))]
    distinct = [int(values[4 * i + 3]) for i in range(len(columns))]
    found = described(files, columns, extremes, distinct)
    return _with_keys_counted(cursor, found, table, values[-1]) if keys_exactly else found


def _with_keys_counted(
    cursor: Cursor, columns: Sequence[Column], table: str, row_count: int
) -> tuple[Column, ...]:
    """Return the columns, the values counted of those in which nearly all are different."""
    filled = {each.name: row_count - each.null_count for each in columns}
    keys = [each.name for each in columns if each.distinct_count >= NEARLY_ALL * filled[each.name] > 0]
    counted = dict(zip(keys, _counts(cursor, keys, table), strict=True))
    return tuple(
        replace(each, distinct_count=counted[each.name], is_counted=True) if each.name in counted else each
        for each in columns
    )


def _counts(cursor: Cursor, names: Sequence[str], table: str) -> Sequence[int]:
    """Return how many different values columns have."""
    if not names:
        return ()
    counts = ", ".join(f"count(DISTINCT {quote_name(name)})" for name in names)
    (found,) = cursor.rows(f"SELECT {counts} FROM {table}")
    return [int(count) for count in found]


def described(
    files: Sequence[Path],
    columns: Sequence[tuple[str, str]],
    extremes: Sequence[Extremes],
    distinct_counts: Sequence[int],
) -> tuple[Column, ...]:
    """Return the columns, given as (name, DuckDB type), with what is known of each."""
    byte_counts = column_bytes(files, [name for name, _ in columns])
    return tuple(
        Column(
            name=name,
            type=type_text,
            minimum=_scalar(ends.minimum),
            maximum=_scalar(ends.maximum),
            null_count=ends.null_count,
            distinct_count=distinct_count,
            byte_count=byte_counts[name],
        )
        for (name, type_text), ends, distinct_count in zip(columns, extremes, distinct_counts, strict=True)
    )


def _listed(sql_of: Callable[[str, str], str], columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(sql_of(name, type_text) for name, type_text in columns)


def _expressions(name: str, type_text: str) -> str:
    column = quote_name(name)
    return f"{_ends(name, type_text)}, count(*) - count({column}), approx_count_distinct({column})"


def _ends(name: str, type_text: str) -> str:
    """Return SQL of the least and the greatest value."""
    column = quote_name(name)
    low, high = f"min({column})", f"max({column})"
    if type_text.startswith(_WITHOUT_ORDER) or type_text.endswith("]"):
        low = high = "NULL"
    elif type_text.split("(")[0] not in _PYTHON_VALUES:
        low, high = f"{low}::VARCHAR", f"{high}::VARCHAR"
    return f"{low}, {high}"


def _scalar(value: int | float | str | Decimal | None) -> Scalar:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return None
    return value


def column_bytes(files: Sequence[Path], names: Sequence[str]) -> Counter[str]:
    """Return the compressed bytes of each table column. A nested one is several in Parquet: a.b and a.c."""
    import pyarrow.parquet as pq  # 30 ms, and a question about plain files needs no byte counts

    totals: Counter[str] = Counter()
    own = frozenset(names)
    for file in files:
        footer = pq.read_metadata(file)
        paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
        owners = [path if path in own else _owner(path, names) for path in paths]
        for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
            for leaf, owner in enumerate(owners):
                totals[owner] += group.column(leaf).total_compressed_size
    return totals


def _owner(path: str, names: Sequence[str]) -> str:
    owners = [name for name in names if path.startswith(f"{name}.")]
    return max(owners, key=len, default=path)


SAMPLE_ROWS = 200_000
"""Of a table, from which its statistics and what is counted exactly are chosen."""
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


def _fill(
    cursor: Cursor, name: str, files: Sequence[Path], select: Callable[[str], str], at_once: int
) -> None:
    """Make a table of what a SELECT over some files gives, for all files. select: gives it for a table."""
    begin = f"CREATE OR REPLACE TEMP TABLE {name} AS"
    for first in range(0, len(files), at_once):
        cursor.run(f"{begin} {select(parquet_rows(files[first : first + at_once]))}")
        begin = f"INSERT INTO {name}"


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
        partitions: all of them, in order.
        key: SQL of the cluster key's columns; empty where the sampling unit is a row. What is counted is
            units: a value that all rows of a unit share is in the sample with all of them or not at all.
        sample_rows: about how many rows to sample.
    """
    count, blocks = size_of_sample(partitions, sample_rows)
    unit = f"hash({', '.join(key)})" if key else "0"
    rows_of = f"SELECT *, {unit} AS {_UNIT} FROM {{}} WHERE {BLOCK_COLUMN} < {blocks}".format
    _fill(cursor, _SAMPLE, files_of(partitions[:count]), rows_of, _FILES_AT_ONCE)
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
        columns: with `distinct_count` of the right order of magnitude.
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
    _fill(cursor, _VALUES, files, lambda table: f"SELECT {lists} FROM {table}{below}", COUNTED_FILES_AT_ONCE)
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
        columns: with what is known of their values over all rows.
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
        column: whose values are counted.
        groups: the columns by which they are, with the hashes of their values.
        bound: up to HASHES, for all values.
    """
    value = quote_name(column.name)
    below = f" WHERE hash({value}) < {bound}::UBIGINT" if bound < HASHES else ""
    keys = ", ".join(f"{quote_name(group.name)} AS g{i}" for i, group in enumerate(groups))
    rows = f"SELECT {value} AS v, {keys}"
    _fill(cursor, _VALUES, files, lambda table: f"{rows} FROM {table}{below}", COUNTED_FILES_AT_ONCE)
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


NARROW = 0.6
"""Ends by group are kept if those of the average group are so much closer together than the column's own."""
_ENOUGH_ROWS = 10  # of a group in the sample: the ends of fewer are close together by chance
MOST_ENDS = 4_000
"""So many pairs of ends a manifest has at most."""
_MOST_GROUPS_WITH_ENDS = 1_000  # values of all columns that tell groups apart


def with_ends_by_group(
    cursor: Cursor, files: Sequence[Path], columns: Sequence[Column], row_count: int
) -> tuple[Column, ...]:
    """Return the columns with their ends by group, where these are narrow.

    Args:
        files: of Parquet, of which the first ones are a sample of the rows.
        columns: with what is known of their values over all rows.
    """
    groups = few_valued(columns, _MOST_GROUPS_WITH_ENDS)
    values = [each for each in columns if is_number(each.type) and _has_ends(each)]
    sample = files[: max(1, -(-len(files) * SAMPLE_ROWS // max(row_count, 1)))]
    chosen = sorted(
        (share, group.name, value)
        for group in groups
        for value, share in _shares(cursor, sample, group, [each for each in values if each is not group])
        if share <= NARROW
    )
    wanted: dict[str, list[str]] = {}
    left = MOST_ENDS
    sizes = {group.name: group.distinct_count + 1 for group in groups}
    for _, by, value in chosen:
        if sizes[by] <= left:
            wanted.setdefault(by, []).append(value)
            left -= sizes[by]
    found: dict[str, list[GroupEnds]] = {}
    for group in groups:
        for value, ends in ends_by(cursor, files, group, wanted.get(group.name, [])):
            found.setdefault(value, []).append(ends)
    return tuple(replace(each, ends_by=tuple(found.get(each.name, ()))) for each in columns)


def _has_ends(column: Column) -> bool:
    low, high = column.minimum, column.maximum
    return isinstance(low, int | float) and isinstance(high, int | float) and low < high


def _shares(
    cursor: Cursor, files: Sequence[Path], group: Column, values: Sequence[Column]
) -> Iterator[tuple[str, float]]:
    """Yield how close together the ends of columns are by group, as a share of how far apart all are.

    Rows of the outlier index are counted apart, so values beyond its ends do not matter.
    """
    rows = (
        cursor.rows(_ends_sql(parquet_rows(files), group, [each.name for each in values])) if values else []
    )
    rows = [row for row in rows if row[1] >= _ENOUGH_ROWS]
    for i, value in enumerate(values):
        least, most = _or(value.inlier_low, -np.inf), _or(value.inlier_high, np.inf)
        found = [row[2 + 2 * i : 4 + 2 * i] for row in rows if row[2 + 2 * i] is not None]
        ends = np.clip(np.array(found, dtype=np.float64).reshape(-1, 2), least, most)
        if len(ends) and (width := ends[:, 1].max() - ends[:, 0].min()) > 0.0:
            yield value.name, float(np.mean(ends[:, 1] - ends[:, 0]) / width)


def ends_by(
    cursor: Cursor, files: Sequence[Path], group: Column, names: Sequence[str]
) -> Iterator[tuple[str, GroupEnds]]:
    """Yield the ends of columns among all rows with each value of a group's column."""
    if not names:
        return
    assert group.distinct is not None
    _fill(cursor, _VALUES, files, lambda table: _ends_sql(table, group, names), COUNTED_FILES_AT_ONCE)
    ends = ", ".join(f"min(low{i}), max(high{i})" for i in range(len(names)))
    found = {row[0]: row[1:] for row in cursor.rows(f"SELECT hashed, {ends} FROM {_VALUES} GROUP BY 1")}
    cursor.run(f"DROP TABLE {_VALUES}")
    rows = [found.get(hashed, (None,) * (2 * len(names))) for hashed in (*group.distinct.hashes, None)]
    for i, name in enumerate(names):
        lowest, highest = (tuple(row[2 * i + k] for row in rows) for k in (0, 1))
        yield name, GroupEnds(group.name, lowest, highest)


def _ends_sql(table: str, group: Column, names: Sequence[str]) -> str:
    """Return SQL of the hash of each value of a group's column, its rows, and the ends of columns."""
    key = quote_name(group.name)
    ends = "".join(
        f", min({quote_name(name)})::DOUBLE AS low{i}, max({quote_name(name)})::DOUBLE AS high{i}"
        for i, name in enumerate(names)
    )
    return (
        f"SELECT any_value(CASE WHEN {key} IS NOT NULL THEN hash({key}) END) AS hashed, count(*) AS n{ends} "
        f"FROM {table} GROUP BY {key}"
    )


def _or(end: float | None, otherwise: float) -> float:
    return otherwise if end is None else end


ZONED_ROWS = 1_000_000
"""Tables of fewer rows have no zones: to read one whole takes milliseconds."""
MOST_ZONES = 64
_MOST_ZONED = 24  # columns: those with fewest values
_ZONED_TYPES = WHOLE_NUMBERS | {"FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIMESTAMP"}


def with_zones(cursor: Cursor, files: Sequence[Path], layout: Layout) -> Layout:
    """Return a layout with the zones of its columns in which others are narrow. files: those of all rows."""
    columns = sorted(filter(_has_zones, layout.columns), key=lambda each: each.distinct_count)[:_MOST_ZONED]
    if layout.row_count < ZONED_ROWS or not columns:
        return replace(layout, zones=())
    sample = parquet_rows(files[: max(1, len(files) * SAMPLE_ROWS // layout.row_count)])
    firsts = _first_values(cursor, sample, columns)
    numbers = ", ".join(f"{_zone(each, firsts[i])} AS z{i}" for i, each in enumerate(columns))
    cursor.run(f"CREATE OR REPLACE TEMP TABLE {_SAMPLE} AS SELECT {numbers} FROM {sample}")
    sizes = [max(len(each), 1) for each in firsts]
    widths = ", ".join(f"coalesce(max(z{i}) - min(z{i}) + 1, 0) / {size}" for i, size in enumerate(sizes))
    chosen: list[tuple[int, float, int, int]] = []
    for by, size in enumerate(sizes):
        found = cursor.rows(
            f"SELECT {widths} FROM {_SAMPLE} WHERE z{by} IS NOT NULL "
            f"GROUP BY z{by} HAVING count(*) >= {_ENOUGH_ROWS}"
        )
        shares = np.mean(found, axis=0).tolist() if len(found) > 1 else []
        chosen += [(size, share, by, i) for i, share in enumerate(shares) if share <= NARROW and i != by]
    cursor.run(f"DROP TABLE {_SAMPLE}")
    narrow: dict[int, list[int]] = {}
    left = MOST_ENDS
    for size, _, by, other in sorted(chosen):  # few values are a zone each, which tells most
        if size < left and by not in narrow.get(other, ()):
            narrow.setdefault(by, [by]).append(other)
            left -= size + 1
    begun = (
        Zones(tuple(columns[i].name for i in places), tuple((first,) for first in firsts[places[0]]))
        for places in narrow.values()
    )
    return _with_short(layout, (zones_of(cursor, files, layout, each) for each in begun))


def with_zones_of_more(cursor: Cursor, files: Sequence[Path], layout: Layout) -> Layout:
    """Return a layout that has grown, with the zones of all rows. files: of those that it has more."""
    return _with_short(layout, (zones_of(cursor, files, layout, each, each.ends) for each in layout.zones))


def zones_of(
    cursor: Cursor,
    files: Sequence[Path],
    layout: Layout,
    like: Zones,
    ends: Sequence[Sequence[str | None]] = (),
) -> Zones:
    """Return the zones of the rows of some files, cut where other ones are. ends: of further rows."""
    columns = [layout.column(name) for name in like.columns]
    zone = _zone(columns[0], [each[0] for each in like.ends if each[0] is not None])
    names = [quote_name(name) for name in like.columns]
    found = ", ".join(f"min({name}) AS low{i}, max({name}) AS high{i}" for i, name in enumerate(names))

    def select(table: str) -> str:
        return f"SELECT {zone} AS zone, {found} FROM {table} GROUP BY ALL"

    _fill(cursor, _VALUES, files, select, COUNTED_FILES_AT_ONCE)
    for place in range(2 if ends else 0):  # as rows of the least values, and rows of the greatest ones
        texts = (["NULL" if e is None else quote_text(e) for e in each] for each in zip(*ends, strict=True))
        values = (
            f"unnest(CAST([{', '.join(each)}] AS {column.type}[])) AS {name}"
            for column, name, each in zip(columns, names, list(texts)[place::2], strict=True)
        )
        cursor.run(f"INSERT INTO {_VALUES} {select('(SELECT ' + ', '.join(values) + ')')}")
    shown = ", ".join(f"min(low{i})::VARCHAR, max(high{i})::VARCHAR" for i in range(len(names)))
    rows = cursor.rows(f"SELECT {shown} FROM {_VALUES} GROUP BY zone ORDER BY zone")
    cursor.run(f"DROP TABLE {_VALUES}")
    return Zones(like.columns, tuple(rows))


def _has_zones(column: Column) -> bool:
    is_short = column.type != "VARCHAR" or column.distinct_count <= _VERY_FEW_VALUES
    return is_short and column.type.split("(")[0] in _ZONED_TYPES and column.distinct_count > 1


def _with_short(layout: Layout, found: Iterable[Zones]) -> Layout:
    """Return a layout with those zones that have no long texts: every client reads the manifest."""
    texts = [(each, [text or "" for ends in each.ends for text in ends]) for each in found]
    return replace(layout, zones=tuple(z for z, ends in texts if max(map(len, ends)) <= _LONGEST_TEXT))


def _first_values(cursor: Cursor, rows: str, columns: Sequence[Column]) -> list[list[str]]:
    """Return the least value of each zone that the values of each column are cut into."""
    shares = [i / MOST_ZONES for i in range(MOST_ZONES)]
    named = [(quote_name(each.name), each.distinct_count <= MOST_ZONES) for each in columns]
    values = (f"list(DISTINCT {n})" if few else f"quantile_disc({n}, {shares})" for n, few in named)
    listed = ", ".join(f"coalesce(list_sort(list_distinct({each}))::VARCHAR[], [])" for each in values)
    return list(cursor.rows(f"SELECT {listed} FROM {rows}")[0])


def _zone(column: Column, firsts: Sequence[str]) -> str:
    """Return SQL of the number of the zone that a value is in, NULL for NULL."""
    value = quote_name(column.name)

    def among(low: int, high: int) -> str:
        if low >= high:
            return str(low)
        middle = (low + high + 1) // 2
        edge = f"CAST({quote_text(firsts[middle])} AS {column.type})"
        return f"CASE WHEN {value} < {edge} THEN {among(low, middle - 1)} ELSE {among(middle, high)} END"

    return f"CASE WHEN {value} IS NOT NULL THEN {among(0, len(firsts) - 1)} END"
