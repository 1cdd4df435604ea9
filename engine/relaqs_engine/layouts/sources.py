"""What can be laid out: files, Arrow data and DuckDB relations. Each becomes Parquet files.

Laying a table out reads its source several times, and needs a name for every row. Parquet files give both
(the name is file and row number). Anything else is first copied, in its own order, to one Parquet file.
The folder of a layout is a source as well: its rows are laid out by another key.

`found_tables` tells which tables `connect` finds in what it is given: in a file, a folder, a pattern, a
list, a DataFrame.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import unquote

from relaqs_engine.duck import (
    MAY_HAVE_NAN,
    Cursor,
    FileState,
    file_state,
    is_kept_by_arrow,
    list_literal,
    one_file,
    quote_name,
    quote_text,
    tokenize,
    translated_errors,
)
from relaqs_engine.errors import DataError, LayoutError, SqlError
from relaqs_engine.layouts.file_kinds import (
    ACCEPTED,
    DuckTable,
    FileKind,
    attached_table,
    duck_table,
    duck_tables,
    is_data,
    is_duck_file,
    is_duckdb,
    kind_of,
    what_it_looks_like,
)
from relaqs_engine.layouts.in_memory import ArrowStream, Relation, held, in_words, streamed
from relaqs_engine.layouts.lakes import LakeTable, is_lake_folder, lake_table
from relaqs_engine.layouts.manifest import BLOCK_COLUMN, MANIFEST_NAME, Layout
from relaqs_engine.layouts.manifest_file import read_manifest
from relaqs_engine.layouts.remote import download, is_stored_warehouse, remote_files, remote_tables
from relaqs_engine.layouts.text_files import checked_read, whole_read
from relaqs_engine.stores.address import Address, check_path
from relaqs_engine.stores.mirror import fetch_whole

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class BrokenSource:
    """What was found and cannot be opened. To open it raises the error."""

    name: str
    error: DataError | LayoutError


_TEXT = r"\s*'((?:[^']|'')+)'\s*"
_READ_CALL = re.compile(
    rf"\s*(?:read_(?:csv|json|parquet)(?:_auto)?|parquet_scan)\s*\(({_TEXT}|\s*\[{_TEXT}(?:,{_TEXT})*\]\s*)(?:,.*)?\)\s*",
    re.IGNORECASE | re.DOTALL,
)


def paths_in_call(source: object) -> tuple[str, ...]:
    """Return the paths in a call of DuckDB's that says how files are read, () for anything else.

    >>> paths_in_call("read_csv('sales.csv', delim = ';', nullstr = '-')"), paths_in_call("sales.csv")
    (('sales.csv',), ())
    """
    call = the_only(source)
    found = _READ_CALL.fullmatch(call) if isinstance(call, str) else None
    paths = re.findall(_TEXT, found[1]) if found and _is_one_call(found[0].strip()) else []
    return tuple(path.replace("''", "'") for path in paths)


def _is_one_call(sql: str) -> bool:
    """Whether the bracket that closes the first one ends the text, by DuckDB's tokens."""
    text, begins = sql.encode(), [begin for begin, _ in tokenize(sql)]
    depths = list(accumulate({b"(": 1, b")": -1}.get(text[begin : begin + 1], 0) for begin in begins))
    return begins[-1] == len(text) - 1 and depths[-1] == 0 and 0 not in depths[1:-1]


FileSource: TypeAlias = PathLike | Sequence[PathLike]
TableSource: TypeAlias = FileSource | ArrowStream | Relation | DuckTable | Any
"""What people have: files, data in memory, DuckDB files, tables of a lake. See docs/guide/your-data.md."""

RESERVED_PREFIX = "_relaqs_"
HAS_A_ZONE = "WITH TIME ZONE"
"""What types of moments have in their names whose texts a time zone changes."""
ROW_NUMBER = "row_number() OVER ()"
"""SQL of a row's place in its source, from 1."""
_ENUM = re.compile(r"ENUM\(((?:'(?:[^']|'')*'(?:, )?)*)\)")
_ENUM_VALUE = re.compile(r"'((?:[^']|'')*)'")
_WIDENED = re.compile(r"(?<=\bTIMESTAMP)_M?S\b|(?<=\[)\d+(?=\])")
"""What Parquet keeps no word of, and no value needs: units of times, lengths of arrays."""
_NOT_KEPT_BY_PARQUET = {
    "HUGEINT": "cast it to DECIMAL(38,0) or BIGINT",
    "UHUGEINT": "cast it to DECIMAL(38,0) or UBIGINT",
    "INTERVAL": "store it as a number of microseconds, or as two timestamps",
}


@dataclass(frozen=True, slots=True)
class UnevenColumns:
    """Columns that are not the same in all files of a table: some lack them, or have them with another type.

    DuckDB unites them by name: they are NULL where they are missing, and of the type that holds all values.

    Attributes:
        names: in lower case.
        are_read_in_zone: whether the time zone changes values, as where times without a zone become moments.
    """

    names: frozenset[str] = frozenset()
    are_read_in_zone: bool = False


EVEN = UnevenColumns()


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A table in Parquet files.

    Attributes:
        files: their paths.
        columns: pairs (name, DuckDB type).
        row_counts: the rows of each file.
        description: for people, in the manifest.
        is_staged: the names of the files' folders say nothing about columns: the files are our own, or those
            of a lake.
        has_blocks: they are a layout's partitions, which have one column of ours beside the table's.
        is_by_duckdb: DuckDB wrote all of them. In its footers a column with NaN has no ends.
        uneven: what differs among the files. It is united by name.
    """

    files: tuple[Path, ...]
    columns: tuple[tuple[str, str], ...]
    row_counts: tuple[int, ...]
    byte_count: int
    description: str
    is_staged: bool = False
    has_blocks: bool = False
    is_by_duckdb: bool = False
    uneven: UnevenColumns = EVEN

    @property
    def row_count(self) -> int:
        """Return the rows of all files."""
        return sum(self.row_counts)

    @property
    def sql(self) -> str:
        """Return what stands for the table after FROM."""
        options = "" if self.is_by_duckdb else f", {MAY_HAVE_NAN} = true"
        options += ", hive_partitioning = false" if self.is_staged else ""
        options += ", union_by_name = true" if self.uneven.names else ""
        files = f"read_parquet({_list(self.files)}{options})"
        return f"(SELECT * EXCLUDE ({BLOCK_COLUMN}) FROM {files})" if self.has_blocks else files

    @property
    def folder_columns(self) -> frozenset[str]:
        """Return the columns that DuckDB takes from the names of folders, in lower case: of Year=2022, year.

        A file may have a column of that name as well. DuckDB takes the folder's value, never the file's.
        """
        if self.is_staged:
            return frozenset()
        folders = (part for file in self.files for part in file.parent.parts if "=" in part)
        return frozenset(unquote(part.split("=", 1)[0]).lower() for part in folders)

    @property
    def row_identity(self) -> tuple[str, ...]:
        """Return SQL expressions that together name a row, equally each time the files are read."""
        hidden = ("file_index", "file_row_number")
        if self.has_blocks or any(name.lower() in hidden for name, _ in self.columns):
            return (ROW_NUMBER,)  # the table's own columns, or the subquery, hide DuckDB's
        return hidden


def open_source(
    source: TableSource | ParquetSource, cursor: Cursor, scratch: Path, table: str = ""
) -> ParquetSource:
    """Return the source as Parquet files, itself if it was opened before. All else is copied to `scratch`.

    table: which one of a DuckDB file. If it has none of that name, it is the one that is called as the file.

    Raises:
        LayoutError: the source is not there, is of no known kind, or cannot be kept in Parquet.
        DataError: it cannot be read, or its files do not have the same columns.
    """
    if isinstance(source, ParquetSource):
        return source
    source = the_only(source)
    if paths_in_call(source):
        return staged(str(source), cursor, scratch, str(source))
    if (folder := layout_folder(source)) is not None:
        return _laid_out(read_manifest(folder), cursor, str(folder))
    if (lake := source if isinstance(source, LakeTable) else lake_table(source)) is not None:
        return lake_files(lake, cursor) or _lake_copy(lake, cursor, scratch)
    if isinstance(source, str | os.PathLike) and is_duck_file(source):
        source = duck_table(Path(os.path.abspath(source)), table, Path(source).stem)
    if isinstance(source, DuckTable):
        with attached_table(source, cursor) as table_sql:
            return staged(table_sql, cursor, scratch, source.in_words)
    if (address := Address.of(source)) is not None and is_stored_warehouse(address):
        folder = download(address, scratch / "stored")
        return _laid_out(read_manifest(folder), cursor, str(address))
    if is_path(source):
        return _opened_files(source, cursor, scratch)
    description = f"{in_words(source)} in memory"
    if (data := held(source)) is None:
        with bad_source(description), translated_errors(""):
            _check_kept_by_arrow(source)
            data = streamed(source)
    with cursor.registered(relaqs_source=data):
        return staged(_with_uuids(source, cursor), cursor, scratch, description)


def _types_of(relation: Any) -> list[tuple[str, str]]:
    """Return name and type of the columns of a DuckDB relation, nothing for all else."""
    types = getattr(relation, "types", None) if isinstance(relation, Relation) else None
    return list(zip(relation.columns, map(str, types), strict=True)) if types else []


def _check_kept_by_arrow(source: Any) -> None:
    """Refuse a relation's column whose values Arrow would change: bits, and times with their zones."""
    _check_order(_types_of(source))
    for name, type_text in _types_of(source):
        if not is_kept_by_arrow(type_text):
            raise LayoutError(
                f"column {name!r} is {type_text}, which Arrow does not keep; cast it to VARCHAR"
            )


def _with_uuids(source: Any, cursor: Cursor) -> str:
    """Return what stands after FROM for data in memory. A relation's UUID is no text, as it is to Arrow."""
    types = [type_text for _, type_text in _types_of(source)]
    if "UUID" not in types:
        return "relaqs_source"
    names = [quote_name(name) for name, _ in cursor.describe("SELECT * FROM relaqs_source")]
    casts = (f"{name}::UUID AS {name}" for name, text in zip(names, types, strict=True) if text == "UUID")
    return f"(SELECT * REPLACE ({', '.join(casts)}) FROM relaqs_source)"


def lake_files(lake: LakeTable, cursor: Cursor) -> ParquetSource | None:
    """Return a lake's table as its Parquet files, None where it is more or less than these."""
    if not lake.are_whole:
        return None
    with cursor.registered(relaqs_columns=lake.columns.empty_table()):
        columns = cursor.describe("SELECT * FROM relaqs_columns")
    opened = parquet_source(lake.files, cursor, lake.in_words, is_staged=True)
    is_all = not opened.uneven.names and sorted(opened.columns) == sorted(columns)
    return opened if is_all else None  # some files lack a column that was added later


def _lake_copy(lake: LakeTable, cursor: Cursor, scratch: Path) -> ParquetSource:
    try:
        rows = lake.read() if lake.dataset is None else lake.dataset
    except Exception as error:  # of a library that we do not know
        raise DataError(f"{lake.in_words} cannot be read: {error}; write the table anew") from error
    with cursor.registered(relaqs_source=rows):
        return staged("relaqs_source", cursor, scratch, lake.in_words)


def the_only(source: TableSource) -> TableSource:
    """Return what a list of one thing holds, and anything else as it is."""
    return source[0] if isinstance(source, list | tuple) and len(source) == 1 else source


def is_path(source: object) -> TypeGuard[FileSource]:
    """Whether a source is a path, or a list of paths."""
    if isinstance(source, list | tuple):
        return all(isinstance(each, str | os.PathLike) for each in source)
    return isinstance(source, str | os.PathLike)


def _opened_files(source: FileSource, cursor: Cursor, scratch: Path) -> ParquetSource:
    files, names = find_files(source), source_names(source)
    for file in files:
        fetch_whole(file)
    kind = kind_of(files)
    if kind is FileKind.PARQUET:
        return parquet_source(files, cursor, names)
    with bad_source(names):
        checked = checked_read(kind, files, cursor, names)
    with suppress(DataError):  # a later row is of another type
        if checked is not None:
            return staged(checked.sql, cursor, scratch, names)
    with bad_source(names):
        whole = whole_read(kind, files, cursor, names)
    return staged(whole.sql, cursor, scratch, names)


def find_files(source: FileSource) -> tuple[Path, ...]:
    """Return the absolute paths of the files that a path, folder, glob or list of them names, each once.

    Raises LayoutError if one of them names no file.
    """
    paths = [source] if isinstance(source, str | os.PathLike) else source
    files = [file for path in paths for file in _matching(os.fspath(path))]
    if not files:
        raise LayoutError("no source was given; name Parquet, CSV or JSON files")
    return tuple(dict.fromkeys(files))


def fingerprint(files: Sequence[Path]) -> tuple[FileState, ...]:
    """Return for each file its path, size in bytes, and time of the last change in nanoseconds."""
    return tuple(file_state(str(file)) for file in files)


def _matching(text: str) -> list[Path]:
    check_path(text)
    if (address := Address.of(text)) is not None:
        return remote_files(address)
    path = Path(os.path.abspath(Path(text).expanduser()))
    try:
        if path.is_dir():
            return _files_below(path)
        if path.exists():
            return [path]
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}; allow it, or name another") from error
    if glob.has_magic(text):
        matches = sorted(glob.glob(str(path), recursive=True))
        return _some([Path(match) for match in matches if os.path.isfile(match)], f"no file matches {text}")
    near = difflib.get_close_matches(path.name, _names_in(path.parent))
    hint = f"; did you mean {' or '.join(near)}?" if near else f" (looked for {path})"
    raise LayoutError(f"there is no file {text}{hint}")


def _files_below(folder: Path) -> list[Path]:
    """Return the files of data in a folder and below. What writers hide, as in `_temporary`, is left out."""
    found = sorted(
        file
        for file in folder.rglob("*")
        if is_data(file)
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        and file.is_file()
    )
    return _some(found, f"the folder {folder} holds no Parquet, CSV or JSON file")


def _some(files: list[Path], complaint: str) -> list[Path]:
    if not files:
        raise LayoutError(f"{complaint}; name files that exist")
    return files


def _names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def layout_folder(source: TableSource) -> Path | None:
    """Return the folder if the source is a single layout, None otherwise."""
    if not isinstance(source, str | os.PathLike):
        return None
    folder = Path(source)
    return folder if (folder / MANIFEST_NAME).is_file() else None


def _laid_out(layout: Layout, cursor: Cursor, description: str) -> ParquetSource:
    """Return the rows of a layout, to be laid out another way."""
    return parquet_source(layout.paths, cursor, description, is_staged=True, has_blocks=layout.is_sampled)


def parquet_source(
    files: tuple[Path, ...],
    cursor: Cursor,
    description: str,
    *,
    is_staged: bool = False,
    has_blocks: bool = False,
) -> ParquetSource:
    """Return Parquet files, opened. Raises DataError where they cannot be read as one table."""
    byte_count = sum(file.stat().st_size for file in files)
    columns_of = _columns_of_kinds(files, cursor) if len(files) > 1 else {}
    uneven = _uneven_columns(columns_of)
    opened = ParquetSource(files, (), (), byte_count, description, is_staged, has_blocks, uneven=uneven)
    with _parquet_errors(files[0]) if len(files) == 1 else nullcontext():
        columns = tuple(cursor.describe(f"SELECT * FROM {opened.sql}"))
    check_names(columns)
    for name, type_text in columns:
        if name.lower() in uneven.names and name.lower() not in opened.folder_columns:
            _check_united(name, type_text, columns_of, cursor)
    found = cursor.rows(f"SELECT file_name, num_rows, created_by FROM parquet_file_metadata({_list(files)})")
    row_counts = {name: rows for name, rows, _ in found}
    return replace(
        opened,
        columns=columns,
        row_counts=tuple(row_counts[str(file)] for file in files),
        is_by_duckdb=all(is_duckdb(writer) for *_, writer in found),
    )


def _columns_of_kinds(files: Sequence[Path], cursor: Cursor) -> dict[Path, dict[str, str]]:
    """Return type by name, in lower case, of one file of each kind: their footers have other columns."""
    schemas = (
        "SELECT file_name, list((name, type, type_length, num_children, converted_type, scale, precision, "
        "logical_type) ORDER BY place) AS columns FROM (SELECT *, row_number() OVER () AS place FROM "
        f"parquet_schema({_list(files)})) GROUP BY file_name"
    )
    try:
        found = cursor.rows(f"SELECT min(file_name) FROM ({schemas}) GROUP BY columns ORDER BY 1")
        chosen = [Path(name) for (name,) in found]
    except (DataError, SqlError):
        chosen = list(files)  # one of them cannot be read, and is to be found
    if len(chosen) == 1:
        return {}
    return {
        file: {name.lower(): type_text for name, type_text in _file_columns(file, cursor)} for file in chosen
    }


def _uneven_columns(columns_of: Mapping[Path, Mapping[str, str]]) -> UnevenColumns:
    kinds = columns_of.values()
    types = {name: {kind.get(name) for kind in kinds} for name in chain.from_iterable(kinds)}
    uneven = {name: each for name, each in types.items() if len(each) > 1}
    mixed = [each - {None} for each in uneven.values() if len(each - {None}) > 1]
    zones = any(HAS_A_ZONE in type_text for each in mixed for type_text in filter(None, each))
    return UnevenColumns(frozenset(uneven), zones)


def _check_united(
    name: str, united: str, columns_of: Mapping[Path, Mapping[str, str]], cursor: Cursor
) -> None:
    """Raise DataError where a column's type in some file cannot become the type that it has in all."""
    types = {kind[name.lower()]: file for file, kind in columns_of.items() if name.lower() in kind}
    for type_text in types:
        try:
            cursor.rows(f"SELECT CAST(TRY_CAST('1' AS {type_text}) AS {united})")
        except (DataError, SqlError) as error:
            shown = " and ".join(f"{each} in {file}" for each, file in list(types.items())[:2])
            raise DataError(
                f"the files do not have the same columns: {name!r} is {shown}, and no type "
                "holds the values of both; write one of them again, or make two tables of them"
            ) from error


def _file_columns(file: Path, cursor: Cursor) -> list[tuple[str, str]]:
    with _parquet_errors(file):
        return cursor.describe(f"SELECT * FROM read_parquet({_list([file])}, hive_partitioning = false)")


@contextmanager
def _parquet_errors(file: Path) -> Iterator[None]:
    """Say in the block's errors which file cannot be read, and what it looks like."""
    try:
        yield
    except (DataError, SqlError) as error:
        reason = str(error).splitlines()[0]
        looks = what_it_looks_like(file)
        hint = f", and it looks like {looks}" if looks not in ("", FileKind.PARQUET.value) else ""
        raise DataError(
            f"{file} cannot be read as Parquet ({reason}{hint}); write it again or leave it out"
        ) from error


def check_names(columns: Sequence[tuple[str, str]]) -> None:
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


def staged(table_sql: str, cursor: Cursor, scratch: Path, description: str) -> ParquetSource:
    """Return a table as one Parquet file that it is copied to, rows in order."""
    file = scratch / "source.parquet"
    with bad_source(description):
        columns = cursor.describe(f"SELECT * FROM {table_sql}")
        check_names(columns)
        for name, type_text in columns:
            if advice := _NOT_KEPT_BY_PARQUET.get(type_text):
                raise LayoutError(
                    f"column {name!r} is {type_text}, which Parquet does not keep exactly; {advice}"
                )
        cursor.run(f"COPY (SELECT * FROM {table_sql}) TO {quote_text(str(file))} (FORMAT parquet)")
    opened = parquet_source((file,), cursor, description, is_staged=True)
    _check_kept(columns, opened.columns)
    return opened


def _check_kept(columns: Sequence[tuple[str, str]], kept: Sequence[tuple[str, str]]) -> None:
    """Refuse a column whose values a copy would change. Codes of an ENUM become texts."""
    _check_order(columns)
    for (name, type_text), (_, kept_type) in zip(columns, kept, strict=True):
        if _WIDENED.sub("", type_text) != kept_type and "ENUM(" not in type_text:
            raise LayoutError(
                f"column {name!r} is {type_text}, which Parquet keeps as {kept_type}; cast it to that or to "
                "VARCHAR"
            )


def _check_order(columns: Iterable[tuple[str, str]]) -> None:
    """Refuse an ENUM in another order than that of the texts which stand for its codes in a copy."""
    for name, type_text in columns:
        for found in _ENUM.finditer(type_text):
            values = _ENUM_VALUE.findall(found[1])
            if values != sorted(values, key=str.encode):
                shown = ", ".join(values[:3]) + ", …" * (len(values) > 3)
                raise LayoutError(
                    f"the categories of column {name!r} are in the order {shown}, and a copy would have them "
                    "in that of the alphabet; cast it to VARCHAR, or to a number by which it is ordered"
                )


def copied(select: str, cursor: Cursor, folder: Path, description: str) -> ParquetSource:
    """Return the rows of a SELECT, in order, copied to one Parquet file in a folder that is made for it."""
    folder.mkdir()
    return staged(f"({select})", cursor, folder, description)


@contextmanager
def bad_source(description: str) -> Iterator[None]:
    """Say in the block's errors what could not be read."""
    try:
        yield
    except (DataError, SqlError) as error:
        if description in str(error):
            raise
        raise DataError(f"{description} cannot be read: {error}; repair it, or leave it out") from error


def source_names(source: FileSource) -> str:
    """Return what the user named, in words."""
    paths = [source] if isinstance(source, str | os.PathLike) else list(source)
    shown = ", ".join(os.fspath(path) for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"


def _list(files: Sequence[Path]) -> str:
    return list_literal([one_file(str(file)) for file in files])


NAMELESS = "data"
"""The table's name where nothing says it, as of a DataFrame."""
_ENDINGS = re.compile(r"(\.\w+)(\.gz|\.zst)?$", re.IGNORECASE)
_HIVE_FOLDER = re.compile(r"[^=]+=[^=]*")
_PATTERN = re.compile(r"[*?\[]")


def is_warehouse(data: object) -> TypeGuard[PathLike]:
    """Whether this is a layout, or a folder of layouts."""
    if paths_in_call(data):
        return False
    if (address := Address.of(data)) is not None:
        return is_stored_warehouse(address)
    if not isinstance(data, str | os.PathLike) or not os.fspath(data) or not Path(data).is_dir():
        return False
    return any(chain(Path(data).glob(MANIFEST_NAME), Path(data).glob(f"*/{MANIFEST_NAME}")))


def found_tables(data: TableSource) -> dict[str, TableSource]:
    """Return the sources of tables by the tables' names. A file's table is called like the file.

    Raises LayoutError where there is none, or where two would be one table.
    """
    if isinstance(data, Mapping):
        raise LayoutError(f"{in_words(data)} names tables; give it as connect(tables={{…}})")
    if not is_path(data):
        return {NAMELESS: data}
    found: dict[str, TableSource] = {}
    for name, source in chain.from_iterable(
        map(_in_path, [data] if isinstance(data, str | os.PathLike) else data)
    ):
        if name in found:
            error = LayoutError(
                f"{_place_of(found[name])} and {_place_of(source)} would both be table {name!r}; rename one, "
                "name one file alone, or name each with connect(tables={…})"
            )
            if not isinstance(data, str | os.PathLike):
                raise error
            source = BrokenSource(name, error)  # the other tables of the folder can be asked
        found[name] = source
    if not found:
        raise LayoutError(
            f"{source_names(data) or 'an empty list'} holds no table; give {ACCEPTED} files, a Delta or "
            "Iceberg table, or a folder of such, or of layouts that `relaqs shuffle` made"
        )
    return found


def _place_of(source: TableSource) -> str:
    return source.in_words if isinstance(source, DuckTable) else str(source)


def _in_path(given: str | os.PathLike[str]) -> Iterator[tuple[str, TableSource]]:
    if paths := paths_in_call(given):
        yield _name_of_pattern(os.path.abspath(paths[0])), given
        return
    if (address := Address.of(given)) is not None:
        yield from ((_name_of_pattern(each), each) for each in remote_tables(address))
        return
    check_path(given)
    path = Path(given).expanduser()
    if not path.exists():
        find_files(given)  # raises where the pattern matches nothing
        yield _name_of_pattern(os.path.abspath(path)), given
    elif path.is_dir():
        yield from _in_folder(path)
    elif is_duck_file(path):
        yield from duck_tables(Path(os.path.abspath(path))).items()
    else:
        yield _name_of(path), path


def _in_folder(folder: Path) -> Iterator[tuple[str, TableSource]]:
    if is_lake_folder(folder):
        yield _name_of(Path(os.path.abspath(folder))), folder
        return
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    if any(entry.is_dir() and _HIVE_FOLDER.fullmatch(entry.name) for entry in entries):
        yield _name_of(Path(os.path.abspath(folder))), folder
        return
    for entry in entries:
        if entry.is_dir() and any(is_data(file) for file in entry.rglob("*")):
            yield _name_of(entry), entry
        elif is_data(entry):
            yield from _in_entry(entry)


def _in_entry(entry: Path) -> Iterator[tuple[str, TableSource]]:
    """Yield the tables in a file of a folder. What cannot be opened is told when its table is."""
    try:
        yield from list(_in_path(entry))
    except (DataError, LayoutError) as error:
        yield _name_of(entry), BrokenSource(str(entry), error)


def _name_of_pattern(pattern: str) -> str:
    """Return the table's name: that of the last part with letters outside of the pattern's own signs.

    >>> _name_of_pattern("/data/trips/*.parquet"), _name_of_pattern("/data/trips-201?.csv")
    ('trips', 'trips_201')
    """
    for part in reversed(Path(pattern).parts):
        if name := _plain_name(_PATTERN.split(_without_ending(part))[0]):
            return name
    return NAMELESS


def _name_of(path: Path) -> str:
    """Return the table's name of a file or folder.

    >>> _name_of(Path("Trips 2013.csv.gz"))
    'trips_2013'
    """
    return _plain_name(path.name if path.is_dir() else _without_ending(path.name)) or NAMELESS


def _without_ending(name: str) -> str:
    return _ENDINGS.sub("", name)


def _plain_name(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_").lower()
