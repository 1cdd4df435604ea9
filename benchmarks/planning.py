"""What it costs to plan each query of a folder.

    python -m benchmarks.planning WAREHOUSE QUERIES [--runs 3] [--slowest 5]

QUERIES is a folder of .sql files, one SELECT each. CPU time of planning alone, the best of several runs, each
in a session of its own that has planned one other query before. *first* is that other query, which also loads
the rewriter.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import relaqs

MEDIAN_MS, WORST_MS = 60.0, 300.0
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Planned:
    """One query. mode: of its plan, or that it was refused."""

    name: str
    mode: str
    cpu_ms: float


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__.split("\n")[0])
    parser.add_argument("warehouse", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slowest", type=int, default=5)
    given = parser.parse_args(arguments)
    queries = {path.stem: _select(path) for path in sorted(given.queries.glob("*.sql"))}
    if not queries:
        parser.error(f"{given.queries} has no .sql files")
    runs = [_run(given.warehouse, queries) for _ in range(given.runs)]
    firsts = [first for first, _ in runs]
    best = [min(each, key=lambda one: one.cpu_ms) for each in zip(*(run for _, run in runs), strict=True)]
    _print(sorted(best, key=lambda one: one.cpu_ms), firsts, given.slowest)


def _select(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip().rstrip(";")


def _run(warehouse: Path, queries: dict[str, str]) -> tuple[float, list[Planned]]:
    """Return what the session's first plan costs in ms, and what each query's does after it."""
    with relaqs.connect(warehouse, threads=1) as db:
        (table, *_) = db.tables
        first = _planned(db, "first", f'SELECT count(*) AS n FROM "{table}"').cpu_ms
        return first, [_planned(db, name, sql) for name, sql in queries.items()]


def _planned(db: relaqs.Session, name: str, sql: str) -> Planned:
    begun = time.process_time()
    try:
        mode = db.plan(sql).mode.value
    except relaqs.RelaqsError:
        mode = REFUSED
    return Planned(name, mode, (time.process_time() - begun) * 1000)


def _print(planned: list[Planned], firsts: list[float], slowest: int) -> None:
    modes = Counter(each.mode for each in planned)
    table = Table(box=SIMPLE_HEAD)
    for heading in ("queries", "modes", "median", "p90", "worst", "goal", "first"):
        table.add_column(heading)
    table.add_row(
        str(len(planned)),
        ", ".join(f"{count} {mode}" for mode, count in sorted(modes.items())),
        f"{planned[len(planned) // 2].cpu_ms:.0f}",
        f"{planned[len(planned) * 9 // 10].cpu_ms:.0f}",
        f"{planned[-1].cpu_ms:.0f}",
        f"{MEDIAN_MS:.0f} median, {WORST_MS:.0f} worst",
        f"{min(firsts):.0f}",
    )
    console = Console()
    console.print(table)
    for each in reversed(planned[-slowest:]):
        console.print(f"{each.cpu_ms:6.0f} ms  {each.name}  {each.mode}")


if __name__ == "__main__":
    main()
