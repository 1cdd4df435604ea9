"""What laying lineitem out costs, and how fast the layout is read: in one pass, and by DuckDB in several.

    python -m benchmarks.layout [--scale 3] [--runs 3] [--threads 2] [--partitions 100] [--memory 3GB]
                                [--cluster-by l_orderkey]

Each layout is made by a process of its own: core-seconds for a million rows, seconds, the most memory of that
process, bytes for a row. Then four queries over each, partition by partition on one thread, the two layouts
in turn: nanoseconds of a core for a row. Medians. At last 1 % more rows are appended to the layout
made in one pass, by a process of its own: what that costs beside the layout.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import duckdb
from relaqs_engine.duck import Database, DatabaseConfig, quote_text
from relaqs_engine.layouts import Layout, append, read_manifest, shuffling
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import record, tpch
from benchmarks.memory import peak_bytes
from relaqs.executors.spreading import shuffle
from relaqs.memory import memory_bytes

WAYS = ("DuckDB, several passes", "one pass")
QUERIES = {
    "Q1-like": "SELECT l_returnflag, l_linestatus, _relaqs_block, sum(l_quantity), sum(l_extendedprice), "
    "sum(l_extendedprice * (1 - l_discount)), avg(l_tax), count(*) FROM {} "
    "WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL",
    "Q6-like": "SELECT sum(l_extendedprice * l_discount) FROM {} WHERE l_shipdate >= DATE '1994-01-01' AND "
    "l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    "text": "SELECT count(*) FROM {} WHERE l_comment LIKE '%special%requests%'",
    "keys": "SELECT _relaqs_block, sum(l_partkey + l_suppkey + l_orderkey) FROM {} GROUP BY ALL",
}


@dataclass(frozen=True, slots=True)
class Making:
    """One layout made: core-seconds and seconds it took, and the most memory its process ever had."""

    core_seconds: float
    seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one way to lay out, medians. query_nanoseconds: of a core, for a row, by query."""

    rows: int
    core_seconds_per_million: float
    seconds: float
    peak_bytes: float
    bytes_per_row: float
    query_nanoseconds: Mapping[str, float]

    def cells(self) -> tuple[str, ...]:
        return (
            f"{self.core_seconds_per_million:.2f}",
            f"{self.seconds:.1f}",
            f"{self.peak_bytes / 1e6:,.0f}",
            f"{self.bytes_per_row:.1f}",
            *(f"{self.query_nanoseconds[name]:.0f}" for name in QUERIES),
        )


def lay_out(source: Path, into: Path, way: str, options: argparse.Namespace) -> Making:
    """Lay a file out in this process, which does nothing else."""
    if way != WAYS[1]:
        setattr(shuffling, "pieces_of", lambda source: None)  # noqa: B010 - a name that it imports
    started, core_started = time.perf_counter(), time.process_time()
    shuffle(
        source,
        into,
        partitions=options.partitions,
        cluster_by=options.cluster_by,
        threads=options.threads,
        memory_limit_bytes=memory_bytes(options.memory),
        force=True,
    )
    return Making(time.process_time() - core_started, time.perf_counter() - started, peak_bytes())


def append_rows(source: Path, into: Path, options: argparse.Namespace) -> Making:
    """Append a file in this process, which does nothing else."""
    started, core_started = time.perf_counter(), time.process_time()
    append(source, into, threads=options.threads, memory_limit_bytes=memory_bytes(options.memory))
    return Making(time.process_time() - core_started, time.perf_counter() - started, peak_bytes())


def in_own_process(work: Callable[..., Making], *given: object) -> Making:
    """Return what some work takes in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def appended(source: Path, folder: Path, options: argparse.Namespace) -> Making:
    """Append the first 1 % of a file's rows to the layout made in one pass."""
    few = folder / "few.parquet"
    with duckdb.connect() as connection:
        rows = connection.read_parquet(str(source))
        count = len(rows) // 100
        rows.limit(count).write_parquet(str(few))
    return in_own_process(append_rows, few, folder / str(WAYS.index("one pass")) / "lineitem", options)


def query_seconds(layout: Layout, sql: str) -> float:
    """Return the core-seconds of a query over each partition, one after another, as tasks run it."""
    database = Database(DatabaseConfig((str(layout.directory),), 4 << 30))
    cursor = database.cursor()
    started = time.process_time()
    for path in layout.paths:
        cursor.table(sql.format(f"read_parquet([{quote_text(str(path))}], hive_partitioning = false)"))
    seconds = time.process_time() - started
    database.close()
    return seconds


def figures(layout: Layout, makings: Sequence[Making], queries: Mapping[str, Sequence[float]]) -> Figures:
    rows = layout.row_count
    return Figures(
        rows,
        median(making.core_seconds for making in makings) / rows * 1e6,
        median(making.seconds for making in makings),
        median(making.peak_bytes for making in makings),
        sum(partition.byte_count for partition in layout.partitions) / rows,
        {name: median(seconds) / rows * 1e9 for name, seconds in queries.items()},
    )


def measured(source: Path, folder: Path, options: argparse.Namespace) -> dict[str, Figures]:
    """Return the figures of each way, from runs that take turns."""
    makings: dict[str, list[Making]] = {way: [] for way in WAYS}
    for _ in range(options.runs):
        for i, way in enumerate(WAYS):
            makings[way].append(in_own_process(lay_out, source, folder / str(i) / "lineitem", way, options))
            print(f"{way}: {makings[way][-1]}", flush=True)
    layouts = {way: read_manifest(folder / str(i) / "lineitem") for i, way in enumerate(WAYS)}
    seconds: dict[str, dict[str, list[float]]] = {way: {name: [] for name in QUERIES} for way in WAYS}
    for _ in range(options.runs):
        for name, sql in QUERIES.items():
            for way in WAYS:
                seconds[way][name].append(query_seconds(layouts[way], sql))
    return {way: figures(layouts[way], makings[way], seconds[way]) for way in WAYS}


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layout", description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=3.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--memory", default="3GB")
    parser.add_argument("--cluster-by", help="column; default: rows are the sampling units")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options, facts = arguments(words), record.circumstances("layout", words)
    source = tpch.originals(options.scale, ("lineitem",)) / "lineitem.parquet"
    with tempfile.TemporaryDirectory() as folder:
        found = measured(source, Path(folder), options)
        append_seconds = appended(source, Path(folder), options).core_seconds
    table = Table("", "core-s/M rows", "s", "MB", "B/row", *QUERIES, box=SIMPLE_HEAD)
    table.title = record.headline(facts)
    for way, each in found.items():
        table.add_row(way, *each.cells())
    Console(width=120).print(table)
    one_pass_seconds = found["one pass"].core_seconds_per_million * found["one pass"].rows / 1e6
    share = append_seconds / one_pass_seconds
    print(f"An append of 1 %: {append_seconds:.2f} core-seconds, {share:.1%} of the layout")
    figures_by_way = {way: asdict(each) for way, each in found.items()}
    print(f"Record: {record.write('layout', facts, figures_by_way | {'append': append_seconds})}")


if __name__ == "__main__":
    main()
