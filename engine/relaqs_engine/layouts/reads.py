"""What a statement reads of a table's files, so that whoever runs it can check those bytes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relaqs_engine.layouts.manifest import Layout


@dataclass(frozen=True, slots=True)
class TableRead:
    """Files of one table, and its columns that a statement can read.

    directory: the table's folder, absolute. files: as its manifest names them. columns: likewise.
    """

    directory: str
    files: tuple[str, ...]
    columns: tuple[str, ...]


def read_of_partitions(layout: Layout, columns: tuple[str, ...], partitions: Iterable[int]) -> TableRead:
    """Return the read of some partitions."""
    files = tuple(layout.partitions[i].file for i in partitions)
    return TableRead(str(layout.directory), files, columns)


def read_of_outliers(layout: Layout, columns: tuple[str, ...]) -> TableRead:
    """Return the read of the outlier index. Only where there is one."""
    assert layout.outliers is not None
    return TableRead(str(layout.directory), (layout.outliers.file,), columns)


def read_of_table(layout: Layout, names: frozenset[str] | None) -> TableRead:
    """Return the read of the whole table. names: of a query, see `sql/names.py`."""
    return read_of_partitions(layout, columns_named(layout, names), range(len(layout.partitions)))


def columns_named(layout: Layout, names: frozenset[str] | None) -> tuple[str, ...]:
    """Return the table's columns that a query with these names can read; None stands for all names."""
    return tuple(c.name for c in layout.columns if names is None or c.name.lower() in names)
