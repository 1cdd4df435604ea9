"""An answer as a file: CSV or Parquet, with the columns of the intervals."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from relaqs_engine.arrow_arrays import python_values

from relaqs import Snapshot

MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


def exported(snapshot: Snapshot, kind: str) -> bytes:
    """Return the whole snapshot in the format: "csv" or "parquet"."""
    sink = io.BytesIO()
    table = with_unique_names(snapshot.table)
    if kind == "csv":
        pa.csv.write_csv(_flat(table), sink)
    else:
        pa.parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def with_unique_names(table: pa.Table) -> pa.Table:
    """Return the table with names that a file can have: a query may give two columns one name."""
    names: list[str] = []
    for name in table.column_names:
        taken, number = set(names), 2
        free = name
        while free in taken:
            free, number = f"{name}_{number}", number + 1
        names.append(free)
    return table.rename_columns(names)


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with what CSV has no form for as text."""
    columns = [
        column
        if not pa.types.is_nested(column.type) and not pa.types.is_interval(column.type)
        else pa.array([None if value is None else str(value) for value in python_values(column)], pa.string())
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=table.column_names)
