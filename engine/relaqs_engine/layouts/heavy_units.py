"""The index of heavy units: a copy of all rows of the few sampling units whose columns sum to most.

    SELECT order_id, sum(price) AS paid FROM items GROUP BY order_id ORDER BY paid DESC LIMIT 10

Where a table is laid out by `order_id`, all items of an order lie in one partition. After a quarter of the
partitions an order is known completely or not at all. Of the ten orders that the answer will have, two or
three were seen, and nothing tells which. No sample of orders can do better.

So the orders with the largest sums are kept apart, with all their items. And a number is kept with them:

    bound of `price`  =  400    no order outside the index sums to more than 400

A query reads the index early. An order in it that sums to more than 400 is ahead of every order that was
not read yet. If ten orders do, they are the answer. A condition on the rows only lowers an order's sum,
because no price is negative, so the bound holds for any query. `price * (1 - discount)` is at most `price`
where the discount lies in [0, 1].

**Which units.** For each column that can be summed, and for the number of rows, the units with the largest
sums. Together they have one row in a hundred at most. Columns that grow together share units, and get more
of them each.

**Which columns.** Numbers that are never negative. Two kinds of these are left out, because nobody sums
them: whole numbers that fill their range and have more than 10,000 values, as ids do, and fractions that
are never above 1, as rates and shares are.

What is ugly. A unit that has more than its share of the table's rows is not in the index. Its column's
bound is then its own sum, and tells nothing.

**Appended rows** join those of their units. A unit outside that got rows is summed anew, over old and new
rows, and comes in where it is past a bound now. Once the index has two rows in a hundred, its bounds are
raised. Companions go, until the tables are compacted.

The decision: docs/decisions/0044-heavy-units.md.

Writing the index also writes a layout's rows of the heavy units of other tables (`Companion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.duck import Cursor, parquet_rows, quote_name, quote_text
from relaqs_engine.errors import RelaqsError
from relaqs_engine.layouts.column_statistics import SAMPLE_ROWS, size_of_sample
from relaqs_engine.layouts.folder import Writing
from relaqs_engine.layouts.manifest import (
    BLOCK_COLUMN,
    FLOATS,
    MANIFEST_NAME,
    WHOLE_NUMBERS,
    Column,
    Companion,
    HeavyUnits,
    Layout,
    Partition,
    UnitBound,
)
from relaqs_engine.layouts.manifest_file import check_intact, read_manifest
from relaqs_engine.layouts.outliers import ROWS_AT_ONCE, KeyedTable, portions
from relaqs_engine.layouts.parquet import copy_to_parquet, settled
from relaqs_engine.layouts.sources import RESERVED_PREFIX

MOST_SHARE = 0.01
"""The largest share of the table's rows in the index, for all columns together. Twice that once it grows."""
FEWEST_ROWS = 20_000
"""A table with fewer rows gets no index, because it is read in a blink."""
MOST_TOTALS = 8
"""Of columns, and of the number of rows."""
_ROUNDS = 6  # of making the shares of totals larger or smaller, until together they are what is allowed
_FEWEST_IDS = 10_000
_DENSE = 0.5  # of a range that has this share of its values, all are taken for ids
_NUMBERS = WHOLE_NUMBERS | FLOATS | {"DECIMAL"}


@dataclass(frozen=True, slots=True)
class UnitTotals:
    """What some sampling units sum to.

    Attributes:
        rows: of each unit, shape (units,).
        totals: of each unit, shape (units, totals).
    """

    rows: FloatArray
    totals: FloatArray

    def bounds(self, budget_rows: float) -> FloatArray:
        """Return for each total the least bound that lets no more than so many rows lie above it.

        >>> UnitTotals(np.array([2.0, 3.0, 5.0]), np.array([[7.0], [9.0], [4.0]])).bounds(4.0)
        array([7.])
        """
        order = np.argsort(-self.totals, axis=0, kind="stable")
        beyond = np.cumsum(self.rows[order], axis=0) > budget_rows
        first = np.where(beyond.any(axis=0), beyond.argmax(axis=0), len(self.rows) - 1)
        at = np.take_along_axis(order, first[None], axis=0)
        return np.asarray(np.take_along_axis(self.totals, at, axis=0)[0])

    def above(self, bounds: FloatArray) -> BoolArray:
        """Return which units are above one of the bounds."""
        return np.asarray((self.totals > bounds).any(axis=1))

    def bounds_together(self, budget_rows: float) -> FloatArray:
        """Return bounds that let no more than so many rows lie above any of them, and nearly so many.

        Each total may have its share of the rows. Where totals are large in the same units, shares grow.
        """
        share = budget_rows / self.totals.shape[1]
        best = self.bounds(share)
        for _ in range(_ROUNDS):
            together = float(self.rows[self.above(self.bounds(share))].sum())
            if together <= budget_rows:
                best = np.minimum(best, self.bounds(share))
            share = min(budget_rows, share * budget_rows / max(together, 1.0))
        return best


def summed_columns(columns: Sequence[Column], cluster_key: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns whose sums over units are worth a bound."""
    return tuple(
        column
        for column in columns
        if column.type.split("(")[0] in _NUMBERS
        and column.name not in cluster_key
        and isinstance(column.minimum, int | float)
        and isinstance(column.maximum, int | float)
        and column.minimum >= 0
        and not _is_id(column, float(column.maximum) - float(column.minimum))
        and (column.type in WHOLE_NUMBERS or float(column.maximum) > 1.0)  # and no rate
    )


def chosen_totals(units: UnitTotals) -> list[int]:
    """Return which totals are to have heavy units: those that a few units hold most of.

    A total that so many units share that none can be told apart has none.
    """
    budget = MOST_SHARE * float(units.rows.sum())
    is_heavy = units.totals > units.bounds(budget)
    sums = np.maximum(units.totals.sum(axis=0), np.finfo(float).tiny)
    held = np.where(is_heavy, units.totals, 0.0).sum(axis=0) / sums
    return sorted(int(i) for i in np.argsort(-held, kind="stable")[:MOST_TOTALS] if held[i] > 0.0)


def first_bounds(units: UnitTotals) -> FloatArray:
    """Return the bounds for the whole table, from a sample of its units."""
    return units.bounds_together(MOST_SHARE * float(units.rows.sum()))


def _is_id(column: Column, width: float) -> bool:
    return column.type in WHOLE_NUMBERS and column.distinct_count > max(_FEWEST_IDS, _DENSE * width)


_FOUND = f"{RESERVED_PREFIX}heavy"
_KEYS = f"{RESERVED_PREFIX}heavy_keys"
_IN_ORDER = [f"{RESERVED_PREFIX}{name}" for name in ("part", "file", "row")]
_ROWS = ""  # the name of the total that is a number of rows


@dataclass(frozen=True, slots=True)
class _Table(KeyedTable):
    """The partitions that an index is made of."""

    @property
    def same(self) -> str:
        """Return the SQL that is true where a row of `whole` is one of the unit of a row of `units`."""
        return " AND ".join(f"whole.{name} IS NOT DISTINCT FROM units.{name}" for name in self.key)

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


def grown_heavy_units(
    cursor: Cursor, target: Writing, held: Layout, made: Layout, new_files: Sequence[Path]
) -> HeavyUnits | None:
    """Write the index of a table with further rows, and return it; None where no bound is left.

    Args:
        held: the table without the new rows, which has an index or none.
        made: the table with them.
        new_files: of the new rows.
    """
    table, names = _Table(cursor, target.files_of, made), [column.name for column in made.columns]
    summed = {_ROWS, *(each.name for each in summed_columns(made.columns, made.cluster_key))}
    bounds = [each for each in held.heavy.bounds if each.column in summed] if held.heavy else []
    if held.heavy is None or not bounds:
        return None
    read = [*made.cluster_key, *(each.column for each in bounds if each.column)]
    check_intact(held.directory, held.heavy.index.files, range(len(names) + 1))
    check_intact(held.directory, held.files, map(names.index, read))
    key, wanted = ", ".join(table.key), ", ".join(dict.fromkeys(map(quote_name, read)))
    index = parquet_rows([held.directory / each.file for each in held.heavy.index.files])
    new, whole = parquet_rows(new_files), table.rows_sql(made.partitions)
    cursor.run(
        f"CREATE OR REPLACE TEMP TABLE {_KEYS} AS SELECT {key} FROM {new} EXCEPT SELECT {key} FROM {index}"
    )
    cursor.run(
        f"CREATE OR REPLACE TEMP TABLE {_FOUND} AS SELECT {key} FROM (SELECT {wanted} FROM {whole}) AS whole "
        f"SEMI JOIN {_KEYS} AS units ON {table.same} GROUP BY {key} HAVING {any_above(bounds)}"
    )
    if cursor.rows(f"FROM {_FOUND} LIMIT 1"):
        check_intact(held.directory, held.files, range(len(names) + 1))
    units, order = f"(SELECT DISTINCT {key} FROM {index})", ", ".join(_IN_ORDER)
    parts = [(index, units), (new, units), (whole, _FOUND)]
    part, at, row = _IN_ORDER
    selects = (
        f"SELECT whole.*, {i} AS {part}, file_index AS {at}, file_row_number AS {row} FROM {rows} AS whole "
        f"SEMI JOIN {of} AS units ON {table.same}"
        for i, (rows, of) in enumerate(parts)
    )
    file = target.parts / "heavy.parquet"
    found = f"({' UNION ALL BY NAME '.join(selects)})"
    copy_to_parquet(cursor, f"SELECT * EXCLUDE ({order}) FROM {found} ORDER BY {order}", file)
    for each in (_FOUND, _KEYS):
        cursor.run(f"DROP TABLE {each}")
    return _within_budget(table, target, bounds, file)


def _within_budget(table: _Table, target: Writing, bounds: list[UnitBound], file: Path) -> HeavyUnits | None:
    """Return the index in a file, of fewer units and with higher bounds where it has too many rows."""
    rows, key = parquet_rows([file]), ", ".join(table.key)
    values = ", ".join(["count(*)", *(_sum_of(each.column) for each in bounds)])
    units = _unit_totals(table.cursor.table(f"SELECT {values} FROM {rows} GROUP BY {key}"))
    row_count, most = int(units.rows.sum()), MOST_SHARE * table.layout.row_count
    index = settled(table.cursor, target, file, row_count, len(units.rows))
    if row_count <= 2 * most:
        return HeavyUnits(tuple(bounds), index)
    raised = np.maximum(units.bounds_together(2 * most), [each.most for each in bounds])
    higher = [replace(each, most=float(at)) for each, at in zip(bounds, raised, strict=True)]
    keys = f"SELECT {key} FROM {rows} GROUP BY {key} HAVING {any_above(higher)}"
    fewer = _rows_of(
        replace(table, layout=replace(table.layout, partitions=(index,))), keys, file.with_stem("fewer")
    )
    file.unlink()
    return fewer and HeavyUnits(tuple(higher), settled(table.cursor, target, *fewer))


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
    rows = table.rows_sql(table.layout.partitions)
    copy_to_parquet(
        cursor,
        f"SELECT whole.* FROM {rows} AS whole SEMI JOIN {_KEYS} AS units ON {table.same} "
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
