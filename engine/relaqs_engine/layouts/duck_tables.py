"""DuckDB files: their tables and views, which are read where they are, as DuckDB reads them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from relaqs_engine.duck import (
    AttachedFile,
    Cursor,
    FileState,
    file_state,
    open_for_reading,
    quote_name,
)
from relaqs_engine.errors import DataError, LayoutError, RelaqsError
from relaqs_engine.layouts.file_kinds import FileKind, kind_of

_OWN_SCHEMA = "main"
_LISTED = """
SELECT schema_name, table_name, false FROM duckdb_tables() WHERE database_name = '{database}' AND NOT internal
UNION ALL
SELECT schema_name, view_name, true FROM duckdb_views() WHERE database_name = '{database}' AND NOT internal
"""


@dataclass(frozen=True, slots=True)
class DuckTable:
    """A table or a view of a DuckDB file.

    Attributes:
        file: the file, absolute.
        schema: where in the file it is.
        name: its name there.
        is_view: whether it is a view.
        columns: pairs (name, DuckDB type).
        row_count: its rows. Of a view, how many DuckDB expects.
        states: of the file and its log, when this was found out.
    """

    file: Path
    schema: str
    name: str
    is_view: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    row_count: int = 0
    states: tuple[FileState, ...] = ()

    @property
    def attached(self) -> AttachedFile:
        """Return the file under a name of this state of it. Another state needs other statements."""
        digest = hashlib.sha256(repr(self.states).encode()).hexdigest()[:12]
        return AttachedFile(f"relaqs_file_{digest}", str(self.file))

    @property
    def sql(self) -> str:
        """Return what stands for it after FROM where its file is attached."""
        return ".".join(map(quote_name, (self.attached.name, self.schema, self.name)))

    @property
    def in_words(self) -> str:
        kind = "view" if self.is_view else "table"
        return f"the {kind} {self.schema}.{self.name} of {self.file}"


def is_duck_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a DuckDB file. Raises LayoutError where only its name says so."""
    file = Path(path)
    return file.is_file() and kind_of([file]) is FileKind.DUCKDB


def duck_tables(file: Path) -> dict[str, DuckTable]:
    """Return the tables and views of a DuckDB file, by the names that queries use.

    Those of another schema than main have their own name too, or schema_name where that name is taken. Views
    that cannot be read, such as those over other files, are left out.

    Raises:
        LayoutError: there is none.
        DataError: the file cannot be opened.
    """
    with _opened(file) as (cursor, listed):
        found = {name: _described(table, cursor) for name, table in listed.items()}
    return {name: table for name, table in found.items() if table is not None}


def duck_table(file: Path, wanted: str) -> DuckTable:
    """Return the table of that name in a DuckDB file, or its only one. Raises as `duck_tables` does."""
    with _opened(file) as (cursor, listed):
        named = [table for name, table in listed.items() if name.lower() == wanted.lower()]
        if not named and len(listed) > 1:
            raise LayoutError(
                f"{file} has no table {wanted!r}, but {', '.join(listed)}; name one of these, or give the "
                "file itself to connect for all of them"
            )
        table = named[0] if named else next(iter(listed.values()))
        if (described := _described(table, cursor)) is None:
            raise DataError(f"{table.in_words} cannot be read: it reads other files, or a table that is gone")
        return described


@contextmanager
def attached_table(table: DuckTable, cursor: Cursor) -> Iterator[str]:
    """Give what stands for the table after FROM. Raises DataError if its file changes in the block."""
    _attach(cursor, table.attached)
    yield table.sql
    if _states(table.file) != table.states:
        raise DataError(f"{table.file} changed while it was being read; open it again")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Cursor, dict[str, DuckTable]]]:
    """Give a cursor for a DuckDB file, and its tables by the names that queries use."""
    states = _states(file)
    attached = DuckTable(file, "", "", states=states).attached
    with closing(open_for_reading()) as cursor:
        _attach(cursor, attached)
        cursor.run("SET enable_external_access = false")  # its views are not to read other files
        rows = cursor.rows(_LISTED.format(database=attached.name))
        found = [DuckTable(file, schema, name, is_view, states=states) for schema, name, is_view in rows]
        yield cursor, _named(found, file)


def _attach(cursor: Cursor, attached: AttachedFile) -> None:
    try:
        cursor.borrow([attached])
    except DataError as error:
        raise DataError(
            f"{attached.path} cannot be opened ({str(error).splitlines()[0]}); close the connection that "
            "writes to it, or give its relations, as in tables={'trips': connection.table('trips')}"
        ) from error


def _states(file: Path) -> tuple[FileState, ...]:
    """Return the states of the file, and of the log that a connection which writes keeps beside it."""
    return file_state(str(file)), file_state(f"{file}.wal")


def _named(found: list[DuckTable], file: Path) -> dict[str, DuckTable]:
    if not found:
        raise LayoutError(f"{file} has no table; make one in it, or name another file")
    tables: dict[str, DuckTable] = {}
    for each in sorted(found, key=lambda table: (table.schema != _OWN_SCHEMA, table.schema, table.name)):
        name = each.name if each.name.lower() not in map(str.lower, tables) else f"{each.schema}_{each.name}"
        if name.lower() in map(str.lower, tables):
            raise LayoutError(f"{file} has two tables that would be called {name!r} here; rename one")
        tables[name] = each
    return tables


def _described(table: DuckTable, cursor: Cursor) -> DuckTable | None:
    """Return the table with its columns and rows, None where it is a view that cannot be read."""
    sql = f"SELECT * FROM {table.sql}"
    try:
        columns = tuple(cursor.describe(sql))
        row_count = expected_rows(sql, cursor) if table.is_view else _row_count(sql, cursor)
    except RelaqsError:
        if table.is_view:
            return None
        raise
    return DuckTable(table.file, table.schema, table.name, table.is_view, columns, row_count, table.states)


def _row_count(sql: str, cursor: Cursor) -> int:
    ((count,),) = cursor.rows(f"SELECT count(*) FROM ({sql})")
    return int(count)


def expected_rows(sql: str, cursor: Cursor) -> int:
    """Return how many rows DuckDB expects, at least one. To count those of a view would be to run it."""
    ((_, text),) = cursor.rows(f"EXPLAIN (FORMAT json) {sql}")
    expected = json.loads(text)[0].get("extra_info", {}).get("Estimated Cardinality", 1)
    return max(int(expected), 1)
