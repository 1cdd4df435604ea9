"""How long does a user of a server wait for a small answer while another user does their worst?

    python -m benchmarks.hostile_users WAREHOUSE [--seconds 20] [--threads 2] [--seed 0] [--only ATTACK]
    python -m benchmarks.hostile_users WAREHOUSE --together 50 --seconds 600

A process serves the warehouse, one of TPC-H. Bob connects, asks how many nations there are, and for a first
estimate of a sum by group over the largest table, again and again. Eve attacks from a process of her own.
For each attack there is a new server: bob is alone with it first, then beside eve, and then the server is
told to end by SIGTERM while she goes on. Printed is how long each takes. With --cluster two workers of one
thread compute, with --processes 2 the server has two processes.

With --together there are so many users at once, half of them attackers, of all kinds. The others connect and
ask one of a few small questions, each by a name of their own. Each answer must be the one that was given
before there were attackers. --page docs/robustness.md writes the table into that page, if it has a place for
this kind.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import psycopg
from distributed import LocalCluster
from psycopg.conninfo import conninfo_to_dict
from relaqs_engine.errors import RelaqsError
from rich.console import Console
from rich.table import Column, Table

from benchmarks import record
from benchmarks.server_process import Running, serving
from relaqs.serve.users import add_user

PASSWORD = "a secret"
SMALL, SMALL_ANSWER = "SELECT count(*) FROM nation", [(25,)]
QUESTIONS = {  # of those who are no attackers
    "small": SMALL,
    "with a join": (
        "SELECT r_name, count(*) FROM nation JOIN region ON n_regionkey = r_regionkey GROUP BY 1 ORDER BY 1"
    ),
    "of one key": "SELECT sum(c_acctbal) FROM customer WHERE c_custkey = 4711",
    "large, exact": "SELECT l_returnflag, count(*) FROM lineitem GROUP BY 1 ORDER BY 1",
}
PAUSE_SECONDS, BEGIN_SECONDS, LOST_SECONDS = 0.05, 1.0, 60
LATE_SECONDS = 2.0  # of p95: who waits longer is kept waiting by somebody
END_SECONDS = 8.0  # within which a server promises to end
LARGE = "SELECT l_returnflag, sum(l_extendedprice) FROM lineitem GROUP BY 1 ORDER BY 1"
LONG = (
    "SELECT l_orderkey, l_partkey, count(*) FROM lineitem GROUP BY ALL ORDER BY 3 DESC, 1, 2 LIMIT 5",
    "SELECT count(DISTINCT l_comment), count(DISTINCT hash(l_partkey, l_suppkey)) FROM lineitem",
    "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY l_suppkey ORDER BY l_shipdate) AS r FROM lineitem)",
    "SELECT count(*) FROM lineitem AS a, lineitem AS b WHERE hash(a.l_comment, b.l_comment) % 7 = 1",
    "SELECT string_agg(l_comment, ',' ORDER BY l_comment).length() FROM lineitem",
)
OTHER_MACHINE = "127.0.0.2"  # who comes from bob's own address is taken for him
Asker = Callable[[str, random.Random], None]


@dataclass(frozen=True, slots=True)
class Attack:
    """What eve does. askers: how many at once."""

    name: str
    askers: int
    ask: Asker


@dataclass(frozen=True, slots=True)
class Waits:
    """How long bob waited beside an attack, in seconds. lost: visits that failed."""

    attack: str
    visits: int
    lost: int
    median: float
    most_95: float
    most: float
    wrong: int = 0

    @classmethod
    def of(cls, attack: str, seconds: Sequence[float], lost: int, wrong: int = 0) -> Waits:
        middle, most_95 = np.percentile(seconds, [50, 95]) if seconds else (np.nan, np.nan)
        most = max(seconds, default=np.nan)
        return cls(attack, len(seconds), lost, float(middle), float(most_95), most, wrong)


def ask_repeatedly(sqls: Sequence[str]) -> Asker:
    """Return an asker of these statements, each as a text that was not asked before."""

    def ask(address: str, rng: random.Random) -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            while True:
                with suppress(psycopg.errors.OutOfMemory, psycopg.errors.QueryCanceled):
                    connection.execute(f"{rng.choice(sqls)} -- {rng.random()}".encode())

    return ask


def take_rows(address: str, rng: random.Random) -> None:
    """Take a large answer as fast as it comes."""
    with psycopg.connect(address, autocommit=True) as connection:
        for _ in connection.cursor().stream("SELECT * FROM lineitem WHERE l_orderkey <= 400000"):
            pass


def keep_cursors(address: str, rng: random.Random) -> None:
    """Declare cursors on large answers, and read none of them."""
    with psycopg.connect(address) as connection:
        for number in range(16):
            connection.execute(
                f"DECLARE c{number} CURSOR FOR SELECT * FROM lineitem WHERE l_orderkey < 400000"
            )
        time.sleep(LOST_SECONDS)


def say_nothing(address: str, rng: random.Random) -> None:
    """Open connections, and say nothing or half of what is needed."""
    words = conninfo_to_dict(address)
    host, port = str(words["host"]), int(str(words["port"]))
    with ExitStack() as stack:
        for _ in range(100):
            connection = socket.create_connection((host, port), LOST_SECONDS, (OTHER_MACHINE, 0))
            stack.enter_context(connection)
            connection.sendall(rng.choice([b"", b"\0\0\0\x08", b"\0\0\0\x08\x04\xd2\x16\x2f"]))
        time.sleep(1)


def guess_passwords(address: str, rng: random.Random) -> None:
    """Try a password."""
    psycopg.connect(address.replace(PASSWORD, str(rng.random()))).close()


SUMS = f"EXPLAIN SELECT {', '.join(f'sum(l_quantity + {number})' for number in range(100))} FROM lineitem"
CATALOG = f"SELECT count(*) FROM {', '.join(f'pg_attribute AS a{number}' for number in range(6))}"
ATTACKS = (
    Attack("large answers, taken fast", 4, take_rows),
    Attack("EXPLAIN of 100 sums", 12, ask_repeatedly([SUMS])),
    Attack("joins of pg_attribute", 12, ask_repeatedly([CATALOG])),
    Attack("long queries", 4, ask_repeatedly(LONG)),
    Attack("cursors that are kept", 3, keep_cursors),
    Attack("connections that say nothing", 6, say_nothing),
    Attack("wrong passwords", 8, guess_passwords),
)


@dataclass(frozen=True, slots=True)
class Visits:
    """What bob's visits took, in seconds: to connect, to connect and be told, to have a first estimate."""

    logins: tuple[float, ...]
    smalls: tuple[float, ...]
    firsts: tuple[float, ...]
    lost: int


@dataclass(frozen=True, slots=True)
class Beside:
    """An attack. end_seconds: from SIGTERM to the server's end. load: of the machine when it began."""

    attack: str
    load: float
    alone: Visits
    visits: Visits
    end_seconds: float

    @property
    def small_95(self) -> float:
        return quantile(self.visits.smalls, 95)


def measure(
    serve: Callable[[], AbstractContextManager[Running]], attack: Attack, seconds: float, seed: int
) -> Beside:
    """Return how long bob waits, alone and beside an attack, and how long the server takes to end."""
    load = os.getloadavg()[0]
    with serve() as server:
        visits(server, PAUSE_SECONDS)  # whatever the first question opens stays open
        alone = visits(server, seconds / 2)
        with attacking(server, attack, seed):
            time.sleep(BEGIN_SECONDS)
            beside = visits(server, seconds)
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(LOST_SECONDS)
            ended = time.monotonic() - began
    return Beside(f"{attack.askers} × {attack.name}", load, alone, beside, ended)


def quantile(seconds: Sequence[float], percent: float) -> float:
    return float(np.percentile(seconds, percent)) if seconds else math.nan


def together(server: Running, users: int, seconds: float, seed: int) -> Iterator[Waits]:
    """Yield how long users wait for the answer to each question while as many others attack the server."""
    guests = [f"user{number}" for number in range(users - users // 2)]
    asked = {name: _Asked() for name in QUESTIONS}
    with psycopg.connect(_address(server, "bob")) as connection:
        right = {name: connection.execute(sql.encode()).fetchall() for name, sql in QUESTIONS.items()}
    kinds = [replace(each, askers=0) for each in ATTACKS]
    for number in range(users // 2):
        place = number % len(kinds)
        kinds[place] = replace(kinds[place], askers=kinds[place].askers + 1)
    with ExitStack() as stack:
        for attack in kinds:
            if attack.askers:
                stack.enter_context(attacking(server, attack, seed))
        time.sleep(BEGIN_SECONDS)
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(
                target=_visit_on, args=(_address(server, guest), right, asked, until, random.Random(guest))
            )
            for guest in guests
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name, each in asked.items():
        for said, times in each.said.items():
            print(f"{times} × {name}: {said}")
        yield Waits.of(name, each.seconds, each.lost, each.wrong)


@dataclass(slots=True)
class _Asked:
    """How one question was answered. seconds: of each visit that was. Several threads add to it."""

    seconds: list[float] = field(default_factory=list)
    lost: int = 0
    wrong: int = 0
    said: Counter[str] = field(default_factory=Counter)  # of those that were lost
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float, *, is_right: bool) -> None:
        with self.lock:
            self.seconds.append(seconds)
            self.wrong += not is_right

    def lose(self, error: psycopg.Error) -> None:
        with self.lock:
            self.lost += 1
            self.said[f"{type(error).__name__}: {error}"[:200]] += 1


def _visit_on(
    address: str,
    right: Mapping[str, list[tuple[object, ...]]],
    asked: Mapping[str, _Asked],
    until: float,
    rng: random.Random,
) -> None:
    """Connect, ask a question and leave, until the time is over."""
    while time.monotonic() < until:
        name, began = rng.choice(list(QUESTIONS)), time.monotonic()
        try:
            with psycopg.connect(address, connect_timeout=LOST_SECONDS) as connection:
                connection.execute(f"SET statement_timeout = '{LOST_SECONDS}s'")
                found = connection.execute(QUESTIONS[name].encode()).fetchall()
            asked[name].add(time.monotonic() - began, is_right=found == right[name])
        except psycopg.Error as error:
            asked[name].lose(error)
        time.sleep(rng.uniform(0.5, 1.5))


def visits(server: Running, seconds: float) -> Visits:
    """Return how long each part of each visit took, and how many failed."""
    logins, smalls, firsts = list[float](), list[float](), list[float]()
    lost, until = 0, time.monotonic() + seconds
    while not smalls or time.monotonic() < until:
        began = time.monotonic()
        try:
            with psycopg.connect(_address(server, "bob"), connect_timeout=LOST_SECONDS) as connection:
                logins.append(time.monotonic() - began)
                connection.execute(f"SET statement_timeout = '{LOST_SECONDS}s'")
                assert connection.execute(SMALL).fetchall() == SMALL_ANSWER
                smalls.append(time.monotonic() - began)
                connection.execute("SET relaqs.target = '100%'")
                began = time.monotonic()
                connection.execute(f"{LARGE} -- {began}".encode()).fetchall()
                firsts.append(time.monotonic() - began)
        except psycopg.Error:
            lost += 1
            if time.monotonic() >= until:
                break
        time.sleep(PAUSE_SECONDS)
    return Visits(tuple(logins), tuple(smalls), tuple(firsts), lost)


@contextmanager
def attacking(server: Running, attack: Attack, seed: int) -> Iterator[None]:
    """Have an attack go on during a block."""
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    given = (attack.name, _address(server, "eve"), attack.askers, seed, begun)
    process = context.Process(target=_attack, args=given, daemon=True)
    process.start()
    try:
        assert begun.wait(LOST_SECONDS)
        yield
    finally:
        process.kill()
        process.join()


def _address(server: Running, user: str) -> str:
    return f"{server.address(user)} password='{PASSWORD}'"


def _attack(name: str, address: str, askers: int, seed: int, begun: Event) -> None:
    (attack,) = (each for each in ATTACKS if each.name == name)
    threads = [
        threading.Thread(target=_ask_on, args=(attack.ask, address, random.Random(f"{seed} {number}")))
        for number in range(askers)
    ]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()


def _ask_on(ask: Asker, address: str, rng: random.Random) -> None:
    while True:
        with suppress(psycopg.Error, OSError, RelaqsError):
            ask(address, rng)
        time.sleep(PAUSE_SECONDS)


def table_of(rows: Sequence[Sequence[str]]) -> Table:
    head, *rows = rows
    table = Table(Column(head[0], no_wrap=True), *head[1:])
    for row in rows:
        table.add_row(*row)
    return table


def _rows_of(found: Sequence[Waits]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("eve, or the question", "visits", "wrong", "lost", "p50 s", "p95 s", "most s")
    ]
    for each in found:
        seconds = [f"{value:.2f}" for value in (each.median, each.most_95, each.most)]
        rows.append((each.attack, str(each.visits), str(each.wrong), str(each.lost), *seconds))
    return rows


def _rows_beside(found: Sequence[Beside]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            *("eve", "load", "visits", "lost", "login, most s", "small: alone, p95 s", "beside, p95 s"),
            *("first estimate: alone, p50 ms", "beside, p50 ms", "times"),
            *("alone, p95 ms", "beside, p95 ms", "times", "SIGTERM s"),
        )
    ]
    for each in found:
        alone, beside = each.alone, each.visits
        seconds = (max(beside.logins, default=math.nan), quantile(alone.smalls, 95), each.small_95)
        firsts = list[str]()
        for percent in (50, 95):
            first_alone, first = quantile(alone.firsts, percent), quantile(beside.firsts, percent)
            firsts += (f"{1000 * first_alone:.0f}", f"{1000 * first:.0f}", f"{first / first_alone:.1f}")
        counts = (f"{each.load:.0f}", str(len(beside.smalls)), str(alone.lost + beside.lost))
        waits = (f"{value:.2f}" for value in seconds)
        rows.append((each.attack, *counts, *waits, *firsts, f"{each.end_seconds:.2f}"))
    return rows


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hostile_users",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("warehouse", type=Path, help="with TPC-H laid out")
    parser.add_argument("--seconds", type=float, default=20.0, help="beside each attack, default 20")
    parser.add_argument("--threads", type=int, default=2, help="of the server, without --cluster, default 2")
    parser.add_argument("--processes", type=int, default=1, help="of the server, default 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[each.name for each in ATTACKS], metavar="ATTACK")
    parser.add_argument("--cluster", action="store_true", help="have a Dask cluster of two workers compute")
    parser.add_argument("--together", type=int, metavar="USERS", help="at once, half of them attackers")
    parser.add_argument("--page", type=Path, help="of Markdown, to write the table into")
    options = parser.parse_args(words)
    what = "users together" if options.together else "users beside each other"
    what += " on a cluster" * options.cluster + " in several processes" * (options.processes > 1)
    if options.page is not None:
        record.place_in(options.page, what)
    facts = record.circumstances("hostile_users", words)
    attacks = [each for each in ATTACKS if options.only in (None, each.name)]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        users = Path(folder) / "users.toml"
        for user in ("bob", "eve", *(f"user{number}" for number in range(options.together or 0))):
            add_user(users, user, PASSWORD)
        given = ["--users", str(users), "--processes", str(options.processes)]
        if options.cluster:
            cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
            given += ["--cluster", stack.enter_context(cluster).scheduler_address]
        else:
            given += ["--threads", str(options.threads)]
        serve = partial(serving, options.warehouse, *given, stderr=subprocess.DEVNULL)
        if options.together:
            with serve() as server:
                waits = list(together(server, options.together, options.seconds, options.seed))
            rows, kept = _rows_of(waits), [asdict(each) for each in waits]
            is_bad = any(each.lost or each.wrong for each in waits)
        else:
            beside = [measure(serve, each, options.seconds, options.seed) for each in attacks]
            rows, kept = _rows_beside(beside), [asdict(each) for each in beside]
            is_bad = any(
                each.visits.lost or each.small_95 > LATE_SECONDS or each.end_seconds > END_SECONDS
                for each in beside
            )
    console = Console(soft_wrap=True, width=160)
    console.print(record.headline(facts), table_of(rows), sep="\n")
    console.print(f"Record: {record.write('hostile_users', facts, {'waits': kept})}")
    if options.page is not None:
        record.put_into(options.page, what, facts, rows)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
