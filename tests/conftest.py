"""Data that tests share, made once a run: TPC-H and the flights, laid out, and plain DuckDB as oracle."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import settings
from relaqs_tpch import generate
from relaqs_tpch.data import ORIGINALS

from relaqs.cli import data as flights
from relaqs.executors.duck_process import QueryWork
from tests.made_once import made_once
from tests.store_server import StoreServer
from tests.turnstile import Turnstile

# Dask looks a hundred times a second at what each worker does. It reads this when it is first imported.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "False")

# A fault in planning or estimating fails its test, although the query could still be run as a whole.
os.environ.setdefault("RELAQS_STRICT", "1")

# A shell starts what runs in its background deaf to ctrl-C, and so are the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, however long one takes; `--hypothesis-profile=default` looks for others.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

# What takes longest begins first, so that at the end no core waits for one of these.
LONGEST = (
    "tests/engine/test_differential_tpch.py",
    "tests/engine/test_differential_flights.py",
    "tests/relaqs/training/test_shard_faults.py",
    "tests/relaqs/training/test_turn_faults.py",
    "tests/relaqs/executors/test_dask_faults.py",
    "tests/benchmarks/test_layout_kills.py",
    "tests/benchmarks/test_certified.py",
    "tests/benchmarks/test_faults.py",
    "tests/relaqs/test_appended_samples.py",
    "tests/engine/test_bends.py",
    "tests/engine/test_certain_rows.py",
    "tests/relaqs/test_background_layouts.py",
    "tests/engine/test_joins.py",
    "tests/engine/test_handwritten.py",
    "tests/docs/test_pages.py",
    "tests/relaqs/serve/test_postgres_meaning.py",
)

# Tests that took more than three quarters of a core-second, when they were last measured, are slow without a
# mark. `RELAQS_CORE_SECONDS=FILE make test test-slow` writes what each takes.
SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines())
SLOW_FILES = frozenset(test.partition("::")[0] for test in SLOW)
MEASURED = os.environ.get("RELAQS_CORE_SECONDS")

# How a file says that it has tests for one of the Makefile's expressions. Then no other file is imported.
MARKED = {
    "slow": re.compile(r"mark\.slow|few_and_many\("),
    "alone and not slow": re.compile(r"mark\.alone"),
}

# Workers of one run begin to collect at different places: each finds files compiled that others have done.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

# RELAQS_PART=1/4 runs the second of four parts of the files: each part has some of the longest.
PART, PARTS = map(int, os.environ.get("RELAQS_PART", "0/1").split("/"))

TPCH_SCALE = 0.01  # 60,175 rows of lineitem; its answers are published
TPCH_PARTITIONS = 20
FLIGHTS_PARTITIONS = 20


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among what collecting makes: it all stays, and is a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # what is frozen at the end is reported as leaked
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file without tests for the run's expression: to import all takes some ten core-seconds."""
    marked = MARKED.get(config.option.markexpr)
    if marked is None or not collection_path.match("test_*.py"):
        return None
    is_listed = config.option.markexpr == "slow" and nodeid_of(collection_path) in SLOW_FILES
    has_none = not is_listed and marked.search(collection_path.read_text(encoding="utf-8")) is None
    return True if has_none else None


def nodeid_of(file: Path) -> str:
    return file.relative_to(Path(__file__).parent.parent).as_posix()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if isinstance(collector, pytest.Dir) and report.passed:
        first = len(report.result) * WORKER // WORKERS
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, give all workers the same order, and leave out the other parts.

    Raises:
        pytest.UsageError: a file has marked tests that `pytest_ignore_collect` would not find.
    """
    for expression, written in MARKED.items():
        mark = expression.partition(" ")[0]
        for path in {item.path for item in items if item.get_closest_marker(mark) is not None}:
            if written.search(path.read_text(encoding="utf-8")) is None:
                raise pytest.UsageError(
                    f"{path} has tests that are marked {mark!r} in another way than {written.pattern!r}; "
                    "mark them in this file, or add the way to MARKED in tests/conftest.py"
                )
    for item in items:
        if item.nodeid in SLOW:
            item.add_marker("slow")
    places = {file: place for place, file in enumerate(LONGEST)}

    def order(item: pytest.Item) -> tuple[int, tuple[str, ...]]:
        place = places.get(item.nodeid.partition("::")[0], len(LONGEST))
        return place, item.path.parts if WORKERS > 1 else ()

    items.sort(key=order)
    files = list(dict.fromkeys(item.path for item in items))
    others = {file for place, file in enumerate(files) if place % PARTS != PART % PARTS}
    config.hook.pytest_deselected(items=[item for item in items if item.path in others])
    items[:] = [item for item in items if item.path not in others]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Write down how many core-seconds a test takes, with the processes that it starts and waits for."""
    before = os.times()
    result = yield
    if MEASURED is not None:
        seconds = sum(after - first for after, first in zip(os.times()[:4], before[:4], strict=True))
        with open(MEASURED, "a", encoding="utf-8") as file:
            file.write(f"{seconds:.2f} {item.nodeid}\n")
    return result


class Oracle:
    """Plain DuckDB over a folder's original Parquet files, one view each: what exact answers must equal."""

    def __init__(self, folder: Path) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        for path in sorted(folder.glob("*.parquet")):
            self._connection.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")

    def table(self, sql: str, params: Any = None) -> pa.Table:
        return self._connection.sql(sql, params=params).to_arrow_table()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="session")
def tpch_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H at scale 0.01: lineitem and orders in 20 co-clustered partitions, the other tables static."""

    def make(warehouse: Path) -> None:
        generate(TPCH_SCALE, warehouse, partitions=TPCH_PARTITIONS, keep_raw=True)

    return made_once(tmp_path_factory, "tpch", make)


@pytest.fixture(scope="session")
def tpch_laid_out_twice(tpch_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tables, five of them also laid out by part or customer key."""

    def make(warehouse: Path) -> None:
        shutil.copytree(tpch_warehouse, warehouse, copy_function=os.link, dirs_exist_ok=True)
        generate(TPCH_SCALE, warehouse, partitions=TPCH_PARTITIONS, second_layouts=True)

    return made_once(tmp_path_factory, "tpch-twice", make)


@pytest.fixture(scope="session")
def tpch_oracle(tpch_warehouse: Path) -> Iterator[Oracle]:
    """Plain DuckDB over TPC-H as generated, before it was laid out."""
    with closing(Oracle(tpch_warehouse / ORIGINALS)) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def store_server() -> Iterator[StoreServer]:
    """An S3 server in a process of its own."""
    with StoreServer() as server:
        yield server


@pytest.fixture
def store(
    store_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreServer]:
    """The server, reached by this process as by a user's, with a cache of its own and little patience."""
    for name, value in store_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RELAQS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RELAQS_STORE_PATIENCE", "2")
    store_server.fails()
    yield store_server
    store_server.fails()


@pytest.fixture
def bucket(store: StoreServer) -> str:
    """The address of an empty bucket."""
    return store.new_bucket()


@pytest.fixture(scope="session")
def flights_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of 2013 in 20 partitions, each flight its own sampling unit; four static tables."""

    def make(warehouse: Path) -> None:
        flights.lay_out(warehouse, partitions=FLIGHTS_PARTITIONS)

    return made_once(tmp_path_factory, "flights", make)


@pytest.fixture(scope="session")
def flights_by_aircraft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with all flights of one aircraft as one sampling unit; 2,512 flights name none (NULL)."""

    def make(warehouse: Path) -> None:
        flights.lay_out(warehouse, partitions=FLIGHTS_PARTITIONS, cluster_by=("tailnum",))

    return made_once(tmp_path_factory, "flights-by-aircraft", make)


@pytest.fixture(scope="session")
def flights_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the flights' tables as they come out of the package, a Parquet file each."""
    return made_once(tmp_path_factory, "flights-files", flights.write_parquet)


@pytest.fixture(scope="session")
def flights_oracle(flights_files: Path) -> Iterator[Oracle]:
    """Plain DuckDB over the flights' tables as they come out of the package."""
    with closing(Oracle(flights_files)) as oracle:
        yield oracle


@pytest.fixture
def turnstile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turnstile]:
    """Stop every query's tasks of this process until the test lets them go on."""
    gate, run = Turnstile(), QueryWork.run

    def enter_and_run(work: QueryWork, job_id: str) -> object:
        gate.enter()
        return run(work, job_id)

    monkeypatch.setattr(QueryWork, "run", enter_and_run)
    yield gate
    gate.let()
