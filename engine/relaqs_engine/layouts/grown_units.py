"""The sampling units of a table once rows were added, where units are cluster keys.

A new row may belong to a unit that is there. So the key's columns of the old rows are read, but only units
that got new rows are counted. The largest unit certifies intervals, and is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.duck import Cursor, parquet_rows
from relaqs_engine.layouts.assignment import Assignment, key_unit
from relaqs_engine.layouts.intact import check_intact
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.sources import RESERVED_PREFIX

_FRESH = f"{RESERVED_PREFIX}fresh"
_HELD = f"{RESERVED_PREFIX}held"


@dataclass(frozen=True, slots=True)
class GrownUnits:
    """What new rows do to a table's units.

    Attributes:
        new_units: how many units each partition has that it did not have before.
        largest: the rows of the largest unit that got new rows.
        more_squared_rows: by how much the sum of each unit's rows squared grew.
    """

    new_units: tuple[int, ...]
    largest: int
    more_squared_rows: float

    @classmethod
    def rows(cls, new_rows: Sequence[int]) -> GrownUnits:
        """Return what new rows of each partition do where the unit is a row."""
        return cls(tuple(new_rows), 1, float(sum(new_rows)))

    def typical_rows(self, held: Layout, row_count: int) -> float:
        """Return the rows of the unit that a row belongs to, on average, of a table that now has so many."""
        if held.typical_unit_rows == 1.0 < held.max_unit_rows:
            return 1.0  # the layout does not say
        return (held.typical_unit_rows * held.row_count + self.more_squared_rows) / row_count


def grown_units(cursor: Cursor, held: Layout, new_files: Sequence[Path]) -> GrownUnits:
    """Return what new rows do to the units of a clustered table.

    Args:
        cursor: of DuckDB.
        held: the table without them.
        new_files: those of the new rows.
    """
    names_of_columns = [column.name for column in held.columns]
    check_intact(held.directory, held.files, map(names_of_columns.index, held.cluster_key))
    unit = key_unit([(name, held.column(name).type) for name in held.cluster_key])
    assignment = Assignment(unit, held.seed, len(held.partitions))
    names = [f"k{i}" for i in range(len(unit))]
    key = ", ".join(f"{sql} AS {name}" for sql, name in zip(unit, names, strict=True))
    same = " AND ".join(f"fresh.{name} IS NOT DISTINCT FROM held.{name}" for name in names)
    part = assignment.partition(assignment.unit_hash)
    cursor.run(
        f"CREATE OR REPLACE TEMP TABLE {_FRESH} AS "
        f"SELECT {key}, any_value({part}) AS part, count(*) AS added "
        f"FROM {parquet_rows(new_files)} GROUP BY ALL"
    )
    cursor.run(
        f"CREATE OR REPLACE TEMP TABLE {_HELD} AS SELECT held.*, count(*) AS had "
        f"FROM (SELECT {key} FROM {parquet_rows(held.paths)}) AS held "
        f"SEMI JOIN {_FRESH} AS fresh ON {same} GROUP BY ALL"
    )
    found = cursor.rows(
        "SELECT part, count(*) FILTER (had IS NULL), max(added + coalesce(had, 0)), "
        "sum(added::DOUBLE * added + 2.0 * added * coalesce(had, 0)) "
        f"FROM {_FRESH} AS fresh LEFT JOIN {_HELD} AS held ON {same} GROUP BY part"
    )
    for table in (_FRESH, _HELD):
        cursor.run(f"DROP TABLE {table}")
    new_units = {part: count for part, count, _, _ in found}
    return GrownUnits(
        tuple(new_units.get(i, 0) for i in range(len(held.partitions))),
        max((largest for _, _, largest, _ in found), default=1),
        sum(squared for *_, squared in found),
    )
