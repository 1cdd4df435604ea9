"""How a statement is asked: in this process, on a cluster, by the program, by a client of Postgres.

Each door gives the last answer. The first four give all snapshots on the way to it. What leaves the program
as text is compared as text: numbers by their values, the rest as the program is documented to write it.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from click.testing import CliRunner

import relaqs
from benchmarks.grid.dimensions import LAID_OUT, Case
from benchmarks.grid.judge import same
from benchmarks.grid.statements import Statement
from benchmarks.grid.worlds import World
from relaqs import Session, Snapshot
from relaqs.jobs.handle import Feed

Made = TypeVar("Made")
AS_TEXT = ("csv", "jsonl")
SPAWNED_SHARE = 25
"""One in so many cases of the program runs it in a process of its own."""
MOST_ON_CLUSTER = 4
"""Sessions of the cluster that a process keeps: the client of each has threads that wake up all the time."""
_QUERY: Mapping[str, Mapping[str, Any]] = {
    "usual": {},
    "seed": {"seed": 7},
    "one_batch": {"batches": 1},
    "batches": {"batches": 4},
    "anytime": {"interval": "anytime"},
    "confidence": {"confidence": 0.8, "judged_by": "cells"},
}
_CONNECT: Mapping[str, Mapping[str, Any]] = {
    "soon": {"exact_below_seconds": 0.3},
    "little_memory": {"memory_limit": "256MiB"},
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a door gave: a table, or names and rows of text.

    snapshots: all that were published, where the door has them.
    """

    table: pa.Table | None = None
    snapshots: tuple[Snapshot, ...] = ()
    texts: tuple[tuple[str, ...], list[tuple[Any, ...]]] | None = None


class Doors:
    """The sessions, the cluster and the servers of this process. They are opened when first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._undo = ExitStack()
        self._sessions: dict[Any, Session] = {}
        self._servers: dict[Any, int] = {}
        self._clients: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cluster: Any = None

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._undo.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def second_of(self, case: Case) -> str:
        """Return the second table's kind. The program opens one folder: layouts, or files."""
        if case["door"] not in AS_TEXT:
            return case["second"]
        if case["table"] in LAID_OUT:
            return case["second"] if case["second"] in LAID_OUT else "rows"
        return "parquet"

    def ask(self, world: World, case: Case, statement: Statement, number: int) -> Answer:
        door = case["door"]
        if door in AS_TEXT:
            return self._by_program(world, case, statement, number)
        if door == "terminal":
            return self._by_terminal(world, case, statement, number)
        if door == "serve":
            return self._by_client(world, case, statement)
        return self._in_process(world, case, statement)

    def _in_process(self, world: World, case: Case, statement: Statement) -> Answer:
        session = self._session(world, case)
        options = {**_QUERY.get(case["options"], {}), "params": statement.params or None}
        ask = partial(session.online_sql, statement.sql, **options)
        if case["door"] == "result":
            last = ask().result()
            return Answer(last.estimate, (last,))
        snapshots = every_snapshot(ask)
        return Answer(snapshots[-1].estimate, tuple(snapshots))

    def _session(self, world: World, case: Case) -> Session:
        opening = dict(_CONNECT.get(case["options"], {"exact_below_seconds": 0.0}))
        key: tuple[Any, ...]
        if case["door"] == "cluster":
            # The layouts of plain tables are made when a session is opened: of those that are asked alone.
            asked = {f"t_{case['table']}", f"u_{case['second']}"}
            tables = {name: source for name, source in world.tables().items() if name in asked}
            key = (world.folder, "cluster", tuple(sorted(tables)), tuple(opening.items()))
            opening["cluster"] = self._scheduler()
        else:
            tables = world.tables()
            opening["threads"] = 1 if case["door"] == "one_thread" else 3
            key = (world.folder, *opening.items())
        if key not in self._sessions:
            if case["door"] == "cluster":
                self._close_oldest_on_cluster()
            session = relaqs.connect(
                world.warehouse,
                tables=tables,
                cache_directory=self._folder / f"cache-{os.getpid()}-{world.folder.name}",
                background_layouts=False,
                **opening,
            )
            self._sessions[key] = self._undo.enter_context(session)
        return self._sessions[key]

    def _close_oldest_on_cluster(self) -> None:
        known = [key for key in self._sessions if "cluster" in key]
        if len(known) >= MOST_ON_CLUSTER:
            self._sessions.pop(known[0]).close()

    def _scheduler(self) -> str:
        """Return the address of a cluster whose worker has another time zone."""
        if self._cluster is None:
            from distributed import LocalCluster

            zone = os.environ.get("TZ", "")
            os.environ["TZ"] = "Asia/Kathmandu"
            try:
                self._cluster = self._undo.enter_context(
                    LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=":0")
                )
            finally:
                os.environ["TZ"] = zone
        return str(self._cluster.scheduler_address)

    # The program

    def _by_program(self, world: World, case: Case, statement: Statement, number: int) -> Answer:
        data = self._folder_of(world, case, statement)
        arguments = ["sql", statement.sql, "--data", str(data)]
        for name, value in statement.params.items():
            arguments += ["--param", f"{name}={value}"]
        for name, value in _QUERY.get(case["options"], {}).items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        arguments += ["--format", case["door"]]
        printed = self._printed(arguments, number)
        return Answer(texts=read_csv(printed) if case["door"] == "csv" else _read_json(printed))

    def _folder_of(self, world: World, case: Case, statement: Statement) -> Path:
        """Return a folder with the case's tables alone, as a user has one."""
        names = {"d", f"t_{case['table']}", f"u_{self.second_of(case)}"}
        folder = world.folder / "-".join(("asked", str(os.getpid()), *sorted(names)))
        if not folder.exists():
            folder.mkdir()
            for path in (world.warehouse if case["table"] in LAID_OUT else world.files).iterdir():
                if re.split("[.@]", path.name)[0] in names:
                    (folder / path.name).symlink_to(path)
        return folder

    def _printed(self, arguments: list[str], number: int) -> str:
        environment = {"RELAQS_CACHE": str(self._folder / f"cache-{os.getpid()}")}
        if number % SPAWNED_SHARE == 0:
            done = subprocess.run(
                [sys.executable, "-m", "relaqs", *arguments],
                capture_output=True, text=True, env={**os.environ, **environment}, timeout=120,
            )  # fmt: skip
            if done.returncode:
                raise _of_program(done.stderr)
            return done.stdout
        from relaqs.cli import program

        result = CliRunner().invoke(program, arguments, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code:
            raise _of_program(result.stderr)
        return result.stdout

    def _by_terminal(self, world: World, case: Case, statement: Statement, number: int) -> Answer:
        from rich.console import Console

        from relaqs.cli.output import show_live

        session = self._session(world, {**case, "door": "threads"})
        options = {**_QUERY.get(case["options"], {}), "params": statement.params or None}
        screen = Console(file=io.StringIO(), force_terminal=True, width=100 + number % 60, height=40)
        last = show_live(session.online_sql(statement.sql, **options), screen)
        assert last is not None, "nothing was shown"
        return Answer(last.estimate, (last,))

    # A client of Postgres

    def _by_client(self, world: World, case: Case, statement: Statement) -> Answer:
        import psycopg
        from psycopg.pq import ExecStatus

        session = self._session(world, {**case, "door": "threads"})
        port = self._port_of(session)
        sql = statement.sql
        for name, value in statement.params.items():
            sql = sql.replace(f"${name}", str(value))
        connection = self._clients.get(port)
        if connection is None or connection.closed:
            address = f"host=127.0.0.1 port={port} user=ana dbname=relaqs options='-c relaqs.dialect=duckdb'"
            connection = self._clients[port] = psycopg.connect(address, autocommit=True)
        result = connection.pgconn.exec_(sql.encode())
        if result.status != ExecStatus.TUPLES_OK:
            code, said = result.error_field(67), result.error_message.decode(errors="replace").strip()
            raise (
                RuntimeError(f"the server said {said}")
                if code == b"XX000"
                else ProgramError(said.removeprefix("ERROR:  "))
            )
        names = tuple((result.fname(place) or b"").decode() for place in range(result.nfields))
        rows = [
            tuple(_decoded(result.get_value(row, place)) for place in range(result.nfields))
            for row in range(result.ntuples)
        ]
        return Answer(texts=(names, rows))

    def _port_of(self, session: Session) -> int:
        """Return the port of a server in this process that answers by this session."""
        from relaqs.serve.entry import Door
        from relaqs.serve.health import Health
        from relaqs.serve.server import Conversations, Server

        if id(session) not in self._servers:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()

            server = Server(Conversations(session, ()), Door(), Health())
            _, self._servers[id(session)] = self._on_loop(server.start("127.0.0.1", 0))
            self._undo.callback(lambda: self._on_loop(server.stop()))
        return self._servers[id(session)]

    def _on_loop(self, work: Coroutine[Any, Any, Made]) -> Made:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


class ProgramError(relaqs.RelaqsError):
    """What the program printed where it ended with an error, without "Error: "."""


def _of_program(said: str) -> Exception:
    said = "\n".join(line for line in said.splitlines() if not line.startswith("relaqs: "))
    if "Traceback" in said or not said.startswith("Error: "):
        return RuntimeError(f"the program printed {said[-2000:]}")
    return ProgramError(said.removeprefix("Error: ").strip())


def every_snapshot(ask: Callable[[], relaqs.OnlineQuery]) -> list[Snapshot]:
    """Return all snapshots of a query in their order. A loop over the query skips some if it is slow."""
    published: list[tuple[object, Snapshot]] = []
    publish = Feed.publish

    def note(feed: Feed[Snapshot], snapshot: Snapshot, end: Any = None) -> bool:
        published.append((feed, snapshot))
        return publish(feed, snapshot, end)

    Feed.publish = note  # type: ignore[method-assign, assignment]
    try:
        query = ask()
        query.result()
    finally:
        Feed.publish = publish  # type: ignore[method-assign]
    return [snapshot for feed, snapshot in published if feed is query._publisher.feed]


def read_csv(text: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the names and rows of an answer in CSV."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    return tuple(rows[0]), [tuple(row) or ("",) for row in rows[1:]]  # a row of one NULL is an empty line


def _read_json(text: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    last = json.loads(text.splitlines()[-1])
    rows = [tuple(row.values()) for row in last["estimate"]]
    return tuple(last["estimate"][0]) if rows else (), rows


def text_difference(
    texts: tuple[tuple[str, ...], list[tuple[Any, ...]]], wanted: pa.Table, *, is_loose: bool
) -> str:
    """Return what is different between an answer in text and DuckDB's, its rows in any order."""
    names, rows = texts
    if rows and list(names[: wanted.num_columns]) != _told_apart(wanted.column_names):
        return f"names: {names}, DuckDB has {wanted.column_names}"
    if len(rows) != wanted.num_rows:
        return f"rows: {len(rows)}, DuckDB has {wanted.num_rows}"
    places = [place for place, column in enumerate(wanted.schema) if _is_comparable(column.type)]
    ours = [tuple(_shown(row[place]) for place in places) for row in rows]
    theirs = list(
        zip(*([_shown(value) for value in wanted.column(place).to_pylist()] for place in places), strict=True)
    )
    if not places or is_loose:
        return ""
    for our, their in zip(sorted(ours), sorted(theirs), strict=True):
        if not all(map(_same_text, our, their)):
            return f"values: {our}, DuckDB has {their}"
    return ""


def _told_apart(names: list[str]) -> list[str]:
    return names


def _is_comparable(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_boolean,
    )
    return any(test(kind) for test in tests)


def _shown(value: Any) -> str:
    """Return a value as text in which numbers are the same whoever wrote them; NULL, NaN and "" as ""."""
    if value is None or (
        isinstance(value, str) and value.lower() in ("nan", "inf", "-inf", "infinity", "-infinity")
    ):
        return ""
    if isinstance(value, bool) or value in ("t", "f", "true", "false"):
        return str(value).lower()[0]
    try:
        number = float(value)
    except ValueError:
        return str(value)
    return (
        f"{number:.8g}".replace("-0", "0", 1 if number == 0 else 0)
        if abs(number) < float("inf") and number == number
        else ""
    )


def _same_text(a: str, b: str) -> bool:
    try:
        return a == b or same(float(a), float(b)) or abs(float(a) - float(b)) <= 1e-6 * abs(float(b))
    except ValueError:
        return a == b
