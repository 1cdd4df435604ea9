"""Plain tables: data that are read whole where they are. Nothing is written for them.

**Parquet files.** Instead of checksums, a plain table knows the size of each file and the time of its last
change. A query that finds a file with others fails. So all answers of a session are about the same rows.

**Other data**: in the memory of this process, DuckDB files, CSV and JSON. A database borrows the first two
for as long as it lives.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relaqs_engine.duck import (
    CivilTime,
    Cursor,
    FileState,
    Lent,
    LentData,
    ReadingDatabase,
    file_state,
    one_file,
    open_for_reading,
    quote_name,
)
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.cached_files import CachedFiles
from relaqs_engine.layouts.file_kinds import DuckTable, FileKind
from relaqs_engine.layouts.in_memory import row_count_of
from relaqs_engine.layouts.manifest import (
    BYTES_PER_CORE_SECOND,
    Column,
    FirstPart,
    PlainRead,
    Read,
    StoredFile,
    Table,
    columns_named,
    scan_core_seconds,
)
from relaqs_engine.layouts.sources import (
    EVEN,
    HAS_A_ZONE,
    ParquetSource,
    UnevenColumns,
    bad_source,
    check_names,
)
from relaqs_engine.layouts.text_files import checked_read
from relaqs_engine.stores.mirror import copy_at, fetch_whole

MEASURED_BELOW_ROWS, MEASURED_BELOW_SECONDS = 100_000, 0.02
"""The columns of a table with fewer rows, that is read sooner, are measured beside one that is estimated.

That takes some 10 ms. Of 60,000 rows with 500 columns it took a second of a core.
"""

ESTIMATED_ABOVE_SECONDS = 0.2
"""A plain table that takes longer to be read whole may be sampled where it lies."""

NOTABLE_SECONDS = 0.3
"""A table that takes longer to be read whole is worth a layout."""


@dataclass(frozen=True, slots=True, repr=False)
class PlainTable(Table):
    """A table in files of the user's own.

    The statistics of a large table's columns are not known: its numbers of distinct values are 0, and all its
    values may be NULL.

    Attributes:
        files: by their absolute paths.
        modified_ns: for each file the time of its last change in nanoseconds.
        is_staged: the file is a copy of our own, made of a CSV file, say.
        cached: what the user named, and where a layout of it would be.
        first_part: of the layout that is being made of it. None where there is none yet.
        is_by_duckdb: whether DuckDB wrote all files.
        uneven: what differs among its files, and is united by name.
    """

    files: tuple[StoredFile, ...] = ()
    modified_ns: tuple[int, ...] = ()
    is_staged: bool = False
    cached: CachedFiles | None = None
    first_part: FirstPart | None = None
    is_by_duckdb: bool = False
    uneven: UnevenColumns = EVEN

    @property
    def is_united(self) -> bool:
        return bool(self.uneven.names)

    @property
    def has_hive_columns(self) -> bool:
        return not self.is_staged

    @property
    def hides_nan(self) -> bool:
        return not self.is_by_duckdb

    @property
    def folders(self) -> tuple[Path, ...]:
        return () if self.first_part is None else (self.first_part.directory,)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the absolute path of each file."""
        return tuple(Path(each.file) for each in self.files)

    @property
    def file_names(self) -> list[str]:
        return [one_file(str(path)) for path in self.paths]

    def whole_read(self, names: frozenset[str] | None) -> Read:
        return PlainRead(self.table, self.states, columns_named(self, names))

    @property
    def is_remote(self) -> bool:
        """Whether its files are copies of some in an object store, of which little may have been fetched."""
        return any(copy_at(stored.file) for stored in self.files)

    @property
    def place(self) -> str:
        return self.source if self.is_remote else str(self.directory)

    @property
    def states(self) -> tuple[FileState, ...]:
        sized = zip(self.files, self.modified_ns, strict=True)
        return tuple((each.file, each.byte_count, modified_ns) for each, modified_ns in sized)

    @property
    def origin(self) -> Any:
        """Return what is laid out: the files, or what the user gave."""
        return self.opened

    @property
    def sql(self) -> str:
        """Return what stands for the table after FROM."""
        return self.opened.sql

    @property
    def opened(self) -> ParquetSource:
        """Return the files as a source."""
        columns = tuple((column.name, column.type) for column in self.columns)
        row_counts = tuple(file.row_count for file in self.files)
        byte_count = sum(file.byte_count for file in self.files)
        return ParquetSource(
            self.paths,
            columns,
            row_counts,
            byte_count,
            self.source,
            is_staged=self.is_staged,
            is_by_duckdb=self.is_by_duckdb,
            uneven=self.uneven,
        )

    @property
    def answers_alike_laid_out(self) -> bool:
        """Whether a layout has columns of the same types: an ENUM becomes a text, which has another order."""
        return not any(column.type.startswith("ENUM(") for column in self.columns)

    @property
    def scan_core_seconds(self) -> float:
        return scan_core_seconds(sum(file.byte_count for file in self.files), self.row_count)

    @property
    def may_be_measured(self) -> bool:
        """Whether it is of a kind whose columns are measured."""
        return True

    @property
    def is_soon_measured(self) -> bool:
        if self.row_count >= MEASURED_BELOW_ROWS or self.scan_core_seconds >= MEASURED_BELOW_SECONDS:
            return False
        return self.may_be_measured and all(
            each == unmeasured(each.name, each.type, self.row_count) for each in self.columns
        )

    def measured(self, cursor: Cursor) -> PlainTable:
        """Return the table with the statistics of its columns, which are found in one pass over it."""
        from relaqs_engine.layouts.column_statistics import column_statistics  # a lone table needs none

        cursor.borrow(self.lent)
        for path in self.paths:
            fetch_whole(path)
        columns = [(column.name, column.type) for column in self.columns]
        is_small = self.row_count < MEASURED_BELOW_ROWS
        found = column_statistics(cursor, self.paths, columns, self.sql, keys_exactly=is_small)
        return replace(self, columns=found)


def plain_table(cached: CachedFiles, source: ParquetSource, states: Sequence[FileState]) -> PlainTable:
    """Return a table over Parquet files as they are. The statistics of its columns are not known.

    Args:
        states: of the files, taken before they were opened.
    """
    files = tuple(
        StoredFile(path, row_count, byte_count, "")
        for (path, byte_count, _), row_count in zip(states, source.row_counts, strict=True)
    )
    return PlainTable(
        table=cached.table,
        directory=Path(os.path.commonpath([file.parent for file in source.files])),
        kind="plain",
        columns=tuple(unmeasured(name, type_text, source.row_count) for name, type_text in source.columns),
        row_count=source.row_count,
        source=source.description,
        files=files,
        modified_ns=tuple(modified_ns for _, _, modified_ns in states),
        is_staged=source.is_staged,
        cached=cached,
        is_by_duckdb=source.is_by_duckdb,
        uneven=source.uneven,
    )


def measured_beside(layouts: Sequence[Table], reading: ReadingDatabase) -> tuple[Table, ...]:
    """Return the layouts, the small plain ones with the statistics of their columns if that may be of use.

    It is where another of them may be estimated. Nothing is read otherwise.
    """
    if not any(each.is_sampled or each.scan_core_seconds > ESTIMATED_ABOVE_SECONDS for each in layouts):
        return tuple(layouts)
    return tuple(_measured_as_opened(each, reading) if each.is_soon_measured else each for each in layouts)


def _measured_as_opened(table: Table, reading: ReadingDatabase) -> Table:
    """Return the table measured, or as it is if its files changed: the query that reads them says so."""
    with closing(reading.cursor()) as cursor:
        try:
            found = table.measured(cursor)
        except DataError:
            return table
    return found if _is_as_opened(table) else table


def _is_as_opened(table: Table) -> bool:
    return table.states == tuple(file_state(path) for path, *_ in table.states)


def all_measured(
    tables: Mapping[str, Table], threads: int, civil_time: CivilTime | None = None
) -> dict[str, Table]:
    """Return tables by name, the plain ones with the statistics of their columns.

    A table of which a row cannot be read comes back as it is: queries that need the row say so.
    """
    with closing(open_for_reading(threads=threads, civil_time=civil_time)) as cursor:
        return {name: _measured_if_read(table, cursor) for name, table in tables.items()}


def _measured_if_read(table: Table, cursor: Cursor) -> Table:
    try:
        return table.measured(cursor)
    except DataError:
        if not _is_as_opened(table):
            raise
        return table


def unmeasured(name: str, type_text: str, row_count: int) -> Column:
    """Return a column of which nothing is known: all its values may be NULL."""
    return Column(name, type_text, None, None, null_count=row_count, distinct_count=0, byte_count=0)


_BYTES_OF_A_VALUE = 8
_TEXT_BYTES_PER_CORE_SECOND = 1e8
"""Measured: a core reads that much of CSV or JSON a second."""


@dataclass(frozen=True, slots=True, repr=False)
class LentTable(PlainTable):
    """A plain table without Parquet files of its own.

    Attributes:
        origin: what the user gave.
        rows_are_counted: False where `row_count` is a guess.
    """

    from_sql: str = ""
    scan_core_seconds: float = 0.0
    states: tuple[FileState, ...] = ()
    lent: tuple[Lent, ...] = ()
    origin: Any = None
    rows_are_counted: bool = True

    @property
    def sql(self) -> str:
        return self.from_sql

    @property
    def may_be_measured(self) -> bool:
        """Whether it is data in memory: a file is not read for statistics alone."""
        return any(isinstance(each, LentData) for each in self.lent)


def table_in_memory(
    data: Any, source: str, cached: CachedFiles, cursor: Cursor, states: tuple[FileState, ...] = ()
) -> PlainTable:
    """Return a table over data that DuckDB can read again and again.

    Args:
        data: an Arrow table, an Arrow dataset or a pandas DataFrame.
        source: what the user gave, in words.
        cached: the table's name, and where a layout of it would be.
        cursor: of any DuckDB.
        states: of the files that the data are read from.
    """
    # Of another name each time: else what was kept of other data would answer equal statements.
    lent = LentData(f"relaqs_lent_{secrets.token_hex(6)}", data)
    with bad_source(source):
        cursor.borrow([lent])
        columns = cursor.describe(f"SELECT * FROM {quote_name(lent.name)}")
    return LentTable(
        **_shape(columns, row_count_of(data), source, cached),
        from_sql=quote_name(lent.name),
        scan_core_seconds=_seconds(columns, row_count_of(data)),
        states=states,
        lent=(lent,),
        origin=data,
    )


def table_in_file(source: DuckTable, cached: CachedFiles) -> LentTable:
    """Return a table of a DuckDB file, where it is. cached: its name, and where a layout of it would be."""
    return LentTable(
        **_shape(source.columns, source.row_count, source.in_words, cached),
        from_sql=source.sql,
        scan_core_seconds=_seconds(source.columns, source.row_count),
        states=source.states,
        lent=(source.attached,),
        origin=source,
        rows_are_counted=not source.is_view,
    )


def table_of_text(kind: FileKind, cached: CachedFiles, cursor: Cursor) -> LentTable | None:
    """Return a table in CSV or JSON files, where they lie. None if they can only be read into a copy.

    Nobody has counted its rows: `row_count` is a guess from the size of the files.

    Args:
        cached: the files, the table's name, and where a layout of it would be.
        cursor: of a DuckDB that may read them.
    """
    source = cached.source_in_words
    with bad_source(source):
        read = checked_read(kind, cached.files, cursor, source)
    if read is None:
        return None
    if any(HAS_A_ZONE in type_text for _, type_text in read.columns):  # some texts may have none
        cached = cached.in_zone(cursor.civil_time.zone)
    byte_count = sum(byte_count for _, byte_count, _ in cached.states)
    row_count = 1 + byte_count // (_BYTES_OF_A_VALUE * len(read.columns))
    return LentTable(
        **_shape(read.columns, row_count, source, cached),
        from_sql=read.sql,
        scan_core_seconds=byte_count / _TEXT_BYTES_PER_CORE_SECOND,
        states=cached.states,
        origin=cached.source,
        rows_are_counted=False,
    )


def _seconds(columns: Sequence[tuple[str, str]], row_count: int) -> float:
    return row_count * len(columns) * _BYTES_OF_A_VALUE / BYTES_PER_CORE_SECOND


def _shape(
    columns: Sequence[tuple[str, str]], row_count: int, source: str, cached: CachedFiles
) -> dict[str, Any]:
    """Return the fields of a table that has no files of its own."""
    check_names(columns)
    return {
        "table": cached.table,
        "directory": cached.home,
        "kind": "plain",
        "columns": tuple(unmeasured(name, type_text, row_count) for name, type_text in columns),
        "row_count": row_count,
        "source": source,
        "cached": cached,
    }
