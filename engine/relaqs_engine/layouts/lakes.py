"""Delta and Iceberg tables. One version of a table is read, for as long as a session lives.

Most versions are nothing but Parquet files, which are read where they lie. Where a version is more than its
files, what it says of them is respected:

- columns that some files lack, or that are in the names of folders: an Arrow dataset knows them
- deleted rows and renamed columns: the lake's own library reads the version once, into a copy
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from operator import and_
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from relaqs_engine.errors import DataError, LayoutError
from relaqs_engine.layouts.in_memory import is_a

_METADATA = "*.metadata.json"
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class LakeTable:
    """One version of a table in a lake.

    Attributes:
        version: in words.
        state: tells this version from any other, with its columns' names.
        columns: those of this version, as an Arrow schema.
        files: its Parquet files if they lie on this machine, else ().
        are_whole: whether these files have all its columns and rows, and nothing else.
        dataset: an Arrow dataset of these files. None where no such thing would be right.
        read: returns the rows, to be read once.
    """

    address: str
    version: str
    state: str
    columns: Any
    files: tuple[Path, ...]
    are_whole: bool
    dataset: Any | None
    read: Callable[[], Any]

    @property
    def in_words(self) -> str:
        return f"{self.address}, {self.version}"


def lake_table(source: object) -> LakeTable | None:
    """Return a source as the version of it that is there now, None where it is no table of a lake.

    Args:
        source: a `deltalake.DeltaTable`, a `pyiceberg.table.Table`, or the folder of such a table.

    Raises:
        LayoutError: the library that reads it is not installed.
        DataError: it cannot be read.
    """
    found = _version_of(source)
    gone = next((file for file in found.files if not file.exists()), None) if found is not None else None
    if found is not None and gone is not None:
        raise DataError(
            f"{found.in_words}, cannot be read: its file {gone} is gone; open a later version, as older ones "
            "lose their files when the table is vacuumed, or restore the file"
        )
    return found


def _version_of(source: object) -> LakeTable | None:
    if is_a(source, "deltalake", "DeltaTable"):
        return _delta(source)
    if is_a(source, "pyiceberg", "Table"):
        return _iceberg(source)
    if not isinstance(source, str | os.PathLike) or not (folder := Path(source).expanduser()).is_dir():
        return None
    if is_delta_folder(folder):
        return _delta(_opened("deltalake", "Delta", folder, lambda library: library.DeltaTable(str(folder))))
    if metadata := _newest_metadata(folder):
        return _iceberg(
            _opened(
                "pyiceberg.table",
                "Iceberg",
                folder,
                lambda library: library.StaticTable.from_metadata(str(metadata)),
            )
        )
    return None


def is_lake_folder(folder: Path) -> bool:
    """Whether a folder is a Delta or Iceberg table. No library is needed to tell."""
    return is_delta_folder(folder) or _newest_metadata(folder) is not None


def is_delta_folder(folder: Path) -> bool:
    """Whether a folder is a Delta table."""
    return (folder / "_delta_log").is_dir()


def _newest_metadata(folder: Path) -> Path | None:
    """Return the newest state of an Iceberg table: the one with the greatest number in its name."""
    found = list((folder / "metadata").glob(_METADATA))
    return max(found, key=lambda file: (_number(file), file.stat().st_mtime_ns), default=None)


def _number(file: Path) -> int:
    found = _NUMBER.search(file.name)
    return int(found[0]) if found else -1


def _opened(module: str, format_name: str, folder: Path, open_with: Callable[[Any], Any]) -> Any:
    try:
        library = import_module(module)
    except ImportError as error:
        raise LayoutError(
            f"{folder} is {'an' if format_name[0] == 'I' else 'a'} {format_name} table, which needs another "
            "package: pip install 'relaqs[lakes]'"
        ) from error
    try:
        return open_with(library)
    except Exception as error:
        raise DataError(f"the {format_name} table {folder} cannot be opened: {error}") from error


def _delta(table: Any) -> LakeTable:
    import pyarrow as pa

    root = _path(table.table_uri)
    folders = tuple(table.metadata().partition_columns)
    try:
        dataset = _without_ends(table.to_pyarrow_dataset(), folders) if root else None
    except Exception:  # it has deleted rows, or columns of other names
        dataset = None
    files = () if root is None or dataset is None else tuple(root / name for name in dataset.files)
    return LakeTable(
        address=_address(table.table_uri),
        version=f"Delta version {table.version()}",
        state=f"{table.metadata().id} {table.version()}",
        columns=pa.schema(table.schema()) if dataset is None else dataset.schema,
        files=files,
        are_whole=bool(files) and not folders,
        dataset=dataset,
        read=table.scan,
    )


def _without_ends(dataset: Any, folders: Sequence[str]) -> Any:
    """Return a dataset whose files promise what is in the names of folders, and no ends of other columns.

    The ends in a Delta log leave NaN out, and are NULL where they are infinite. Arrow skips files by them, or
    takes a condition for met that is not: `x < 9`, by NaN.
    """
    import pyarrow.dataset as ds

    def of_folders(fragment: Any) -> Any:
        keys = ds.get_partition_keys(fragment.partition_expression)
        values = {name: keys[name] for name in folders}
        parts = [ds.field(k).is_null() if v is None else ds.field(k) == v for k, v in values.items()]
        promise = reduce(and_, parts, ds.scalar(True))
        return fragment.format.make_fragment(fragment.path, fragment.filesystem, promise)

    fragments = [of_folders(fragment) for fragment in dataset.get_fragments()]
    return ds.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)


def _iceberg(table: Any) -> LakeTable:
    snapshot = table.current_snapshot()
    scan = table.scan()
    tasks = list(scan.plan_files())
    files = _local([task.file.file_path for task in tasks])
    return LakeTable(
        address=_address(table.location()),
        version=f"Iceberg snapshot {snapshot.snapshot_id if snapshot else 'none'}",
        state=table.metadata_location,
        columns=scan.projection().as_arrow(),
        files=files,
        are_whole=bool(files)
        and not any(task.delete_files for task in tasks)
        and all(_has_these_columns(file, table.schema()) for file in files),
        dataset=None,
        read=scan.to_arrow_batch_reader,
    )


def _has_these_columns(file: Path, schema: Any) -> bool:
    """Whether a Parquet file has the columns of an Iceberg table, and not older ones of the same names."""
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    try:
        found = pyarrow_to_schema(pq.read_schema(file))
    except Exception:  # no Parquet, or written by a program that does not number its columns
        return False
    return _numbered(found) == _numbered(schema)


def _numbered(schema: Any) -> list[tuple[int, str, str]]:
    return [(field.field_id, field.name, str(field.field_type)) for field in schema.fields]


def _local(addresses: Sequence[str]) -> tuple[Path, ...]:
    """Return the addresses as paths, () unless all are on this machine."""
    paths = [_path(address) for address in addresses]
    return tuple(path for path in paths if path is not None) if None not in paths else ()


def _path(address: str) -> Path | None:
    parts = urlsplit(address)
    if not parts.scheme:
        return Path(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _address(uri: str) -> str:
    path = _path(uri)
    return uri if path is None else os.path.normpath(path)
