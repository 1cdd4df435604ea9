"""What an early answer costs: TPC-H queries online, beside plain DuckDB on the same files, in the same run.

    python -m benchmarks.overhead [--scale 10] [--data WAREHOUSE --raw PARQUET_DIR] [--queries 1,3] [--runs 3]

For every query that can be estimated: seconds to the first estimate, to ±5 %, to ±1 % and to the exact
answer, with error bars and without; and plain DuckDB's with as many threads, on the layout's partitions and
on the original files. Runs alternate, medians are shown. Cold is the first run of a new session: nothing
opened, planned or hoisted, but files as the operating system has them. A wrong answer fails the benchmark; a
missed budget (marked *) does not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from relaqs_engine.catalog import Catalog
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import Mode, OnlinePlan
from relaqs_engine.sql.binder import Binder
from relaqs_lab.cli.studies import console
from relaqs_tpch import QUERIES, query
from relaqs_tpch.exact import difference
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import record, tpch
from benchmarks.medians import Medians, Runs
from benchmarks.plain_duckdb import PlainDuckDB, files_of_folder, files_of_layouts
from benchmarks.timed import OnlineSession, in_turns, run_plain
from relaqs.executors.threads import usable_cores

# Heading, figure, decimals.
COLUMNS = (
    ("cold", "first_cold", 3),
    ("first", "first", 3),
    ("share", "first_share", 2),
    ("±5 %", "within_5", 2),
    ("±1 %", "within_1", 2),
    ("exact", "exact", 2),
    ("DuckDB", "duckdb", 2),
    ("ratio", "ratio", 2),
    ("core", "ratio_core", 2),
    ("orig.", "ratio_originals", 2),
    ("bars", "bars", 2),
    ("core", "bars_core", 2),
    ("tasks", "core_tasks", 2),
    ("else", "core_else", 2),
    ("DuckDB", "core_duckdb", 2),
)
CAPTION = (
    "Seconds to the first estimate, in a new session (cold) and later (share: of DuckDB's exact time), "
    "to ±5 %, ±1 % and exact; DuckDB's on the same files. Ratios of exact to DuckDB: wall, core-seconds, "
    "and wall on the original files. bars: with to without error bars, wall and core-seconds. Core-seconds "
    "in tasks, in all else, and DuckDB's. *: over budget."
)
WIDTH = 140  # columns of the table where no terminal says how many there are


class WrongAnswerError(Exception):
    """The last snapshot is not what plain DuckDB answers."""


def estimated_queries(warehouse: Path, wanted: Sequence[int]) -> dict[int, OnlinePlan]:
    """Return the plans of those of the queries that can be estimated on this warehouse."""
    catalog = Catalog.open(warehouse)
    binder = Binder(catalog)
    plans = {number: plan_query(query(number), catalog, binder) for number in wanted}
    return {number: plan for number, plan in plans.items() if plan.mode is Mode.MERGEABLE}


def measure(number: int, warehouse: Path, raw: Path, rounds: int, threads: int) -> Runs:
    """Return the timed runs of one query. Raises WrongAnswerError."""
    sql = query(number)
    with (
        OnlineSession(warehouse, threads) as session,
        PlainDuckDB(files_of_layouts(Catalog.open(warehouse)), threads) as duckdb,
        PlainDuckDB(files_of_folder(raw), threads) as on_originals,
    ):
        runs = Runs(session.run(sql))
        expected: pa.Table = run_plain(on_originals, sql).answer
        run_plain(duckdb, sql)
        sides: list[Callable[[], None]] = [
            lambda: runs.online.append(session.run(sql)),
            lambda: runs.duckdb.append(run_plain(duckdb, sql)),
            lambda: runs.without_bars.append(session.run(sql, intervals=False)),
            lambda: runs.duckdb_on_originals.append(run_plain(on_originals, sql)),
        ]
        in_turns(sides, rounds)
    for answer in runs.answers:
        if (wrong := difference(expected, answer)) is not None:
            raise WrongAnswerError(f"Q{number}: {wrong}")
    return runs


def table_of(medians: Sequence[Medians], title: str) -> Table:
    table = Table(title=title, caption=CAPTION, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("query", no_wrap=True)
    for heading in ("rows", "batches", "tasks", *(heading for heading, _, _ in COLUMNS)):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in medians:
        marks = each.over_budget()
        figures = [
            f"{each.figures[name]:.{decimals}f}{'*' if name in marks else ''}"
            for _, name, decimals in COLUMNS
        ]
        rows = f"{each.rows / 1e6:.1f} M"
        table.add_row(f"Q{each.number}", rows, str(each.batches), str(each.tasks), *figures)
    return table


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=10.0, help="of TPC-H, where data is made")
    parser.add_argument("--data", type=Path, help="warehouse with TPC-H laid out; made where not given")
    parser.add_argument("--raw", type=Path, help="folder of the Parquet files it was laid out from")
    parser.add_argument("--queries", default="", help="comma-separated numbers; default: all estimated ones")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind, after the cold one")
    parser.add_argument("--threads", type=int, default=usable_cores())
    options = parser.parse_args(words)
    if (options.data is None) != (options.raw is None):
        parser.error("--data and --raw go together: a warehouse, and the files it was laid out from")
    return options


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    facts = record.circumstances("overhead", words)
    warehouse, raw = (options.data, options.raw) if options.data else tpch.warehouse(options.scale)
    wanted = [int(number) for number in options.queries.split(",") if number] or QUERIES
    medians = []
    for number, plan in estimated_queries(warehouse, wanted).items():
        print(f"Q{number} …", file=sys.stderr, flush=True)
        runs = measure(number, warehouse, raw, options.runs, options.threads)
        layout = Catalog.open(warehouse).table(plan.leading)
        is_join = len(plan.streams) + len(plan.hoists) > 1
        medians.append(Medians.of(number, layout.row_count, is_join, runs))
    title = f"TPC-H at scale {options.scale:g}, {options.threads} threads, medians of {options.runs}"
    shown = console(WIDTH)
    shown.print(record.headline(facts), table_of(medians, title), sep="\n")
    content = {
        "scale": options.scale,
        "threads": options.threads,
        "runs": options.runs,
        "queries": [each.as_record() for each in medians],
    }
    shown.print(f"{record.NOT_OFFICIAL} Record: {record.write('overhead', facts, content)}")


if __name__ == "__main__":
    try:
        main()
    except WrongAnswerError as error:
        sys.exit(f"wrong answer: {error}")
