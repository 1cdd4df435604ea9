"""What memory a query with very many groups takes: the peak of the process, against the limit it was given.

    python -m benchmarks.memory [--groups 10000000] [--limit 2GB] [--data DIR]

The query runs embedded, so that one process holds what a worker and the driver hold on a cluster: databases,
partial results, merged state, snapshots, and the answer itself. The data is made in another process. A wrong
answer fails the benchmark; a peak over the limit does not, and is marked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_engine.layouts import shuffle
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from rich.console import Console

from benchmarks import record
from benchmarks.overhead import WrongAnswerError
from relaqs.memory import memory_bytes
from relaqs.opening import connect

ROWS_PER_GROUP = 2
PARTITIONS = 100
SQL = "SELECT k, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM visits GROUP BY k"


def lay_out(groups: int, folder: Path) -> None:
    """Write a table in which every group has two rows, in partitions far from each other."""
    rng = np.random.default_rng(0)
    keys = np.repeat(np.arange(groups), ROWS_PER_GROUP)
    table = pa.table({"k": keys, "v": rng.integers(0, 1000, len(keys))})
    shuffle(table, folder / "visits", partitions=PARTITIONS)


def warehouse(groups: int, data: Path) -> Path:
    """Return the folder with the table, made on first use by a process whose memory does not count."""
    folder = data / f"visits-{groups}"
    if not (folder / "visits" / MANIFEST_NAME).exists():
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            pool.submit(lay_out, groups, folder).result()
    return folder


def peak_bytes() -> int:
    """Return the most memory this process has ever had in use."""
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes if sys.platform == "darwin" else kibibytes * 1024


def check(answer: pa.Table, groups: int) -> None:
    """Raise WrongAnswerError unless the answer has every group with all its rows."""
    if answer.num_rows != groups or pc.sum(answer.column("n")).as_py() != groups * ROWS_PER_GROUP:
        raise WrongAnswerError(
            f"the answer has {answer.num_rows:,} groups, not {groups:,} with two rows each"
        )


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=10_000_000)
    parser.add_argument("--limit", default="2GB", help="memory limit of the session")
    parser.add_argument("--data", type=Path, default=record.DATA, help="folder for data that is made")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    facts = record.circumstances("memory", words)
    folder = warehouse(options.groups, options.data)
    limit, before = memory_bytes(options.limit), peak_bytes()
    looks = []
    started = time.perf_counter()
    with connect(folder, memory_limit=options.limit) as db, db.online_sql(SQL) as query:
        for snapshot in query:
            looks.append((snapshot.fraction, snapshot.elapsed_seconds, len(snapshot), peak_bytes()))
    seconds, peak = time.perf_counter() - started, peak_bytes()
    check(snapshot.estimate, options.groups)
    console = Console(width=110)
    console.print(record.headline(facts))
    for fraction, elapsed, rows, peak_then in looks:
        console.print(
            f"{fraction:5.0%}  {elapsed:7.1f} s  {rows:>12,} rows shown  {peak_then / 1e6:7.0f} MB peak"
        )
    verdict = "within" if peak <= limit else "OVER"
    console.print(
        f"{options.groups:,} groups: peak {peak / 1e9:.2f} GB, {before / 1e9:.2f} of it before the query, "
        f"{verdict} the limit of {limit / 1e9:.2f} GB; {seconds:.0f} s"
    )
    content = {
        "groups": options.groups,
        "limit_bytes": limit,
        "peak_bytes": peak,
        "seconds": seconds,
        "looks": looks,
    }
    console.print(f"Record: {record.write('memory', facts, content)}")


if __name__ == "__main__":
    try:
        main()
    except WrongAnswerError as error:
        sys.exit(f"wrong answer: {error}")
