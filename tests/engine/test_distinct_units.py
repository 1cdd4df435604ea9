"""COUNT(DISTINCT) over clustered rows: which values were met in one sampling unit alone."""

from __future__ import annotations

import duckdb
import pytest
from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import Database, DatabaseConfig
from relaqs_engine.execution.state import GroupState
from relaqs_engine.execution.task_sql import batch_sqls
from relaqs_engine.execution.tasks import leading_stream, scheduled_batches
from relaqs_engine.planning.planner import plan_query
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.sql.binder import Binder

from relaqs import shuffle

ROWS = 60_000
KEYS = {"one": ("k",), "two": ("k", "j")}


@pytest.fixture(scope="module", params=KEYS)
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A table whose units are the values of a key with NULLs. Some values of v are in one unit alone."""
    folder = tmp_path_factory.mktemp("units")
    key = "CASE WHEN i % 97 > 0 THEN i // 5 END AS k, i % 5 // 4 AS j"
    value = "CASE WHEN i % 10 < 4 THEN i // 5 ELSE i % 700 END AS v"
    rows = duckdb.sql(f"SELECT {key}, {value} FROM range({ROWS}) AS t(i)").to_arrow_table()
    shuffle(rows, folder / "t", partitions=12, cluster_by=KEYS[request.param])
    return Catalog.open(folder)


def test_it_is_known_of_each_value_whether_it_was_met_in_one_unit(catalog: Catalog) -> None:
    plan = plan_query("SELECT count(DISTINCT v) AS n FROM t", catalog, Binder(catalog))
    assert isinstance(plan, MergePlan)
    layout = leading_stream(plan, catalog)
    unit = ", ".join(f"coalesce({key}, -1)" for key in layout.cluster_key)
    cursor = Database(DatabaseConfig(catalog.readable_directories, 1 << 28)).cursor()
    states = Database(DatabaseConfig((), 1 << 28)).cursor()
    state = GroupState(plan, layout, states)
    files: list[str] = []
    for batch in scheduled_batches(plan, catalog, seed=0):
        partials = [cursor.table(sql) for sql in batch_sqls(plan, catalog, batch)]
        state.fold(batch, partials)
        read = [layout.partitions[i] for i in batch.partitions]
        files += [str(layout.directory / file.file) for partition in read for file in partition.files]
        known = f"FROM read_parquet({files}) WHERE v IS NOT NULL"
        met = f"SELECT count(DISTINCT ({unit})) AS units {known} GROUP BY v"
        [(seen, once)] = cursor.rows(f"SELECT count(*), count(*) FILTER (units = 1) FROM ({met})")
        assert states.rows(f"SELECT distinct_seen, distinct_once FROM ({plan.texts.merge})") == [(seen, once)]
        assert 0 < once < seen
