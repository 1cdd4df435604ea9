"""How many rows a sampling unit has, and how many of them agree in a column, where units are cluster keys.

    SELECT country, count(*) FROM events GROUP BY country   -- laid out by user

A user who was not read yet may add all of their events to one country, and the largest has a thousand. So the
sample cannot tell how far a count may still move: a calm one is a sample without that user. The number is
found when the table is laid out. A *part* of a unit is its rows with one value of a column:

    most part of `country`  =  1,000    a user has one country
    most part of `day`      =     40    no user has more events on a day

Parts bound what a unit adds to one group (`rewrite/method.py`). They are kept of columns with few values,
since other groups hardly ever have enough rows.

**How they are found.** The largest part in a sample is a lower bound. Only a unit with more rows than that
can have a larger one, and where sizes are unlike such units are few. Their rows alone are counted by value.

Appending rows drops the parts: a unit may have grown. Compacting finds them again.

The decision: docs/decisions/0097-units-of-unlike-size.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relaqs_engine.duck import Cursor, parquet_rows, quote_name
from relaqs_engine.layouts.distinct import size_of_sample
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, FEW_UNIT_ROWS, Column, Layout, Partition
from relaqs_engine.layouts.sources import RESERVED_PREFIX

MOST_VALUES = 1_000
"""Of a column whose parts are kept."""
SAMPLE_ROWS = 200_000
ROWS_AT_ONCE = 8_000_000
"""Of partitions whose units are counted in one statement."""
_UNITS = f"{RESERVED_PREFIX}units"
_HELD = f"{RESERVED_PREFIX}rows_of_units"
_NESTED = ("STRUCT", "MAP", "UNION", "VARIANT", "GEOMETRY")


def with_unit_parts(
    cursor: Cursor, files_of: Callable[[Sequence[Partition]], Sequence[Path]], layout: Layout
) -> Layout:
    """Return a layout with what is known of its units' rows. Its partitions are written.

    Args:
        cursor: of a database that may read the files.
        files_of: gives the files of partitions.
        layout: sampled, by rows or by a cluster key.
    """
    if not layout.cluster_key or layout.max_unit_rows <= FEW_UNIT_ROWS:
        return layout
    table = _UnitCounter(cursor, files_of, layout)
    names = [column.name for column in layout.columns if _has_parts(column, layout)]
    most = table.most_in_sample(names)
    squares = fourths = 0.0
    for partitions in portions(layout.partitions, ROWS_AT_ONCE):
        more = table.count_units(partitions, min(most.values(), default=layout.max_unit_rows))
        squares, fourths = squares + more[0], fourths + more[1]
        most = table.most_with(most, partitions)
    kurtosis = layout.row_count * fourths / max(squares**2, 1.0)
    columns = tuple(replace(each, most_unit_rows=most.get(each.name)) for each in layout.columns)
    return replace(layout, columns=columns, unit_kurtosis_rows=kurtosis)


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
class _UnitCounter(KeyedTable):
    """A table whose units' rows are counted."""

    def most_in_sample(self, names: Sequence[str]) -> dict[str, int]:
        """Return the rows of the largest part of each column in a sample of units."""
        count, blocks = size_of_sample(self.layout.partitions, SAMPLE_ROWS)
        rows = f"{self.rows_sql(self.layout.partitions[:count])} WHERE {BLOCK_COLUMN} < {blocks}"
        return {name: self._most(rows, self.key, name) for name in names}

    def count_units(self, partitions: Sequence[Partition], above: int) -> tuple[float, float]:
        """Make the table of the units with more rows than that.

        Return the sum of the squares of all units' rows, and that of the fourth powers.
        """
        keys = ", ".join(f"{name} AS key_{i}" for i, name in enumerate(self.key))
        self.cursor.run(
            f"CREATE OR REPLACE TEMP TABLE {_UNITS} AS SELECT {keys}, count(*) AS unit_rows "
            f"FROM {self.rows_sql(partitions)} GROUP BY {', '.join(self.key)}"
        )
        ((squares, fourths),) = self.cursor.rows(
            f"SELECT sum(unit_rows::DOUBLE ** 2), sum(unit_rows::DOUBLE ** 4) FROM {_UNITS}"
        )
        self.cursor.run(f"DELETE FROM {_UNITS} WHERE unit_rows <= {above}")
        return squares or 0.0, fourths or 0.0

    def most_with(self, most: dict[str, int], partitions: Sequence[Partition]) -> dict[str, int]:
        """Return the rows of the largest part of each column, in these partitions or the ones before.

        It reads the units that `count_units` found, and drops their table.
        """
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

    def _most(self, rows: str, key: Sequence[str], name: str) -> int:
        """Return the most rows that have one key and one value, 1 where there are none."""
        ((most,),) = self.cursor.rows(
            f"SELECT max(part_rows) FROM (SELECT count(*) AS part_rows FROM {rows} "
            f"GROUP BY {', '.join(key)}, {quote_name(name)})"
        )
        return int(most or 1)
