"""Which tables `connect` finds in what it is given: in a file, a folder, a pattern, a list, a DataFrame."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TypeGuard

from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.duck_tables import duck_tables, is_duck_file
from relaqs_engine.layouts.file_kinds import ACCEPTED, is_data
from relaqs_engine.layouts.in_memory import in_words
from relaqs_engine.layouts.lakes import is_lake_folder
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from relaqs_engine.layouts.remote_files import remote_tables
from relaqs_engine.layouts.sources import (
    BrokenSource,
    PathLike,
    TableSource,
    find_files,
    is_path,
    source_names,
)
from relaqs_engine.layouts.stored import is_stored_warehouse
from relaqs_engine.stores.address import Address, check_path

NAMELESS = "data"
"""The table's name where nothing says it, as of a DataFrame."""
_ENDINGS = re.compile(r"(\.\w+)(\.gz|\.zst)?$", re.IGNORECASE)
_HIVE_FOLDER = re.compile(r"[^=]+=[^=]*")
_PATTERN = re.compile(r"[*?\[]")


def is_warehouse(data: object) -> TypeGuard[PathLike]:
    """Whether this is a layout, or a folder of layouts."""
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
            raise LayoutError(
                f"{found[name]} and {source} would both be table {name!r}; move one elsewhere, "
                "or name each with connect(tables={…})"
            )
        found[name] = source
    if not found:
        raise LayoutError(
            f"{source_names(data) or 'an empty list'} holds no table; give {ACCEPTED} files, a Delta or "
            "Iceberg table, or a folder of such, or of layouts that `relaqs shuffle` made"
        )
    return found


def _in_path(given: str | os.PathLike[str]) -> Iterator[tuple[str, TableSource]]:
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
        if entry.is_dir() and _holds_data(entry):
            yield _name_of(entry), entry
        elif is_data(entry):
            yield from _in_entry(entry)


def _in_entry(entry: Path) -> Iterator[tuple[str, TableSource]]:
    """Yield the tables in a file of a folder. What cannot be opened is told when its table is."""
    try:
        yield from list(_in_path(entry))
    except (DataError, LayoutError) as error:
        yield _name_of(entry), BrokenSource(str(entry), error)


def _holds_data(folder: Path) -> bool:
    return any(is_data(file) for file in folder.rglob("*"))


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
