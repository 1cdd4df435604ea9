"""A real server process, and the warehouse that it serves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
from relaqs_engine.layouts import add_static

import relaqs

ROWS = 120_000
TRIPS = f"""
    SELECT i::INTEGER AS id, (i % 5)::INTEGER AS zone, ((i * 7919) % 1000 / 100)::DECIMAL(9, 2) AS fare,
        (i * 31 % 97)::DOUBLE AS distance, DATE '2024-01-01' + (i % 366)::INTEGER AS day,
        TIMESTAMP '2024-01-01' + INTERVAL (i) SECOND AS picked_up, i % 3 = 0 AS shared,
        CASE WHEN i % 11 = 0 THEN NULL ELSE 'driver ' || (i % 40) END AS driver
    FROM range({ROWS}) AS t(i)
"""
ZONES = "SELECT i::INTEGER AS zone, 'zone ' || i AS name FROM range(5) AS t(i)"
_SAID = re.compile(r"Serving on ([\w.:]+):(\d+)\.")


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens."""

    host: str
    port: int
    process: subprocess.Popen[str]

    def address(self, user: str = "ana") -> str:
        return f"host={self.host} port={self.port} user={user} dbname=relaqs"

    def url(self, driver: str, user: str = "ana") -> str:
        return f"postgresql+{driver}://{user}@{self.host}:{self.port}/relaqs"


def lay_out(folder: Path) -> Path:
    """Write the tables trips, of 60 partitions, and zones, of 5 rows; return their folder."""
    relaqs.shuffle(duckdb.sql(TRIPS), folder / "trips", partitions=60)
    add_static(duckdb.sql(ZONES), folder / "zones")
    return folder


@contextmanager
def serving(data: Path, *options: str, stderr: int | None = None) -> Iterator[Running]:
    """Give a server in a process of its own, on a port that the system chose. It ends as by ctrl-C."""
    command = [sys.executable, "-m", "relaqs", "serve", "--data", str(data), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            said = _SAID.match(line)
            assert said is not None, f"the server said {line!r}"
            yield Running(said[1], int(said[2]), process)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
