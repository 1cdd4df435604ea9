"""Tables laid out by the processes of a cluster: the same bytes, also when one of them dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pytest
from distributed import Client
from relaqs_engine.errors import ClusterError
from relaqs_engine.layouts import Layout, verify
from relaqs_engine.layouts.assignment import Spread
from relaqs_engine.layouts.build import Progress, building
from relaqs_engine.layouts.sampled import sample

import relaqs
from relaqs.executors import ThreadExecutor
from relaqs.executors.dask import DaskExecutor
from relaqs.executors.spreading import OnExecutor
from tests.relaqs.executors.clusters import running_cluster

ROWS = 200_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "log") as address:
        yield address


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "trips.parquet"
    duckdb.sql(
        "SELECT i AS id, i % 7 AS zone, hash(i) % 100 AS fare, 'trip ' || i AS name "
        f"FROM range({ROWS}) AS t(i)"
    ).write_parquet(str(path), row_group_size=10_240)
    return path


def laid_out(
    trips: Path, into: Path, processes: Spread | None = None, progress: Progress | None = None
) -> Layout:
    with building(trips, into, force=False, memory_limit_bytes=1 << 30, threads=1) as build:
        return sample(build, 20, processes=processes, progress=progress or (lambda share, doing: None))


def sums(layout: Layout) -> list[str]:
    return [stored.sha256 for stored in layout.files]


def test_a_session_on_a_cluster_lays_out_with_its_workers(address: str, trips: Path, tmp_path: Path) -> None:
    with relaqs.connect(trips, cluster=address, cache_directory=tmp_path / "cluster") as db:
        layout = db.tables["trips"]
        assert layout.is_sampled
        assert db.online_sql("SELECT count(*) AS n FROM trips").result().estimate.to_pylist() == [{"n": ROWS}]
    with relaqs.connect(trips, cache_directory=tmp_path / "threads") as db:
        here = db.lay_out("trips")
    assert sums(layout) == sums(here)
    assert layout.columns == here.columns
    assert verify(layout.directory).ok


@pytest.mark.parametrize(
    "moment", [pytest.param("sorting rows", marks=pytest.mark.slow), "writing partition"]
)
def test_a_worker_that_is_killed_is_survived(address: str, trips: Path, tmp_path: Path, moment: str) -> None:
    killed = []

    def kill(share: float, doing: str) -> None:
        if doing.startswith(moment) and not killed:
            with Client(address, set_as_default=False) as client:
                killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    executor = DaskExecutor(address)
    try:
        layout = laid_out(trips, tmp_path / "t", OnExecutor(executor, "laying out"), kill)
    finally:
        executor.close()
    assert killed
    assert sums(layout) == sums(laid_out(trips, tmp_path / "alone"))
    assert verify(layout.directory).ok
    assert {path.name for path in layout.directory.iterdir()} == {
        "manifest.json",
        layout.paths[0].parent.name,
    }


def test_work_that_kills_every_worker_is_one_clear_error(address: str) -> None:
    executor = DaskExecutor(address)
    try:
        with pytest.raises(ClusterError, match="killed its worker 2 times"):
            list(OnExecutor(executor, "bad work")(os._exit, [1], 1))
    finally:
        executor.close()


def test_results_come_in_order_and_an_error_in_its_turn() -> None:
    executor = ThreadExecutor(2)
    spread = OnExecutor(executor, "numbers")
    assert list(spread(partial(pow, 2), range(20), 3)) == [2**i for i in range(20)]
    results = spread(partial(pow, 0), [1, 0, -1, 2], 4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []
    assert executor.status().jobs == ()
    executor.close()


@pytest.mark.slow
def test_nothing_is_at_work_once_it_is_closed() -> None:
    executor = ThreadExecutor(2)
    begun, released, ended = threading.Semaphore(0), threading.Event(), list[int]()

    def work(item: int) -> int:
        if item:
            begun.release()
            assert released.wait(60)
        ended.append(item)
        return item

    results = OnExecutor(executor, "slow work")(work, range(9), 3)
    assert next(results) == 0
    begun.acquire()
    begun.acquire()
    threading.Timer(0.05, released.set).start()
    results.close()
    assert sorted(ended) == [0, 1, 2]
    executor.close()
