"""Tables that are no Parquet files: data in the memory of this process, DuckDB files, CSV and JSON.

They are plain tables, read whole where they are. A database borrows the first two for as long as it lives.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_engine.duck import Cursor, FileState, Lent, LentData, quote_name
from relaqs_engine.layouts.cached_files import CachedFiles
from relaqs_engine.layouts.duck_tables import DuckTable
from relaqs_engine.layouts.file_kinds import FileKind
from relaqs_engine.layouts.in_memory import row_count_of
from relaqs_engine.layouts.plain import PlainTable, unmeasured
from relaqs_engine.layouts.scan_cost import BYTES_PER_CORE_SECOND
from relaqs_engine.layouts.sources import HAS_A_ZONE, bad_source, check_names
from relaqs_engine.layouts.text_files import checked_read

_BYTES_OF_A_VALUE = 8
_TEXT_BYTES_PER_CORE_SECOND = 1e8
"""Measured: a core reads that much of CSV or JSON a second."""


@dataclass(frozen=True, slots=True, repr=False)
class LentTable(PlainTable):
    """A plain table without Parquet files of its own. It has no partitions.

    Attributes:
        rows_sql: what stands for it after FROM.
        core_seconds: about how long one core takes to read it whole.
        watched: the files that must stay as they are, and their states.
        borrowed: what a database must borrow to read it.
        given: what the user gave.
        guessed: whether `row_count` is a guess.
    """

    rows_sql: str = ""
    core_seconds: float = 0.0
    watched: tuple[FileState, ...] = ()
    borrowed: tuple[Lent, ...] = ()
    given: Any = None
    guessed: bool = False

    @property
    def rows_are_counted(self) -> bool:
        return not self.guessed

    @property
    def from_sql(self) -> str:
        return self.rows_sql

    @property
    def sql(self) -> str:
        return self.rows_sql

    @property
    def lent(self) -> tuple[Lent, ...]:
        return self.borrowed

    @property
    def states(self) -> tuple[FileState, ...]:
        return self.watched

    @property
    def origin(self) -> Any:
        return self.given

    @property
    def scan_core_seconds(self) -> float:
        return self.core_seconds

    @property
    def may_be_measured(self) -> bool:
        """Whether it is data in memory: a file is not read for statistics alone."""
        return any(isinstance(each, LentData) for each in self.borrowed)


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
        rows_sql=quote_name(lent.name),
        core_seconds=_seconds(columns, row_count_of(data)),
        watched=states,
        borrowed=(lent,),
        given=data,
    )


def table_in_file(source: DuckTable, cached: CachedFiles) -> LentTable:
    """Return a table of a DuckDB file, where it is. cached: its name, and where a layout of it would be."""
    return LentTable(
        **_shape(source.columns, source.row_count, source.in_words, cached),
        rows_sql=source.sql,
        core_seconds=_seconds(source.columns, source.row_count),
        watched=source.states,
        borrowed=(source.attached,),
        given=source,
        guessed=source.is_view,
    )


def table_of_text(kind: FileKind, cached: CachedFiles, cursor: Cursor) -> LentTable | None:
    """Return a table in CSV or JSON files, where they lie. None if they can only be read into a copy.

    Nobody has counted its rows: `row_count` is a guess from the size of the files.

    Args:
        kind: of the files.
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
        rows_sql=read.sql,
        core_seconds=byte_count / _TEXT_BYTES_PER_CORE_SECOND,
        watched=cached.states,
        given=cached.source,
        guessed=True,
    )


def _seconds(columns: Sequence[tuple[str, str]], row_count: int) -> float:
    return row_count * len(columns) * _BYTES_OF_A_VALUE / BYTES_PER_CORE_SECOND


def _shape(
    columns: Sequence[tuple[str, str]], row_count: int, source: str, cached: CachedFiles
) -> dict[str, Any]:
    """Return the fields of a layout that has no partitions."""
    check_names(columns)
    return {
        "table": cached.table,
        "directory": cached.home,
        "kind": "plain",
        "columns": tuple(unmeasured(name, type_text, row_count) for name, type_text in columns),
        "partitions": (),
        "row_count": row_count,
        "unit_count": row_count,
        "cluster_key": (),
        "seed": 0,
        "hash_scheme": "",
        "hash_probe": "",
        "max_unit_rows": 1,
        "source": source,
        "created_with": "",
        "cached": cached,
    }
