"""All 22 queries over a warehouse in an object store, on two Dask workers, end with DuckDB's own answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import LocalCluster
from relaqs_engine.layouts import read_manifest
from relaqs_engine.layouts.manifest import MANIFEST_NAME
from relaqs_engine.layouts.manifest_file import table_folders
from relaqs_engine.stores.address import Address
from relaqs_engine.stores.object_folder import store_folder
from relaqs_tpch import QUERIES, query

import relaqs
from tests.conftest import Oracle
from tests.engine.world import difference
from tests.store_server import Fault, StoreServer


def put_warehouse(warehouse: Path, address: str) -> None:
    """Copy a warehouse to a store, as any tool would."""
    for table in table_folders(warehouse):
        at = Address.of(f"{address}/{table.name}")
        assert at is not None
        files = read_manifest(table).all_files
        for name in (*(each.file for each in files), MANIFEST_NAME):
            store_folder(at).put(name, (table / name).read_bytes())


@pytest.mark.slow
def test_all_queries_from_two_workers(
    tpch_warehouse: Path, tpch_oracle: Oracle, store: StoreServer, bucket: str
) -> None:
    put_warehouse(tpch_warehouse, f"{bucket}/tpch")
    store.fails(
        Fault("status", "GET", ".parquet", times=5, status=503),
        Fault("reset", "GET", ".parquet", times=5),
        Fault("slow", "GET", ".parquet", times=50, seconds=0.05),
    )
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    problems = []
    with (
        LocalCluster(**options) as cluster,
        relaqs.connect(f"{bucket}/tpch", cluster=cluster.scheduler_address) as db,
    ):
        for number in QUERIES:
            answer = db.online_sql(query(number)).result()
            assert answer.is_exact
            got = answer.estimate
            wanted = tpch_oracle.table(query(number))
            problems += [f"Q{number}: {each}" for each in difference(got, wanted, True)]
    assert problems == []
