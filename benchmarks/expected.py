"""How often the time to a target lies where it was predicted: `Snapshot.expected` against what happened.

    python -m benchmarks.expected [--data WAREHOUSE …] [--runs 500] [--beside 1,2,3] [--queries FILE]

Runs queries to their exact end, in random order and with random seeds, one, two and three at a time. After
each mini-batch it asks when the error will be 20, 10, 5, 2 and 1 %, as far as it is not yet. A warehouse is
TPC-H or the flights of New York (the default, made in a temporary folder); --queries has others, one a line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from relaqs_tpch.warehouse import query
from rich.console import Console
from rich.table import Table

from relaqs import Session, Snapshot, connect
from relaqs.cli import data as flights
from relaqs.prediction.ahead import Course, Seen, expected

TARGETS = (0.2, 0.1, 0.05, 0.02, 0.01)
TPCH = (1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 19)
GROUPS = ("carrier", "origin", "dest", "hour")
VALUES = (
    "avg(dep_delay)",
    "sum(distance)",
    "count(*)",
    "avg(air_time)",
    "sum(arr_delay - dep_delay) / count(*)",
)


@dataclass(frozen=True, slots=True)
class Run:
    """All answers of one query, to the exact one. beside: how many ran at a time, itself too."""

    sql: str
    beside: int
    cores: float
    begun_seconds: float
    seen: tuple[Seen, ...]

    def course(self, count: int) -> Course:
        """Return what was known after so many answers."""
        ahead = tuple(each.fraction for each in self.seen[count:])
        return Course(self.seen[:count], ahead, self.cores, self.begun_seconds)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One prediction and what came. answers: so many were seen."""

    beside: int
    answers: int
    low: float
    seconds: float
    high: float
    needed: float

    @property
    def holds(self) -> bool:
        return self.low <= self.needed <= self.high


def predictions(run: Run) -> Iterator[Prediction]:
    """Yield what was predicted after each answer, for each target that was not reached."""
    for target in TARGETS:
        reached = next(i for i, each in enumerate(run.seen) if each.error <= target)
        for count in range(1, reached + 1):
            found = expected(run.course(count), target)
            needed = run.seen[reached].elapsed_seconds - run.seen[count - 1].elapsed_seconds
            yield Prediction(run.beside, count, found.low, found.seconds, found.high, needed)


def record(session: Session, queries: Sequence[str], count: int, beside: int, seed: int) -> Iterator[Run]:
    """Yield about `count` runs of random queries, so many at a time."""
    random = np.random.default_rng(seed)
    for _ in range(-(-count // beside)):
        chosen = [str(each) for each in random.choice(queries, size=beside)]
        running = [session.online_sql(sql, seed=int(random.integers(1 << 30))) for sql in chosen]
        for sql, each in zip(chosen, running, strict=True):
            yield _run_of(sql, beside, each.result())


def _run_of(sql: str, beside: int, last: Snapshot) -> Run:
    assert last.course is not None, "every answer of a query has its course"
    course = last.course
    return Run(sql, beside, course.cores, course.begun_seconds, course.seen)


def queries_of(session: Session) -> list[str]:
    """Return the queries for a warehouse, by its tables."""
    if "lineitem" in session.tables:
        return [query(number) for number in TPCH]
    pairs = product(GROUPS, VALUES)
    return [f"SELECT {group}, {value} FROM flights GROUP BY {group}" for group, value in pairs]


def table_of(found: Sequence[Prediction]) -> Table:
    table = Table("after", "number", "held", "earlier", "later", "high ÷ low", "off by")
    lots = [("all", found)]
    lots += [(f"answer {n}", [p for p in found if p.answers == n]) for n in (1, 2, 3)]
    lots += [("later answers", [p for p in found if p.answers > 3])]
    lots += [
        (f"{n} at a time", [p for p in found if p.beside == n]) for n in sorted({p.beside for p in found})
    ]
    for name, lot in lots:
        if lot:
            table.add_row(name, *_row(lot))
    return table


def _row(lot: Sequence[Prediction]) -> Iterable[str]:
    early = np.mean([p.needed < p.low for p in lot])
    held = np.mean([p.holds for p in lot])
    ratio = np.median([p.high / p.low for p in lot])
    off = np.median([max(p.seconds / p.needed, p.needed / p.seconds) for p in lot])
    return (
        f"{len(lot):,}",
        f"{held:.1%}",
        f"{early:.1%}",
        f"{1 - held - early:.1%}",
        f"{ratio:.1f}",
        f"× {off:.2f}",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="warehouses")
    parser.add_argument("--queries", type=Path, help="a file of SELECTs for them, one a line")
    parser.add_argument("--runs", type=int, default=500, help="of all warehouses together")
    parser.add_argument("--beside", default="1,2,3", help="so many queries at a time")
    parser.add_argument("--keep", type=Path, help="a file of JSON lines to add the runs to")
    options = parser.parse_args(arguments)
    beside = [int(each) for each in options.beside.split(",")]
    with TemporaryDirectory() as folder:
        if not options.data:
            flights.lay_out(Path(folder))
        warehouses = options.data or [Path(folder)]
        runs: list[Run] = []
        for path, number in product(warehouses, beside):
            with connect(path) as session:
                queries = options.queries.read_text().splitlines() if options.queries else queries_of(session)
                each = options.runs // (len(warehouses) * len(beside))
                runs += record(session, queries, each, number, seed=len(runs))
    if options.keep:
        with options.keep.open("a") as file:
            file.writelines(json.dumps(asdict(run)) + "\n" for run in runs)
    Console().print(table_of([each for run in runs for each in predictions(run)]))
    print(f"{len(runs)} runs")


if __name__ == "__main__":
    main()
