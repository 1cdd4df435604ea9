"""What a layout holds, read back without the code under test."""

from __future__ import annotations

from contextlib import closing

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from relaqs_engine.layouts import Layout
from relaqs_engine.layouts.manifest import BLOCK_COLUMN


def partition_table(layout: Layout, partition: int) -> pa.Table:
    """Return the rows of one partition, in the order they are stored, with their blocks."""
    tables = [pq.ParquetFile(path).read() for path in layout.paths_of(partition)]
    return pa.concat_tables(tables, promote_options="permissive")  # a file without NULLs says NOT NULL


def stored_rows(layout: Layout) -> pa.Table:
    """Return all rows, without their blocks."""
    tables = [partition_table(layout, i) for i in range(len(layout.partitions))]
    table = pa.concat_tables(tables, promote_options="permissive")
    return table.drop_columns(BLOCK_COLUMN) if layout.is_sampled else table


def rows_in_any_order(rows: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows as a sorted list: equal lists are equal multisets."""
    with closing(duckdb.connect()) as connection:
        connection.register("rows", rows)
        return connection.execute("FROM rows ORDER BY ALL").fetchall()
