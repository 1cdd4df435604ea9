"""Statements that would not end: a recursion over files where there is one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

import relaqs
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
