"""All 22 TPC-H queries: how each is answered, how soon, and how much of an early answer is certified.

    python -m benchmarks.queries [--scale 1] [--data WAREHOUSE] [--runs 1] [--seeds 20] [--queries 1,3]

The tables are laid out twice, by order key and by part or customer key, as `relaqs tpch generate
--second-layouts` does. For every query: its mode, seconds to the first snapshot, to ±5 %, to ±1 % and to the
exact answer, and plain DuckDB's beside it, on the same files with as many threads; runs alternate, medians
are shown, a first run of each is left out. Then how often the certified numbers of all snapshots hold, over
as many orders of reading as there are seeds. A last answer that is not DuckDB's fails the benchmark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from relaqs_engine.catalog import Catalog
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.plan import Mode
from relaqs_engine.sql.binder import Binder
from relaqs_lab.cli.studies import console
from relaqs_tpch import QUERIES, query
from relaqs_tpch.exact import difference
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import record, tpch
from benchmarks.held import coverage_over, without_limit
from benchmarks.overhead import WrongAnswerError
from benchmarks.plain_duckdb import PlainDuckDB, files_of_layouts
from benchmarks.tally import Coverage
from benchmarks.timed import CERTIFIED_FROM, OnlineRun, OnlineSession, PlainRun, run_plain
from relaqs.executors.threads import usable_cores

WIDTH = 132  # columns of the table where no terminal says how many there are
CAPTION = (
    "Seconds to the first snapshot, to ±5 %, ±1 % and the exact answer, in a session that has run the query "
    "before, and DuckDB's on the same files; an error that no estimate reaches is reached by the exact "
    f"answer. certified: of the approximate cells, at {CERTIFIED_FROM:.0%} of the rows; – where the answer "
    "has none, or has come by then. covered: certified cells of all snapshots that hold the truth, ± two "
    "standard errors. Every last answer equals DuckDB's."
)


@dataclass(frozen=True, slots=True)
class Line:
    """One query. seconds: by what they were taken to. reasons: of its mode."""

    number: int
    mode: Mode
    streams: tuple[str, ...]
    reasons: tuple[str, ...]
    seconds: dict[str, float]
    certified_share: float | None
    coverage: Coverage | None

    @property
    def is_progressive(self) -> bool:
        return self.mode is not Mode.EXACT


def measure(number: int, warehouse: Path, rounds: int, threads: int, seeds: int) -> Line:
    """Return the line of one query. Raises WrongAnswerError."""
    sql, catalog = query(number), Catalog.open(warehouse)
    plan = plan_query(sql, catalog, Binder(catalog))
    with (
        OnlineSession(warehouse, threads) as session,
        PlainDuckDB(files_of_layouts(catalog), threads) as duckdb,
    ):
        online, plain = [session.run(sql)], [run_plain(duckdb, sql)]
        for _ in range(rounds):
            online.append(session.run(sql))
            plain.append(run_plain(duckdb, sql))
        orders = [session.snapshots(sql, seed) for seed in range(seeds if plan.mode is not Mode.EXACT else 0)]
        coverage = coverage_over(orders, duckdb.table(without_limit(sql)))
    for run in online:
        if (wrong := difference(plain[0].answer, run.answer)) is not None:
            raise WrongAnswerError(f"Q{number}: {wrong}")
    return Line(
        number=number,
        mode=plan.mode,
        streams=tuple(stream.table for stream in plan.streams),
        reasons=plan.reasons,
        seconds=_medians(online[1:], plain[1:]),
        certified_share=online[0].certified_share,
        coverage=coverage,
    )


def _medians(online: Sequence[OnlineRun], plain: Sequence[PlainRun]) -> dict[str, float]:
    return {
        "first": median(run.first_seconds for run in online),
        "±5 %": median(run.within_5_seconds for run in online),
        "±1 %": median(run.within_1_seconds for run in online),
        "exact": median(run.exact_seconds for run in online),
        "DuckDB": median(run.seconds for run in plain),
    }


def table_of(lines: Sequence[Line], title: str) -> Table:
    table = Table(title=title, caption=CAPTION, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("query", no_wrap=True)
    table.add_column("mode", no_wrap=True)
    for heading in (*lines[0].seconds, "certified", "covered", "±"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("streams; why exactly")
    for line in lines:
        certified = "–" if line.certified_share is None else f"{line.certified_share:.0%}"
        seconds = [f"{each:.3f}" if name == "first" else f"{each:.2f}" for name, each in line.seconds.items()]
        how = ", ".join(line.streams) if line.is_progressive else "; ".join(line.reasons)
        table.add_row(f"Q{line.number}", line.mode.value, *seconds, certified, *_covered(line.coverage), how)
    return table


def _covered(coverage: Coverage | None) -> tuple[str, str]:
    if coverage is None or not coverage.certified_share:
        return "–", "–"
    return f"{coverage.coverage:.1%}", f"{2 * coverage.standard_error:.1%}"


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queries", description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H, where data is made")
    parser.add_argument("--data", type=Path, help="warehouse with TPC-H laid out; made where not given")
    parser.add_argument("--queries", default="", help="comma-separated numbers; default: all 22")
    parser.add_argument("--runs", type=int, default=1, help="runs of each kind, after the first")
    parser.add_argument("--seeds", type=int, default=20, help="orders of reading, for the coverage")
    parser.add_argument("--threads", type=int, default=usable_cores())
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    facts = record.circumstances("queries", words)
    warehouse = options.data or tpch.warehouse(options.scale, second_layouts=True)[0]
    wanted = [int(number) for number in options.queries.split(",") if number] or QUERIES
    lines = []
    for number in wanted:
        print(f"Q{number} …", file=sys.stderr, flush=True)
        lines.append(measure(number, warehouse, options.runs, options.threads, options.seeds))
    progressive = sum(line.is_progressive for line in lines)
    title = f"TPC-H in {warehouse}, {options.threads} threads: {progressive} of {len(lines)} are progressive"
    shown = console(WIDTH)
    shown.print(record.headline(facts), table_of(lines, title), sep="\n")
    content = {
        "data": str(warehouse),
        "threads": options.threads,
        "runs": options.runs,
        "seeds": options.seeds,
        "queries": list(map(asdict, lines)),
    }
    shown.print(f"{record.NOT_OFFICIAL} Record: {record.write('queries', facts, content)}")


if __name__ == "__main__":
    try:
        main()
    except WrongAnswerError as error:
        sys.exit(f"wrong answer: {error}")
