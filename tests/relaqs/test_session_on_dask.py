"""The same session on a Dask cluster of processes: the same code, and the same snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

from relaqs.cli import program
from relaqs.executors.dask import DaskExecutor
from relaqs.opening import connect
from relaqs.queries import jobs
from relaqs.queries.snapshot import Snapshot
from tests.relaqs.sessions import every_snapshot

SQL = """
    SELECT n_name, sum(l_extendedprice) AS revenue, count(*) AS n
    FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
    JOIN nation ON c_nationkey = n_nationkey
    WHERE n_regionkey = 2 GROUP BY n_name ORDER BY revenue DESC
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield cluster


def snapshots_of(**connection: Any) -> list[Snapshot]:
    with connect(**connection) as db:
        return every_snapshot(lambda: db.online_sql(SQL, seed=5, batches=4))


def test_snapshots_are_those_of_an_embedded_run(cluster: LocalCluster, tpch_warehouse: Path) -> None:
    embedded = snapshots_of(data=tpch_warehouse, threads=2)
    with Client(cluster, set_as_default=False) as client:
        for place in (cluster.scheduler_address, client):
            there = snapshots_of(data=tpch_warehouse, cluster=place)
            assert [snapshot.batch for snapshot in there] == [1, 2, 3, 4]
            for here, away in zip(embedded, there, strict=True):
                assert away.table.equals(here.table)
                assert (away.fraction, away.is_exact) == (here.fraction, here.is_exact)
        assert client.status == "running"  # a client that was handed in stays open


def test_plain_files_are_laid_out_for_a_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    pq.write_table(pa.table({"fare": range(20_000)}), tmp_path / "trips.parquet")
    with connect(
        tmp_path / "trips.parquet",
        cluster=cluster.scheduler_address,
        cache_directory=tmp_path / "cache",
    ) as db:
        assert db.tables["trips"].is_sampled
        answer = db.online_sql("SELECT sum(fare) AS fare FROM trips").result()
    assert (answer.mode, answer.estimate["fare"].to_pylist()) == ("mergeable", [20_000 * 19_999 // 2])


def test_data_in_memory_are_laid_out_for_a_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    fares = pa.table({"fare": range(20_000)}).to_pandas()
    where = {"cluster": cluster.scheduler_address, "cache_directory": tmp_path / "cache"}
    with connect(tables={"trips": fares}, **where) as db:
        answer = db.online_sql("SELECT sum(fare) AS fare FROM trips").result()
    assert (answer.mode, answer.estimate["fare"].to_pylist()) == ("mergeable", [20_000 * 19_999 // 2])
    assert list((tmp_path / "cache" / "sessions").iterdir()) == []


def test_a_query_that_takes_longer_than_predicted_gives_estimates_after_all(
    cluster: LocalCluster, tpch_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LEAST_OVERDUE_SECONDS", 0.05)
    slow = "list_sum(list_transform(range(200), lambda i: (i * l_partkey) % 7))"
    sql = f"SELECT l_returnflag, count(*) AS n FROM lineitem WHERE {slow} % 2 = 0 GROUP BY ALL ORDER BY ALL"
    with connect(tpch_warehouse, cluster=cluster.scheduler_address, exact_below_seconds=60.0) as db:
        assert db.explain(sql).startswith("mode: exact")
        *so_far, last = (query := db.online_sql(sql))
        alone = db.sql(sql)
    assert len(so_far) > 2
    assert (last.is_exact, query.plan.mode, alone.batches) == (True, "mergeable", 1)
    assert last.estimate == alone.estimate


def test_a_query_that_runs_as_a_whole(cluster: LocalCluster, tpch_warehouse: Path) -> None:
    with connect(tpch_warehouse, cluster=cluster.scheduler_address) as db:
        numbered = "SELECT row_number() OVER (PARTITION BY l_returnflag) AS place FROM lineitem"
        [snapshot] = db.online_sql(f"SELECT count(*) AS n FROM ({numbered}) AS t WHERE place = 1")
    assert snapshot.mode == "exact"
    assert snapshot.table["n"].to_pylist() == [3]  # A, N and R


def test_the_program_on_a_cluster(cluster: LocalCluster, tpch_warehouse: Path) -> None:
    arguments = ["sql", SQL, "--data", str(tpch_warehouse), "--cluster", cluster.scheduler_address]
    done = CliRunner().invoke(program, [*arguments, "--format", "jsonl"])
    assert done.exit_code == 0
    assert json.loads(done.stdout.splitlines()[-1])["is_exact"] is True


def test_a_cluster_that_is_not_there(tpch_warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DaskExecutor.__init__.__kwdefaults__, "connect_seconds", 0.5)
    arguments = ["sql", SQL, "--data", str(tpch_warehouse), "--cluster", "tcp://127.0.0.1:1"]
    done = CliRunner().invoke(program, arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: no Dask scheduler answered at tcp://127.0.0.1:1")
