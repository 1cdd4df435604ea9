"""How often the interval of COUNT(DISTINCT) holds the truth: columns of many shapes, read in many orders.

    python -m benchmarks.distinct [--seeds 200] [--scale 1] [--data DIR --raw PARQUET_DIR]

Uniform and zipf columns, TPC-H's own, and the two extremes: all values once, and few values often. Units are
rows, or orders. Promised is that the truth lies inside for 95 % of the seeds at least, after each mini-batch.
Values per partition are counted once by DuckDB; each seed then folds them as the product's schedule does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from relaqs_bootstrap import counted_interval, distinct_interval
from relaqs_engine.arrow_arrays import integers
from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts import Layout, shuffle
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from relaqs_engine.plans.plan import mini_batches, partition_order
from relaqs_lab.cli.studies import console
from rich.table import Table

from benchmarks import record, tpch
from benchmarks.coverage_cases import PARTITIONS, TPCH_TABLES, UNITS, warehouse
from benchmarks.plain_duckdb import PlainDuckDB
from relaqs.executors.threads import usable_cores

PROMISED = 0.95
CONFIDENCE = 0.95
ROWS = 1_000_000
WIDTH = 110  # columns of the table where no terminal says how many there are
TPCH_COLUMNS = ("l_suppkey", "l_partkey", "l_orderkey", "l_shipdate", "l_extendedprice")
CAPTION = (
    "held: share of the seeds whose interval holds the truth, after the mini-batch where it is least, and on "
    "average over all. half-width: relative, at 1, 10 and 50 % of the rows, and by what the layout has."
)

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Where the values of a column are: an entry per value and partition, those of a value side by side.

    start: each value's first entry, shape (values,). partition, units: shape (entries,).
    """

    start: IntArray
    partition: IntArray
    units: IntArray

    @property
    def values(self) -> int:
        return len(self.start)

    def seen_and_once(self, batch_of: IntArray, batches: int) -> tuple[IntArray, IntArray]:
        """Return how many values were seen, and seen in one unit alone, after each mini-batch.

        batch_of: the mini-batch of each partition.
        """
        batch = batch_of[self.partition]
        first = np.minimum.reduceat(batch, self.start)
        in_first = batch == np.repeat(first, np.diff(np.append(self.start, len(batch))))
        alone = np.add.reduceat(np.where(in_first, self.units, 0), self.start) == 1
        again = np.minimum.reduceat(np.where(in_first, batches, batch), self.start)
        seen = np.bincount(first, minlength=batches + 1)
        once = np.bincount(first[alone], minlength=batches + 1)
        no_more = np.bincount(again[alone], minlength=batches + 1)
        return seen.cumsum()[:batches], (once - no_more).cumsum()[:batches]


@dataclass(frozen=True, slots=True)
class Line:
    """One column. held: share of the seeds, by mini-batch. half_widths: relative, by fraction asked for.

    known: the relative half-width of what the layout has beforehand. is_known_right: whether that holds.
    """

    column: str
    units: str
    values: int
    fractions: tuple[float, ...]
    held: tuple[float, ...]
    half_widths: tuple[float, ...]
    known: float
    is_known_right: bool

    @property
    def is_kept(self) -> bool:
        return min(self.held) >= PROMISED and self.is_known_right


def measure(layout: Layout, units: str, column: str, found: Occurrences, seeds: int) -> Line:
    """Return what becomes of one column in the orders of so many seeds."""
    rows = np.array([partition.row_count for partition in layout.partitions])
    held, halves = [], []
    fractions = np.empty(0)
    for seed in range(seeds):
        batches = mini_batches(partition_order(len(rows), seed), 1.0)[:-1]
        batch_of = np.full(len(rows), len(batches))
        for batch in batches:
            batch_of[list(batch.partitions)] = batch.index
        fractions = np.bincount(batch_of, rows)[: len(batches)].cumsum() / rows.sum()
        seen, once = found.seen_and_once(batch_of, len(batches))
        ends = [
            distinct_interval(np.array([float(d)]), np.array([float(f1)]), float(f), CONFIDENCE)
            for d, f1, f in zip(seen, once, fractions, strict=True)
        ]
        low, high = (np.concatenate(side) for side in zip(*ends, strict=True))
        held.append((low <= found.values) & (found.values <= high))
        halves.append((high - low) / 2 / found.values)
    wanted = [int(np.abs(fractions - f).argmin()) for f in (0.01, 0.1, 0.5)]
    return Line(
        column,
        units,
        found.values,
        tuple(fractions),
        tuple(np.mean(held, axis=0)),
        tuple(np.mean(halves, axis=0)[wanted]),
        *known_beforehand(layout, column, found.values),
    )


def known_beforehand(layout: Layout, column: str, values: int) -> tuple[float, bool]:
    """Return the relative half-width of what a layout has of a column, and whether it holds."""
    known = layout.column(column).distinct
    if known is None:
        return np.inf, True
    least, most, error = np.array([[known.least], [known.most], [known.relative_error]])
    low, high = (float(end[0]) for end in counted_interval(least, most, error, CONFIDENCE))
    return (high - low) / 2 / values, low <= values <= high


def occurrences(layout: Layout, column: str) -> Occurrences:
    """Return where a column's values are; a NULL is no value."""
    units = f"count(DISTINCT ({', '.join(layout.cluster_key)}))" if layout.cluster_key else "count(*)"
    paths = [str(path) for path in layout.paths]
    with PlainDuckDB({}, threads=usable_cores()) as duckdb:
        counted = duckdb.table(
            "SELECT dense_rank() OVER (ORDER BY v) AS value, place, u "
            f"FROM (SELECT {column} AS v, filename, {units} AS u "
            f"FROM read_parquet({paths}, filename = true, hive_partitioning = false) "
            f"WHERE {column} IS NOT NULL GROUP BY ALL) "
            f"JOIN (SELECT unnest({paths}) AS filename, unnest(range({len(paths)})) AS place) "
            "USING (filename) "
            "ORDER BY value"
        )
    value, place, counts = (integers(each) for each in counted.columns)
    return Occurrences(np.flatnonzero(np.diff(value, prepend=0)), place, counts)


def synthetic() -> pa.Table:
    """Return a table of columns of known shapes; the same each time."""
    rng = np.random.default_rng(0)
    zipf = 1.0 / np.arange(1, 100_001) ** 1.1
    steep = 1.0 / np.arange(1, 100_001) ** 2.0
    return pa.table(
        {
            "uniform": rng.integers(0, 50_000, ROWS),
            "zipf_1_1": rng.choice(len(zipf), ROWS, p=zipf / zipf.sum()),
            "zipf_2": rng.choice(len(steep), ROWS, p=steep / steep.sum()),
            "all_once": rng.permutation(ROWS),
            "seven": rng.integers(0, 7, ROWS),
            # Half of the rows have one of ten values, the other half values of their own.
            "two_parts": np.where(np.arange(ROWS) % 2 == 0, rng.integers(0, 10, ROWS), np.arange(ROWS)),
        }
    )


def columns_of(options: argparse.Namespace) -> Iterator[tuple[Layout, str, str]]:
    """Yield (layout, its units, column), laid out on first use."""
    folder = options.data / "distinct" / "columns"
    if not (folder / MANIFEST_NAME).exists():
        shuffle(synthetic(), folder, partitions=PARTITIONS, seed=0)
    made = _layout(folder.parent, "columns")
    for column in made.columns:
        yield made, "rows", column.name
    files = options.raw or tpch.originals(options.scale, TPCH_TABLES)
    for units in UNITS["tpch"]:
        into = options.data / "coverage" / f"tpch-{options.scale:g}"
        layout = _layout(warehouse("tpch", units, 0, files, into), "lineitem")
        for name in TPCH_COLUMNS:
            yield layout, units.name, name


def _layout(warehouse: Path, table: str) -> Layout:
    found = Catalog.open(warehouse).table(table)
    assert isinstance(found, Layout)
    return found


def table_of(lines: Sequence[Line], title: str) -> Table:
    table = Table(title=title, caption=CAPTION)
    table.add_column("column")
    table.add_column("units")
    for heading in ("values", "held, least", "at", "held, mean", "±, 1 %", "10 %", "50 %", "layout"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for line in lines:
        least = int(np.argmin(line.held))
        table.add_row(
            line.column,
            line.units,
            f"{line.values:,}",
            f"{line.held[least]:.1%}",
            f"{line.fractions[least]:.0%}",
            f"{np.mean(line.held):.1%}",
            *(f"{half:.1%}" for half in (*line.half_widths, line.known)),
            "" if line.is_kept else "low",
        )
    return table


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distinct", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="orders of partitions")
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H")
    parser.add_argument("--columns", default="", help="comma-separated; default: all")
    parser.add_argument("--data", type=Path, default=record.DATA, help="folder for data that is made")
    parser.add_argument("--raw", type=Path, help="folder of TPC-H Parquet files; made where not given")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    facts = record.circumstances("distinct", words)
    wanted = [name for name in options.columns.split(",") if name]
    lines = []
    for layout, units, column in columns_of(options):
        if not wanted or column in wanted:
            print(f"{column} by {units} …", file=sys.stderr, flush=True)
            lines.append(measure(layout, units, column, occurrences(layout, column), options.seeds))
    title = f"COUNT(DISTINCT column): {CONFIDENCE:.0%} intervals over {options.seeds} orders of reading"
    shown = console(WIDTH)
    shown.print(record.headline(facts), table_of(lines, title), sep="\n")
    content = {"seeds": options.seeds, "scale": options.scale, "columns": list(map(asdict, lines))}
    shown.print(f"{record.NOT_OFFICIAL} Record: {record.write('distinct', facts, content)}")


if __name__ == "__main__":
    main()
