"""Data in the memory of this process, told by their types. No library is imported to find that out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from relaqs_engine.errors import LayoutError

_ROWS_PER_BATCH = 122_880
_FIRST_PANDAS_THAT_COPIES_ON_WRITE = 3
_LONGEST_SHOWN = 40


@runtime_checkable
class ArrowStream(Protocol):
    """Anything that speaks Arrow: a table, a record batch reader, a polars or pandas frame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class Relation(Protocol):
    """A DuckDB relation. It lives in the user's own connection and is read from there as a stream."""

    def to_arrow_reader(self, batch_size: int = ...) -> Any: ...


def is_a(thing: object, library: str, name: str) -> bool:
    """Whether a thing is of this class of a library, or of one that was derived from it.

    >>> is_a(pa.table({}), "pyarrow", "Table")
    True
    """
    return any(
        each.__name__ == name and each.__module__.split(".")[0] == library for each in type(thing).mro()
    )


def held(source: object) -> Any | None:
    """Return data in memory as DuckDB reads them again and again, None where the source is anything else.

    What the user does to a DataFrame later does not change what is returned.
    """
    if isinstance(source, pa.Table):
        return _with_columns(source, source.column_names)
    if isinstance(source, pa.RecordBatch):
        return held(pa.Table.from_batches([source]))
    if is_a(source, "pandas", "DataFrame"):
        version = int(sys.modules["pandas"].__version__.split(".")[0])
        frame = source.copy(deep=version < _FIRST_PANDAS_THAT_COPIES_ON_WRITE)  # type: ignore[attr-defined]
        return _with_columns(frame, frame.columns)
    if is_a(source, "polars", "DataFrame"):
        return held(_arrow_of(source))
    return None


def _arrow_of(frame: Any) -> pa.Table:
    """Return a polars DataFrame as Arrow data. Raises LayoutError for a column that Arrow has no type for."""
    try:
        return frame.to_arrow()
    except pa.ArrowException as error:
        for name, kind in frame.schema.items():
            try:
                frame.select(name).clear().to_arrow()
            except pa.ArrowException:
                raise LayoutError(
                    f"column {name!r} is a {kind} of polars, which Arrow has no type for; cast it, as in "
                    f"frame.with_columns(polars.col({name!r}).cast(polars.Decimal(38, 0)))"
                ) from error
        raise LayoutError(f"{in_words(frame)} cannot be read: {error}; give it as Arrow data") from error


def row_count_of(data: Any) -> int:
    """Return how many rows data have that `held` returned, or an Arrow dataset."""
    return int(data.count_rows()) if is_a(data, "pyarrow", "Dataset") else len(data)


def _with_columns(data: Any, names: Sequence[object]) -> Any:
    if not len(names):
        raise LayoutError(f"{in_words(data)} without columns is no table; give one with columns")
    return data


def dataset_files(source: object) -> tuple[Path, ...]:
    """Return the files of an Arrow dataset on this machine, () for anything else."""
    if not is_a(source, "pyarrow", "FileSystemDataset") or source.filesystem.type_name != "local":  # type: ignore[attr-defined]
        return ()
    return tuple(Path(os.path.abspath(file)) for file in source.files)  # type: ignore[attr-defined]


def streamed(source: object) -> Any:
    """Return what DuckDB reads once, bit by bit: of readers, datasets, lazy frames and relations.

    Raises LayoutError for what holds no table.
    """
    if is_a(source, "pandas", "Series") or is_a(source, "polars", "Series"):
        raise LayoutError(f"{in_words(source)} is no table; give a DataFrame, such as series.to_frame()")
    if is_a(source, "pyarrow", "Dataset") or is_a(source, "pyarrow", "Scanner"):
        return source
    if is_a(source, "pyarrow", "RecordBatchReader"):
        return source  # DuckDB itself notes that it was read, and refuses to read it again
    if is_a(source, "polars", "LazyFrame"):
        return _lazy_reader(source)
    if isinstance(source, Relation):
        return source.to_arrow_reader(_ROWS_PER_BATCH)
    if isinstance(source, ArrowStream):
        return _reader_of(source)
    raise LayoutError(f"{in_words(source)} is no table; {_next_step(source)}")


def in_words(source: object) -> str:
    """Return what was given, for messages: its type, and a short value as well."""
    kind = type(source).__name__
    kind = f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
    if source is None:
        return "None"
    if isinstance(source, list | tuple) and source:
        return f"{kind} of {type(source[0]).__name__}"
    shown = repr(source) if isinstance(source, str | bytes | int | float | bool | dict) else ""
    return f"{kind} ({shown[:_LONGEST_SHOWN]}{'…' * (len(shown) > _LONGEST_SHOWN)})" if shown else kind


def _lazy_reader(frame: Any) -> pa.RecordBatchReader:
    """Return the rows of a polars LazyFrame, which are computed while they are read."""
    schema = _arrow_of(frame.collect_schema().to_frame()).schema
    batches = (
        batch
        for part in frame.collect_batches(maintain_order=True, chunk_size=_ROWS_PER_BATCH)
        for batch in part.to_arrow().cast(schema).to_batches()
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _reader_of(source: ArrowStream) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid as error:
        raise LayoutError(f"{in_words(source)} is no table: {error}; give one with columns") from error


def _next_step(source: object) -> str:
    if isinstance(source, dict):
        return "make a table of it, such as pyarrow.table({…}); several tables go into tables={name: table}"
    if isinstance(source, list | tuple) or is_a(source, "numpy", "ndarray"):
        return "make a table of it, such as pandas.DataFrame(…)"
    if isinstance(source, bytes | bytearray):
        return "give a path as str, or the data as a table, such as pyarrow.csv.read_csv(io.BytesIO(…))"
    return (
        "give Parquet, CSV, JSON or DuckDB files (a path, glob, folder or list), a pandas or polars "
        "DataFrame, Arrow data, a DuckDB relation, or a Delta or Iceberg table"
    )
