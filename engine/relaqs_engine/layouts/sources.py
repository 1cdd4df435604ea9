"""What can be laid out: files, Arrow data and DuckDB relations. Each becomes Parquet files.

Laying a table out reads its source several times, and needs a name for every row. Parquet files give both
(the name is file and row number). Anything else is first copied, in its own order, to one Parquet file. The
folder of a layout is a source as well: its rows are laid out by another key.
"""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from relaqs_engine.duck import Cursor, FileState, list_literal, one_file, quote_text
from relaqs_engine.errors import DataError, LayoutError, SqlError
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, MANIFEST_NAME, Layout, read_manifest
from relaqs_engine.layouts.remote_files import remote_files
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.objects import copy_at, fetch_whole

PathLike = str | os.PathLike[str]

RESERVED_PREFIX = "_relaqs_"
ROW_NUMBER = "row_number() OVER ()"
"""SQL of a row's place in its source, from 1."""
_CSV_ENDINGS = tuple(ending + packed for ending in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".zst"))
_CSV_SEPARATORS = ",;|\t"
# Take types from all rows, and skip no line. DuckDB drops lines at the start that do not fit those below.
_CSV_OPTIONS = "sample_size = -1, skip = 0"
_ROWS_PER_BATCH = 122_880
_NOT_KEPT_BY_PARQUET = {
    "HUGEINT": "cast it to DECIMAL(38,0) or BIGINT",
    "UHUGEINT": "cast it to DECIMAL(38,0) or UBIGINT",
    "INTERVAL": "store it as a number of microseconds, or as two timestamps",
}


@runtime_checkable
class ArrowStream(Protocol):
    """Anything that speaks Arrow: a table, a record batch reader, a polars or pandas frame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class Relation(Protocol):
    """A DuckDB relation. It lives in the user's own connection and is read from there as a stream."""

    def to_arrow_reader(self, batch_size: int = ...) -> Any: ...


TableSource = PathLike | Sequence[PathLike] | ArrowStream | Relation


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A table in Parquet files.

    Attributes:
        files: their paths.
        columns: pairs (name, DuckDB type).
        row_count: the rows of all files.
        byte_count: the bytes of all files.
        description: for people, in the manifest.
        is_staged: the files are our own, so the names of their folders say nothing about columns.
        has_blocks: they are a layout's partitions, which have one column of ours beside the table's.
    """

    files: tuple[Path, ...]
    columns: tuple[tuple[str, str], ...]
    row_count: int
    byte_count: int
    description: str
    is_staged: bool = False
    has_blocks: bool = False

    @property
    def sql(self) -> str:
        """Return what stands for the table after FROM."""
        option = ", hive_partitioning = false" if self.is_staged else ""
        files = f"read_parquet({_list(self.files)}{option})"
        return f"(SELECT * EXCLUDE ({BLOCK_COLUMN}) FROM {files})" if self.has_blocks else files

    @property
    def row_identity(self) -> tuple[str, ...]:
        """Return SQL expressions that together name a row, equally each time the files are read."""
        hidden = ("file_index", "file_row_number")
        if self.has_blocks or any(name.lower() in hidden for name, _ in self.columns):
            return (ROW_NUMBER,)  # the table's own columns, or the subquery, hide DuckDB's
        return hidden


def open_source(source: TableSource | ParquetSource, cursor: Cursor, scratch: Path) -> ParquetSource:
    """Return the source as Parquet files, itself if it was opened before. All else is copied to `scratch`.

    Raises:
        LayoutError: the source is not there, is of no known kind, or cannot be kept in Parquet.
        DataError: it cannot be read, or its files do not have the same columns.
    """
    if isinstance(source, ParquetSource):
        return source
    if (folder := _layout_folder(source)) is not None:
        return _laid_out(read_manifest(folder), cursor, str(folder))
    if isinstance(source, str | os.PathLike | Sequence):
        files = find_files(source)
        for file in files:
            fetch_whole(file)
        if not are_csv(files):
            return parquet_source(files, cursor, source_names(source))
        _check_csv(files, cursor, source_names(source))
        return _staged(f"read_csv({_list(files)}, {_CSV_OPTIONS})", cursor, scratch, source_names(source))
    reader = _arrow_reader(source)
    if not reader.schema.names:
        raise LayoutError(f"a {type(source).__name__} without columns cannot be laid out")
    with cursor.registered(relaqs_source=reader):
        return _staged("relaqs_source", cursor, scratch, f"a {type(source).__name__} in memory")


def find_files(source: PathLike | Sequence[PathLike]) -> tuple[Path, ...]:
    """Return the absolute paths of the files that a path, folder, glob or list of them names, each once.

    Raises LayoutError if one of them names no file.
    """
    paths = [source] if isinstance(source, str | os.PathLike) else source
    files = [file for path in paths for file in _matching(os.fspath(path))]
    if not files:
        raise LayoutError("no source was given; name Parquet or CSV files")
    return tuple(dict.fromkeys(files))


def fingerprint(files: Sequence[Path]) -> tuple[FileState, ...]:
    """Return for each file its path, size in bytes, and time of the last change in nanoseconds."""
    return tuple(_state(file) for file in files)


def _state(file: Path) -> FileState:
    if (copy := copy_at(file)) is not None:
        return copy.state
    found = file.stat()
    return str(file), found.st_size, found.st_mtime_ns


def _matching(text: str) -> list[Path]:
    if (address := Address.of(text)) is not None:
        return remote_files(address)
    path = Path(os.path.abspath(Path(text).expanduser()))
    if path.is_dir():
        return _some(sorted(path.rglob("*.parquet")), f"the folder {text} holds no .parquet file")
    if path.exists():
        return [path]
    if glob.has_magic(text):
        matches = sorted(glob.glob(str(path), recursive=True))
        return _some([Path(match) for match in matches if os.path.isfile(match)], f"no file matches {text}")
    near = difflib.get_close_matches(path.name, _names_in(path.parent))
    hint = f"; did you mean {' or '.join(near)}?" if near else f" (looked for {path})"
    raise LayoutError(f"there is no file {text}{hint}")


def _some(files: list[Path], complaint: str) -> list[Path]:
    if not files:
        raise LayoutError(f"{complaint}; name Parquet or CSV files that exist")
    return files


def _names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def are_csv(files: Sequence[Path]) -> bool:
    """Return whether the files are CSV, by their names. Raises LayoutError where only some are."""
    csv = [file for file in files if file.name.lower().endswith(_CSV_ENDINGS)]
    if csv and len(csv) < len(files):
        other = next(file for file in files if file not in csv)
        raise LayoutError(f"{csv[0].name} is CSV and {other.name} is not; lay out files of one kind")
    return bool(csv)


def _layout_folder(source: TableSource) -> Path | None:
    """Return the folder if the source is a single layout, None otherwise."""
    if isinstance(source, list | tuple) and len(source) == 1:
        return _layout_folder(source[0])
    if not isinstance(source, str | os.PathLike):
        return None
    folder = Path(source)
    return folder if (folder / MANIFEST_NAME).is_file() else None


def _laid_out(layout: Layout, cursor: Cursor, description: str) -> ParquetSource:
    """Return the rows of a layout, to be laid out another way."""
    return parquet_source(layout.paths, cursor, description, is_staged=True, has_blocks=layout.is_sampled)


def _check_csv(files: Sequence[Path], cursor: Cursor, description: str) -> None:
    """Refuse files with lines of different numbers of fields. DuckDB would drop some, or see no fields."""
    with _bad_source(description):
        kept, guessed = (
            [name for name, _ in cursor.describe(f"SELECT * FROM {table}")]
            for table in (f"read_csv({_list(files)}, {_CSV_OPTIONS})", f"read_csv({_list(files)})")
        )
    is_one_column = len(kept) == 1 and any(mark in kept[0] for mark in _CSV_SEPARATORS)
    if kept != guessed or is_one_column:
        raise DataError(
            f"{description} does not read as one table: its lines do not all have the same number of fields "
            f"(the columns would be {', '.join(map(repr, kept))}); repair it, or give a DuckDB relation that "
            "says how to read it, e.g. duckdb.read_csv(…, skip=2)"
        )


def parquet_source(
    files: tuple[Path, ...],
    cursor: Cursor,
    description: str,
    *,
    is_staged: bool = False,
    has_blocks: bool = False,
) -> ParquetSource:
    """Return Parquet files, opened. Raises DataError where they cannot be read as one table."""
    _check_same_columns(files, cursor)
    byte_count = sum(file.stat().st_size for file in files)
    opened = ParquetSource(files, (), 0, byte_count, description, is_staged, has_blocks)
    columns = tuple(cursor.describe(f"SELECT * FROM {opened.sql}"))
    _check_names(columns)
    ((row_count,),) = cursor.rows(f"SELECT count(*) FROM {opened.sql}")
    return replace(opened, columns=columns, row_count=row_count)


def _check_same_columns(files: Sequence[Path], cursor: Cursor) -> None:
    first = _file_columns(files[0], cursor)
    for file in files[1:]:
        columns = _file_columns(file, cursor)
        for name in first.keys() | columns.keys():
            if first.get(name) != columns.get(name):
                raise DataError(
                    f"the files do not have the same columns: {name!r} is {first.get(name, 'missing')} in "
                    f"{files[0]} and {columns.get(name, 'missing')} in {file}; lay out files of one kind"
                )


def _file_columns(file: Path, cursor: Cursor) -> dict[str, str]:
    try:
        return dict(
            cursor.describe(f"SELECT * FROM read_parquet({_list([file])}, hive_partitioning = false)")
        )
    except (DataError, SqlError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{file} cannot be read as Parquet ({reason}); write it again or leave it out"
        ) from error


def _check_names(columns: Sequence[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for name, _ in columns:
        if (other := seen.setdefault(name.lower(), name)) != name:  # to DuckDB, `Ä` and `ä` are two names
            raise LayoutError(
                f"the columns {other!r} and {name!r} differ only by case, which a query does not tell apart; "
                "rename one"
            )
        if name.lower().startswith(RESERVED_PREFIX):
            raise LayoutError(
                f"the column {name!r} has a name that layouts keep for themselves ({RESERVED_PREFIX}…); "
                "rename it, or name a layout by its folder rather than by the files in it"
            )


def _arrow_reader(source: object) -> Any:
    if isinstance(source, Relation):
        return source.to_arrow_reader(_ROWS_PER_BATCH)
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, ArrowStream):
        return pa.RecordBatchReader.from_stream(source)
    raise LayoutError(
        f"a {type(source).__name__} cannot be laid out; give Parquet or CSV files (a path, glob, folder or "
        "list), Arrow data or a DuckDB relation"
    )


def _staged(table_sql: str, cursor: Cursor, scratch: Path, description: str) -> ParquetSource:
    """Copy a table to one Parquet file, rows in order."""
    file = scratch / "source.parquet"
    with _bad_source(description):
        columns = cursor.describe(f"SELECT * FROM {table_sql}")
        _check_names(columns)
        for name, type_text in columns:
            if advice := _NOT_KEPT_BY_PARQUET.get(type_text):
                raise LayoutError(
                    f"column {name!r} is {type_text}, which Parquet does not keep exactly; {advice}"
                )
        cursor.run(f"COPY (SELECT * FROM {table_sql}) TO {quote_text(str(file))} (FORMAT parquet)")
    return parquet_source((file,), cursor, description, is_staged=True)


@contextmanager
def _bad_source(description: str) -> Iterator[None]:
    try:
        yield
    except SqlError as error:
        raise DataError(f"{description} cannot be read: {error}") from error


def source_names(source: PathLike | Sequence[PathLike]) -> str:
    """Return what the user named, in words."""
    paths = [source] if isinstance(source, str | os.PathLike) else list(source)
    shown = ", ".join(os.fspath(path) for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"


def _list(files: Sequence[Path]) -> str:
    return list_literal([one_file(str(file)) for file in files])
