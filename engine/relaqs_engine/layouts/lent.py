"""Tables that are no files of rows: data in the memory of this process, and tables in DuckDB files.

They are plain tables, read whole where they are. Statements read them by a name, which a database knows for
as long as it lives.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from relaqs_engine.duck import FileState, Lent, LentData, open_for_reading, quote_name
from relaqs_engine.layouts.cached_files import CachedFiles
from relaqs_engine.layouts.duck_tables import DuckTable
from relaqs_engine.layouts.plain import (
    BYTES_PER_CORE_SECOND,
    MEASURED_BELOW_ROWS,
    PlainTable,
    measured,
    unmeasured,
)
from relaqs_engine.layouts.sources import bad_source, check_names

_BYTES_OF_A_VALUE = 8


@dataclass(frozen=True, slots=True, repr=False)
class LentTable(PlainTable):
    """A plain table without files of its own. It has no partitions.

    Attributes:
        names: those that stand for it after FROM.
        borrowed: what a database must borrow to know them.
        watched: the files that must stay as they are, and their states.
        given: what the user gave.
    """

    names: tuple[str, ...] = ()
    borrowed: tuple[Lent, ...] = ()
    watched: tuple[FileState, ...] = ()
    given: Any = None

    @property
    def relation(self) -> tuple[str, ...]:
        return self.names

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
    def sql(self) -> str:
        return sql_of(self.names)

    @property
    def scan_core_seconds(self) -> float:
        return self.row_count * len(self.columns) * _BYTES_OF_A_VALUE / BYTES_PER_CORE_SECOND


def table_in_memory(
    data: Any, source: str, cached: CachedFiles, states: tuple[FileState, ...] = ()
) -> PlainTable:
    """Return a table over data that DuckDB can read again and again. Small ones are measured.

    Args:
        data: an Arrow table, an Arrow dataset or a pandas DataFrame.
        source: what the user gave, in words.
        cached: the table's name, and where a layout of it would be.
        states: of the files that the data are read from.
    """
    # Of another name each time: else what was kept of other data would answer equal statements.
    lent = LentData(f"relaqs_lent_{secrets.token_hex(6)}", data)
    with closing(open_for_reading()) as cursor, bad_source(source):
        cursor.borrow([lent])
        names = (lent.name,)
        columns = cursor.describe(f"SELECT * FROM {sql_of(names)}")
        ((row_count,),) = cursor.rows(f"SELECT count(*) FROM {sql_of(names)}")
        found = lent_table(names, lent, columns, row_count, source, cached, states, data)
        return measured(found, cursor) if row_count < MEASURED_BELOW_ROWS else found


def table_in_file(source: DuckTable, cached: CachedFiles) -> LentTable:
    """Return a table of a DuckDB file, where it is. cached: its name, and where a layout of it would be."""
    lent, columns, rows = source.attached, source.columns, source.row_count
    return lent_table(source.relation, lent, columns, rows, source.in_words, cached, source.states, source)


def lent_table(
    names: tuple[str, ...],
    lent: Lent,
    columns: Sequence[tuple[str, str]],
    row_count: int,
    source: str,
    cached: CachedFiles,
    states: tuple[FileState, ...],
    given: Any,
) -> LentTable:
    """Return a table that is read by its names, once `lent` is borrowed. See `LentTable` and `Layout`."""
    check_names(columns)
    return LentTable(
        table=cached.table,
        directory=cached.home,
        kind="plain",
        columns=tuple(unmeasured(name, type_text, row_count) for name, type_text in columns),
        partitions=(),
        row_count=row_count,
        unit_count=row_count,
        cluster_key=(),
        seed=0,
        hash_scheme="",
        hash_probe="",
        max_unit_rows=1,
        source=source,
        created_with="",
        cached=cached,
        names=names,
        borrowed=(lent,),
        watched=states,
        given=given,
    )


def sql_of(names: Sequence[str]) -> str:
    """Return what stands after FROM for these names."""
    return ".".join(map(quote_name, names))
