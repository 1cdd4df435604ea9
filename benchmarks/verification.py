"""What checking the bytes costs: checksums of what a query reads, beside the query itself, in one run.

    python -m benchmarks.verification [--scale 10] [--queries 1,3,5,6] [--runs 5]

For every query with streams: core-seconds to check all that it reads, which happens once in a process, and to
answer it exactly when all is known; the milliseconds to check what its first estimate reads, and to that
estimate. Both over files as the operating system has them in memory. Medians.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from relaqs_engine.catalog import Catalog
from relaqs_engine.execution.state import batch_tasks, scheduled_batches
from relaqs_engine.layouts.manifest import Layout, TableRead
from relaqs_engine.plans.aggregate import FoldedPlan
from relaqs_tpch import QUERIES, query
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import record, tpch
from benchmarks.timed import OnlineRun, OnlineSession
from relaqs.executors.files import IntactFiles, StoreFiles
from relaqs.executors.threads import usable_cores

HEADINGS = ("query", "MB", "check", "query", "share", "first check", "first estimate", "share")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one query. Seconds of a core, but for first_seconds, which passed until the first estimate."""

    number: int
    read_bytes: int
    check_seconds: float
    query_seconds: float
    first_check_seconds: float
    first_seconds: float

    @property
    def share(self) -> float:
        return self.check_seconds / self.query_seconds

    @property
    def first_share(self) -> float:
        return self.first_check_seconds / self.first_seconds

    def cells(self) -> tuple[str, ...]:
        return (
            f"{self.number}",
            f"{self.read_bytes / 1e6:,.0f}",
            f"{self.check_seconds:.3f}",
            f"{self.query_seconds:.2f}",
            f"{self.share:.1%}",
            f"{1000 * self.first_check_seconds:.2f}",
            f"{1000 * self.first_seconds:.0f}",
            f"{self.first_share:.1%}",
        )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scale", type=float, default=10.0)
    parser.add_argument("--queries", help="comma-separated numbers; default: all that are sampled")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(words)
    numbers = [int(n) for n in options.queries.split(",")] if options.queries else list(QUERIES)
    warehouse, _ = tpch.warehouse(options.scale)
    catalog, facts = Catalog.open(warehouse), record.circumstances("verification", words)
    costs = []
    with OnlineSession(warehouse, usable_cores()) as session:
        for number in numbers:
            plan = session.plan(query(number))
            if isinstance(plan, FoldedPlan):
                costs.append(_cost(session, plan, catalog, number, options.runs))
    _print(costs, record.headline(facts))
    record.write("verification", facts, {"scale": options.scale, "costs": [cost.cells() for cost in costs]})
    return 0


def _cost(session: OnlineSession, plan: FoldedPlan, catalog: Catalog, number: int, runs: int) -> Cost:
    every, first = _reads(plan, catalog)
    session.run(query(number))  # from now on all is known, planned and hoisted
    answers: list[OnlineRun] = []
    checks, first_checks = [], []
    for _ in range(runs):
        answers.append(session.run(query(number)))
        checks.append(_check_seconds(every))
        first_checks.append(_check_seconds(first))
    return Cost(
        number,
        _byte_count(every, catalog),
        median(checks),
        median(answer.core_seconds for answer in answers),
        median(first_checks),
        median(answer.first_seconds for answer in answers),
    )


def _reads(plan: FoldedPlan, catalog: Catalog) -> tuple[list[TableRead], list[TableRead]]:
    """Return what a query reads to its end, and what its first estimate reads once hoists are there."""
    batches = [
        [
            read
            for task in batch_tasks(plan, catalog, batch)
            for read in task.reads
            if isinstance(read, TableRead)
        ]
        for batch in scheduled_batches(plan, catalog, seed=0)
    ]
    hoisted = [read for hoist in plan.hoists for read in hoist.reads if isinstance(read, TableRead)]
    return [*hoisted, *(read for batch in batches for read in batch)], batches[0]


def _check_seconds(reads: Sequence[TableRead]) -> float:
    files = IntactFiles(StoreFiles())
    for read in reads[:1]:
        files.check([TableRead(read.directory, (), ())])  # its manifest is read with the session
    started = time.process_time()
    files.check(reads)
    return time.process_time() - started


def _byte_count(reads: Sequence[TableRead], catalog: Catalog) -> int:
    """Return about how many bytes are checked: those of the columns."""
    of_folder = {str(each.directory): each for each in catalog.layouts if isinstance(each, Layout)}
    total = 0.0
    for read in reads:
        layout = of_folder[read.directory]
        columns = sum(layout.column(name).byte_count for name in read.columns)
        total += columns * len(read.files) / len(layout.partitions)
    return round(total)


def _print(costs: Sequence[Cost], headline: str) -> None:
    table = Table(*HEADINGS, box=SIMPLE_HEAD, title=headline)
    for cost in costs:
        table.add_row(*cost.cells())
    console = Console()
    console.print(table)
    checked, asked = sum(c.check_seconds for c in costs), sum(c.query_seconds for c in costs)
    console.print(
        f"All together: {checked:.2f} core-seconds to check, {asked:.2f} to answer: {checked / asked:.1%}. "
        f"First estimates: {median(c.first_share for c in costs):.1%} in the median."
    )


if __name__ == "__main__":
    sys.exit(main())
