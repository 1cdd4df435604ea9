"""Many queries at once from one process: how long until each has its first snapshot?

    python -m benchmarks.together [--scale 1] [--queries 200]

The same queries run one after the other, each until its first snapshot and then stopped, and all at once.
Were nothing lost, the last of those at once would have its first snapshot after the others' time together,
divided by the cores. Printed: that time, and the median, 95 % and longest wait of those at once.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
from relaqs_tpch import QUERIES, query
from rich.console import Console

import relaqs
from benchmarks import record, tpch
from relaqs.executors.threads import usable_cores

ALLOWED_RATIO = 3.0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args(words)
    warehouse, _ = tpch.warehouse(options.scale)
    facts = record.circumstances("together", words)
    with relaqs.connect(warehouse) as db:
        texts = _drawn(db, options.queries)
        alone = sum(_first_seconds(db, sql) for sql in texts)
        waits = _all_at_once(db, texts)
    cores = usable_cores()
    due = alone / cores
    middle, most, longest = np.percentile(waits, [50, 95, 100])
    console = Console()
    console.print(record.headline(facts))
    console.print(
        f"{len(texts)} queries, first snapshots one after the other: {alone:.2f} s; by {cores} cores "
        f"{due:.2f} s. At once: {middle:.2f} s in the median, {most:.2f} s at 95 %, {longest:.2f} s at most; "
        f"{most / due:.2f} × at 95 % ({ALLOWED_RATIO:g} allowed)"
    )
    record.write("together", facts, {"alone_seconds": alone, "waits_seconds": waits})
    return int(most > ALLOWED_RATIO * due)


def _drawn(db: relaqs.Session, count: int) -> list[str]:
    """Return planned queries in a random order: those of TPC-H that show something early."""
    online = [query(number) for number in QUERIES if db.plan(query(number)).streams]
    texts = [online[i % len(online)] for i in range(count)]
    random.Random(7).shuffle(texts)
    return texts


def _first_seconds(db: relaqs.Session, sql: str) -> float:
    started = time.perf_counter()
    with db.online_sql(sql) as query:
        next(iter(query))
        return time.perf_counter() - started


def _all_at_once(db: relaqs.Session, texts: Sequence[str]) -> list[float]:
    """Return each query's wait. Threads begin them together, and stop each when it has shown a snapshot."""
    waits: list[float] = []
    ready = threading.Barrier(len(texts) + 1)

    def ask(sql: str) -> None:
        ready.wait()
        waits.append(_first_seconds(db, sql))

    threads = [threading.Thread(target=ask, args=(sql,)) for sql in texts]
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join()
    return waits


if __name__ == "__main__":
    sys.exit(main())
