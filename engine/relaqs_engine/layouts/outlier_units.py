"""What sampling units have and sum to where they are cluster keys, and the few that have most rows.

    SELECT country, count(*), avg(price) FROM events GROUP BY country   -- laid out by user

A user who was not read yet may add all of their events to one country, and the largest has a thousand. So the
sample cannot tell how far a number may still move: a calm one is a sample without that user. Two things
are done about it when the table is laid out.

**Outlier units.** The units with most rows are kept apart, as rows with values far out are
(`layouts/outliers.py`). A query counts them exactly and samples the others. The largest user may have 1,000
events, and the largest of the others 60. At most one row in a hundred is in such a unit, of a small table
20,000 rows or one in ten, and there are 256 of them at most.

**What any other unit has** is measured, over all of them:

    rows                        60      of a unit
    rows with one `country`     60      a user has one country: the *part* of a unit
    rows with one `day`          9      no user has more events on a day
    prices above 40, together  150      the sum of (price − 40) over the rows of a user where it is positive
    prices below 40, together  210      likewise below

Parts bound what a unit adds to a count by group. They are kept of columns with few values, since other groups
hardly ever have enough rows. Distances from a number near the mean bound sums and averages, of any of a
unit's rows: its prices sum to 40 for each row, and to 150 more or 210 less. Most prices are near the mean, so
that is far less than 60 rows times the highest price (`execution/intervals.py`).

**How parts are found.** The largest part in a sample is a lower bound. Only a unit with more rows than that
can have a larger one, and where sizes are unlike such units are few. Their rows alone are counted by value.

Appending rows drops all of it: a unit may have grown. Compacting finds it again.

The decision: docs/decisions/0097-units-of-unlike-size.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.duck import Cursor, parquet_rows, quote_name, quote_text
from relaqs_engine.layouts.distinct import size_of_sample
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    BLOCK_COUNT,
    FEW_UNIT_ROWS,
    Column,
    Layout,
    OtherUnits,
    OutlierUnits,
    Partition,
    UnitColumn,
)
from relaqs_engine.layouts.number_types import is_number
from relaqs_engine.layouts.outliers import literal, outlier_condition, unit_condition
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.sources import RESERVED_PREFIX

MOST_UNITS = 256
"""In the index: each query names them."""
MOST_SHARE = 0.01
"""The largest share of the table's rows in outlier units."""
MOST_ROWS_OF_SMALL = 20_000
MOST_SHARE_OF_SMALL = 0.1
"""Of a small table more rows may be in outlier units: so many, and this share."""
_LEAST_GAIN = 2.0  # by this factor the largest of the other units is smaller than the largest of all
MOST_VALUES = 1_000
"""Of a column whose parts are kept."""
MOST_SUMS = 16
"""Of columns whose sums over units are kept."""
SAMPLE_ROWS = 200_000
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
        cursor: of a database that may read the files.
        target: the write under way.
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
        cursor: of a database that may read the files.
        layout: by a cluster key.
        known: its outlier units.
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
    cursor, layout = table.cursor, table.layout
    condition, file = table.is_outlier, target.parts / "outlier-units.parquet"
    if layout.outliers is not None:
        condition = f"({condition}) AND NOT {outlier_condition(layout.columns)}"
    copy_to_parquet(cursor, f"SELECT * FROM {table.rows_sql(layout.partitions)} WHERE {condition}", file)
    ((rows,),) = cursor.rows(f"SELECT count(*) FROM read_parquet({quote_text(str(file))})")
    if rows:
        return settled(cursor, target, file, int(rows), unit_count=unit_count)
    file.unlink()
    return None


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
        cursor: of a database that may read the files.
        files_of: gives the files of partitions.
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
        units = self.cursor.table(f"SELECT file_index AS part, {key} FROM {rows} GROUP BY ALL")
        blocks = self.cursor.table(
            f"SELECT file_index AS part, {BLOCK_COLUMN} AS block, count(*) AS n FROM {rows} GROUP BY ALL"
        )
        found = np.zeros((count, BLOCK_COUNT), dtype=np.int64)
        part, block, number = (doubles(column).astype(np.int64) for column in blocks.columns)
        found[part, block] = number
        counts = np.bincount(doubles(units.column("part")).astype(np.int64), minlength=count)
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
