"""What costly functions cost: calls, repeated calls after kills, the rate, and the CPU of a call.

    python -m benchmarks.costly [--kills 50] [--rows 4000] [--orders 20] [--seed 1]

A server of a process of its own answers each question after a few milliseconds, and counts it.

- **Kills**: a program counts complaints by a function that asks the server, and is killed at a random moment,
  again and again. Then it runs to its end. A question that was answered and kept is never asked again; those
  that were under way at a kill are (batch times concurrency at most).
- **Rate**: three queries ask one function of 100 rows a second. The most questions that came within one
  second are counted, and how many each query had asked when the first one was done.
- **CPU**: core-seconds that a call takes here, beside a plain loop that asks the same rows.
- **Calls**: how many until the answer is within 2 % (a share of one fifth), beside the number that theory
  gives a simple random sample, without and with a proxy.
"""

from __future__ import annotations

import argparse
import http.server
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import relaqs
from benchmarks.record import circumstances, headline, write

BATCH, CONCURRENCY = 4, 4
ANSWER_SECONDS = 0.004
RATE = 100.0
TARGET = 0.02
Z = 1.959964
CLIENT = """
import json, sys, urllib.request
import duckdb, relaqs

address, cache, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
reviews = duckdb.sql(f"SELECT i AS id, 'text ' || i AS text FROM range({rows}) AS t(i)").to_arrow_table()

def complains(text):
    data = json.dumps([each.as_py() for each in text]).encode()
    with urllib.request.urlopen(address, data) as reply:
        return json.load(reply)

with relaqs.connect(tables={"reviews": reviews}, threads=2) as db:
    db.function("complains", complains, batch=4, concurrency=4, cache=cache, version="1")
    print(db.online_sql("SELECT count(*) AS n FROM reviews WHERE complains(text)").result().fetchall()[0][0])
"""


def is_complaint(text: str) -> bool:
    return int(text.split()[1]) % 5 == 0


class Counting(http.server.ThreadingHTTPServer):
    """A server that answers lists of texts, and counts each of them and when it came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: Counter[str] = Counter()
        self.at: list[float] = []
        self.counting = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that was killed."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Counting

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.counting:
            self.server.asked.update(texts)
            self.server.at.extend([time.monotonic()] * len(texts))
        time.sleep(ANSWER_SECONDS)
        content = json.dumps([is_complaint(each) for each in texts]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of a request."""


@contextmanager
def serving() -> Iterator[Counting]:
    with Counting() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def asked_after_kills(rows: int, kills: int, seed: int) -> dict[str, float]:
    """Return how many questions a program asks twice when it is killed at seeded moments."""
    moments = random.Random(seed)
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", CLIENT, server.address, str(Path(folder) / "kept.sqlite"), str(rows)]
        killed = 0
        for _ in range(kills):
            before = len(server.at)
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
                while len(server.at) == before and client.poll() is None:
                    time.sleep(0.001)
                time.sleep(moments.uniform(0.0, 0.08))
                killed += client.poll() is None
                client.kill()
        end = subprocess.run(command, capture_output=True, text=True, check=True)
        repeated = sum(server.asked.values()) - len(server.asked)
    return {
        "rows": rows,
        "kills": killed,
        "asked": rows + repeated,
        "twice": repeated,
        "under way at most": killed * BATCH * CONCURRENCY,
        "right": int(end.stdout) == (rows + 4) // 5,
    }


def _reviews(rows: int) -> pa.Table:
    """Return texts, a fifth of them complaints, and guesses that are right for nine of ten."""
    with duckdb.connect() as connection:
        return connection.sql(
            "SELECT i AS id, 'text ' || i AS text, "
            "CASE WHEN (i % 5 = 0) = (hash(i) % 10 > 0) THEN 0.8 ELSE 0.05 END AS guess "
            f"FROM range({rows}) AS t(i)"
        ).to_arrow_table()


def rate_of_three() -> dict[str, float]:
    """Return the most rows that three queries asked within one second, and each one's share."""
    came: list[tuple[float, str]] = []
    reviews = _reviews(4_000)

    def complains(text: pa.Array, query: pa.Array) -> list[bool]:
        came.extend((time.monotonic(), each) for each in query.to_pylist())
        return [is_complaint(each) for each in text.to_pylist()]

    with relaqs.connect(tables={"reviews": reviews}, threads=2) as db:
        db.function("complains", complains, batch=4, concurrency=4, rate=RATE, cache=False)
        sql = "SELECT avg(complains(text, '{}')::INT) AS share FROM reviews"
        queries = [db.online_sql(sql.format(name), budget=400) for name in "abc"]
        for query in queries:
            query.result()
    at = np.sort([moment for moment, _ in came])
    most = max(int(np.searchsorted(at, moment + 1.0) - i) for i, moment in enumerate(at))
    last = {name: max(moment for moment, each in came if each == name) for name in "abc"}
    early = Counter(name for moment, name in came if moment <= min(last.values()))
    return {"rows a second": RATE, "most in one": most, **{f"of {name}": early[name] for name in "abc"}}


def cpu_of_calls(rows: int) -> dict[str, float]:
    """Return core-seconds of a call, of a batch of one row each, beside a loop."""
    reviews = _reviews(rows)

    def complains(text: pa.Array) -> list[bool]:
        return [is_complaint(each) for each in text.to_pylist()]

    with (
        relaqs.connect(tables={"reviews": reviews}, threads=2) as db,
        tempfile.TemporaryDirectory() as folder,
    ):
        db.function("complains", complains, batch=1, concurrency=8, cache=Path(folder) / "kept.sqlite")
        began = time.process_time()
        db.online_sql("SELECT count(*) AS n FROM reviews WHERE complains(text)").result()
        ours = time.process_time() - began
    began = time.process_time()
    sum(is_complaint(each) for each in reviews["text"].to_pylist())
    return {"ms a call": 1e3 * ours / rows, "of a loop": 1e3 * (time.process_time() - began) / rows}


def calls_to_target(orders: int) -> dict[str, float]:
    """Return the median of calls until a share is within 2 %, beside theory, and how often it then was."""
    rows, share = 200_000, 0.2
    reviews, found = _reviews(rows), {}
    needed = (Z / TARGET) ** 2 * (1 - share) / share
    found["theory"] = needed / (1 + needed / rows)

    def complains(text: pa.Array, guess: pa.Array | None = None) -> list[bool]:
        return [is_complaint(each) for each in text.to_pylist()]

    with relaqs.connect(tables={"reviews": reviews}, threads=2) as db:
        for name, proxy, arguments in (("random", None, "text"), ("proxy", "guess", "text, guess")):
            sql = f"SELECT avg(complains({arguments})::INT) AS share FROM reviews"
            ends = []
            for seed in range(orders):  # each a version of its own, which has no answer yet
                db.function(
                    "complains", complains, batch=2_000, cache=False, proxy=proxy, version=f"{name} {seed}"
                )
                ends.append(db.online_sql(sql, target=TARGET, seed=seed).result())
            found[name] = float(np.median([end.calls for end in ends]))
            found[f"{name} held"] = float(
                np.mean([abs(end.fetchall()[0][0] - share) <= TARGET * share for end in ends])
            )
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.costly",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50, help="how often a program is killed, default 50")
    parser.add_argument("--rows", type=int, default=4_000, help="rows that are asked, default 4,000")
    parser.add_argument("--orders", type=int, default=20, help="seeds of the calls to 2 %%, default 20")
    parser.add_argument("--seed", type=int, default=1, help="of the moments, default 1")
    options = parser.parse_args(words)
    facts = circumstances("costly", words)
    parts = {
        "kills": asked_after_kills(options.rows, options.kills, options.seed),
        "rate": rate_of_three(),
        "CPU": cpu_of_calls(options.rows),
        "calls": calls_to_target(options.orders),
    }
    table = Table("", "measured", "figure")
    for part, figures in parts.items():
        for i, (name, figure) in enumerate(figures.items()):
            table.add_row("" if i else part, name, f"{figure:,.3g}" if figure < 100 else f"{figure:,.0f}")
    Console().print(headline(facts), table)
    print(f"Record: {write('costly', facts, parts)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
