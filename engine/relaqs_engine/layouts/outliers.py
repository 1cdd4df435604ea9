"""The outlier index: a copy of the few rows with values far out. A query reads it whole in its first step.

A sum over skewed values is decided by a few rows, and a sample that missed those rows looks calm.
*Example:* 999 fares of 10 and one of 5,000 sum to 14,990. A tenth of the rows usually misses the large
one: it shows 100 equal fares, estimates 10,000, and sees no variation at all. One time in ten it meets the
large one and estimates 59,900.

So the rows with the largest values are kept apart, at most one in a hundred. A query that sums such a
column counts them exactly and leaves them out of its sample:

    total  =  sum of the index, as it is  +  scale · sum of the sampled rows that are no outliers

In the example that is 5,000 + 10 · 1,000 = 15,000 if the tenth missed the large fare, and 5,000 + 10 · 990
= 14,900 if it met it. It also becomes provable how far off the estimate can be, because each row that is
left lies between two known ends.

**Which rows.** Distances are taken from the median, and the ends are chosen so that 1 % of the rows, less
a margin, lie beyond them. A column has an index if those rows hold a quarter of its variance, or if one
value is 25 standard deviations out. The outliers of a normal column hold 8 % of its variance, those of an
exponential one 22 %, so neither gets an index. Several columns share the 1 %.

The partitions hold these rows as well. Every prefix of the partitions is still a random sample of the
whole table, and a query that has no use for the index ignores it.

What is ugly. The ends come from a sample of the first partitions. The outliers enter the merged sums at a
weight of 1/scale, so that scaling leaves them as they are. A product of two tame columns may have large
values, and has no index.

The decision: docs/decisions/0016-heavy-tails.md. Source: Chaudhuri, Das, Datar, Motwani, Narasayya 2001,
Overcoming limitations of sampling for aggregation queries (ICDE).

**Where units are cluster keys**, it also says what they have and sum to, and has the few with most rows.

    SELECT country, count(*), avg(price) FROM events GROUP BY country   -- laid out by user

A user who was not read yet may add all of their events to one country, and the largest has a thousand. So
the sample cannot tell how far a number may still move: a calm one is a sample without that user. Two
things are done about it when the table is laid out.

**Outlier units.** The units with most rows are kept apart, as rows with values far out are. A query counts
them exactly and samples the others. The largest user may have 1,000 events, and the largest of the others
60. At most one row in a hundred is in such a unit, of a small table 50,000 rows or one in five, and there
are 256 of them at most.

**What any other unit has** is measured, over all of them:

    rows                        60      of a unit
    rows with one `country`     60      a user has one country: the *part* of a unit
    rows with one `day`          9      no user has more events on a day
    prices above 40, together  150      the sum of (price − 40) over the rows of a user where it is positive
    prices below 40, together  210      likewise below

Parts bound what a unit adds to a count by group. They are kept of columns with few values, since other
groups hardly ever have enough rows. Distances from a number near the mean bound sums and averages, of any
of a unit's rows: its prices sum to 40 for each row, and to 150 more or 210 less. Most prices are near the
mean, so that is far less than 60 rows times the highest price (`execution/intervals.py`).

**How parts are found.** The largest part in a sample is a lower bound. Only a unit with more rows than
that can have a larger one, and where sizes are unlike such units are few. Their rows alone are counted by
value.

Appending rows drops all of it: a unit may have grown. Compacting finds it again.

The decision: docs/decisions/0097-units-of-unlike-size.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.duck import Cursor, parquet_rows, quote_name, quote_text
from relaqs_engine.layouts.column_statistics import SAMPLE_ROWS, size_of_sample
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    BLOCK_COUNT,
    FEW_UNIT_ROWS,
    FLOATS,
    WHOLE_NUMBERS,
    Column,
    Layout,
    OtherUnits,
    OutlierUnits,
    Partition,
    UnitColumn,
    is_number,
)
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.sources import RESERVED_PREFIX

MOST_SHARE = 0.01
"""The largest share of the table's rows in the index, for all columns together."""
FEWEST_ROWS = 10_000
"""A table with fewer rows gets no index, because it is read in a blink."""
MOST_COLUMNS = 8
_MARGIN = 0.9  # of the share is used, because the ends come from a sample
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

    >>> outlier_condition(CATALOG.table("trips").columns, "t")
    'CASE WHEN "t"."fare" < 2.5 OR "t"."fare" > 80.0 THEN TRUE ELSE FALSE END'
    """
    tests = []
    for column in columns:
        if column.inlier_low is not None and column.inlier_high is not None:
            name = f"{quote_name(alias)}.{quote_name(column.name)}" if alias else quote_name(column.name)
            low, high = literal(column.inlier_low), literal(column.inlier_high)
            tests += [f"{name} < {low}", f"{name} > {high}"]
    return f"CASE WHEN {' OR '.join(tests)} THEN TRUE ELSE FALSE END"  # COALESCE takes 1.2 times as long


def unit_condition(layout: Layout, keys: Sequence[str | None], alias: str = "") -> str:
    """Return the SQL that is true for a row of one of these units, and never NULL.

    Args:
        layout: by a key of one column, if there are keys.
        keys: of the units, as texts.

    All keys are one text. DuckDB takes a list of 250 constants five times as long, in each task.

    >>> print(unit_condition(CATALOG.table("items"), ("7", "9", None), "i").replace(chr(1), "|"))
    coalesce("i"."order_id" IN (SELECT TRY_CAST(unnest(string_split('7|9', '|')) AS BIGINT)), false)
    OR "i"."order_id" IS NULL
    """
    if not keys:
        return "false"
    (key,) = layout.cluster_key
    name = f"{quote_name(alias)}.{quote_name(key)}" if alias else quote_name(key)
    type_text = layout.column(key).type
    values = [each for each in keys if each is not None]
    between = next(mark for mark in map(chr, range(1, 0xD800)) if not any(mark in each for each in values))
    split = f"string_split({quote_text(between.join(values))}, {quote_text(between)})"
    listed = f"SELECT TRY_CAST(unnest({split}) AS {type_text})"
    tests = [f"coalesce({name} IN ({listed}), false)"] if values else []
    return "\nOR ".join([*tests, *([f"{name} IS NULL"] if None in keys else [])])


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
    while count < len(partitions) and rows < SAMPLE_ROWS:
        rows, count = rows + partitions[count].row_count, count + 1
    blocks = max(1, min(BLOCK_COUNT, round(BLOCK_COUNT * SAMPLE_ROWS / max(rows, 1))))
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


Indexed = tuple[tuple[Column, ...], Partition | None]
"""Columns, with the ends of those that are in an outlier index, and the index; None where there is none."""


def outlier_index(
    cursor: Cursor, target: Writing, columns: tuple[Column, ...], partitions: Sequence[Partition]
) -> Indexed:
    """Return the columns and the outlier index of written partitions.

    The ends come from a sample. If they let through more rows than an index may have, there is none.
    """
    columns = with_inliers(cursor, target.files_of, columns, partitions)
    if not any(column.has_outliers for column in columns):
        return columns, None
    rows = sum(partition.row_count for partition in partitions)
    index = written_outliers(cursor, target, columns, target.files_of(partitions))
    if index is None or index.row_count > MOST_SHARE * rows:
        return without_index(columns), None
    return columns, index


def written_outliers(
    cursor: Cursor, target: Writing, columns: Sequence[Column], files: Sequence[Path]
) -> Partition | None:
    """Write the outliers among the rows of some files. Return None where there are none."""
    rows_sql = f"SELECT * FROM {parquet_rows(files)} WHERE {outlier_condition(columns)}"
    return _settled_rows(cursor, target, "outliers.parquet", rows_sql)


def _settled_rows(
    cursor: Cursor, target: Writing, name: str, sql: str, unit_count: int | None = None
) -> Partition | None:
    """Write the rows of a SELECT. None: there are none. unit_count: theirs, by default a unit a row."""
    file = target.parts / name
    copy_to_parquet(cursor, sql, file)
    ((rows,),) = cursor.rows(f"SELECT count(*) FROM read_parquet({quote_text(str(file))})")
    if rows:
        return settled(cursor, target, file, int(rows), rows if unit_count is None else unit_count)
    file.unlink()
    return None


def without_index(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of a layout that has no outlier index."""
    return tuple(replace(column, inlier_low=None, inlier_high=None) for column in columns)


MOST_UNITS = 256
"""In the index: each query names them."""
"""The largest share of the table's rows in outlier units."""
MOST_ROWS_OF_SMALL = 50_000
MOST_SHARE_OF_SMALL = 0.2
"""Of a small table more rows may be in outlier units: so many, and this share."""
_LEAST_GAIN = 2.0  # by this factor the largest of the other units is smaller than the largest of all
MOST_VALUES = 1_000
"""Of a column whose parts are kept."""
MOST_SUMS = 16
"""Of columns whose sums over units are kept."""
ROWS_AT_ONCE = 8_000_000
"""Of partitions whose units are counted in one statement."""
_UNITS = f"{RESERVED_PREFIX}units"
_HELD = f"{RESERVED_PREFIX}rows_of_units"
_NESTED = ("STRUCT", "MAP", "UNION", "VARIANT", "GEOMETRY")
_KEY_TYPES = ("VARCHAR", "DATE", "TIMESTAMP", "UUID", "BOOLEAN")
_LONGEST_KEY = 200  # characters
_ROUNDING = 1e-9


def with_outlier_units(cursor: Cursor, target: Writing, layout: Layout) -> Layout:
    """Return a layout with its outlier units, and what is known of the others. Its partitions are written.

    Args:
        layout: sampled, by rows or by a cluster key.
    """
    if not layout.cluster_key or layout.max_unit_rows <= FEW_UNIT_ROWS:
        return layout
    table = _UnitCounter(cursor, target.files_of, layout)
    keys = table.outlier_keys()
    table = replace(table, is_outlier=unit_condition(layout, keys))
    counted = table.counted()
    counts, block_rows = table.outlier_rows() if keys else table.no_outlier_rows()
    rows = _written(table, target, sum(counts)) if keys else None
    columns = tuple(
        replace(each, most_unit_rows=counted.parts_of_all.get(each.name)) for each in layout.columns
    )
    others = OtherUnits(
        max_unit_rows=counted.max_unit_rows,
        typical_unit_rows=counted.typical_unit_rows,
        unit_kurtosis_rows=counted.kurtosis_of_others,
        columns=counted.columns,
        outlier_counts=counts,
        outlier_block_rows=block_rows,
    )
    return replace(
        layout,
        columns=columns,
        unit_kurtosis_rows=counted.kurtosis_of_all,
        outlier_units=OutlierUnits(keys, rows, others),
    )


def faults_of_units(cursor: Cursor, layout: Layout, known: OutlierUnits) -> Iterator[str]:
    """Yield what a layout says of its units and does not hold, in words. Its files are as they were written.

    Args:
        layout: by a cluster key.
    """
    others = known.others
    table = _UnitCounter(
        cursor,
        lambda partitions: [layout.directory / file.file for each in partitions for file in each.files],
        layout,
        unit_condition(layout, known.keys),
    )
    parts = {each.column: each.most_unit_rows for each in others.columns if each.most_unit_rows is not None}
    sums = {each.column: each for each in others.columns if each.middle is not None}
    middles = np.array([each.middle for each in sums.values()], dtype=float)
    found = table.measured(parts, [layout.column(name) for name in sums], middles)
    counts, block_rows = table.outlier_rows() if known.keys else table.no_outlier_rows()
    if (counts, block_rows) != (others.outlier_counts, others.outlier_block_rows):
        yield "outlier units have other rows in the blocks of partitions than recorded"
    yield from _other_sizes(found.all_units, None, layout.typical_unit_rows, layout.unit_kurtosis_rows)
    sizes = others.max_unit_rows, others.typical_unit_rows, others.unit_kurtosis_rows
    yield from _other_sizes(found.others, *sizes)
    of_outliers = dict(table.parts_of_outliers(list(parts)))
    for name, most in parts.items():
        most_of_all = layout.column(name).most_unit_rows
        if found.parts[name] > most or max(found.parts[name], of_outliers[name]) > (most_of_all or np.inf):
            yield f"units have more rows with one value of {name} than recorded"
    for (name, bound), amounts in zip(sums.items(), found.sums, strict=True):
        of_all = (bound.above_of_all, bound.below_of_all, bound.squares_of_all)
        recorded = [np.inf if each is None else each for each in of_all]
        bounds = np.array([[bound.above, bound.below, bound.squares], recorded])
        if (amounts > bounds * (1.0 + _ROUNDING)).any():
            yield f"units have values of {name} that sum to more than recorded"


def _other_sizes(
    found: _Moments, most: int | None, typical: float | None, kurtosis: float | None
) -> Iterator[str]:
    """Yield what is recorded of the sizes of units and differs from what was found. None: nothing is."""
    of = "units that are no outliers" if most is not None else "all units"
    recorded = {"largest": most, "typical": typical, "unlike": kurtosis}
    counted = {"largest": found.most, "typical": found.typical, "unlike": found.kurtosis}
    for name, value in recorded.items():
        if value is not None and not math.isclose(value, counted[name], rel_tol=_ROUNDING):
            yield f"of {of} the {name} size is {counted[name]:,.6g}, and recorded {value:,.6g}"


def _written(table: _UnitCounter, target: Writing, unit_count: int) -> Partition | None:
    """Write the rows of the outlier units that are not in the outlier index of rows."""
    layout, condition = table.layout, table.is_outlier
    if layout.outliers is not None:
        condition = f"({condition}) AND NOT {outlier_condition(layout.columns)}"
    rows_sql = f"SELECT * FROM {table.rows_sql(layout.partitions)} WHERE {condition}"
    return _settled_rows(table.cursor, target, "outlier-units.parquet", rows_sql, unit_count)


def portions(partitions: Sequence[Partition], rows_at_once: int) -> Iterator[list[Partition]]:
    """Yield the partitions in order, in lists that have about so many rows."""
    portion: list[Partition] = []
    for partition in partitions:
        portion.append(partition)
        if sum(each.row_count for each in portion) >= rows_at_once:
            yield portion
            portion = []
    if portion:
        yield portion


def _has_parts(column: Column, layout: Layout) -> bool:
    nested = column.type.startswith(_NESTED) or column.type.endswith("]")
    return 0 < column.distinct_count <= MOST_VALUES and not nested and column.name not in layout.cluster_key


def _is_summed(column: Column, layout: Layout) -> bool:
    ends = (column.minimum, column.maximum)
    are_known = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
    return is_number(column.type) and are_known and column.name not in layout.cluster_key


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """A layout by a key whose units are looked into.

    Attributes:
        layout: of the table, with all of its partitions written.
    """

    cursor: Cursor
    files_of: Callable[[Sequence[Partition]], Sequence[Path]]
    layout: Layout

    @property
    def key(self) -> list[str]:
        return [quote_name(name) for name in self.layout.cluster_key]

    def rows_sql(self, partitions: Sequence[Partition]) -> str:
        return parquet_rows(self.files_of(partitions))


@dataclass(frozen=True, slots=True)
class _Counted:
    """What was counted of the units.

    kurtosis_of_all: see `Layout`, and so the two others. parts_of_all: the rows of the largest part of each
    column, in any unit.
    """

    kurtosis_of_all: float
    kurtosis_of_others: float
    max_unit_rows: int
    typical_unit_rows: float
    parts_of_all: dict[str, int]
    columns: tuple[UnitColumn, ...]


@dataclass(slots=True)
class _Moments:
    """Sums over units of their rows m: of 1, m, m² and m⁴; and the largest."""

    rows: float = 0.0
    squares: float = 0.0
    fourths: float = 0.0
    most: float = 1.0

    def add(self, rows: float, squares: float, fourths: float, most: float) -> None:
        self.rows, self.squares, self.fourths = (
            self.rows + rows,
            self.squares + squares,
            self.fourths + fourths,
        )
        self.most = max(self.most, most)

    @property
    def kurtosis(self) -> float:
        return self.rows * self.fourths / max(self.squares**2, 1.0)

    @property
    def typical(self) -> float:
        return self.squares / max(self.rows, 1.0)


@dataclass(frozen=True, slots=True)
class _Measured:
    """What units come to, all of them and those that are no outliers.

    sums: of these, the most that columns sum to, shape (columns, 2, 3): above and below the middle, and
        squares; without the values in the outlier index of rows, then with them.
    parts: of these, the rows of the largest part of each column.
    """

    all_units: _Moments
    others: _Moments
    sums: FloatArray
    parts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _UnitCounter(KeyedTable):
    """A table whose units' rows are counted. is_outlier: the SQL that is true for rows of outlier units."""

    is_outlier: str = "false"

    def outlier_keys(self) -> tuple[str | None, ...]:
        """Return the keys of the units that are outliers, none where they would not help."""
        if len(self.key) > 1 or not self._has_simple_key():
            return ()
        (key,) = self.key
        largest: list[tuple[int, str | None]] = []
        for partitions in portions(self.layout.partitions, ROWS_AT_ONCE):
            largest += self.cursor.rows(
                f"SELECT count(*) AS unit_rows, {key}::VARCHAR AS key FROM {self.rows_sql(partitions)} "
                f"GROUP BY {key} ORDER BY unit_rows DESC, key LIMIT {MOST_UNITS + 1}"
            )
        largest.sort(key=lambda unit: (-unit[0], unit[1] or ""))
        return self._chosen(largest)

    def _has_simple_key(self) -> bool:
        type_text = self.layout.column(self.layout.cluster_key[0]).type
        return type_text in _KEY_TYPES or (is_number(type_text) and type_text not in ("FLOAT", "DOUBLE"))

    def _chosen(self, largest: Sequence[tuple[int, str | None]]) -> tuple[str | None, ...]:
        """Return the keys of the largest units that there is room for, given as (rows, key)."""
        rows = self.layout.row_count
        room = max(MOST_SHARE * rows, min(MOST_ROWS_OF_SMALL, MOST_SHARE_OF_SMALL * rows))
        together = np.cumsum([count for count, _ in largest])
        count = min(int((together <= room).sum()), MOST_UNITS, len(largest) - 1)
        keys = [key for _, key in largest[:count]]
        if any(key is not None and (len(key) > _LONGEST_KEY or "\0" in key) for key in keys):
            return ()
        return tuple(keys) if count and largest[count][0] * _LEAST_GAIN <= largest[0][0] else ()

    def counted(self) -> _Counted:
        """Return what all units have, and what those have that are no outliers."""
        layout = self.layout
        names = [column.name for column in layout.columns if _has_parts(column, layout)]
        summed = [column for column in layout.columns if _is_summed(column, layout)][:MOST_SUMS]
        middles = self._middles(summed)
        found = self.measured(self._most_in_sample(names), summed, middles)
        others, parts = found.others, found.parts
        return _Counted(
            kurtosis_of_all=found.all_units.kurtosis,
            kurtosis_of_others=others.kurtosis,
            max_unit_rows=int(others.most),
            typical_unit_rows=others.typical,
            parts_of_all={name: max(parts[name], most) for name, most in self.parts_of_outliers(names)},
            columns=_unit_columns(layout, parts, summed, middles, found.sums, others.most),
        )

    def measured(
        self, least_parts: Mapping[str, int], summed: Sequence[Column], middles: FloatArray
    ) -> _Measured:
        """Return what the units come to.

        Args:
            least_parts: of columns, rows that the largest part has at least. Smaller ones are not looked at.
            summed: columns whose distances from their middles are summed.
            middles: of these columns.
        """
        of_all, of_others, sums = _Moments(), _Moments(), np.zeros((len(summed), 2, 3))
        parts = dict(least_parts)
        for partitions in portions(self.layout.partitions, ROWS_AT_ONCE):
            self._make_units(partitions, summed, middles)
            for is_outlier, moments, found in self._sums_of_units(summed):
                of_all.add(*moments)
                if not is_outlier:
                    of_others.add(*moments)
                    sums = np.maximum(sums, found)
            parts = self._most_with(parts, partitions)
        return _Measured(of_all, of_others, sums, parts)

    def _middles(self, columns: Sequence[Column]) -> FloatArray:
        """Return about the mean of each column, NaN where there is none, from the first partitions."""
        if not columns:
            return np.zeros(0)
        values = ", ".join(f"avg({_double(column)}) {_among_inliers(column)}" for column in columns)
        ((*means,),) = self.cursor.rows(f"SELECT {values} FROM {self._sample_sql}")
        return np.array([np.nan if mean is None else float(f"{mean:.6g}") for mean in means])

    @property
    def _sample_sql(self) -> str:
        count, blocks = size_of_sample(self.layout.partitions, SAMPLE_ROWS)
        return f"{self.rows_sql(self.layout.partitions[:count])} WHERE {BLOCK_COLUMN} < {blocks}"

    def _most_in_sample(self, names: Sequence[str]) -> dict[str, int]:
        """Return the rows of the largest part of each column in a sample of units that are no outliers."""
        rows = f"{self._sample_sql} AND NOT ({self.is_outlier})"
        return {name: self._most(rows, self.key, name) for name in names}

    def _make_units(
        self, partitions: Sequence[Partition], summed: Sequence[Column], middles: FloatArray
    ) -> None:
        """Make the table of the units in some partitions, with what they have and sum to."""
        keys = [f"{name} AS key_{i}" for i, name in enumerate(self.key)]
        sums = []
        for i, (column, middle) in enumerate(zip(summed, middles, strict=True)):
            away = f"({_double(column)} - {literal(float(np.nan_to_num(middle)))})"
            for among, name in dict.fromkeys(
                [(_among_inliers(column), str(i)), ("", _name_of_all(column, i))]
            ):
                sums += [
                    f"coalesce(sum(greatest({away}, 0)) {among}, 0) AS above_{name}",
                    f"coalesce(sum(greatest(-{away}, 0)) {among}, 0) AS below_{name}",
                    f"coalesce(sum({away} ** 2) {among}, 0) AS squares_{name}",
                ]
        select = ", ".join(
            [*keys, f"bool_or({self.is_outlier}) AS is_outlier", "count(*) AS unit_rows", *sums]
        )
        self.cursor.run(
            f"CREATE OR REPLACE TEMP TABLE {_UNITS} AS SELECT {select} "
            f"FROM {self.rows_sql(partitions)} GROUP BY {', '.join(self.key)}"
        )

    def _sums_of_units(
        self, summed: Sequence[Column]
    ) -> Iterator[tuple[bool, tuple[float, ...], FloatArray]]:
        """Yield of outliers, and of others, sums of powers of rows, and the most that columns sum to.

        The latter are as `_Measured.sums` has them.
        """
        names = [name for i, column in enumerate(summed) for name in (str(i), _name_of_all(column, i))]
        most = [f"max({side}_{name})" for name in names for side in ("above", "below", "squares")]
        powers = [f"sum(unit_rows::DOUBLE ** {power})" for power in (1, 2, 4)]
        select = ", ".join(["is_outlier", *powers, "max(unit_rows)::DOUBLE", *most])
        for is_outlier, *found in self.cursor.rows(f"SELECT {select} FROM {_UNITS} GROUP BY is_outlier"):
            yield is_outlier, tuple(found[:4]), np.array(found[4:], dtype=float).reshape(-1, 2, 3)

    def _most_with(self, most: dict[str, int], partitions: Sequence[Partition]) -> dict[str, int]:
        """Return the rows of the largest part of each column, in these partitions or the ones before.

        It reads the units that `_make_units` found, and drops their table.
        """
        above = min(most.values(), default=self.layout.max_unit_rows)
        self.cursor.run(f"DELETE FROM {_UNITS} WHERE is_outlier OR unit_rows <= {above}")
        same = " AND ".join(
            f"whole.{name} IS NOT DISTINCT FROM units.key_{i}" for i, name in enumerate(self.key)
        )
        columns = ", ".join(f"whole.{quote_name(name)} AS part_{i}" for i, name in enumerate(most))
        if columns:
            self.cursor.run(
                f"CREATE OR REPLACE TEMP TABLE {_HELD} AS SELECT units.rowid AS unit, unit_rows, {columns} "
                f"FROM {self.rows_sql(partitions)} AS whole JOIN {_UNITS} AS units ON {same}"
            )
        found = {
            name: max(known, self._most(f"{_HELD} WHERE unit_rows > {known}", ["unit"], f"part_{i}"))
            for i, (name, known) in enumerate(most.items())
        }
        self.cursor.run(f"DROP TABLE IF EXISTS {_HELD}")
        self.cursor.run(f"DROP TABLE {_UNITS}")
        return found

    def parts_of_outliers(self, names: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield the rows of the largest part of each column in outlier units."""
        rows = f"{self.rows_sql(self.layout.partitions)} WHERE {self.is_outlier}"
        for name in names:
            yield name, 1 if self.is_outlier == "false" else self._most(rows, self.key, name)

    def _most(self, rows: str, key: Sequence[str], name: str) -> int:
        """Return the most rows that have one key and one value, 1 where there are none."""
        ((most,),) = self.cursor.rows(
            f"SELECT max(part_rows) FROM (SELECT count(*) AS part_rows FROM {rows} "
            f"GROUP BY {', '.join(key)}, {quote_name(name)})"
        )
        return int(most or 1)

    def outlier_rows(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Return how many outlier units each partition has, and their rows in each of its blocks."""
        count = len(self.layout.partitions)
        rows = f"{self.rows_sql(self.layout.partitions)} WHERE {self.is_outlier}"
        (key,) = self.key
        units = self.cursor.table(f"SELECT file_index AS file, {key} FROM {rows} GROUP BY ALL")
        blocks = self.cursor.table(
            f"SELECT file_index AS file, {BLOCK_COLUMN} AS block, count(*) AS n FROM {rows} GROUP BY ALL"
        )
        of_file = np.repeat(np.arange(count), [len(each.files) for each in self.layout.partitions])
        found = np.zeros((count, BLOCK_COUNT), dtype=np.int64)
        file, block, number = (doubles(column).astype(np.int64) for column in blocks.columns)
        np.add.at(found, (of_file[file], block), number)
        counts = np.bincount(of_file[doubles(units.column("file")).astype(np.int64)], minlength=count)
        return tuple(counts.tolist()), tuple(map(tuple, found.tolist()))

    def no_outlier_rows(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        count = len(self.layout.partitions)
        return (0,) * count, ((0,) * BLOCK_COUNT,) * count


def _unit_columns(
    layout: Layout,
    parts: Mapping[str, int],
    summed: Sequence[Column],
    middles: FloatArray,
    sums: FloatArray,
    most_rows: float,
) -> tuple[UnitColumn, ...]:
    """Return what is known of the columns in units that are no outliers. Sums of floats are rounded up."""
    found = {name: UnitColumn(name, most_unit_rows=most) for name, most in parts.items()}
    for column, middle, of_column in zip(summed, middles, sums, strict=True):
        if np.isnan(middle) or not np.isfinite(of_column).all():
            continue
        size = max(abs(float(column.minimum or 0)), abs(float(column.maximum or 0)))
        rounding = 1e-15 * size * most_rows + _ROUNDING * of_column[:, :2].sum(axis=1, keepdims=True)
        ends = of_column[:, :2] + rounding
        squares = of_column[:, 2] * (1.0 + _ROUNDING) + rounding[:, 0] ** 2
        (above, below), (above_of_all, below_of_all) = ends.tolist()
        found[column.name] = UnitColumn(
            column.name,
            parts.get(column.name),
            float(middle),
            *(above, below, float(squares[0])),
            *(above_of_all, below_of_all, float(squares[1])),
        )
    return tuple(found.values())


def _name_of_all(column: Column, place: int) -> str:
    """Return the name of sums over all rows, which are those of other rows where there are no outliers."""
    return f"{place}_of_all" if column.has_outliers else str(place)


def _double(column: Column) -> str:
    return f"{quote_name(column.name)}::DOUBLE"


def _among_inliers(column: Column) -> str:
    """Return the FILTER that leaves out the values that a query reads from the outlier index of rows."""
    if column.inlier_low is None or column.inlier_high is None:
        return ""
    low, high = literal(column.inlier_low), literal(column.inlier_high)
    return f"FILTER ({quote_name(column.name)} BETWEEN {low} AND {high})"
