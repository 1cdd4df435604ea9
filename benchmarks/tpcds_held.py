"""How many certified cells of a suite hold, in many orders of reading: `benchmarks.tpcds --coverage`.

A query is asked of a session, and cancelled once a quarter of its rows is read. It is looked at twice, at the
first snapshots that have read 10 and 25 % of the rows. A *cell* is one number of one row. The 95 % are
promised of each cell alone (pointwise), not of all cells of an answer at once. The truth is DuckDB's answer
without LIMIT; a certified cell of a row that DuckDB does not have is a miss. Queries below 90 % are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from relaqs_lab.cli.studies import console
from relaqs_lab.records.store import RecordFile
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.coverage import (
    SUITE_FRACTIONS,
    TOO_LOW,
    Counted,
    Row,
    Run,
    as_counted,
    in_all,
    label,
    rows_of,
)
from benchmarks.coverage_cases import PARTITIONS, Case, Units
from benchmarks.held import without_limit
from benchmarks.plain_duckdb import PlainDuckDB, files_of_folder
from benchmarks.tally import Coverage
from relaqs.executors.threads import usable_cores

TOGETHER = 4  # orders that a process looks at before their counts are kept
KIND = "held"  # of a record
CAPTION = (
    "cells: certified ones, over all orders. hold: share of them whose interval holds the truth, ± two "
    "standard errors. width: mean half-width, relative to the mean value. 95 % are promised of each cell. A "
    "question mark: chance may be why."
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What was counted of one run. folder: the name of the warehouse."""

    query: str
    folder: str
    seeds: tuple[int, ...]
    counted: Counted

    @classmethod
    def of(cls, run: Run, counted: Counted) -> Kept:
        return cls(run.case.name, run.folder.name, run.seeds, counted)

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Kept:
        counts = {each: np.array(values, dtype=np.float64) for each, values in record["counts"].items()}
        counted = Counted(tuple(record["columns"]), counts)
        return cls(record["query"], record["folder"], tuple(record["seeds"]), counted)

    def as_record(self) -> dict[str, Any]:
        """Return what `parse` reads."""
        return {
            "query": self.query,
            "folder": self.folder,
            "seeds": self.seeds,
            "columns": self.counted.columns,
            "counts": self.counted.counts,
        }


def show(
    queries: Mapping[str, str],
    files: Path,
    folders: Sequence[Path],
    orders: int,
    *,
    processes: int,
    out: Path | None = None,
) -> None:
    """Print how many certified cells of each query hold.

    Args:
        queries: SQL by name.
        files: a folder of <table>.parquet, for DuckDB.
        folders: warehouses of these tables. They share the orders.
        orders: how many orders of the partitions each query is read in.
        processes: that ask at once.
        out: a file that keeps the counts. What it has is not measured again.
    """
    runs = runs_of(queries, answers_of(queries, files), folders, orders)
    of_layouts = by_layout(counted(runs, processes, out))
    rows = [row for row in rows_of(of_layouts, PARTITIONS) if not row.column]
    silent = [name for name in queries if not any(_certifies(row) for row in rows if row.query == name)]
    shown = console()
    shown.print(table_of(rows, f"Certified cells, {orders} orders over {len(folders)} layouts"))
    for line in in_all(rows):
        shown.print(line)
    shown.print(f"no certified cell: {' '.join(silent) or 'none'}")


def answers_of(queries: Mapping[str, str], files: Path) -> dict[str, pa.Table]:
    """Return what plain DuckDB answers to each query, without LIMIT."""
    with PlainDuckDB(files_of_folder(files), threads=usable_cores()) as oracle:
        return {name: oracle.table(without_limit(sql)) for name, sql in queries.items()}


def runs_of(
    queries: Mapping[str, str], answers: Mapping[str, pa.Table], folders: Sequence[Path], orders: int
) -> list[Run]:
    """Return the runs to make, so that all queries have seen as many orders at any time."""
    each = ceil(orders / len(folders))
    return [
        Run(
            Case(name, "suite", sql),
            Units("suite"),
            folder,
            answers[name],
            _seeds(first, each),
            is_asked=True,
        )
        for first in range(0, each, TOGETHER)
        for folder in folders
        for name, sql in queries.items()
    ]


def _seeds(first: int, end: int) -> tuple[int, ...]:
    return tuple(range(first, min(first + TOGETHER, end)))


def counted(runs: Sequence[Run], processes: int, out: Path | None) -> Iterator[tuple[Run, Counted]]:
    """Yield what each run counted: first what the file has, then what is measured now."""
    file = RecordFile(out) if out else None
    kept = {(k.query, k.folder, k.seeds): k.counted for k in file.read(KIND, Kept.parse)} if file else {}
    places = [(run.case.name, run.folder.name, run.seeds) for run in runs]
    yield from ((run, kept[place]) for run, place in zip(runs, places, strict=True) if place in kept)
    missing = [run for run, place in zip(runs, places, strict=True) if place not in kept]
    for place, found in as_counted(missing, processes) if missing else ():
        if file:
            file.append(KIND, Kept.of(missing[place], found).as_record())
        yield missing[place], found


def by_layout(found: Iterable[tuple[Run, Counted]]) -> list[tuple[Run, Counted]]:
    """Return the counts of each query over each layout as those of one run."""
    pieces: dict[tuple[str, Path], list[tuple[Run, Counted]]] = {}
    for run, counts in found:
        if counts.counts:
            pieces.setdefault((run.case.name, run.folder), []).append((run, counts))
    return [(each[0][0], _in_one([counts for _, counts in each])) for each in pieces.values()]


def _in_one(pieces: Sequence[Counted]) -> Counted:
    first = pieces[0]
    joined = {name: np.concatenate([each.counts[name] for each in pieces]) for name in first.counts}
    return Counted(first.columns, joined)


def table_of(rows: Sequence[Row], title: str) -> Table:
    """Return the certified cells of each query, at each fraction. rows: of all columns together."""
    table = Table(title=title, caption=CAPTION, caption_justify="left", box=SIMPLE_HEAD)
    table.add_column("query", no_wrap=True)
    for fraction in SUITE_FRACTIONS:
        for heading in (f"cells at {label(fraction)}", "held", "hold", "width"):
            table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    found = {(row.query, row.fraction): row.coverage for row in rows if _certifies(row)}
    for query in sorted({query for query, _ in found}):
        mine = [found.get((query, label(fraction))) for fraction in SUITE_FRACTIONS]
        texts = [text for each in mine for text in _texts(each)]
        table.add_row(query, *texts, _flag([each for each in mine if each is not None]))
    return table


def _certifies(row: Row) -> bool:
    return row.coverage.certified_share > 0.0


def _flag(found: Sequence[Coverage]) -> str:
    """Return whether a query is below 90 %, and whether chance may be why."""
    low = [each for each in found if each.coverage < TOO_LOW]
    surely = any(each.coverage + 2.0 * each.standard_error < TOO_LOW for each in low)
    return "" if not low else "below 90 %" if surely else "below 90 %?"


def _texts(coverage: Coverage | None) -> list[str]:
    if coverage is None:
        return ["–"] * 4
    certified = coverage.cells * coverage.certified_share
    return [
        f"{certified:,.0f}",
        f"{certified * coverage.coverage:,.0f}",
        f"{coverage.coverage:.1%} ± {2 * coverage.standard_error:.1%}",
        f"{coverage.half_width:.3g}",
    ]
