"""The outlier index: a copy of the few rows with values far out. A query reads it whole in its first step.

A sum over skewed values is decided by a few rows, and a sample that missed those rows looks calm. *Example:*
999 fares of 10 and one of 5,000 sum to 14,990. A tenth of the rows usually misses the large one: it shows 100
equal fares, estimates 10,000, and sees no variation at all. One time in ten it meets the large one and
estimates 59,900.

So the rows with the largest values are kept apart, at most one in a hundred. A query that sums such a column
counts them exactly and leaves them out of its sample:

    total  =  sum of the index, as it is  +  scale · sum of the sampled rows that are no outliers

In the example that is 5,000 + 10 · 1,000 = 15,000 if the tenth missed the large fare, and 5,000 + 10 · 990 =
14,900 if it met it. It also becomes provable how far off the estimate can be, because each row that is left
lies between two known ends.

**Which rows.** Distances are taken from the median, and the ends are chosen so that 1 % of the rows, less a
margin, lie beyond them. A column has an index if those rows hold a quarter of its variance, or if one value
is 25 standard deviations out. The outliers of a normal column hold 8 % of its variance, those of an
exponential one 22 %, so neither gets an index. Several columns share the 1 %.

The partitions hold these rows as well. Every prefix of the partitions is still a random sample of the whole
table, and a query that has no use for the index ignores it.

What is ugly. The ends come from a sample of the first partitions. The outliers enter the merged sums at a
weight of 1/scale, so that scaling leaves them as they are. A product of two tame columns may have large
values, and has no index.

The decision: docs/decisions/0016-heavy-tails.md. Source: Chaudhuri, Das, Datar, Motwani, Narasayya 2001,
Overcoming limitations of sampling for aggregation queries (ICDE).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.duck import Cursor, parquet_rows, quote_name, quote_text
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, BLOCK_COUNT, Column, Layout, Partition
from relaqs_engine.layouts.number_types import FLOATS, WHOLE_NUMBERS

MOST_SHARE = 0.01
"""The largest share of the table's rows in the index, for all columns together."""
FEWEST_ROWS = 10_000
"""A table with fewer rows gets no index, because it is read in a blink."""
MOST_COLUMNS = 8
_MARGIN = 0.9  # of the share is used, because the ends come from a sample
_SAMPLE_ROWS = 200_000
# A column is skewed if its outliers hold a quarter of the variance, or if one row may be this many standard
# deviations away from the median. A normal column's outliers hold 8 % of it, an exponential one's 22 %.
_VARIANCE_KEPT = 0.75
_FARTHEST = 25.0
_NUMBERS = WHOLE_NUMBERS | FLOATS | {"DECIMAL"}


@dataclass(frozen=True, slots=True)
class Inliers:
    """The values of a column that are no outliers.

    Attributes:
        low: the least of them.
        high: the greatest of them.
        variance_kept: the share of the column's variance that they hold.
    """

    low: float
    high: float
    variance_kept: float


def with_inliers(
    cursor: Cursor,
    files_of: Callable[[Sequence[Partition]], Sequence[Path]],
    columns: Sequence[Column],
    partitions: Sequence[Partition],
) -> tuple[Column, ...]:
    """Return the columns, with the ends of what is no outlier for those that are skewed.

    Args:
        cursor: of DuckDB.
        files_of: gives the files of partitions.
        columns: all columns of the table.
        partitions: all of them, in order. The first are a random sample, so only those are read.
    """
    numeric = [column for column in columns if column.type.split("(")[0] in _NUMBERS]
    rows = sum(partition.row_count for partition in partitions)
    if rows < FEWEST_ROWS or not numeric:
        return tuple(columns)
    sample = _sample(cursor, files_of, numeric, partitions)
    found = {column.name: _inliers(sample[column.name], column, MOST_SHARE) for column in numeric}
    kept = {name: inliers.variance_kept for name, inliers in found.items() if inliers is not None}
    chosen = sorted(kept, key=kept.__getitem__)[:MOST_COLUMNS]
    share = _share_of_each([column for column in numeric if column.name in chosen], sample)
    return tuple(_with_ends(c, sample[c.name], share) if c.name in chosen else c for c in columns)


def outlier_condition(columns: Sequence[Column], alias: str = "") -> str:
    """Return the SQL that is true for a row with an outlier in one of these columns, and never NULL.

    Args:
        columns: the columns. Those without inliers are ignored.
        alias: of the table.

    >>> from relaqs_engine.planning.example import CATALOG
    >>> outlier_condition(CATALOG.table("trips").columns, "t")
    'coalesce("t"."fare" < 2.5 OR "t"."fare" > 80.0, false)'
    """
    tests = []
    for column in columns:
        if column.inlier_low is not None and column.inlier_high is not None:
            name = f"{quote_name(alias)}.{quote_name(column.name)}" if alias else quote_name(column.name)
            low, high = literal(column.inlier_low), literal(column.inlier_high)
            tests += [f"{name} < {low}", f"{name} > {high}"]
    return f"coalesce({' OR '.join(tests)}, false)"


def unit_condition(layout: Layout, keys: Sequence[str | None], alias: str = "") -> str:
    """Return the SQL that is true for a row of one of these units, and never NULL.

    Args:
        layout: by a key of one column, if there are keys.
        keys: of the units, as texts.
        alias: of the table.

    >>> from relaqs_engine.planning.example import CATALOG
    >>> print(unit_condition(CATALOG.table("items"), ("7", None), "i"))
    coalesce("i"."order_id" IN (TRY_CAST('7' AS BIGINT)), false) OR "i"."order_id" IS NULL
    """
    if not keys:
        return "false"
    (key,) = layout.cluster_key
    name = f"{quote_name(alias)}.{quote_name(key)}" if alias else quote_name(key)
    type_text = layout.column(key).type
    values = [f"TRY_CAST({quote_text(each)} AS {type_text})" for each in keys if each is not None]
    tests = [f"coalesce({name} IN ({', '.join(values)}), false)"] if values else []
    return " OR ".join([*tests, *([f"{name} IS NULL"] if None in keys else [])])


def literal(value: float) -> str:
    """Return a number as SQL, which is then compared in the column's own type where that is exact.

    >>> literal(12.5), literal(-3)
    ('12.5', '-3')
    """
    return repr(value)


def _sample(
    cursor: Cursor,
    files_of: Callable[[Sequence[Partition]], Sequence[Path]],
    columns: Sequence[Column],
    partitions: Sequence[Partition],
) -> Mapping[str, FloatArray]:
    """Return values of some random rows, by column: NaN for NULL, and infinity for NaN."""
    rows, count = 0, 0
    while count < len(partitions) and rows < _SAMPLE_ROWS:
        rows, count = rows + partitions[count].row_count, count + 1
    blocks = max(1, min(BLOCK_COUNT, round(BLOCK_COUNT * _SAMPLE_ROWS / max(rows, 1))))
    doubles_sql = [f"{quote_name(column.name)}::DOUBLE" for column in columns]
    values = ", ".join(f"CASE WHEN isnan({sql}) THEN 'inf'::DOUBLE ELSE {sql} END" for sql in doubles_sql)
    table = parquet_rows(files_of(partitions[:count]))
    table = cursor.table(f"SELECT {values} FROM {table} WHERE {BLOCK_COLUMN} < {blocks}")
    return {column.name: doubles(found) for column, found in zip(columns, table.columns, strict=True)}


def _share_of_each(columns: Sequence[Column], sample: Mapping[str, FloatArray]) -> float:
    """Return the share of the rows that may be outliers of each column. All columns share one index.

    Columns that grow together have outliers in the same rows, so each of them may have more.
    """
    share = MOST_SHARE * _MARGIN / max(len(columns), 1)
    outside = [
        ~((sample[column.name] >= found.low) & (sample[column.name] <= found.high))
        & ~np.isnan(sample[column.name])
        for column in columns
        if (found := _inliers(sample[column.name], column, share)) is not None
    ]
    together = float(np.logical_or.reduce(outside).mean()) if outside else share
    return min(MOST_SHARE * _MARGIN, share * MOST_SHARE * _MARGIN / max(together, share))


def _inliers(values: FloatArray, column: Column, share: float) -> Inliers | None:
    """Return the ends of what is no outlier, None if the values are not skewed.

    `share` is the share of the rows that may be outliers.
    """
    values = values[~np.isnan(values)]
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    middle = float(np.median(finite))
    distance = np.where(np.isfinite(values), np.abs(values - middle), np.inf)
    reach = float(np.quantile(distance, 1.0 - share, method="higher"))
    if not math.isfinite(reach):
        return None
    spread = float(np.var(values[distance <= reach]))
    whole = float(np.var(values)) if finite.size == values.size else math.inf
    kept = 1.0 if whole == 0.0 else spread / whole
    farthest = _farthest(column, middle)
    if kept >= _VARIANCE_KEPT and farthest <= _FARTHEST * math.sqrt(spread):
        return None
    return Inliers(middle - reach, middle + reach, kept) if farthest > reach else None


def _farthest(column: Column, middle: float) -> float:
    """Return how far from the middle the table's values lie; infinity where that is not known."""
    ends = (column.minimum, column.maximum)
    known = [float(end) for end in ends if isinstance(end, int | float) and not isinstance(end, bool)]
    return max(abs(end - middle) for end in known) if len(known) == 2 else math.inf


def _with_ends(column: Column, values: FloatArray, share: float) -> Column:
    inliers = _inliers(values, column, share)
    if inliers is None:
        return column
    low, high = _in_type(inliers, column.type)
    return replace(column, inlier_low=low, inlier_high=high)


def _in_type(inliers: Inliers, type_text: str) -> tuple[float, float]:
    """Return the ends as values of the column's type, rounded inwards."""
    if type_text in WHOLE_NUMBERS:
        return math.ceil(inliers.low), math.floor(inliers.high)
    if type_text.startswith("DECIMAL"):
        step = Decimal(1).scaleb(-int(type_text.rstrip(")").split(",")[1]))
        low = Decimal(inliers.low).quantize(step, ROUND_CEILING)
        return float(low), float(Decimal(inliers.high).quantize(step, ROUND_FLOOR))
    return inliers.low, inliers.high
