"""Ask the grid's cases beside plain DuckDB, and say what is not right.

    python -m benchmarks.grid --seed N --count M [--minutes T] [--processes P]
                              [--only DIM=VALUE] [--every-door] [--case SEED:NUMBER]

The exit status is 1 where an answer is wrong, an exception is none of ours, or a case hangs. Of each kind of
failure one case is made small and printed as a test. Ctrl-C ends it and prints what was found so far.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.grid.dimensions import DIMENSIONS, Case, CoveringArray, by_every_door
from benchmarks.grid.doors import Doors
from benchmarks.grid.report import Report
from benchmarks.grid.statements import Writer
from benchmarks.grid.workers import Workers

SLICE = 200
"""Cases that are handed out at a time. They are the same however many processes run them."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of the tables, the cases and the statements")
    parser.add_argument("--count", type=int, default=2_600, help="of cases; 2,600 have four in five triples")
    parser.add_argument("--minutes", type=float, default=60.0, help="no case begins later")
    parser.add_argument("--processes", type=int, default=1, help="that run cases at a time")
    parser.add_argument("--only", action="append", default=[], metavar="DIM=VALUE", help="may be repeated")
    parser.add_argument(
        "--every-door", action="store_true", help="ask each case by all doors that it may have"
    )
    parser.add_argument("--case", metavar="SEED:NUMBER", help="run this case alone")
    given = parser.parse_args(arguments)
    only = dict(each.split("=", 1) for each in given.only)
    seed, one = given.seed, None
    if given.case:
        seed, one = map(int, given.case.split(":"))
    os.environ.setdefault("RELAQS_STRICT", "1")  # a fault is shown, and not answered by a whole run
    array = CoveringArray(seed, only)
    report = Report()
    count = given.count if one is None else one + 1
    with TemporaryDirectory(prefix="relaqs-grid-", ignore_cleanup_errors=True) as folder:
        workers = Workers(Path(folder), seed, given.processes)
        try:
            _run(workers, array, report, count, given.minutes, one, given.every_door)
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
        try:
            print(report.text(seed))
            if one is None:
                pairs, triples = array.covered_by(report.cases)
                print(f"\npairs met: {pairs}; triples met: {triples}")
            for number, case, outcome in report.failing():
                small = "" if outcome.kind == "hang" else workers.small(number, case, outcome)
                if not small:
                    written = Writer(case, seed, number, Doors(Path(folder)).second_of(case)).written()
                    small = f"# --case {seed}:{number} {dict(case)}\n# {written.sql}\n# {outcome.detail}"
                print(f"\n# {outcome.kind}: {outcome.reason}\n{small}", flush=True)
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
        finally:
            workers.close()
    return 1 if report.failures else 0


def _run(
    workers: Workers,
    array: CoveringArray,
    report: Report,
    count: int,
    minutes: float,
    one: int | None,
    every_door: bool,
) -> None:
    """Run the cases, as many as there is time for."""
    begun = time.monotonic()
    until = begun + 60 * minutes
    cases: Iterator[tuple[int, Case]] = enumerate(itertools.islice(iter(array), count))
    if one is not None:
        cases = iter([list(cases)[one]])
    if every_door:
        cases = ((number, each) for number, case in cases for each in by_every_door(case))
        count *= len(DIMENSIONS["door"])
    done = 0
    while batch := list(itertools.islice(cases, SLICE)):
        for number, case, outcome in workers.run(batch, until):
            done += 1
            if report.add(number, case, outcome):
                print(f"\n{outcome.kind}: {outcome.reason}  (case {number})", file=sys.stderr)
            _show(done, count, time.monotonic() - begun, report)
        if time.monotonic() >= until:
            return


def _show(done: int, count: int, seconds: float, report: Report) -> None:
    if sys.stderr.isatty() or done % 50 == 0:
        pace = done / max(seconds, 0.1)
        end = "\r" if sys.stderr.isatty() else "\n"
        print(
            f"{done:,} of {count:,} cases, {pace:.1f} a second, {report.failures} failed",
            end=end,
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
