"""What a query does not wait for: pandas, what trains models, and whatever else its answer does not need."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import pytest
from relaqs_engine.layouts import add_static, shuffle

# Pyarrow imports pandas behind many of its functions, once a process: the stack is that of the first.
PROGRAM = """
import sys, traceback

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            traceback.print_stack()

sys.meta_path.insert(0, Watch())
import relaqs
from relaqs.rendering import html

warehouse, *queries = sys.argv[1:]
with relaqs.connect(warehouse, threads=1) as session:
    for sql in queries:
        seen = 0
        while seen < 2:  # on a busy machine the last snapshot may be there before the first is looked at
            query, seen = session.online_sql(sql), 0
            for snapshot in query:
                seen += 1
                print(snapshot, repr(snapshot), html.render(snapshot))
            assert snapshot.is_exact, sql
assert "pandas" not in sys.modules, "pandas was imported; stderr says where"
trains = {"sklearn", "torch", "distributed", "relaqs.training"}
trains |= {"relaqs.sharing.gangs", "relaqs.sharing.parts", "relaqs.slot_policies"}
assert not (found := trains & set(sys.modules)), found
"""

TRIPS = """
SELECT i % 50 AS zone, i % 7 AS kind, (i * 7919 % 1000) / 8 AS delay, 'n' || i % 3 AS name,
    DATE '2020-01-01' + (i % 9)::INTEGER AS day, TIMESTAMP '2020-01-01' + to_hours(i % 4) AS moment,
    TIMESTAMPTZ '2020-01-01 00:00:00+00' + to_hours(i % 3) AS zoned, TIMESTAMP_NS '2020-01-01' AS fine,
    (i % 5)::DECIMAL(10, 2) AS price, i % 2 = 0 AS yes, i AS id
FROM range(20000) AS t(i)
"""

QUERIES = {
    "totals": "SELECT sum(delay), stddev(delay), min(delay) FROM trips",
    "groups": "SELECT kind, sum(delay), avg(delay), count(*) FROM trips GROUP BY kind",
    "many groups": "SELECT id % 3000, sum(delay), avg(delay) FROM trips GROUP BY 1",
    "keys of many types": "SELECT name, day, moment, price, yes, sum(delay) FROM trips GROUP BY ALL",
    "keys with a zone": "SELECT zoned, fine, sum(delay), max(zoned) FROM trips GROUP BY ALL",
    "a join": "SELECT label, sum(delay) FROM trips JOIN zones USING (zone) GROUP BY label",
    "subtotals": "SELECT kind, name, sum(delay) FROM trips GROUP BY ROLLUP (kind, name)",
    "quantiles": "SELECT kind, median(delay), quantile_cont(delay, 0.9) FROM trips GROUP BY kind",
    "distinct": "SELECT kind, count(DISTINCT zone), count(DISTINCT id) FROM trips GROUP BY kind",
    "a ranking": "SELECT zone, avg(delay) AS d FROM trips GROUP BY zone ORDER BY d DESC LIMIT 5",
    "having": "SELECT zone, count(*) FROM trips GROUP BY zone HAVING count(*) > 100",
    "extremes": "SELECT kind, max(moment), min(day), max(name), bool_or(yes) FROM trips GROUP BY kind",
    "windows": (
        "SELECT kind, sum(delay) / sum(sum(delay)) OVER (), rank() OVER (ORDER BY sum(delay)) "
        "FROM trips GROUP BY kind"
    ),
    "a common table expression": (
        "WITH a AS (SELECT kind, sum(delay) AS s FROM trips GROUP BY kind) SELECT max(s), avg(s) FROM a"
    ),
    "refined": "SELECT kind, count(*) FROM trips WHERE delay > (SELECT avg(delay) FROM trips) GROUP BY kind",
    "refined groups": (
        "SELECT kind, sum(delay) FROM trips GROUP BY kind "
        "HAVING sum(delay) > (SELECT sum(delay) / 7 FROM trips)"
    ),
    "refined per group": (
        "SELECT count(*) FROM trips AS a "
        "WHERE delay > (SELECT avg(delay) FROM trips AS b WHERE a.kind = b.kind)"
    ),
    "rows": "SELECT id, moment, delay FROM trips WHERE id < 20",
}


CLUSTERED = pytest.param("zone", id="clusters", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[pytest.param(None, id="rows"), CLUSTERED])
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    shuffle(duckdb.sql(TRIPS), folder / "trips", partitions=8, cluster_by=request.param)
    add_static(duckdb.sql("SELECT i AS zone, 'zone ' || i AS label FROM range(50) AS t(i)"), folder / "zones")
    return folder


def test_no_query_imports_pandas_or_what_trains(warehouse: Path) -> None:
    assert importlib.util.find_spec("pandas") is not None, "install pandas, or this shows nothing"
    command = [sys.executable, "-c", PROGRAM, str(warehouse), *QUERIES.values()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-5000:]


COLD = """
import sys
from relaqs.cli import program

sql = "SELECT kind, avg(delay) FROM trips GROUP BY kind"
program(["sql", sql, "--data", sys.argv[1]], standalone_mode=False)
print(*sys.modules, sep="\\n")
"""
# What estimates, what lays tables out, what draws on a terminal, and libraries that only these need.
NOT_NEEDED = {
    *(
        "asyncio",
        "concurrent.futures",
        "dask",
        "numpy.ma",
        "portalocker",
        "pyarrow.compute",
        "pyarrow.parquet",
        "rich",
        "sqlglot.optimizer.qualify",
    ),
    *("relaqs_engine.execution.estimator", "relaqs_engine.layouts.build", "relaqs_engine.rewrite", "scipy"),
    *("relaqs.executors.spreading", "relaqs.queries.folded", "relaqs_lab.simulation", "relaqs.training"),
    *("relaqs.pacing.paced_loop", "relaqs_engine.layouts.column_statistics"),
    *("relaqs.policies.max_sum", "relaqs_engine.plans.explain"),
}

FIRST_ESTIMATE = """
import sys
import relaqs

sql = "SELECT id % 3000 AS few, avg(delay) AS d, count(*) FROM trips GROUP BY 1 ORDER BY d DESC LIMIT 10"
with relaqs.connect(sys.argv[1]) as session, session.online_sql(sql) as query:
    snapshot = next(query)
    assert not snapshot.is_exact
    print(snapshot)
print(*sys.modules, sep="\\n")
"""
# What other kinds of plans need, what lays tables out, and libraries that only these need.
NOT_BEFORE_THE_FIRST_ESTIMATE = {
    *("asyncio", "dask", "pyarrow.parquet"),
    *(
        "relaqs_engine.execution.row_group_estimates",
        "relaqs_engine.layouts.row_groups",
        "relaqs.queries.composite",
    ),
    *("relaqs_engine.layouts.build", "relaqs_engine.layouts.footers", "relaqs_engine.plans.explain"),
    *("relaqs.executors.spreading", "relaqs_lab.simulation", "relaqs.training"),
}


def test_the_first_estimate_waits_for_nothing_that_it_does_not_need(warehouse: Path) -> None:
    command = [sys.executable, "-c", FIRST_ESTIMATE, str(warehouse)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert "Estimate" in ended.stdout
    assert NOT_BEFORE_THE_FIRST_ESTIMATE & set(ended.stdout.split()) == set()


def test_a_question_about_plain_files_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    duckdb.sql(TRIPS).write_parquet(str(tmp_path / "trips.parquet"))
    command = [sys.executable, "-c", COLD, str(tmp_path / "trips.parquet")]
    environment = {**os.environ, "RELAQS_CACHE": str(tmp_path / "cache")}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "Exact" in ended.stdout
    assert NOT_NEEDED & set(ended.stdout.split()) == set()


WITHOUT_EXTRAS = """
import sys

absent, warehouse, query = sys.argv[1:]
for name in absent.split():
    sys.modules[name] = None  # as if it were not installed
import relaqs

def refusal(call):
    try:
        call()
    except relaqs.MissingPackageError as error:
        return str(error)

with relaqs.connect(warehouse, threads=1) as session:
    answer = session.online_sql(query).result()
assert answer.is_exact
print(refusal(answer.to_pandas))
print(refusal(answer.to_polars))
print(refusal(answer.plot))
print(refusal(lambda: relaqs.connect(warehouse, cluster="tcp://127.0.0.1:1")))
print(refusal(lambda: __import__("relaqs.training")))

from relaqs.cli import ADDED, program

for name in program.list_commands(None):
    assert program.get_command(None, name) is not None  # each says what it misses when it runs
"""


def test_each_error_for_want_of_a_package_names_its_extra(warehouse: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    absent = "distributed dask pandas polars matplotlib scipy sklearn torch starlette obstore"
    command = [sys.executable, "-c", WITHOUT_EXTRAS, absent, str(warehouse), QUERIES["groups"]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    named = [re.search(r"pip install 'relaqs\[(\w+)\]'", line)[1] for line in ended.stdout.splitlines()]
    assert named == ["pandas", "polars", "plot", "cluster", "train"]
    assert set(named) <= set(extras)
