"""Statements that do not end: a recursion over files on one thread, and functions deaf to interruptions."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster
from relaqs_engine.duck import DatabaseConfig, Interrupted
from relaqs_engine.plans.plan import Hoist

import relaqs
from relaqs.executors import duck_process
from relaqs.executors.duck_process import QueryWork
from relaqs.executors.threads import DeafTaskWarning
from tests.relaqs.sessions import threads_of
from tests.rows import rows_of

STEP = "SELECT t.x + 1 FROM steps AS v JOIN t ON t.x = v.p WHERE t.x < 10"
RECURSIVE = {
    "bag": f"WITH RECURSIVE t(x) AS (SELECT 1::BIGINT UNION ALL {STEP}) SELECT count(*) FROM t",
    "set": f"WITH RECURSIVE t(x) AS (SELECT 1::BIGINT UNION {STEP}) SELECT count(*) FROM t",
    "by key": f"WITH RECURSIVE t(x) USING KEY (x) AS (SELECT 1::BIGINT UNION {STEP}) SELECT count(*) FROM t",
    "below another": "SELECT (WITH RECURSIVE t(x) AS (SELECT 1::BIGINT UNION ALL "
    f"{STEP}) SELECT count(*) FROM t) + 0 * sum(p) FROM steps",
}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The numbers 0, 1, 2 as a layout, a static table, a Parquet file, a CSV file and Arrow data."""
    folder, numbers = tmp_path_factory.mktemp("steps"), pa.table({"p": [0, 1, 2]})
    pq.write_table(numbers, folder / "steps.parquet")
    (folder / "steps.csv").write_text("p\n0\n1\n2\n")
    relaqs.shuffle(folder / "steps.parquet", folder / "laid" / "steps", partitions=3)
    relaqs.add_static(folder / "steps.parquet", folder / "static" / "steps")
    return {
        "layout": folder / "laid",
        "static": folder / "static",
        "parquet": folder / "steps.parquet",
        "csv": folder / "steps.csv",
        "arrow": numbers,
    }


@pytest.mark.parametrize("kind", ["layout", "static", "parquet", "csv", "arrow"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_recursion_over_files_ends(steps: dict[str, Any], tmp_path: Path, kind: str, threads: int) -> None:
    source = {"tables": {"steps": steps[kind]}} if kind == "arrow" else {"data": steps[kind]}
    with relaqs.connect(**source, threads=threads, cache_directory=tmp_path) as db:
        for sql in RECURSIVE.values():
            assert rows_of(db.online_sql(sql, timeout=20).result().estimate) == [(3,)], sql


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with ExitStack() as stack:
        yield stack.enter_context(
            LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0")
        )


def test_a_recursion_over_files_ends_on_a_cluster(steps: dict[str, Any], cluster: LocalCluster) -> None:
    with relaqs.connect(steps["layout"], cluster=cluster.scheduler_address) as db:
        for sql in RECURSIVE.values():
            assert rows_of(db.online_sql(sql, timeout=20).result().estimate) == [(3,)], sql


# DuckDB looks for an interruption before and after this one call, which takes some seconds.
DEAF = "SELECT len(list_intersect(list(x), list(x + 1))) AS n FROM numbers"
COUNT = "SELECT count(*) AS n FROM numbers"
ROWS = 1_000_000


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    pq.write_table(pa.table({"x": range(ROWS)}), folder / "numbers.parquet")
    return folder / "numbers.parquet"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duck_process, "DEAF_SECONDS", 0.3)


def until_deaf(runtime: duck_process.Runtime = duck_process._RUNTIME) -> None:
    """Wait until a statement runs and has come to where it looks for no interruption."""
    deadline = time.monotonic() + 20
    while not runtime.statements._running and time.monotonic() < deadline:
        time.sleep(0.01)
    begun = time.process_time()
    while time.process_time() - begun < 0.5 and time.monotonic() < deadline:
        time.sleep(0.01)


def end(query: relaqs.OnlineQuery, ends_by: str) -> relaqs.OnlineQuery:
    if ends_by == "stop":
        query.stop()
    return query


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("threads", "ends_by"), [(1, "stop"), (2, "timeout")])
def test_a_deaf_statement_leaves_the_session_its_threads(
    numbers: Path, tmp_path: Path, threads: int, ends_by: str
) -> None:
    before = threads_of("relaqs-")  # of sessions that other tests left open
    with relaqs.connect(numbers, threads=threads, cache_directory=tmp_path) as db:
        query = db.online_sql(DEAF, timeout=1.0 if ends_by == "timeout" else None)
        until_deaf()
        with pytest.warns(DeafTaskWarning, match="went on with it for 0.3 s"):
            assert end(query, ends_by).wait(5)
        assert query.state == "stopped"
        for _ in range(3):
            assert rows_of(db.online_sql(COUNT, timeout=10).result().estimate) == [(ROWS,)]
        at_once = [db.online_sql(COUNT) for _ in range(2 * threads)]
        assert [rows_of(each.result().estimate) for each in at_once] == [[(ROWS,)]] * len(at_once)
        begun = time.perf_counter()
    assert time.perf_counter() - begun < 5
    deadline = time.monotonic() + 200  # what was given up ends when its statement does
    while threads_of("relaqs-") - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threads_of("relaqs-") <= before


@pytest.mark.usefixtures("impatient")
def test_closing_the_session_gives_a_deaf_statement_up(numbers: Path, tmp_path: Path) -> None:
    db = relaqs.connect(numbers, threads=1, cache_directory=tmp_path)
    query = db.online_sql(DEAF)
    until_deaf()
    begun = time.perf_counter()
    with pytest.warns(DeafTaskWarning):
        db.close()
    assert time.perf_counter() - begun < 5
    assert query.wait(5)


@pytest.mark.slow
def test_a_process_with_a_deaf_statement_exits(numbers: Path, tmp_path: Path) -> None:
    # It must outlast the process: where it ends while the interpreter goes, DuckDB aborts the process.
    thrice = f"(SELECT x + {ROWS} * range AS x FROM numbers, range(3))"
    program = (
        "import relaqs, time; from relaqs.executors import duck_process; duck_process.DEAF_SECONDS = 0.3\n"
        "from relaqs.jobs import executor; executor._STATEMENT_SECONDS = 0.3\n"
        f"db = relaqs.connect({str(numbers)!r}, threads=1, cache_directory={str(tmp_path)!r})\n"
        f"query = db.online_sql({DEAF.replace('numbers', thrice)!r})\n"
        "while not duck_process._RUNTIME.statements._running: time.sleep(0.01)\n"
        "time.sleep(0.5)"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "DeafTaskWarning" in done.stderr


@pytest.mark.slow
def test_who_waits_for_a_hoist_of_a_deaf_statement_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job needs the table that a deaf statement builds: it is built anew in another database."""
    monkeypatch.setattr(duck_process, "DEAF_SECONDS", 0.3)
    deaf = "SELECT len(list_intersect(list(x), list(x + 1))) AS n FROM range(1_000_000) AS t(x)"
    hoist, config = Hoist("slow", deaf, ()), DatabaseConfig((), 1 << 30)
    runtime, found = duck_process.Runtime(), dict[str, object]()

    def ask(owner: str) -> None:
        try:
            work = QueryWork(config, (hoist,), "FROM slow")
            found[owner] = runtime.query(work, owner)["n"].to_pylist()
        except Interrupted as error:
            found[owner] = error

    first, second = (threading.Thread(target=ask, args=(owner,)) for owner in ("first", "second"))
    first.start()
    until_deaf(runtime)
    second.start()
    assert not runtime.interrupt("first")
    second.join(60)
    assert found["second"] == [999_999]
    first.join(60)
    assert isinstance(found["first"], Interrupted)
