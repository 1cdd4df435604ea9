"""The file of a manifest: written in one step, and checked when it is read.

`check_file` tells whether a file of a layout holds the bytes that were written.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from relaqs_engine.duck import type_names
from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.checksums import SEAL, is_sealed, seal
from relaqs_engine.layouts.manifest import (
    BLOCK_COUNT,
    LAYOUT_MARK,
    MANIFEST_NAME,
    Column,
    Layout,
    OutlierUnits,
    Partition,
    StoredFile,
)
from relaqs_engine.shared_files import replace_content

MANIFEST_VERSION = 11  # 2: outlier indexes; 3: checksums of columns, and of the manifest; 4: appended files;
# 5: heavy units; 6: values that were counted; 7: rows of units with one value; 8: numbers of values,
# outlier units; 9: ends by group; 10: heads; 11: zones

_FIRST_SEALED = 3
_BEFORE_HEADS = 9
_OF_ONE_FILE = ("file", "byte_count", "sha256", "checksums")
_MOST_BYTES = 1 << 30
_ROUNDING = 1e-9
_MOST = {"hashes": 1 << 64} | dict.fromkeys(("minimum", "maximum", "lowest", "highest"), 1 << 128)  # HUGEINTs
_MOST_COUNTED = 1 << 63  # of all other fields
_SIMPLE = (int, float, str, bool)
_COMMON_TYPES = {"bigint", "boolean", "date", "decimal", "double", "enum", "float", "integer", "struct"} | {
    *("smallint", "time", "timestamp", "timestamp with time zone", "tinyint", "varchar")
}
_MAY_BE_NEGATIVE = {"seed", "minimum", "maximum", "inlier_low", "inlier_high", "most", "middle"} | {
    *("lowest", "highest", "source_files")
}
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_NAMED_TYPE = re.compile(r"(\w+(?: WITH TIME ZONE)?)(?:\(.*\))?(?:\[\d*\])*", re.DOTALL)
_Made = TypeVar("_Made")


def read_manifest(directory: str | Path) -> Layout:
    """Return the layout stored in a table's folder. The folder's name is the table's name.

    A process reads a manifest again only after it was changed. Raises LayoutError if there is none, if it is
    damaged, or if a newer version of this program wrote it.
    """
    folder = Path(os.path.abspath(directory))
    path = folder / MANIFEST_NAME
    try:
        state = path.stat()
    except OSError:
        return read_state(folder, path)
    stamp = state.st_ino, state.st_size, state.st_mtime_ns
    known = _READ.get(path)
    if known is None or known[0] != stamp:
        known = _READ[path] = stamp, read_state(folder, path)
    return known[1]


# By path: (inode, bytes, time of change in nanoseconds), and the layout that was read then.
_READ: dict[Path, tuple[tuple[int, int, int], Layout]] = {}


def read_state(folder: Path, path: Path) -> Layout:
    """Return the layout that a manifest describes, which may have another name than usual in the folder."""
    try:
        _check_name(folder.name)
        text = _text_of(path)
    except (FileNotFoundError, NotADirectoryError):
        raise LayoutError(
            f"{folder} holds no layout: there is no {MANIFEST_NAME} in it; {_other_tables(folder)}"
        ) from None
    except OSError as error:
        raise LayoutError(f"{path} cannot be read: {error.strerror}") from error
    return parsed_manifest(folder, text, str(path))


def _check_name(name: str) -> None:
    if not name.partition(LAYOUT_MARK)[0]:
        raise LayoutError(f"the folder {name!r} has no name of a table before the {LAYOUT_MARK}; rename it")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise LayoutError(f"the folder {name!a} has a name that is no UTF-8; rename it") from None


def _text_of(path: Path) -> bytes:
    """Return a file's bytes. What is no file, as a pipe or a device, might have no end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise LayoutError(f"{path} is no file; remove it, or lay the table out again with --force")
        if state.st_size > _MOST_BYTES:
            raise LayoutError(f"{path} has {state.st_size:,} bytes; a manifest has {_MOST_BYTES:,} at most")
        return file.read()


def _other_tables(folder: Path) -> str:
    """Return what to do where a folder is no table: name one of the tables in it, or lay one out."""
    names = [path.parent.name for path in sorted(folder.glob(f"*/{MANIFEST_NAME}"))]
    if not names:
        return "lay a table out with `relaqs shuffle SOURCE --into DIR/TABLE`"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"it has the tables {', '.join(names[:5])}{more}: name one, as in {folder / names[0]}"


def parsed_manifest(folder: Path, text: bytes, path: str) -> Layout:
    """Return the layout that the text of a manifest describes. path: where the text was, for errors.

    Raises LayoutError if it is damaged, or if a newer version of this program wrote it.
    """
    try:
        was_sealed = is_sealed(text)
        entries = json.loads(text)
    except RecursionError as error:
        raise _damaged(path, "its brackets are too deep") from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(entries, dict):
        raise _damaged(path, "it is not a JSON object")
    version = _checked_version(path, entries.pop("manifest_version", None))
    if version >= _FIRST_SEALED and not was_sealed:
        raise _damaged(path, "it has no checksum of its own")
    entries.pop(SEAL, None)
    try:
        layout = _from_entries(folder, entries)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"its fields are not those of a manifest ({error})") from error
    _check_sums(path, layout)
    return layout


def manifest_text(layout: Layout) -> bytes:
    """Return the layout's manifest. It says nothing of where it lies, so that a folder can be moved."""
    entries = {"manifest_version": MANIFEST_VERSION, **_entries(layout)}
    del entries["table"], entries["directory"], entries["remote"]
    for name, before in (("zones", _BEFORE_HEADS + 1), ("heads", _BEFORE_HEADS)):
        if entries[name]:
            break
        entries["manifest_version"] = before  # then programs of before read it too
        del entries[name]
    return seal(json.dumps(entries, allow_nan=False, default=_entries))


def write_manifest(layout: Layout, name: str = MANIFEST_NAME) -> Path:
    """Write the layout's manifest to disk in one step, and return its path."""
    path = layout.directory / name
    replace_content(path, manifest_text(layout))
    return path


def _entries(made: Any) -> dict[str, Any]:
    """Return the fields of a layout or of what is in it, by name."""
    return {field.name: getattr(made, field.name) for field in fields(made)}


def table_folders(warehouse: Path) -> list[Path]:
    """Return the folders of a warehouse's tables, by name. Raises LayoutError if there are none."""
    if not warehouse.is_dir():
        raise LayoutError(f"{warehouse} is not a folder; name one that `relaqs shuffle` wrote tables into")
    folders = sorted(path.parent for path in warehouse.glob(f"*/{MANIFEST_NAME}"))
    if not folders:
        raise LayoutError(
            f"{warehouse} holds no tables; lay one out with `relaqs shuffle SOURCE --into DIR/TABLE`"
        )
    return folders


def is_one_table(folder: Path) -> bool:
    """Whether a folder is a table, and no warehouse: it has a manifest, and no folder in it has one."""
    return (folder / MANIFEST_NAME).exists() and not any(folder.glob(f"*/{MANIFEST_NAME}"))


def tables_at(directory: Path) -> list[Path]:
    """Return the folder itself where it is a table, else the folders of the tables in it."""
    return [directory] if (directory / MANIFEST_NAME).exists() else table_folders(directory)


def _from_entries(folder: Path, entries: dict[str, Any]) -> Layout:
    if entries.get("kind") not in ("sampled", "static") or "remote" in entries:
        raise TypeError("kind must be sampled or static, and where it lies is not written in it")
    return _made(Layout, entries, table=folder.name, directory=folder)


def _made(kind: type[_Made], entries: dict[str, Any], **known: Any) -> _Made:
    """Return an object of a dataclass from its fields in a manifest, each read as its type says.

    Raises TypeError where the class does not have a field, or a field without a default is missing or of
    another type.
    """
    if kind is Partition and "file" in entries:  # of a version before appended files
        only = {name: entries[name] for name in _OF_ONE_FILE if name in entries}
        others = {name: value for name, value in entries.items() if name not in _OF_ONE_FILE}
        entries = {**others, "files": [{**only, "row_count": entries["row_count"]}]}
    readers = _readers_of(cast("Hashable", kind))
    if unknown := sorted(entries.keys() - readers.keys()):
        raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}")
    return kind(**known, **{name: readers[name](value) for name, value in entries.items()})


@cache
def _readers_of(kind: Any) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader_of(name, hint) for name, hint in get_type_hints(kind).items()}


def _reader_of(name: str, kind: Any) -> Callable[[Any], Any]:
    """Return what reads a value of a field, or of a part of it, as its type says."""
    args = get_args(kind)
    if is_dataclass(kind):
        return partial(_made, cast("type[Any]", kind))
    if get_origin(kind) is tuple:
        return _reader_of_list(name, args)
    if len(args) == 2 and args[0] not in _SIMPLE:  # X | None
        read = _reader_of(name, args[0])
        return lambda value: None if value is None else read(value)
    kinds = frozenset((*(args or (kind,)), *((int,) if float in (*args, kind) else ())))
    said = getattr(kind, "__name__", str(kind))
    most, least = _MOST.get(name, _MOST_COUNTED), -math.inf if name in _MAY_BE_NEGATIVE else 0

    def checked(value: Any) -> Any:
        if type(value) not in kinds and get_origin(kind) is not Literal:
            raise TypeError(f"{name} is {value!r}, and must be of type {said}")
        end = math.inf if isinstance(value, float) else most
        if isinstance(value, int | float) and not (least <= value and -end < value < end):
            raise TypeError(f"{name} is {value!r}, which it cannot be")
        return value

    return checked


def _reader_of_list(name: str, args: tuple[Any, ...]) -> Callable[[Any], tuple[Any, ...]]:
    readers = [_reader_of(name, each) for each in args if each is not ...]

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError(f"{name} is {value!r}, and must be a list")
        if args[-1] is not ...:
            return tuple(each(part) for each, part in zip(readers, value, strict=True))
        if args[0] in (int, str) and set(map(type, value)) == {args[0]}:  # there are thousands
            readers[0](min(value))
            readers[0](max(value))
            return tuple(value)
        return tuple(map(readers[0], value))

    return read


def _is_one_type(text: str) -> bool:
    """Whether a text is one type that DuckDB has, as far as that shows without binding it."""
    bare = _QUOTED.sub(lambda found: "null" if found[0] == '"NULL"' else "quoted", text)
    found = _NAMED_TYPE.fullmatch(bare)
    if found is None or not _is_type_name(found[1].lower()) or re.search(r"[^\w ,()\[\]]", bare):
        return False
    depth = 0
    for character in bare:
        depth += (character == "(") - (character == ")")
        if depth < 0 or (character == "," and not depth):
            return False
    return not depth


def _is_type_name(name: str) -> bool:
    return name in _COMMON_TYPES or name in type_names()  # asking takes 30 ms


def _checked_version(path: str, version: object) -> int:
    if not isinstance(version, int):
        raise _damaged(path, "it has no manifest_version")
    if version > MANIFEST_VERSION:
        raise LayoutError(
            f"{path}: manifest version {version} is newer than this program understands "
            f"({MANIFEST_VERSION}); upgrade relaqs"
        )
    return version


def _check_sums(path: str, layout: Layout) -> None:
    """Raise LayoutError where what a manifest says of one thing rules out what it says of another."""
    for faults in (_faults_of_files, _faults_of_rows, _faults_of_columns, _faults_of_units):
        for fault in faults(layout):
            raise _damaged(path, fault)


def _faults_of_columns(layout: Layout) -> Iterator[str]:
    columns, row_count = {each.name: each for each in layout.columns}, layout.row_count
    names = [name.lower() for name in columns]
    if not names or "" in names or len(set(names)) < len(layout.columns):
        yield "its columns do not have a name each"
    if missing := [each for each in layout.cluster_key if each.lower() not in names]:
        yield f"its key {missing[0]!r} is none of its columns"
    for column in layout.columns:
        yield from _faults_of_values(column)
        low, high = column.minimum, column.maximum
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            yield f"the least {column.name} is {low!r}, and the greatest {high!r}"
        if column.null_count > row_count:
            yield f"{column.name} has more NULLs than rows"
        if (column.inlier_low is None) != (column.inlier_high is None):
            yield f"the values of {column.name} that are far out have one end"
        if column.has_outliers and layout.outliers is None:
            yield f"{column.name} has values far out, and there is no outlier index"
        if column.distinct is not None and column.distinct.most > row_count - column.null_count:
            yield f"{column.name} has more distinct values than rows"
        for grouped in column.by_group:
            by = columns[grouped.by].distinct if grouped.by in columns else None
            if by is None or not by.are_told_apart or len(grouped.counted) != len(by.hashes) + 1:
                yield f"{column.name} is not counted for each value of {grouped.by}"
        for ends in column.ends_by:
            by = columns[ends.by].distinct if ends.by in columns else None
            sizes = {len(ends.lowest), len(ends.highest)}
            if by is None or not by.are_told_apart or sizes != {len(by.hashes) + 1}:
                yield f"{column.name} has no ends for each value of {ends.by}"
    for zones in layout.zones:
        sizes = {len(each) for each in zones.ends}
        if not zones.columns or not columns.keys() >= set(zones.columns) or sizes != {2 * len(zones.columns)}:
            named = ", ".join(zones.columns) or "no column"
            yield f"zones of {named} do not have two ends of each of their columns"


def _faults_of_values(column: Column) -> Iterator[str]:
    if not _is_one_type(column.type):
        yield f"the type of {column.name} is {column.type}, which DuckDB does not have"
    if (found := column.distinct) is not None:
        if found.least > found.most or found.relative_error > 1.0:
            yield f"a number of distinct values is {found}, which it cannot be"
        if found.hashes and len(set(found.hashes)) != found.most:
            yield f"{found.most} values cannot have {len(set(found.hashes))} hashes"
    for grouped in column.by_group:
        if not 0.0 < grouped.share <= 1.0:
            yield f"share is {grouped.share!r}, which it cannot be"
    for ends in column.ends_by:
        for low, high in zip(ends.lowest, ends.highest, strict=False):
            if (low is None) != (high is None) or (low is not None and high is not None and low > high):
                yield f"the ends of values by {ends.by} are {low!r} and {high!r}, which they cannot be"


def _faults_of_files(layout: Layout) -> Iterator[str]:
    for part in (*layout.partitions, *layout.heads, *layout.copies):
        if not part.files:
            yield "a partition has no file"
        for stored in part.files:
            file, checksums = PurePosixPath(stored.file), stored.checksums
            if file.is_absolute() or ".." in file.parts:
                yield f"the file {stored.file!r} lies outside the table's folder"
            if checksums and (not checksums.columns or len(checksums.extents) % (2 * len(checksums.columns))):
                yield f"the checksums of {file} have no place for each column"


def _faults_of_rows(layout: Layout) -> Iterator[str]:
    parts, every = layout.partitions, (*layout.partitions, *layout.heads)
    if layout.row_count != sum(each.row_count for each in parts):
        yield "its partitions' rows do not add up to the table's"
    if any(each.row_count != sum(file.row_count for file in each.files) for each in (*every, *layout.copies)):
        yield "the rows of a partition's files do not add up to the partition's"
    if any(each.files[:1] != head.files for each, head in zip(parts, layout.heads, strict=False)):
        yield "a head is not the first file of its partition"
    if any(each.row_count > layout.row_count for each in layout.copies):
        yield "a copy of some rows has more rows than the table"
    if not layout.is_sampled:
        return
    if any(len(each.block_rows) != BLOCK_COUNT for each in every):
        yield f"a partition does not have {BLOCK_COUNT} blocks"
    if any(sum(each.block_rows) != each.row_count or min(each.block_rows) < 0 for each in every):
        yield "the rows of a partition's blocks do not add up to the partition's"


def _faults_of_units(layout: Layout) -> Iterator[str]:
    parts, largest, typical = layout.partitions, layout.max_unit_rows, layout.typical_unit_rows
    if layout.unit_count != sum(each.unit_count for each in parts):
        yield "its partitions' units do not add up to the table's"
    if any(each.unit_count > each.row_count for each in parts):
        yield "a partition has more units than rows"
    if layout.row_count and not layout.row_count <= layout.unit_count * largest <= layout.row_count * largest:
        yield f"{layout.unit_count:,} units of {largest:,} rows at most do not have {layout.row_count:,} rows"
    if not layout.cluster_key and (largest, typical) != (1, 1.0):
        yield f"its units are rows, and have {largest:,} rows"
    if not layout.cluster_key and (layout.outlier_units or layout.heavy or layout.companions):
        yield "its units are rows, and some are kept apart"
    if not _is_size(typical, max(largest, 1)):
        yield f"typical_unit_rows is {typical!r}, and the largest unit has {largest:,}"
    if any(
        not 1 <= each.most_unit_rows <= largest for each in layout.columns if each.most_unit_rows is not None
    ):
        yield "the rows of a unit with one value are more than the unit has"
    names = {"", *(each.name for each in layout.columns)}
    if layout.heavy is not None and any(each.column not in names for each in layout.heavy.bounds):
        yield "its heavy units are bounded by a column that it does not have"
    if layout.outlier_units is not None and not _are_among(layout.outlier_units, layout):
        yield "its outlier units are not among its units"


def _are_among(units: OutlierUnits, layout: Layout) -> bool:
    """Whether outlier units, and the others, have no more rows and units than the partitions have."""
    others, parts, names = units.others, layout.partitions, {each.name for each in layout.columns}
    blocks, counts, keys = others.outlier_block_rows, others.outlier_counts, units.keys
    kept = 0 if units.rows is None else units.rows.row_count
    return (
        len(parts) == len(blocks) == len(counts)
        and all(
            len(rows) == BLOCK_COUNT and count <= each.unit_count and _are_below(rows, each.block_rows)
            for each, rows, count in zip(parts, blocks, counts, strict=True)
        )
        and len(keys) == len(set(keys)) == sum(counts)
        and (not keys or len(layout.cluster_key) == 1)
        and kept <= sum(map(sum, blocks))
        and 1 <= others.max_unit_rows <= layout.max_unit_rows
        and _is_size(others.typical_unit_rows, others.max_unit_rows)
        and len({each.column for each in others.columns}) == len(others.columns)
        and all(
            each.column in names
            and (each.most_unit_rows is None or 1 <= each.most_unit_rows <= others.max_unit_rows)
            for each in others.columns
        )
    )


def _is_size(typical: float, largest: int) -> bool:
    """Whether units may have so many rows typically. It is a quotient of sums, and rounded."""
    return 1.0 - _ROUNDING <= typical <= largest * (1.0 + _ROUNDING)


def _are_below(some: Sequence[int], all_: Sequence[int]) -> bool:
    return all(one <= other for one, other in zip(some, all_, strict=True))


def _damaged(path: str, why: str) -> LayoutError:
    return LayoutError(f"{path} is damaged: {why}; lay the table out again with --force")


HOW_TO_MEND = (
    "restore the file, or lay the table out again with relaqs.shuffle (`relaqs verify` names all files that "
    "are damaged)"
)


def fault_of(path: Path, stored: StoredFile, columns: Iterable[int]) -> str:
    """Return what is wrong with a file, in words; "" if nothing is.

    Args:
        stored: its entry in the manifest.
        columns: positions of the columns to look at. The footer always is.
    """
    try:
        byte_count = path.stat().st_size
        if byte_count != stored.byte_count:
            return f"has {byte_count:,} bytes, not {stored.byte_count:,}"
        is_damaged = bool(damaged_columns(path, stored, columns))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "does not hold the bytes that were written" if is_damaged else ""


def damaged_columns(path: Path, stored: StoredFile, columns: Iterable[int]) -> list[int | None]:
    """Return which of the columns are not as they were written. None is what belongs to no column.

    Of a file of an older layout all bytes are looked at, and None means all of them.
    """
    if stored.checksums is not None:
        return stored.checksums.damaged(path, columns)
    with path.open("rb") as file:
        is_damaged = hashlib.file_digest(file, "sha256").hexdigest() != stored.sha256
    return [None] if is_damaged else []


def check_intact(directory: Path, files: Iterable[StoredFile], columns: Iterable[int]) -> None:
    """Return if these columns of a table's files are as written. Raises DataError naming the first fault."""
    positions = tuple(columns)
    for stored in files:
        path = directory / stored.file
        if fault := fault_of(path, stored, positions):
            raise DataError(f"{path} {fault}; {HOW_TO_MEND}")
