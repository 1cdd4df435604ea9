"""Writing the index of heavy units of a layout, and its rows of the heavy units of other tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.duck import Cursor, parquet_rows, quote_name, quote_text
from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts.distinct import size_of_sample
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.heavy_units import (
    FEWEST_ROWS,
    MOST_SHARE,
    UnitTotals,
    chosen_totals,
    first_bounds,
    summed_columns,
)
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    MANIFEST_NAME,
    Companion,
    HeavyUnits,
    Layout,
    Partition,
    UnitBound,
)
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.outlier_units import ROWS_AT_ONCE, KeyedTable, portions
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.sources import RESERVED_PREFIX

SAMPLE_ROWS = 200_000
_FOUND = f"{RESERVED_PREFIX}heavy"
_KEYS = f"{RESERVED_PREFIX}heavy_keys"
_ROWS = ""  # the name of the total that is a number of rows


@dataclass(frozen=True, slots=True)
class _Table(KeyedTable):
    """The partitions that an index is made of."""

    def totals(self, names: Sequence[str], partitions: Sequence[Partition], where: str) -> UnitTotals:
        """Return what the units in some partitions sum to."""
        values = ", ".join(["count(*)", *map(_sum_of, names)])
        found = self.cursor.table(
            f"SELECT {values} FROM {self.rows_sql(partitions)} WHERE {where} GROUP BY {', '.join(self.key)}"
        )
        return _unit_totals(found)


def with_heavy_units(cursor: Cursor, target: Writing, layout: Layout) -> Layout:
    """Return a layout with its heavy units and those of the tables beside it. Its partitions are written."""
    made = replace(layout, heavy=heavy_units(cursor, target, layout))
    return replace(made, companions=companions(cursor, target, made))


def heavy_units(cursor: Cursor, target: Writing, layout: Layout) -> HeavyUnits | None:
    """Write the index of heavy units of a layout whose partitions are written.

    Return None where units are single rows, where no column can be summed, and where no unit stands out.
    """
    if not layout.cluster_key or layout.max_unit_rows < 2 or layout.row_count < FEWEST_ROWS:
        return None
    table = _Table(cursor, target.files_of, layout)
    names = [_ROWS, *(column.name for column in summed_columns(layout.columns, layout.cluster_key))]
    count, blocks = size_of_sample(layout.partitions, SAMPLE_ROWS)
    sample = table.totals(names, layout.partitions[:count], f"{BLOCK_COLUMN} < {blocks}")
    chosen = chosen_totals(sample) if len(sample.rows) else []
    if not chosen:
        return None
    names = [names[i] for i in chosen]
    bounds = _collect(table, names, first_bounds(UnitTotals(sample.rows, sample.totals[:, chosen])))
    condition = _any_above([f"total_{i}" for i in range(len(names))], bounds)
    keys = ", ".join(f"key_{i} AS {name}" for i, name in enumerate(table.key))
    index = _rows_of(table, f"SELECT {keys} FROM {_FOUND} WHERE {condition}", target.parts / "heavy.parquet")
    cursor.run(f"DROP TABLE {_FOUND}")
    if index is None:
        return None
    return HeavyUnits(tuple(map(UnitBound, names, map(float, bounds))), settled(cursor, target, *index))


def companions(cursor: Cursor, target: Writing, layout: Layout) -> tuple[Companion, ...]:
    """Write the layout's rows of the heavy units of the tables beside it that are laid out alike."""
    found = []
    for position, other in enumerate(_tables_alike(target, layout)):
        assert other.heavy is not None
        mine = [quote_name(name) for name in layout.cluster_key]
        theirs = [quote_name(name) for name in other.cluster_key]
        paths = [other.directory / each.file for each in other.heavy.index.files]
        keys = ", ".join(f"{name} AS {my}" for name, my in zip(theirs, mine, strict=True))
        table = _Table(cursor, target.files_of, layout)
        with suppress(OSError, RelaqsError):  # the other table may be replaced just now
            select = f"SELECT DISTINCT {keys} FROM {parquet_rows(paths)}"
            rows = _rows_of(table, select, target.parts / f"companion-{position}.parquet")
            if rows is not None:
                found.append(Companion(other.heavy.name, settled(cursor, target, *rows)))
    return tuple(found)


def _tables_alike(target: Writing, layout: Layout) -> Iterator[Layout]:
    """Yield the layouts beside this one that are co-clustered with it and have heavy units."""
    for path in sorted(target.directory.parent.glob(f"*/{MANIFEST_NAME}")):
        with suppress(RelaqsError):
            other = read_manifest(path.parent)
            if other.table != layout.table and other.heavy is not None and other.is_co_clustered_with(layout):
                yield other


def _collect(table: _Table, names: Sequence[str], bounds: FloatArray) -> FloatArray:
    """Make the table of all units above one of the bounds. Return the bounds, or higher ones if need be."""
    cursor, key = table.cursor, table.key
    totals = [_sum_of(name) for name in names]
    keys = [f"{name} AS key_{i}" for i, name in enumerate(key)]
    values = [f"{total} AS total_{i}" for i, total in enumerate(totals)]
    select = ", ".join([*keys, "count(*) AS unit_rows", *values])
    made = f"CREATE OR REPLACE TEMP TABLE {_FOUND} AS"
    for partitions in portions(table.layout.partitions, ROWS_AT_ONCE):
        cursor.run(
            f"{made} SELECT {select} FROM {table.rows_sql(partitions)} GROUP BY {', '.join(key)} "
            f"HAVING {_any_above(totals, bounds)}"
        )
        made = f"INSERT INTO {_FOUND}"
    columns = ["unit_rows", *(f"total_{i}" for i in range(len(names)))]
    found = cursor.table(f"SELECT {', '.join(columns)} FROM {_FOUND}")
    units = _unit_totals(found)
    most = MOST_SHARE * table.layout.row_count
    if units.rows.sum() <= most:
        return bounds
    return np.maximum(bounds, units.bounds_together(most))


def _rows_of(table: _Table, keys: str, file: Path) -> tuple[Path, int, int] | None:
    """Write all rows of the units that a query names. Return the file, its rows and its units."""
    cursor = table.cursor
    cursor.run(f"CREATE OR REPLACE TEMP TABLE {_KEYS} AS {keys}")
    same = " AND ".join(f"whole.{name} IS NOT DISTINCT FROM {_KEYS}.{name}" for name in table.key)
    rows = table.rows_sql(table.layout.partitions)
    copy_to_parquet(
        cursor,
        f"SELECT whole.* FROM {rows} AS whole SEMI JOIN {_KEYS} ON {same} "
        "ORDER BY file_index, file_row_number",
        file,
    )
    cursor.run(f"DROP TABLE {_KEYS}")
    units = ", ".join(table.key)
    ((row_count, unit_count),) = cursor.rows(
        f"SELECT count(*), count(DISTINCT ({units})) FROM read_parquet({quote_text(str(file))})"
    )
    if row_count:
        return file, int(row_count), int(unit_count)
    file.unlink()
    return None


def _unit_totals(found: pa.Table) -> UnitTotals:
    """Return the totals of units. The first column is their number of rows."""
    rows, *totals = (doubles(column, null=0.0) for column in found.columns)
    return UnitTotals(rows, np.stack(totals, axis=1))


def _sum_of(name: str) -> str:
    return "count(*)::DOUBLE" if name == _ROWS else f"sum({quote_name(name)})::DOUBLE"


def any_above(bounds: Sequence[UnitBound], times: float = 1.0) -> str:
    """Return the SQL that is true for a group of rows with a sum above one of the bounds."""
    return _any_above([_sum_of(bound.column) for bound in bounds], [bound.most * times for bound in bounds])


def _any_above(totals: Sequence[str], bounds: Iterable[float]) -> str:
    return " OR ".join(
        f"{total} > {float(bound)!r}::DOUBLE" for total, bound in zip(totals, bounds, strict=True)
    )


def rows_of_units(
    layout: Layout, files: Sequence[Path], units: Sequence[Path], *, are_inside: bool = True
) -> str:
    """Return the SQL of the rows in some files whose units are, or are not, in other files of the layout."""
    key = [quote_name(name) for name in layout.cluster_key]
    same = " AND ".join(f"whole.{name} IS NOT DISTINCT FROM units.{name}" for name in key)
    found = f"(SELECT DISTINCT {', '.join(key)} FROM {parquet_rows(units)})"
    join = "SEMI" if are_inside else "ANTI"
    return f"SELECT whole.* FROM {parquet_rows(files)} AS whole {join} JOIN {found} AS units ON {same}"
