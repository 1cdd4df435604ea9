"""A plain table as row groups that are drawn at random: what is drawn from, and what is read for certain.

The row group is the sampling unit. Those that were drawn are the blocks that error bars are made of.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from relaqs_engine.duck import FileState, state_digest
from relaqs_engine.layouts.footers import End, RowGroupFile, Zone, flat_columns, footer, is_understood, zones
from relaqs_engine.layouts.manifest import (
    BLOCK_COUNT,
    FLOATS,
    WHOLE_NUMBERS,
    Column,
    Layout,
    Partition,
    Scalar,
    StoredFile,
)
from relaqs_engine.layouts.plain import PlainTable

MOST_DRAWN = BLOCK_COUNT
"""Each row group that is drawn is a block of its own, and so many blocks can be told apart."""

_NAME_OF_FILE_NUMBERS = "file_index"  # DuckDB's own column; a user's of that name would hide it
_TIMES = frozenset(("DATE", "TIMESTAMP", "BOOLEAN", "VARCHAR"))
_READ_SECONDS_A_BYTE = 1.5e-9
_READ_SECONDS_A_VALUE = 5e-9
"""Measured: a core reads and aggregates a value of Parquet in that time, beside that of its bytes."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group.

    Attributes:
        position: in its file.
    """

    state: FileState
    position: int
    row_count: int

    def zone(self, column: str) -> Zone:
        """Return what the footer says of a column here."""
        return zones(self.state, flat_columns(self.state)[column])[self.position]

    def file(self, columns: Iterable[str]) -> str:
        """Return the name by which a statement reads these columns of it."""
        positions = flat_columns(self.state)
        chosen = tuple(sorted(positions[column] for column in columns))
        return RowGroupFile(state_digest(self.state), self.position, chosen).name


@dataclass(frozen=True, slots=True, repr=False)
class RowGroupTable(Layout):
    """A plain table of which some row groups are drawn at random.

    `row_count` and the ends of `columns` are those of the row groups that are drawn from.

    Attributes:
        drawn_from: the row groups that are drawn from.
        certain: those that every estimate reads, as they are unlike the others.
        least_drawn: how many of `drawn_from` must be drawn until they tell of all; None: more than are.
        known_rows: the rows of the whole table.
        places: of `drawn_from`, once they are drawn, among those that the draw was spread over.
    """

    drawn_from: tuple[RowGroup, ...] = ()
    certain: tuple[RowGroup, ...] = ()
    known_rows: int = 0
    least_drawn: int | None = 0
    places: tuple[int, ...] = ()

    @property
    def has_row_units(self) -> bool:
        return False

    def drawn(self, order: Iterable[int]) -> RowGroupTable:
        """Return the table with nothing but the row groups at these places, in this order, each a block.

        Its `row_count` stays that of all row groups that are drawn from.
        """
        places = tuple(order)
        groups = tuple(self.drawn_from[i] for i in places)
        blocks = tuple(_block(i, group) for i, group in enumerate(groups))
        return replace(self, drawn_from=groups, partitions=blocks, places=places)


def table_of_row_groups(plain: PlainTable, columns: Sequence[str]) -> RowGroupTable | None:
    """Return a plain table as row groups of these columns, None where they cannot be read one by one.

    That is so for tables that are no files of Parquet, for nested columns, for types whose footers are not
    understood, for columns that are the names of folders, and for those that are not alike in all files.
    """
    if any(column.name.lower() == _NAME_OF_FILE_NUMBERS for column in plain.columns):
        return None
    if plain.from_sql or not columns or any(not _is_simple(plain.column(name).type) for name in columns):
        return None
    if not plain.uneven.names.isdisjoint(map(str.lower, columns)):
        return None
    if not all(_has_all(state, columns) for state in plain.states):
        return None
    groups = tuple(group for state in plain.states for group in _groups(state) if group.row_count)
    table = RowGroupTable(
        plain.table,
        plain.directory,
        "sampled",
        plain.columns,
        plain.row_count,
        plain.source,
        drawn_from=groups,
        known_rows=plain.row_count,
    )
    return drawn_from(table, groups, (), columns)


def drawn_from(
    table: RowGroupTable,
    groups: tuple[RowGroup, ...],
    certain: tuple[RowGroup, ...],
    columns: Sequence[str],
    without_nan: Container[str] = (),
) -> RowGroupTable:
    """Return the table with other row groups to draw from, and with what is then known of the columns.

    Args:
        certain: those that every estimate reads.
        columns: those that are read.
        without_nan: those of which no row that counts has NaN.
    """
    rows = sum(group.row_count for group in groups)
    return replace(
        table,
        drawn_from=groups,
        certain=certain,
        row_count=rows,
        unit_count=len(groups),
        max_unit_rows=max((group.row_count for group in groups), default=1),
        typical_unit_rows=sum(group.row_count**2 for group in groups) / max(rows, 1),
        columns=tuple(
            _column(each, groups, rows, each.name in without_nan) if each.name in columns else each
            for each in table.columns
        ),
    )


def scan_core_seconds(groups: Iterable[RowGroup], columns: Sequence[str]) -> float:
    """Return about how long one core takes to read these columns of row groups, and to aggregate them."""
    return sum(
        _READ_SECONDS_A_BYTE * sum(group.zone(column).byte_count for column in columns)
        + _READ_SECONDS_A_VALUE * group.row_count * len(columns)
        for group in groups
    )


def number(value: End | None) -> float | None:
    """Return the end of a zone as a number, None where it is none.

    >>> number(Decimal("1.5")), number("A")
    (1.5, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    found = float(value)
    return found if math.isfinite(found) else None


def _has_all(state: FileState, columns: Sequence[str]) -> bool:
    """Whether a file has these columns, each flat and readable alone, and none is the name of a folder."""
    positions = flat_columns(state)
    path = state[0].lower()
    if not positions.keys() >= set(columns) or any(f"/{column.lower()}=" in path for column in columns):
        return False
    found = footer(state)
    groups = [found.row_group(i) for i in {0, found.num_row_groups - 1} if i >= 0]
    return all(is_understood(group.column(positions[column])) for group in groups for column in columns)


def _block(place: int, group: RowGroup) -> Partition:
    rows = tuple(group.row_count if i == place else 0 for i in range(BLOCK_COUNT))
    return Partition((StoredFile(group.state[0], group.row_count, 0, ""),), group.row_count, 1, rows)


def _groups(state: FileState) -> tuple[RowGroup, ...]:
    found = footer(state)
    return tuple(RowGroup(state, i, found.row_group(i).num_rows) for i in range(found.num_row_groups))


def _is_simple(type_text: str) -> bool:
    is_number = type_text in WHOLE_NUMBERS or type_text in FLOATS or type_text.startswith("DECIMAL(")
    return (is_number or type_text in _TIMES) and not type_text.endswith("]")


def _column(column: Column, groups: Sequence[RowGroup], rows: int, is_without_nan: bool) -> Column:
    """Return what the footers say of a column in some row groups together."""
    found = [group.zone(column.name) for group in groups]
    nulls = [zone.null_count for zone in found]
    filled = [zone for zone, group in zip(found, groups, strict=True) if zone.null_count != group.row_count]
    hides_nan = not is_without_nan and any(zone.hides_nan for zone in filled)
    low, high = (None, None) if hides_nan else ends(column.type, filled)
    return replace(
        column,
        minimum=low,
        maximum=high,
        null_count=rows if None in nulls else sum(count or 0 for count in nulls),
        byte_count=sum(zone.byte_count for zone in found),
    )


def ends(type_text: str, filled: Sequence[Zone]) -> tuple[Scalar, Scalar]:
    """Return the least and greatest value of a column in some row groups, None where they are not known."""
    if not filled or any(not is_sound(type_text, zone) for zone in filled):
        return None, None
    low, high = min(zone.low for zone in filled), max(zone.high for zone in filled)  # type: ignore[type-var]
    if type_text == "DATE":
        return str(low), str(high)
    least, most = number(low), number(high)
    if type_text in WHOLE_NUMBERS and isinstance(low, int) and isinstance(high, int):
        return low, high
    return (None, None) if least is None or most is None else (least, most)


def is_sound(type_text: str, zone: Zone) -> bool:
    """Whether both ends of a zone are known, and are what values of this type can be."""
    low, high, kind = zone.low, zone.high, kind_of(type_text)
    if type(low) is not kind or type(high) is not kind or low > high:  # type: ignore[operator]
        return False
    if isinstance(low, datetime):
        return low.tzinfo is None
    if type_text in FLOATS:
        return number(low) is not None and number(high) is not None
    return not type_text.startswith("U") or low >= 0  # type: ignore[operator]


def kind_of(type_text: str) -> type | None:
    """Return the Python type that the ends of a column come in, None where they are of no use."""
    if type_text.startswith("DECIMAL("):
        return Decimal
    if type_text in FLOATS:
        return float
    kinds = {"DATE": date, "TIMESTAMP": datetime, "VARCHAR": str}
    return int if type_text in WHOLE_NUMBERS else kinds.get(type_text)
