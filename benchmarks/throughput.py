"""How many answers a second do many clients get, and what does one cost, beside DuckDB?

    python -m benchmarks.throughput [--scale 1] [--seconds 20] [--clients 1,4,16,64] [--threads 2]
        [--doors embedded,serve,cluster,duckdb] [--goals 5%,1%,exact] [--page docs/benchmarks.md]

TPC-H, laid out. Each client asks one ordinary question after another, with constants that were not asked
before, until it has an answer within the goal. Doors: a session in this process, `relaqs serve`, a session
on a Dask cluster of worker processes with a core each, and plain DuckDB over the generator's files, which
answers exactly. One door is open at a time, and DuckDB answers anew beside each goal. Core-seconds are those
of all processes that answer: with `serve` the clients' own are left out, elsewhere clients are threads of
the process.

After that each kind of question is asked once through each door without a goal. An answer that is not
DuckDB's fails the benchmark.
"""

from __future__ import annotations

import argparse
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import psutil
import psycopg
import pyarrow as pa
from distributed import Client, LocalCluster
from relaqs_tpch.exact import difference
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks import record, tpch
from benchmarks.plain_duckdb import PlainDuckDB, files_of_folder
from benchmarks.server_process import serving
from relaqs.executors.threads import usable_cores

DUCKDB = "duckdb"
EXACT = "exact"
JOINED = "orders JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey"

Ask = Callable[[str], object]


def questions(draw: random.Random) -> list[str]:
    """Return one ordinary question of each kind, with constants drawn anew."""
    year, month, day = draw.randint(1993, 1997), draw.randint(1, 12), draw.randint(1, 28)
    date = f"DATE '{year}-{month:02}-{day:02}'"
    price, quantity = draw.randint(1_000_00, 60_000_00) / 100, draw.randint(10, 45)
    discount = draw.randint(2, 7) / 100
    return [
        f"SELECT count(*) AS n FROM lineitem WHERE l_quantity < {quantity} AND l_extendedprice > {price}",
        f"SELECT avg(l_quantity) AS q FROM lineitem WHERE l_shipdate < {date} AND l_extendedprice < {price}",
        "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem "
        f"WHERE l_shipdate >= {date} AND l_discount >= {discount} AND l_extendedprice < {price}",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, avg(l_extendedprice) AS price, "
        f"count(*) AS n FROM lineitem WHERE l_extendedprice > {price} GROUP BY ALL ORDER BY ALL",
        f"SELECT l_shipmode, count(*) AS n FROM lineitem WHERE l_extendedprice > {price} "
        "GROUP BY 1 ORDER BY n DESC",
        f"SELECT year(l_shipdate) AS year, sum(l_extendedprice * (1 - l_discount)) AS sold FROM lineitem "
        f"WHERE l_quantity >= {quantity} AND l_extendedprice < {price} GROUP BY 1 ORDER BY 1",
        f"SELECT o_orderpriority, count(*) AS n FROM orders WHERE o_orderdate >= {date} "
        f"AND o_totalprice > {price} GROUP BY 1 ORDER BY 1",
        "SELECT avg(o_totalprice) AS price, stddev(o_totalprice) AS spread FROM orders "
        f"WHERE o_totalprice > {price}",
        f"SELECT n_name, avg(o_totalprice) AS spent FROM {JOINED} WHERE o_totalprice > {price} "
        "GROUP BY 1 ORDER BY 1",
        "SELECT o_orderpriority, count(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey "
        f"WHERE l_receiptdate > l_commitdate AND o_totalprice > {price} GROUP BY 1 ORDER BY 1",
    ]


class Door:
    """A way to answers. processes: their core-seconds count."""

    def __init__(self, name: str, opened: Callable[[], Ask], processes: Sequence[psutil.Process]) -> None:
        self.name = name
        self.opened = opened
        self.processes = processes

    def core_seconds(self) -> float:
        """Return what the door's processes, and their children, have taken so far."""
        whole = [each for process in self.processes for each in (process, *process.children(recursive=True))]
        times = [each.cpu_times() for each in set(whole)]
        return float(sum(each.user + each.system for each in times))


@dataclass(frozen=True, slots=True)
class Figures:
    """What a door gave to clients at once, beside DuckDB. core_seconds: of an answer."""

    door: str
    goal: str
    clients: int
    answers_per_second: float
    seconds_50: float
    seconds_95: float
    core_seconds: float


def measured(door: Door, goal: str, clients: int, seconds: float, seed: int) -> Figures:
    """Let clients ask at once for some seconds. Raises what an answer raises."""
    taken: list[float] = []
    failed: list[BaseException] = []
    asks = [door.opened() for _ in range(clients)]
    begun, core_seconds = time.perf_counter(), door.core_seconds()

    def client(number: int, ask: Ask) -> None:
        draw = random.Random(f"{seed} {door.name} {goal} {clients} {number}")
        try:
            while not failed:
                sql, at = draw.choice(questions(draw)), time.perf_counter()
                if at > begun + seconds:
                    return
                ask(sql)
                taken.append(time.perf_counter() - at)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=client, args=pair) for pair in enumerate(asks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    whole, cores = time.perf_counter() - begun, door.core_seconds() - core_seconds
    middle, most = np.percentile(taken, [50, 95]) if taken else (math.nan, math.nan)
    count = max(len(taken), 1)
    return Figures(door.name, goal, clients, len(taken) / whole, float(middle), float(most), cores / count)


@contextmanager
def opened_door(name: str, goal: str, warehouse: Path, originals: Path, threads: int) -> Iterator[Door]:
    """Give the door of a name, open, with its answers within the goal."""
    target = None if goal == EXACT else goal
    with ExitStack() as stack:
        yield _OPENING[name](stack, target, warehouse, originals, threads)


def _session_door(name: str, session: relaqs.Session, target: str | None) -> Door:
    def ask(sql: str) -> pa.Table:
        with session.online_sql(sql, target=target) as query:
            return query.result().estimate

    return Door(name, lambda: ask, [psutil.Process()])


def _embedded(stack: ExitStack, target: str | None, warehouse: Path, _: Path, threads: int) -> Door:
    session = stack.enter_context(relaqs.connect(warehouse, threads=threads))
    return _session_door("embedded", session, target)


def _cluster(stack: ExitStack, target: str | None, warehouse: Path, _: Path, threads: int) -> Door:
    cluster = stack.enter_context(
        LocalCluster(n_workers=threads, threads_per_worker=1, dashboard_address=None, silence_logs=True)
    )
    client = stack.enter_context(Client(cluster))
    return _session_door("cluster", stack.enter_context(relaqs.connect(warehouse, cluster=client)), target)


def _serve(stack: ExitStack, target: str | None, warehouse: Path, _: Path, threads: int) -> Door:
    server = stack.enter_context(serving(warehouse, "--threads", str(threads)))

    def opened() -> Ask:
        user = f"user-{threading.get_ident()}-{time.monotonic_ns()}"
        connection = stack.enter_context(psycopg.connect(server.address(user), autocommit=True))
        connection.execute(f"SET relaqs.target = {'off' if target is None else repr(target)}")
        return lambda sql: connection.execute(sql.encode()).fetchall()

    return Door("serve", opened, [psutil.Process(server.process.pid)])


def _duckdb(stack: ExitStack, _: str | None, __: Path, originals: Path, threads: int) -> Door:
    plain = stack.enter_context(PlainDuckDB(files_of_folder(originals), threads))
    return Door(DUCKDB, plain.client, [psutil.Process()])


_OPENING = {"embedded": _embedded, "serve": _serve, "cluster": _cluster, DUCKDB: _duckdb}


def differences(door: Door, truth: Ask, seed: int) -> Iterator[str]:
    """Yield what differs from DuckDB, of one exact answer of each kind."""
    for sql in questions(random.Random(seed)):
        right, answer = truth(sql), door.opened()(sql)
        assert isinstance(right, pa.Table)
        if isinstance(answer, list):
            listed = list(zip(*answer, strict=True)) if answer else [()] * right.num_columns
            columns = zip(listed, right.schema.types, strict=True)
            arrays = [pa.array(values, kind) for values, kind in columns]
            answer = pa.Table.from_arrays(arrays, right.column_names)
        assert isinstance(answer, pa.Table)
        if (wrong := difference(right, answer)) is not None:
            yield f"{door.name}: {wrong}: {sql}"


def rows_of(figures: Sequence[Figures]) -> list[list[str]]:
    """Return a head and the figures, each beside DuckDB's exact answers to as many clients in this run."""
    rows = [["door", "goal", "clients", "answers/s", "× DuckDB", "50 % s", "95 % s", "core-s", "÷ DuckDB's"]]
    plain = {(each.goal, each.clients): each for each in figures if each.door == DUCKDB}
    for each in figures:
        beside = plain.get((each.goal, each.clients))
        rate, cost = (beside.answers_per_second, beside.core_seconds) if beside else (math.nan, math.nan)
        rows.append(
            [
                each.door,
                EXACT if each.door == DUCKDB else each.goal,
                str(each.clients),
                f"{each.answers_per_second:.1f}",
                f"{each.answers_per_second / (rate or math.nan):.1f}",
                f"{each.seconds_50:.2f}",
                f"{each.seconds_95:.2f}",
                f"{each.core_seconds:.3f}",
                f"{each.core_seconds / (cost or math.nan):.2f}",
            ]
        )
    return rows


def table_of(figures: Sequence[Figures]) -> Table:
    """Return the figures as they are printed."""
    head, *rows = rows_of(figures)
    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    return table


def _middle(runs: list[Figures]) -> Figures:
    """Return the run with the median of answers a second, the lower one of two."""
    return sorted(runs, key=lambda each: each.answers_per_second)[(len(runs) - 1) // 2]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each line, default 20")
    parser.add_argument("--clients", default="1,4,16,64", help="at once, default 1,4,16,64")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--doors", default=",".join(_OPENING), help="default all")
    parser.add_argument("--goals", default="5%,1%,exact", help="default 5%%,1%%,exact")
    parser.add_argument("--runs", type=int, default=1, help="of each line; medians are shown")
    parser.add_argument("--page", type=Path, help="a page of the docs, which gets the table")
    options = parser.parse_args(words)
    name_of_table = f"answers at scale {options.scale:g}"
    if options.page is not None:
        record.place_in(options.page, name_of_table)
    warehouse, originals = tpch.warehouse(options.scale)
    facts = record.circumstances("throughput", words)
    names, goals = options.doors.split(","), options.goals.split(",")
    clients = [int(each) for each in options.clients.split(",")]
    places = warehouse, originals, options.threads
    lines: dict[tuple[str, str, int], list[Figures]] = {}
    for goal in goals:
        for name in names:
            with opened_door(name, goal, *places) as door:
                for run, count in product(range(options.runs), clients):
                    found = measured(door, goal, count, options.seconds, run)
                    lines.setdefault((name, goal, count), []).append(found)
    wrong: list[str] = []
    with PlainDuckDB(files_of_folder(originals), options.threads) as plain:
        for name in names:
            with opened_door(name, EXACT, *places) as door:
                wrong.extend(differences(door, plain.table, seed=1))
    figures = [_middle(runs) for runs in lines.values()]
    console = Console(soft_wrap=True, width=110)
    console.print(record.headline(facts), table_of(figures), *wrong, sep="\n")
    path = record.write("throughput", facts, {"figures": [asdict(each) for each in figures], "wrong": wrong})
    console.print(f"{record.NOT_OFFICIAL} Record: {path}")
    if options.page is not None:
        record.put_into(options.page, name_of_table, facts, rows_of(figures))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
