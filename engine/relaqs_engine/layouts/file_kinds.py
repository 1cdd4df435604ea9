"""Which kind of data a file holds: by the ending of its name, or else by its first bytes.

A file is the same while its size and the time of its last change are. DuckDB files have tables and views,
which are read where they are, as DuckDB reads them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path

from relaqs_engine.duck import AttachedFile, Cursor, FileState, file_state, open_for_reading, quote_name
from relaqs_engine.errors import DataError, LayoutError, RelaqsError


class FileKind(Enum):
    """A kind of file that tables are read from. The value is its name for people."""

    PARQUET = "Parquet"
    CSV = "CSV"
    JSON = "JSON"
    DUCKDB = "DuckDB"

    @property
    def is_text(self) -> bool:
        return self in (FileKind.CSV, FileKind.JSON)


ACCEPTED = (
    "Parquet (.parquet), CSV (.csv, .tsv, .txt), JSON (.json, .jsonl, .ndjson), packed text (.csv.gz, "
    ".json.zst, …) or DuckDB (.duckdb)"
)
_ENDINGS = {
    ".parquet": FileKind.PARQUET,
    ".parq": FileKind.PARQUET,
    ".pq": FileKind.PARQUET,
    ".csv": FileKind.CSV,
    ".tsv": FileKind.CSV,
    ".txt": FileKind.CSV,
    ".json": FileKind.JSON,
    ".jsonl": FileKind.JSON,
    ".ndjson": FileKind.JSON,
    ".duckdb": FileKind.DUCKDB,
    ".ddb": FileKind.DUCKDB,
    ".db": FileKind.DUCKDB,
}
_PACKED = (".gz", ".zst")
_OF_DOCUMENTS = (".txt",)  # a folder's README.txt is no table of it
_FIRST_BYTES = (
    (0, b"PAR1", "Parquet"),
    (8, b"DUCK", "DuckDB"),
    (0, b"SQLite format 3", "SQLite"),
    (0, b"ARROW1", "Arrow IPC"),
    (0, b"ORC", "ORC"),
    (0, b"PK\x03\x04", "a ZIP archive, such as a spreadsheet"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"{", "JSON"),
    (0, b"[", "JSON"),
)


def kind_by_name(file: Path) -> FileKind | None:
    """Return the kind that a file's name says, None where it says nothing.

    >>> kind_by_name(Path("trips.CSV.gz"))
    <FileKind.CSV: 'CSV'>
    """
    ending = file.suffix.lower()
    if ending in _PACKED:
        kind = _ENDINGS.get(file.with_suffix("").suffix.lower())
        return kind if kind is not None and kind.is_text else None
    return _ENDINGS.get(ending)


def is_data(file: Path) -> bool:
    """Whether a file that lies in a folder is one of the folder's data. Hidden ones and documents are not."""
    return file.suffix.lower() not in _OF_DOCUMENTS and kind_by_name(file) is not None


def kind_of(files: Sequence[Path]) -> FileKind:
    """Return the kind of the files. Raises LayoutError unless all are of one known kind."""
    first, *others = ((file, _kind_of_file(file)) for file in files)
    if others and first[1] is FileKind.DUCKDB:
        raise LayoutError(f"{first[0]} is a DuckDB file and one of {len(files)} files; give one at a time")
    for file, kind in others:
        if kind is not first[1]:
            if manifest := next(filter(_is_of_a_layout, files), None):
                at = manifest.parent.parent
                raise LayoutError(f"{at} is a warehouse, with tables of its own; open it alone: --data {at}")
            raise LayoutError(
                f"{first[0].name} is {first[1].value} and {file.name} is {kind.value}; give files of one "
                f"kind, such as {file.parent / ('*' + file.suffix)}"
            )
    return first[1]


def _is_of_a_layout(file: Path) -> bool:
    with suppress(OSError), file.open("rb") as opened:
        return file.name == "manifest.json" and opened.read(20).startswith(b'{"manifest_version"')
    return False


def what_it_looks_like(file: Path) -> str:
    """Return the kind of data that a file's first bytes are of, in words; "" where they do not tell."""
    try:
        with file.open("rb") as opened:
            begin = opened.read(16)
    except OSError:
        return ""
    if not begin:
        return "empty"
    found = (name for at, magic, name in _FIRST_BYTES if begin[at:].startswith(magic))
    return next(found, "")


def _kind_of_file(file: Path) -> FileKind:
    kind, looks = kind_by_name(file), what_it_looks_like(file)
    if kind is None:
        kind = next((each for each in FileKind if each.value == looks), None)
    if kind is FileKind.DUCKDB and looks != "DuckDB":
        raise LayoutError(f"{file} is no DuckDB file{_but(looks)}; give the file that DuckDB wrote")
    if kind is None:
        raise LayoutError(f"{file} is of no known kind{_but(looks)}; give {ACCEPTED} files")
    return kind


def _but(looks: str) -> str:
    return f" (it looks like {looks})" if looks else ""


def change_in_words(before: FileState) -> str | None:
    """Return how a file differs from how it was, None where it does not.

    >>> change_in_words(("no/such/file", 1_234, 1_700_000_000_000_000_000))
    'it had 1,234 bytes, written 2023-11-14 ...; now it is not there'
    """
    now = file_state(before[0])
    if now == before:
        return None
    return f"it {_in_words(before, 'had', 'was')}; now it {_in_words(now, 'has', 'is')}"


def _in_words(state: FileState, has: str, is_: str) -> str:
    _, byte_count, modified_ns = state
    if byte_count < 0:
        return f"{is_} not there"
    seconds, nanoseconds = divmod(modified_ns, 10**9)
    written = datetime.fromtimestamp(seconds).isoformat(" ")
    return f"{has} {byte_count:,} bytes, written {written}.{nanoseconds:09d}"


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
        schema: where in the file it is.
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
    def names(self) -> list[tuple[str, ...]]:
        """Return what DuckDB's users call it, in lower case: schema.name, file.schema.name, file.name."""
        file, schema, name = self.file.stem.lower(), self.schema.lower(), self.name.lower()
        return [(schema, name), (file, schema, name), *([(file, name)] if schema == _OWN_SCHEMA else [])]

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

    Those of another schema than main have their own name too, or schema_name where another table has that.
    Views that cannot be read, such as those over other files, are left out.

    Raises:
        LayoutError: there is none.
        DataError: the file cannot be opened.
    """
    with _opened(file) as (cursor, listed):
        found = {name: _described(table, cursor) for name, table in listed.items()}
    return {name: table for name, table in found.items() if table is not None}


def duck_table(file: Path, *wanted: str) -> DuckTable:
    """Return the table of the first of these names in a DuckDB file, or its only one.

    Raises as `duck_tables` does.
    """
    with _opened(file) as (cursor, listed):
        by_name = {name.lower(): table for name, table in listed.items()}
        named = [by_name[name.lower()] for name in wanted if name.lower() in by_name]
        if not named and len(listed) > 1:
            missing = " or ".join(repr(name) for name in wanted if name)
            raise LayoutError(
                f"{file} has no table {missing}, but {', '.join(listed)}; name one of these, or give the "
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
    several = Counter(table.name.lower() for table in found)
    for each in sorted(found, key=lambda table: (table.schema != _OWN_SCHEMA, table.schema, table.name)):
        is_own = each.schema == _OWN_SCHEMA or several[each.name.lower()] == 1
        name = each.name if is_own else f"{each.schema}_{each.name}"
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


def is_duckdb(writer: str | None) -> bool:
    """Whether a footer says that DuckDB wrote the file. Versions before 1.1 say "DuckDB" alone.

    >>> is_duckdb("DuckDB version v2.0.0 (build d54cbbe3df)"), is_duckdb("parquet-cpp-arrow version 26.0.1")
    (True, False)
    """
    return writer is not None and writer.startswith("DuckDB version ")
