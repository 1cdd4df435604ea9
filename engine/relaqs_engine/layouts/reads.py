"""What a statement reads of a table's files. Whoever runs it can check those files first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from relaqs_engine.duck import FileState
from relaqs_engine.layouts.manifest import FirstPart, Layout, Partition
from relaqs_engine.layouts.plain import PlainTable
from relaqs_engine.stores.mirror import Remote


@dataclass(frozen=True, slots=True)
class TableRead:
    """Files of one table, and the columns that a statement can read in them.

    Attributes:
        directory: the table's folder, absolute.
        files: as the table's manifest names them.
        columns: as the table's manifest names them.
        remote: where the table lies, if that is an object store.
    """

    directory: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    remote: Remote | None = None


@dataclass(frozen=True, slots=True)
class FirstRead:
    """Partitions of the first part of a layout, which has no manifest yet.

    Attributes:
        part: the first part.
        files: as the manifest will name them.
        columns: those that a statement can read, as the manifest will name them.
    """

    part: FirstPart
    files: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlainRead:
    """Files that were not laid out, and their state when the session was opened.

    Attributes:
        table: its name.
        files: with their states.
        columns: those that a statement can read; None for all.
        row_groups: those that it reads, each as the path of its file and its place there; None for all.
    """

    table: str
    files: tuple[FileState, ...]
    columns: tuple[str, ...] | None = None
    row_groups: tuple[tuple[str, int], ...] | None = None


LaidOutRead: TypeAlias = TableRead | FirstRead
Read: TypeAlias = LaidOutRead | PlainRead


def read_of_partitions(layout: Layout, columns: tuple[str, ...], partitions: Iterable[int]) -> LaidOutRead:
    """Return the read of some partitions."""
    files = tuple(each.file for i in partitions for each in layout.partitions[i].files)
    if isinstance(layout, FirstPart) and not layout.is_made:
        return FirstRead(layout, files, columns)
    return TableRead(str(layout.directory), files, columns, layout.remote)


def read_of_outliers(layout: Layout, columns: tuple[str, ...]) -> TableRead:
    """Return the read of the outlier index. There must be one."""
    files = tuple(each.file for each in layout.outlier_files)
    assert files, f"{layout.table} has no outlier index"
    return TableRead(str(layout.directory), files, columns, layout.remote)


def read_of_copy(layout: Layout, columns: tuple[str, ...], rows: Partition) -> TableRead:
    """Return the read of a copy of some rows of a layout."""
    files = tuple(each.file for each in rows.files)
    return TableRead(str(layout.directory), files, columns, layout.remote)


def read_of_table(layout: Layout, names: frozenset[str] | None) -> Read:
    """Return the read of the whole table. `names` are those in a query, see `sql/columns.py`."""
    if layout.is_plain:
        assert isinstance(layout, PlainTable)
        return PlainRead(layout.table, layout.states, columns_named(layout, names))
    assert not layout.is_first_part, f"the first part of {layout.table} is not the table"
    return read_of_partitions(layout, columns_named(layout, names), range(len(layout.partitions)))


def columns_named(layout: Layout, names: frozenset[str] | None) -> tuple[str, ...]:
    """Return the table's columns that a query with these names can read. None stands for all names."""
    return tuple(c.name for c in layout.columns if names is None or c.name.lower() in names)


def plain_tables(reads: Iterable[Read]) -> tuple[str, ...]:
    """Return the names of the plain tables among what is read, each once."""
    return tuple(dict.fromkeys(read.table for read in reads if isinstance(read, PlainRead)))
