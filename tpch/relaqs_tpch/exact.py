"""Plain DuckDB over the files of a warehouse: the exact answer beside ours, and the oracle of every error.

Two answers to one query are the same if integers and decimals are identical, and floats within 1e-9.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from relaqs_engine.duck import Database, DatabaseConfig, list_literal, quote_name
from relaqs_engine.layouts import Table

from relaqs.memory import machine_memory_bytes

FLOAT_TOLERANCE = 1e-9  # relative: sums in another order


def difference(expected: pa.Table, found: pa.Table) -> str | None:
    """Return in words where an answer is not the expected one, in whatever order its rows are; or None."""
    if expected.schema.types != found.schema.types:
        return f"its types are {_listed(found)}, not {_listed(expected)}"
    if expected.num_rows != found.num_rows:
        return f"it has {found.num_rows} rows, not {expected.num_rows}"
    for position, row in enumerate(zip(_rows(expected), _rows(found), strict=True)):
        for name, right, wrong in zip(expected.column_names, *row, strict=True):
            if not _same(right, wrong):
                return f"{name} is {wrong!r}, not {right!r}, in sorted row {position}"
    return None


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows in an order that floats have the least say in: they may differ in the last digit."""
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(rows, key=lambda row: ([str(x) for x in row if not isinstance(x, float)], repr(row)))


def _listed(table: pa.Table) -> str:
    return ", ".join(map(str, table.schema.types))


def _same(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        both_nan = math.isnan(expected) and math.isnan(found)
        return both_nan or math.isclose(expected, found, rel_tol=FLOAT_TOLERANCE)
    return expected == found


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

    def __init__(self, layouts: Mapping[str, Table], threads: int) -> None:
        folders = tuple(str(layout.directory) for layout in layouts.values())
        memory_bytes = int(machine_memory_bytes() * MEMORY_SHARE)
        self._database = Database(DatabaseConfig(folders, memory_bytes, threads=threads))
        self._cursor = self._database.cursor()
        for name, layout in layouts.items():
            files = list_literal(layout.file_names)
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
