"""What a process costs that is started, asks one question and ends: ours beside DuckDB's, in one run.

    python -m benchmarks.cold_start --flights FILE [--runs 9]

FILE is `flights-3m.parquet` of the npm package vega-datasets 3.2.1. It is asked where it lies, and laid out
in a temporary folder. All figures are core-seconds of the whole process, of the user and of the system;
medians. *ratio* is to DuckDB's own process, which imports duckdb and asks the same. The ways take turns, so
that other work on the machine slows all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from relaqs_engine.layouts import shuffle
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.fresh_process import fresh_processes

SQL = "SELECT origin, count(*) AS n, avg(delay) AS late FROM flights GROUP BY 1 ORDER BY n DESC LIMIT 10"
DUCKDB = "DuckDB: exact"
GOALS = {
    "import relaqs": 0.15,
    "relaqs sql: plain file, exact": 0.8,
    "relaqs sql: layout, first estimate": 0.8,
}


def ways(file: Path, warehouse: Path) -> dict[str, list[str]]:
    """Return the commands that are compared, by name."""
    view = f"duckdb.read_parquet({str(file)!r}).create_view('flights')"
    duckdb = f"import duckdb\n{view}\nprint(duckdb.sql({SQL!r}))"
    first = (
        f"import relaqs\nwith relaqs.connect({str(warehouse)!r}) as db:\n"
        f"    with db.online_sql({SQL!r}) as query:\n        print(next(query))"
    )
    asked = [sys.executable, "-m", "relaqs", "sql", SQL, "--data"]
    return {
        DUCKDB: [sys.executable, "-c", duckdb],
        "import relaqs": [sys.executable, "-c", "import relaqs"],
        "relaqs --help": [sys.executable, "-m", "relaqs", "--help"],
        "relaqs sql: plain file, exact": [*asked, str(file)],
        "relaqs sql: layout, exact at once": [*asked, str(warehouse)],
        "relaqs sql: layout, first estimate": [sys.executable, "-c", first],
    }


def measured(commands: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    """Return the core-seconds of each command, run by run. One run before fills caches."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    with fresh_processes() as processes:
        for run in range(runs + 1):
            for name, command in commands.items():
                seconds = processes.run(command).core_seconds
                if run:
                    taken[name].append(seconds)
    return taken


def shown(taken: dict[str, list[float]]) -> Table:
    table = Table("process", "core-seconds", "least", "ratio", "goal", box=SIMPLE_HEAD)
    theirs = median(taken[DUCKDB])
    for name, runs in taken.items():
        goal = f"{GOALS[name]:.2f}" if name in GOALS else ""
        table.add_row(name, f"{median(runs):.2f}", f"{min(runs):.2f}", f"{median(runs) / theirs:.1f}", goal)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flights", type=Path, required=True, metavar="FILE")
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "flights.parquet"  # so that the table is called flights
        file.symlink_to(given.flights.resolve())
        shuffle(given.flights, Path(folder) / "warehouse" / "flights")
        Console().print(shown(measured(ways(file, Path(folder) / "warehouse"), given.runs)))


if __name__ == "__main__":
    main()
