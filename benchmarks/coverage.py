"""How often 95 % intervals hold the truth: queries over many layouts, folded in many orders.

    python -m benchmarks.coverage [--seeds 200] [--scale 1] [--quick] [--anytime] [--together cell|table]
    python -m benchmarks.coverage --shapes pareto15,lognormal2,zeros --seeds 40
    python -m benchmarks.coverage --sql FOLDER --raw FOLDER --sampled TABLE[:KEY],… [--seeds 40 --layouts 10]

Four TPC-H queries, one with an inner average, and three over the flights, with rows and with clusters as
sampling units. With --sql the queries of a folder over the Parquet files of another, with --shapes queries
of several answers over heavy tails; both are asked of a session, as users ask. What they come to, and which
are below 90 %, is said below the table. A cell is one number of one group of one snapshot. Counted are the
cells the product certifies, and beside them all cells whose interval has two ends. With --anytime also: cells
whose interval held at every look. With --together also: snapshots all of whose certified cells held, at a
confidence for each cell or for the table; with --anytime, orders all of whose snapshots did. What counts as
outside the band of 93 to 97 % is derived in `benchmarks.tally`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from math import ceil, isnan, nan
from pathlib import Path

import numpy as np
import pyarrow as pa
from relaqs_engine.catalog import Catalog
from relaqs_engine.plans.plan import IntervalRequest
from relaqs_lab.cli.studies import console
from rich.table import Table

from benchmarks import record, tpch
from benchmarks.coverage_cases import (
    PARTITIONS,
    TPCH_TABLES,
    UNITS,
    Case,
    Units,
    chosen,
    flights_files,
    warehouse,
)
from benchmarks.coverage_suite import Suite, count_looks, sampled_of, shapes
from benchmarks.held import without_limit
from benchmarks.plain_duckdb import PlainDuckDB, files_of_folder
from benchmarks.replay import Replay, Truth, nearest_batches
from benchmarks.tally import Coverage, EveryLook, FloatArray, all_held, counts_of, coverage_of
from relaqs.executors.threads import usable_cores
from relaqs.queries.snapshot import ConfidenceFor

FRACTIONS = (0.01, 0.05, 0.10, 0.25, 0.50)
SUITE_FRACTIONS = (0.10, 0.25)
TOO_LOW = 0.90  # of the certified cells of one query
EVERY_LOOK = "every look"
TOGETHER = ", all cells"
CAPTION = (
    "All in percent. certified: share of cells. covered: share of those whose interval holds the truth, "
    "± two standard errors. width: mean half-width, relative. bounded: share of cells with two ends; "
    "their coverage."
)
WIDTH = 100  # columns of the table where no terminal says how many there are


@dataclass(frozen=True, slots=True)
class Run:
    """One query over one layout in several orders. answer: the exact one. seeds: of the orders.

    is_asked: of a session, instead of folding the partial aggregates of the plan's partitions.
    together: what the confidence is for, where snapshots are counted all of whose cells hold.
    """

    case: Case
    units: Units
    folder: Path
    answer: pa.Table
    seeds: tuple[int, ...]
    anytime: bool = False
    is_asked: bool = False
    together: ConfidenceFor | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """What a run counted, by fraction asked for (and EVERY_LOOK): shape (orders, columns, FIELDS)."""

    columns: tuple[str, ...]
    counts: dict[str, FloatArray]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result. fraction: of the table, as a label. column: "" for all of them together."""

    query: str
    units: str
    fraction: str
    column: str
    anytime: bool
    coverage: Coverage

    @property
    def verdict(self) -> str:
        """Return "low" or "high" where coverage is not as promised; anytime intervals may hold more often."""
        verdict = self.coverage.verdict
        return "" if verdict == "high" and (self.anytime or TOGETHER in self.fraction) else verdict

    @property
    def place(self) -> tuple[str, float]:
        """Return where the row stands among those of its query."""
        fraction = self.fraction.removesuffix(TOGETHER)
        return self.units, 100.0 if fraction == EVERY_LOOK else float(fraction.rstrip("%"))


def label(fraction: float) -> str:
    return f"{fraction:.0%}"


def count(run: Run) -> Counted:
    """Return the counts of one run. Runs in a process of its own."""
    if run.is_asked:
        columns, asked = count_looks(run.case, run.folder, run.answer, run.seeds, SUITE_FRACTIONS)
        return Counted(columns, {label(fraction): found for fraction, found in asked.items()})
    replay = Replay(run.case.sql, Catalog.open(run.folder))
    truth = Truth.of(replay.plan, run.answer)
    counts: dict[str, list[FloatArray]] = {}
    for seed in run.seeds:
        for name, counted in _count_order(replay, truth, seed, run):
            counts.setdefault(name, []).append(counted)
    replay.close()
    return Counted(truth.columns, {name: np.stack(each) for name, each in counts.items()})


def _count_order(replay: Replay, truth: Truth, seed: int, run: Run) -> Iterator[tuple[str, FloatArray]]:
    nearest = nearest_batches(replay.batches(seed), FRACTIONS)
    every = EveryLook(truth.values)
    request = IntervalRequest(anytime=run.anytime, for_table=run.together == "table")
    for index, estimate in replay.estimates(seed, request, lambda index: run.anytime or index in nearest):
        groups, look = truth.look(estimate)
        every.add(groups, look)
        for fraction, batch in zip(FRACTIONS, nearest, strict=True):
            if batch == index:
                yield from _with_together(label(fraction), counts_of(look), run)
    if run.anytime:
        yield from _with_together(EVERY_LOOK, every.counts(), run)


def _with_together(name: str, counts: FloatArray, run: Run) -> Iterator[tuple[str, FloatArray]]:
    yield name, counts
    if run.together:
        yield name + TOGETHER, all_held(counts)


def plan_runs(options: argparse.Namespace, cases: Sequence[Case]) -> list[Run]:
    """Return the runs to make, after making the layouts they need. The orders differ between layouts."""
    orders = ceil(options.seeds / options.layouts)
    runs = []
    for data in dict.fromkeys(case.data for case in cases):
        files, into = _files(data, options), options.data
        mine = [case for case in cases if case.data == data]
        with PlainDuckDB(files_of_folder(files), threads=usable_cores()) as oracle:
            answers = {case.name: oracle.table(case.sql) for case in mine}
        prefix = data if data == "flights" else f"{data}-{options.scale:g}"
        for units in UNITS[data]:
            for seed in range(options.layouts):
                print(f"layout of {data} by {units.name}, seed {seed}", file=sys.stderr, flush=True)
                folder = warehouse(data, units, seed, files, into / "coverage" / prefix)
                seeds = tuple(range(seed * orders, (seed + 1) * orders))
                runs += [
                    Run(
                        *(case, units, folder, answers[case.name], seeds, options.anytime),
                        together=options.together,
                    )
                    for case in mine
                ]
    return runs


def suites_of(options: argparse.Namespace) -> list[Suite]:
    """Return the folders of queries that are asked for, if any."""
    if options.sql:
        name, sampled = options.raw.name, sampled_of(options.sampled)
        return [Suite(name, options.sql, options.raw, sampled, options.partitions)]
    return [shapes(name, options.data) for name in options.shapes.split(",") if name]


def plan_suite(suite: Suite, options: argparse.Namespace) -> list[Run]:
    """Return the runs of a folder's queries, after making the layouts they need."""
    cases = suite.cases([name for name in options.queries.split(",") if name])
    if options.without_limit:
        cases = tuple(replace(case, sql=without_limit(case.sql)) for case in cases)
    answers, orders = suite.answers(cases), ceil(options.seeds / options.layouts)
    runs = []
    for layout in range(options.layouts):
        print(f"layout with seed {layout}", file=sys.stderr, flush=True)
        folder = suite.warehouse(layout, options.data / "coverage")
        seeds = tuple(range(layout * orders, (layout + 1) * orders))
        runs += [
            Run(case, Units(suite.name), folder, answers[case.name], seeds, is_asked=True) for case in cases
        ]
    return runs


def _files(data: str, options: argparse.Namespace) -> Path:
    if data == "flights":
        return flights_files(options.data / "flights-files")
    return options.raw or tpch.originals(options.scale, TPCH_TABLES)


def carry_out(runs: Sequence[Run], processes: int) -> list[tuple[Run, Counted]]:
    """Return what each run counted, in the order of the runs."""
    done = dict(as_counted(runs, processes))
    return [(run, done[i]) for i, run in enumerate(runs)]


def as_counted(runs: Sequence[Run], processes: int) -> Iterator[tuple[int, Counted]]:
    """Yield the place of each run and what it counted, as they end."""
    spawn = multiprocessing.get_context("spawn")  # a process that forks with DuckDB's threads in it may hang
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        waiting = {pool.submit(count, run): i for i, run in enumerate(runs)}
        for ended, future in enumerate(as_completed(waiting), start=1):
            place = waiting[future]
            yield place, future.result()
            said = f"{ended}/{len(runs)} {runs[place].case.name} over {runs[place].folder.name}"
            print(said, file=sys.stderr, flush=True)


def rows_of(counted: Iterable[tuple[Run, Counted]], partitions: int = PARTITIONS) -> list[Row]:
    """Return the coverage of each query, units and fraction: of all columns, then of each.

    partitions: of each layout.
    """
    pieces: dict[tuple[str, str, str], list[FloatArray]] = {}
    first: dict[str, tuple[Run, Counted]] = {}
    for run, found in counted:
        if found.counts:
            first.setdefault(run.case.name, (run, found))
        for fraction, counts in found.counts.items():
            pieces.setdefault((run.case.name, run.units.name, fraction), []).append(counts)
    rows = []
    for (query, units, fraction), of_layouts in pieces.items():
        run, found = first[query]
        counts, layouts = np.concatenate(of_layouts), len(of_layouts)
        for i, column in enumerate(("",) if fraction.endswith(TOGETHER) else ("", *found.columns)):
            of_column = counts[:, i - 1 : i] if column else counts
            coverage = coverage_of(of_column, layouts, partitions)
            rows.append(Row(query, units, fraction, column, run.anytime, coverage))
    return rows


def table_of(rows: Sequence[Row], title: str) -> Table:
    """Return the table people read: all columns of a query together."""
    table = Table(title=title, caption=CAPTION)
    for name in ("query", "units", "scanned"):
        table.add_column(name)
    for name in ("certified", "covered", "±", "width", "bounded", "covered"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    queries = list(dict.fromkeys(row.query for row in rows))
    shown = [row for row in rows if not row.column]
    shown.sort(key=lambda row: (queries.index(row.query), row.place))
    for row, after in zip(shown, [*shown[1:], None], strict=True):
        is_last = after is None or (after.query, after.units) != (row.query, row.units)
        table.add_row(*_texts(row), end_section=is_last)
    return table


def _texts(row: Row) -> list[str]:
    c, is_look = row.coverage, row.fraction != EVERY_LOOK and not row.fraction.endswith(TOGETHER)
    certified = [c.certified_share, c.coverage, 2 * c.standard_error if c.coverage == c.coverage else nan]
    bounded = [c.half_width, c.bounded_share, c.bounded_coverage] if is_look else [nan] * 3
    return [row.query, row.units, row.fraction, *map(_percent, certified + bounded), row.verdict]


def _percent(share: float) -> str:
    return "–" if isnan(share) else f"{100 * share:.1f}"


def outside(rows: Iterable[Row]) -> list[str]:
    """Return in words each single column whose coverage is outside the band by more than chance."""
    return [
        f"{row.query} by {row.units}, {row.fraction} scanned, {row.column}: "
        f"{_percent(row.coverage.coverage)} % ± {_percent(2 * row.coverage.standard_error)} covered, "
        f"{_percent(row.coverage.certified_share)} % certified"
        for row in rows
        if row.column and row.verdict
    ]


def in_all(rows: Iterable[Row]) -> list[str]:
    """Return in words what the queries of a suite come to at each fraction, and which are too low."""
    certified = [row for row in rows if not row.column and row.coverage.certified_share > 0.0]
    said = []
    for fraction in dict.fromkeys(row.fraction for row in certified):
        mine = [row for row in certified if row.fraction == fraction]
        cells = [row.coverage.cells * row.coverage.certified_share for row in mine]
        held = sum(n * row.coverage.coverage for n, row in zip(cells, mine, strict=True)) / sum(cells)
        mean = sum(row.coverage.coverage for row in mine) / len(mine)
        said.append(
            f"{fraction}: {len(mine)} queries certify {sum(cells):,.0f} cells; "
            f"{_percent(held)} % of them hold, mean over queries {_percent(mean)} %"
        )
        said += [
            f"below 90 %: {row.query} over {row.units} at {fraction}, {_percent(row.coverage.coverage)} % "
            f"± {_percent(2 * row.coverage.standard_error)} of {n:,.0f} cells"
            for n, row in zip(cells, mine, strict=True)
            if row.coverage.coverage < TOO_LOW
        ]
    return said


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="orders of partitions, over all layouts")
    parser.add_argument("--layouts", type=int, default=4, help="layouts of each kind")
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H")
    parser.add_argument(
        "--queries",
        default="",
        help="comma-separated: 1, 6, 14, 19, above, delays, routes, late; with --sql names of files",
    )
    parser.add_argument("--sql", type=Path, help="folder of queries, a file each")
    parser.add_argument("--shapes", default="", help="comma-separated: pareto15, lognormal2, zeros, …")
    parser.add_argument("--sampled", default="", help="with --sql: TABLE[:KEY[+KEY]],…; others are static")
    parser.add_argument("--without-limit", action="store_true", help="with --sql: ask for all groups")
    parser.add_argument("--partitions", type=int, default=64, help="with --sql: of each sampled table")
    parser.add_argument("--anytime", action="store_true", help="intervals that hold at every look")
    parser.add_argument("--together", choices=["cell", "table"], help="count snapshots whose cells all hold")
    parser.add_argument("--quick", action="store_true", help="scale 0.1, two layouts, 40 orders")
    parser.add_argument("--data", type=Path, default=record.DATA, help="folder for data that is made")
    parser.add_argument("--raw", type=Path, help="folder of Parquet files; TPC-H is made where not given")
    parser.add_argument("--processes", type=int, default=usable_cores())
    options = parser.parse_args(words)
    if options.quick:
        options.scale, options.layouts, options.seeds = 0.1, 2, 40
    return options


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    facts = record.circumstances("coverage", words)
    suites = suites_of(options)
    if suites:
        runs = [run for suite in suites for run in plan_suite(suite, options)]
        rows = rows_of(carry_out(runs, options.processes), suites[0].partitions)
    else:
        cases = chosen([name for name in options.queries.split(",") if name])
        rows = rows_of(carry_out(plan_runs(options, cases), options.processes))
    kind = "anytime" if options.anytime else "pointwise"
    kind += " table" if options.together == "table" else ""
    data = ", ".join(suite.name for suite in suites) or f"TPC-H at scale {options.scale:g}"
    shown = console(WIDTH)
    table = table_of(rows, f"Coverage of 95 % {kind} intervals, {data}")
    shown.print(record.headline(facts), table, *(in_all(rows) if suites else ()), sep="\n")
    for line in outside(rows):
        shown.print(f"outside 93–97 %: {line}")
    content = {
        "interval": kind,
        "scale": options.scale,
        "seeds": options.seeds,
        "layouts": options.layouts,
        "rows": [{**asdict(row), "verdict": row.verdict} for row in rows],
    }
    shown.print(f"{record.NOT_OFFICIAL} Record: {record.write(f'coverage-{kind}', facts, content)}")


if __name__ == "__main__":
    main()
