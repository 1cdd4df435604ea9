"""Plain DuckDB over Parquet files: the rival in every comparison, and the oracle of every answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import duckdb
import pyarrow as pa
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.plain import PlainTable


class PlainDuckDB:
    """A DuckDB with one view a table, and nothing of ours. files: table name → its Parquet files."""

    def __init__(self, files: Mapping[str, Sequence[Path]], threads: int) -> None:
        # Its defaults but for the threads; the cached footers are what queries here get, too.
        self._connection = duckdb.connect(config={"threads": threads})
        self._connection.execute("SET parquet_metadata_cache = true")
        self._connection.execute("SET enable_progress_bar = false")
        for table, paths in files.items():
            listed = [str(path) for path in paths]
            relation = self._connection.read_parquet(listed, hive_partitioning=False)
            relation.create_view(table)

    def table(self, sql: str) -> pa.Table:
        return self._connection.sql(sql).to_arrow_table()

    def client(self) -> Callable[[str], pa.Table]:
        """Return what answers beside others: a connection of its own to the same database."""
        connection = self._connection.cursor()
        return lambda sql: connection.sql(sql).to_arrow_table()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> PlainDuckDB:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def relation(sql: str) -> duckdb.DuckDBPyRelation:
    """Return the rows of a SELECT as a relation of DuckDB's own connection."""
    found = duckdb.sql(sql)
    assert found is not None
    return found


def files_of_layouts(catalog: Catalog) -> dict[str, Sequence[Path]]:
    """Return the partition files of each table of a catalog, of its first layout where it has several."""
    return {
        name: table.paths for name, table in catalog.tables.items() if isinstance(table, Layout | PlainTable)
    }


def files_of_folder(folder: Path) -> dict[str, Sequence[Path]]:
    """Return the tables of a folder of `<table>.parquet` files, as a generator writes them."""
    found: dict[str, Sequence[Path]] = {path.stem: [path] for path in sorted(folder.glob("*.parquet"))}
    if not found:
        raise SystemExit(f"{folder} holds no Parquet files; name a folder of <table>.parquet files")
    return found
