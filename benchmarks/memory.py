"""What memory a query with very many groups takes: the peak of the process, against the limit it was given.

    python -m benchmarks.memory [--groups 10000000] [--limit 2GB] [--data DIR]
    python -m benchmarks.memory --statements WAREHOUSE [--limit 512MB] [--doors session,server] [--only NAME]
    python -m benchmarks.memory --records RECORD … --page PAGE

The query runs embedded, so that one process holds what a worker and the driver hold on a cluster: databases,
partial results, merged state, snapshots, and the answer itself. The data is made in another process. A wrong
answer fails the benchmark; a peak over the limit does not, and is marked.

With --statements it asks thirty statements over TPC-H that could take all memory, by every door: a session,
the database API, an agent's tool, a notebook and a server. A statement has a few seconds, and an answer may
take an eighth of the limit. Whatever becomes of it, the process may have had the limit and 200 MB at most; a
peak beyond that fails the benchmark. One process of each door answers all of them, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_engine.layouts import shuffle
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from rich.console import Console

from benchmarks import record
from benchmarks.overhead import WrongAnswerError
from benchmarks.server_process import serving
from relaqs.memory import bound_process_memory, memory_bytes
from relaqs.opening import connect

MONSTERS = {
    "cross join": "SELECT count(*) FROM lineitem a, lineitem b WHERE hash(a.l_comment, b.l_comment) % 7 = 1",
    "group by all rows": "SELECT l_orderkey, l_linenumber, l_comment, count(*) FROM lineitem GROUP BY ALL",
    "group by text": "SELECT l_comment, count(*) FROM lineitem GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
    "list": "SELECT len(list(l_comment)) FROM lineitem",
    "lists by group": "SELECT l_suppkey, list(l_comment) FROM lineitem GROUP BY 1",
    "string_agg": "SELECT length(string_agg(l_comment, ',')) FROM lineitem",
    "string_agg in order": "SELECT length(string_agg(l_comment, ',' ORDER BY l_comment)) FROM lineitem",
    "order by": "SELECT * FROM lineitem ORDER BY l_comment",
    "all rows": "SELECT * FROM lineitem",
    "distinct rows": "SELECT DISTINCT * FROM lineitem",
    "four COUNT(DISTINCT)": "SELECT count(DISTINCT l_comment), count(DISTINCT l_orderkey), "
    "count(DISTINCT hash(l_orderkey, l_linenumber)), count(DISTINCT l_extendedprice) FROM lineitem",
    "quantiles by group": "SELECT l_partkey, quantile_cont(l_extendedprice, [0.1, 0.5]) "
    "FROM lineitem GROUP BY 1",
    "median of texts": "SELECT median(l_comment) FROM lineitem",
    "mode": "SELECT mode(l_comment) FROM lineitem",
    "histogram": "SELECT histogram(l_comment) FROM lineitem",
    "window": "SELECT max(r) FROM (SELECT rank() OVER (ORDER BY l_comment) AS r FROM lineitem)",
    "windows by group": "SELECT sum(l_quantity) OVER (PARTITION BY l_partkey ORDER BY l_shipdate) "
    "FROM lineitem",
    "refined": "SELECT count(*) FROM lineitem WHERE l_quantity > "
    "(SELECT avg(b.l_quantity) FROM lineitem AS b WHERE b.l_partkey = lineitem.l_partkey)",
    "groups of a range": "SELECT count(*) FROM "
    "(SELECT x % 10000000, count(*) FROM range(20000000) AS t(x) GROUP BY 1)",
    "unnested range": "SELECT count(*) FROM (SELECT unnest(range(300000000)))",
    "range by row": "SELECT max(len(range(l_orderkey * 1000))) FROM lineitem",
    "series": "SELECT len(generate_series(1, 300000000))",
    "repeated text": "SELECT length(repeat('x', 2000000000))",
    "repeated by row": "SELECT max(length(repeat(l_comment, 100000))) FROM lineitem",
    "padded text": "SELECT length(lpad('x', 2000000000, 'y'))",
    "join of one key": "SELECT count(*) FROM lineitem AS a JOIN lineitem AS b USING (l_shipmode) "
    "WHERE a.l_tax + b.l_tax > 1",
    "join of texts": "SELECT count(*) FROM lineitem AS a JOIN lineitem AS b USING (l_comment)",
    "pivot": "PIVOT lineitem ON l_suppkey USING sum(l_quantity) GROUP BY l_partkey",
    "intersection": "SELECT * FROM lineitem INTERSECT SELECT * FROM lineitem",
    "union": "SELECT * FROM lineitem UNION SELECT * FROM lineitem WHERE l_tax < 1",
    "structs": "SELECT list({'a': l_orderkey, 'b': l_comment, 'c': [l_tax, l_discount]}) FROM lineitem",
}
ANSWERS = 8  # an answer may take this part of the limit, as of a server's
MORE_BYTES = 200 << 20  # that a process may have beyond the limit
STATEMENT_SECONDS = 8.0
SETTLE_SECONDS = 1.0  # between two statements, so that what one has left is not the next one's
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


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of a statement. said: the error, or how many rows came."""

    door: str
    name: str
    outcome: str
    seconds: float
    peak_bytes: int
    said: str


def by_session(folder: Path, limit: str) -> Iterator[Callable[[str], str]]:
    with connect(folder, memory_limit=limit, result_limit=memory_bytes(limit) // ANSWERS, threads=2) as db:
        yield lambda sql: f"{len(db.online_sql(sql, timeout=STATEMENT_SECONDS).result())} rows"


def by_database_api(folder: Path, limit: str) -> Iterator[Callable[[str], str]]:
    from relaqs import dbapi

    opening: dict[str, Any] = {
        "memory_limit": limit,
        "result_limit": memory_bytes(limit) // ANSWERS,
        "threads": 2,
    }
    with dbapi.connect(folder, within=STATEMENT_SECONDS, **opening) as connection:
        yield lambda sql: f"{len(connection.execute(sql).fetchall())} rows"


def by_agent(folder: Path, limit: str) -> Iterator[Callable[[str], str]]:
    from relaqs.mcp.tools import Tools

    bound_process_memory()  # as `relaqs mcp` does

    class Context:
        async def report_progress(self, *said: object) -> None:
            return

    with connect(folder, memory_limit=limit, result_limit=memory_bytes(limit) // ANSWERS, threads=2) as db:
        ask: Any = Tools(db).ask
        yield lambda sql: f"{len(asyncio.run(ask(Context(), sql, 0, STATEMENT_SECONDS)).rows)} rows"


def by_notebook(folder: Path, limit: str) -> Iterator[Callable[[str], str]]:
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell()
    shell.extension_manager.load_extension("relaqs")
    line = f"%%relaqs --data db --timeout {STATEMENT_SECONDS:g}s --wait"

    def ask(sql: str) -> str:
        with redirect_stdout(StringIO()):  # what is shown below the cell
            ran = shell.run_cell(f"{line}\n{sql}")
        ran.raise_error()
        return f"{len(ran.result.result())} rows"

    with connect(folder, memory_limit=limit, result_limit=memory_bytes(limit) // ANSWERS, threads=2) as db:
        shell.user_ns["db"] = db
        yield ask


EMBEDDED = {
    "session": by_session,
    "database API": by_database_api,
    "agent": by_agent,
    "notebook": by_notebook,
}
DOORS = (*EMBEDDED, "server")


def _answer(door: str, folder: Path, limit: str, pipe: Connection) -> None:
    """Answer what comes through the pipe by one door, in a process of its own."""
    for ask in EMBEDDED[door](folder, limit):
        pipe.send("")
        while (sql := pipe.recv()) is not None:
            pipe.send(_outcome(ask, sql))


def _outcome(ask: Callable[[str], str], sql: str) -> tuple[str, str]:
    try:
        return "answered", ask(sql)
    except Exception as error:
        return "refused", f"{type(error).__name__}: {error}"[:200]


@contextmanager
def opened(door: str, folder: Path, limit: str) -> Iterator[tuple[int, Callable[[str], tuple[str, str]]]]:
    """Give the process behind a door, and what asks it."""
    if door == "server":
        with serving(folder, "--memory-limit", limit, "--threads", "2", stderr=subprocess.DEVNULL) as server:
            yield server.process.pid, lambda sql: _outcome(partial(_served, server.address()), sql)
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(door, folder, limit, theirs), daemon=True)
    process.start()
    ours.recv()

    def ask(sql: str) -> tuple[str, str]:
        ours.send(sql)
        if not ours.poll(10 * STATEMENT_SECONDS):
            process.kill()
            return "hung", ""
        outcome: tuple[str, str] = ours.recv()
        return outcome

    try:
        assert process.pid is not None
        yield process.pid, ask
    finally:
        process.kill()
        process.join()


def _served(address: str, sql: str) -> str:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"SET statement_timeout = '{STATEMENT_SECONDS:g}s'")
        count = 0
        for _ in connection.cursor().stream(sql.encode()):
            count += 1
    return f"{count} rows"


def ask_all(folder: Path, limit: str, door: str, monsters: Mapping[str, str]) -> Iterator[Asked]:
    """Yield what became of each statement by one door."""
    with opened(door, folder, limit) as (pid, ask):
        for name, sql in monsters.items():
            time.sleep(SETTLE_SECONDS)
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
            began = time.monotonic()
            outcome, said = ask(sql)
            seconds = time.monotonic() - began
            status = Path(f"/proc/{pid}/status").read_text()
            [peak] = [int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")]
            yield Asked(door, name, outcome, seconds, peak, said)


def statements(options: argparse.Namespace, facts: dict[str, Any], console: Console) -> int:
    """Ask the monsters by each door, and return 1 if a peak was too high."""
    limit = memory_bytes(options.limit)
    monsters = {name: sql for name, sql in MONSTERS.items() if options.only in (None, name)}
    console.print(record.headline(facts))
    asked = list[Asked]()
    for door in options.doors.split(","):
        for each in ask_all(options.statements, options.limit, door, monsters):
            is_over = each.peak_bytes > limit + MORE_BYTES
            console.print(
                f"{each.door:13} {each.name:22} {each.outcome:9} after {each.seconds:5.1f} s, "
                f"{each.peak_bytes / 1e6:6.0f} MB{' OVER' if is_over else ''}  {each.said}",
                markup=False,
            )
            asked.append(each)
    print_and_keep(asked, limit, options.page, facts, console)
    console.print(f"Record: {record.write('memory', facts, {'asked': [asdict(each) for each in asked]})}")
    return int(any(each.peak_bytes > limit + MORE_BYTES or each.outcome == "hung" for each in asked))


def from_records(options: argparse.Namespace, facts: dict[str, Any], console: Console) -> int:
    """Show what was asked in runs before, of one door each."""
    asked = [
        Asked(**each)
        for path in options.records
        for each in json.loads(path.read_text(encoding="utf-8"))["asked"]
    ]
    print_and_keep(asked, memory_bytes(options.limit), options.page, facts, console)
    return 0


def print_and_keep(
    asked: Sequence[Asked], limit: int, page: Path | None, facts: dict[str, Any], console: Console
) -> None:
    """Print how many statements were within, by door, and write it into a page."""
    rows: list[tuple[str, ...]] = [
        ("door", "statements", "answered", "refused or late", "within", "most MB", "of")
    ]
    for door in dict.fromkeys(each.door for each in asked):
        own = [each for each in asked if each.door == door]
        worst = max(own, key=lambda each: each.peak_bytes)
        answered = sum(each.outcome == "answered" for each in own)
        within = sum(each.peak_bytes <= limit + MORE_BYTES for each in own)
        counts = (str(len(own)), str(answered), str(len(own) - answered), str(within))
        rows.append((door, *counts, f"{worst.peak_bytes / 1e6:.0f}", worst.name))
    for row in rows:
        console.print(" · ".join(row), markup=False)
    if page is not None:
        record.put_into(page, "memory of large statements", facts, rows)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=10_000_000)
    parser.add_argument("--limit", help="memory limit of the session, default 2GB; of statements 512MB")
    parser.add_argument("--statements", type=Path, metavar="WAREHOUSE", help="ask thirty statements of it")
    parser.add_argument("--doors", default=",".join(DOORS), help=f"of {', '.join(DOORS)}; default all")
    parser.add_argument("--only", choices=list(MONSTERS), metavar="NAME", help="of a statement")
    parser.add_argument("--records", type=Path, nargs="+", metavar="RECORD", help="show those of runs before")
    parser.add_argument("--page", type=Path, help="of Markdown, to write the table of statements into")
    parser.add_argument("--data", type=Path, default=record.DATA, help="folder for data that is made")
    options = parser.parse_args(words)
    are_asked = options.statements is not None or options.records
    options.limit = options.limit or ("512MB" if are_asked else "2GB")
    return options


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    facts = record.circumstances("memory", words)
    if options.records:
        return from_records(options, facts, Console(soft_wrap=True))
    if options.statements is not None:
        return statements(options, facts, Console(soft_wrap=True))
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
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WrongAnswerError as error:
        sys.exit(f"wrong answer: {error}")
