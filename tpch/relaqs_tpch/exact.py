"""Plain DuckDB over the files of a warehouse: the exact answer beside ours, and the oracle of every error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from relaqs_engine.duck import Database, DatabaseConfig, list_literal, quote_name
from relaqs_engine.layouts import Layout

from relaqs.memory import machine_memory_bytes

MEMORY_SHARE = 0.25  # of the machine's, beside the session's half


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """DuckDB's answer, and what it took."""

    table: pa.Table
    seconds: float
    core_seconds: float


class ExactDuckDB:
    """DuckDB with a view for each table of a warehouse, and nothing of ours. A context manager.

    threads: as many as the session beside it has.
    """

    def __init__(self, layouts: Mapping[str, Layout], threads: int) -> None:
        folders = tuple(str(layout.directory) for layout in layouts.values())
        memory_bytes = int(machine_memory_bytes() * MEMORY_SHARE)
        self._database = Database(DatabaseConfig(folders, memory_bytes, threads=threads))
        self._cursor = self._database.cursor()
        for name, layout in layouts.items():
            files = list_literal([str(path) for path in layout.paths])
            self._cursor.run(f"CREATE VIEW {quote_name(name)} AS FROM read_parquet({files})")

    def answer(self, sql: str) -> ExactAnswer:
        """Return the answer as a whole: there is none before."""
        started, core_started = time.perf_counter(), time.process_time()
        table = self._cursor.table(sql)
        return ExactAnswer(table, time.perf_counter() - started, time.process_time() - core_started)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> ExactDuckDB:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
