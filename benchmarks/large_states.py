"""What queries cost that keep many groups or values until their end, beside plain DuckDB in the same run.

    python -m benchmarks.large_states [--scale 1] [--data WAREHOUSE] [--only parts,dates] [--runs 5]

Questions about TPC-H's lineitem and orders: rankings of up to 1.5 million groups, COUNT(DISTINCT), and
aggregates that need every value. Runs alternate, medians are shown, and a first run of each is left out.
DuckDB reads the layout's partitions, with as many threads. A wrong answer fails the benchmark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from relaqs_engine.catalog import Catalog
from relaqs_lab.cli.studies import console
from relaqs_tpch.exact import difference
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks import record, tpch
from benchmarks.overhead import WrongAnswerError
from benchmarks.plain_duckdb import PlainDuckDB, files_of_layouts
from benchmarks.timed import OnlineRun, OnlineSession, PlainRun, in_turns, run_plain
from relaqs.executors.threads import usable_cores

QUESTIONS = {
    "parts": "SELECT l_partkey, sum(l_quantity) AS q FROM lineitem GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
    "suppliers": "SELECT l_suppkey, sum(l_quantity) AS q FROM lineitem GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
    "customers": "SELECT o_custkey, count(*) AS n FROM orders GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
    "orders over 300": "SELECT l_orderkey, sum(l_quantity) AS q FROM lineitem GROUP BY 1 "
    "HAVING sum(l_quantity) > 300 ORDER BY 2 DESC, 1 LIMIT 10",
    "distinct dates": "SELECT count(DISTINCT l_shipdate) AS d FROM lineitem",
    "distinct dates, and an average": "SELECT count(DISTINCT l_shipdate) AS d, avg(l_quantity) AS q "
    "FROM lineitem",
    "distinct dates, and a sum, by mode": "SELECT l_shipmode, count(DISTINCT l_shipdate) AS d, "
    "sum(l_quantity) AS q FROM lineitem GROUP BY 1 ORDER BY 1",
    "distinct suppliers, and a sum": "SELECT count(DISTINCT l_suppkey) AS d, sum(l_quantity) AS q "
    "FROM lineitem",
    "distinct suppliers, and a sum, by flag": "SELECT l_returnflag, count(DISTINCT l_suppkey) AS d, "
    "sum(l_quantity) AS q FROM lineitem GROUP BY 1 ORDER BY 1",
    "distinct parts": "SELECT count(DISTINCT l_partkey) AS d FROM lineitem",
    "distinct customers by priority": "SELECT o_orderpriority, count(DISTINCT o_custkey) AS d FROM orders "
    "GROUP BY 1 ORDER BY 1",
    "median": "SELECT median(l_extendedprice) AS m FROM lineitem",
    "median and quantile by mode": "SELECT l_shipmode, median(l_extendedprice) AS m, "
    "quantile_cont(l_tax, 0.9) AS t FROM lineitem GROUP BY 1 ORDER BY 1",
}
CAPTION = (
    "Seconds to the first estimate and to the exact answer, and DuckDB's on the same files. core: the ratio "
    "of core-seconds. estimates: how many were shown before the end."
)
WIDTH = 120  # columns of the table where no terminal says how many there are


@dataclass(frozen=True, slots=True)
class Line:
    """Medians of one question, and their ratios to DuckDB's. estimates: how many came before the end."""

    question: str
    first_seconds: float
    exact_seconds: float
    duckdb_seconds: float
    ratio: float
    core_ratio: float
    estimates: int

    @classmethod
    def of(cls, question: str, online: Sequence[OnlineRun], plain: Sequence[PlainRun]) -> Line:
        exact, duckdb = median(run.exact_seconds for run in online), median(run.seconds for run in plain)
        core = median(run.core_seconds for run in online) / median(run.core_seconds for run in plain)
        first = median(run.first_seconds for run in online)
        return cls(question, first, exact, duckdb, exact / duckdb, core, online[-1].estimates)


def measured(question: str, session: OnlineSession, duckdb: PlainDuckDB, runs: int) -> Line:
    """Return medians of so many runs, after a first one of each kind. Raises WrongAnswerError."""
    sql, online, plain = QUESTIONS[question], list[OnlineRun](), list[PlainRun]()
    sides: list[Callable[[], None]] = [
        lambda: online.append(session.run(sql)),
        lambda: plain.append(run_plain(duckdb, sql)),
    ]
    in_turns(sides, runs + 1)
    for run in online:
        if (wrong := difference(plain[0].answer, run.answer)) is not None:
            raise WrongAnswerError(f"{question}: {wrong}")
    return Line.of(question, online[1:], plain[1:])


def table_of(lines: Sequence[Line], title: str) -> Table:
    table = Table(title=title, caption=CAPTION, caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("question")
    for heading in ("first", "exact", "DuckDB", "ratio", "core", "estimates"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        seconds = (f"{each:.3f}" for each in (line.first_seconds, line.exact_seconds, line.duckdb_seconds))
        table.add_row(
            line.question, *seconds, f"{line.ratio:.2f}", f"{line.core_ratio:.2f}", str(line.estimates)
        )
    return table


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large_states", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H, where data is made")
    parser.add_argument("--data", type=Path, help="warehouse with TPC-H laid out; made where not given")
    parser.add_argument("--only", default="", help="words, with commas: the questions that have one of them")
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind, after a first one")
    parser.add_argument("--threads", type=int, default=usable_cores())
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    facts = record.circumstances("large_states", words)
    warehouse = options.data or tpch.warehouse(options.scale)[0]
    wanted = options.only.split(",")
    lines = []
    with (
        OnlineSession(warehouse, options.threads) as session,
        PlainDuckDB(files_of_layouts(Catalog.open(warehouse)), options.threads) as duckdb,
    ):
        for question in QUESTIONS:
            if any(word in question for word in wanted):
                print(f"{question} …", file=sys.stderr, flush=True)
                lines.append(measured(question, session, duckdb, options.runs))
    title = f"Large states, {warehouse.name}, {options.threads} threads, medians of {options.runs}"
    shown = console(WIDTH)
    shown.print(record.headline(facts), table_of(lines, title), sep="\n")
    content = {
        "threads": options.threads,
        "runs": options.runs,
        "questions": [asdict(line) for line in lines],
    }
    shown.print(f"{record.NOT_OFFICIAL} Record: {record.write('large_states', facts, content)}")


if __name__ == "__main__":
    try:
        main()
    except WrongAnswerError as error:
        sys.exit(f"wrong answer: {error}")
