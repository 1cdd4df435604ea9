"""A client process of `benchmarks.faults`: answers what it reads, a line of JSON each, by a line of JSON.

    python -m benchmarks.faults_client ADDRESS WAREHOUSE

{"sql": …, "seed": …} is a query, run to its exact end in a session of its own: connecting is part of what
must work. {"train": passes} is a training run. {"sql": …, "server": …} asks the server with that address, by
Postgres's protocol. It ends when stdin does.
"""

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from relaqs_engine.errors import ClusterError, DataError, MemoryLimitError

import relaqs
from benchmarks.faults_cluster import Process, Processes, kill_tree
from benchmarks.faults_judged import TRAINED

MEMORY_LIMIT = "512MB"
EXPECTED = (ClusterError, DataError, MemoryLimitError)  # what may be said of a fault, and no other
EXPECTED_CODES = ("58000", "22000", "53200")  # the same, as a server says it


class ClientProcess:
    """A client as its parent sees it: ask it one thing after another, and wait for the answer in time."""

    def __init__(self, processes: Processes, address: str, warehouse: Path) -> None:
        self._start = lambda: processes.start("benchmarks.faults_client", address, str(warehouse), pipes=True)
        self._process: Process | None = None
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._asked: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        """The process of now; 0 where there is none."""
        return 0 if self._process is None else self._process.pid

    def ask(self, **request: Any) -> None:
        if self._process is None or self._process.poll() is not None:
            self._begin()
        assert self._process is not None
        assert self._process.stdin is not None
        self._asked = request
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, timeout_seconds: float) -> dict[str, Any] | None:
        """Return what it said, or None after the timeout, or if it died; then another process takes over."""
        try:
            said = self._said.get(timeout=max(timeout_seconds, 0.0))
        except queue.Empty:
            self.kill()
            return None
        return {"error": "EOFError", "text": "the client died", "is_clear": False} if said is None else said

    def has_answer(self) -> bool:
        return not self._said.empty()

    def kill(self) -> None:
        if self._process is not None:
            kill_tree(self._process)
            self._process = None

    def kill_and_ask_again(self) -> None:
        """Kill it in the middle of what it does; what takes over is asked the same."""
        self.kill()
        self.ask(**self._asked)

    def _begin(self) -> None:
        self._process, self._said = self._start(), queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process, self._said), daemon=True).start()


def _read(process: Process, said: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        said.put(json.loads(line))
    said.put(None)


def encoded(answer: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.schema) as writer:
        writer.write_table(answer)
    return base64.b64encode(sink.getvalue()).decode()


def served(server: str, sql: str) -> str:
    """Return what a server answers, as a table of the types that psycopg makes of it."""
    with psycopg.connect(server) as connection:
        cursor = connection.execute(sql.encode())
        assert cursor.description is not None
        names, rows = [column.name for column in cursor.description], cursor.fetchall()
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return encoded(pa.table([pa.array(column) for column in columns], names))


def answered(address: str, warehouse: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer, or the error, as it is written."""
    started = time.monotonic()
    said: dict[str, Any]
    try:
        if "server" in request:
            said = {"served": served(request["server"], request["sql"])}
            return {**said, "seconds": time.monotonic() - started}
        with relaqs.connect(warehouse, cluster=address, memory_limit=MEMORY_LIMIT) as db:
            if "train" in request:
                run = db.train(TRAINED, max_steps=request["train"])
                run.result()
                said = {"losses": run.losses}
            else:
                result = db.online_sql(request["sql"], seed=request["seed"]).result()
                said = {"answer": encoded(result.estimate)}
    except Exception as error:
        is_clear = isinstance(error, EXPECTED) or getattr(error, "sqlstate", None) in EXPECTED_CODES
        said = {"error": type(error).__name__, "text": str(error), "is_clear": is_clear}
    return {**said, "seconds": time.monotonic() - started}


def main(words: Sequence[str]) -> None:
    address, warehouse = words
    for line in sys.stdin:
        print(json.dumps(answered(address, Path(warehouse), json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
