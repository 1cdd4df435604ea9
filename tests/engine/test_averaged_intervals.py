"""Averages and quantiles of intervals: the end is DuckDB's, intervals before it are certified and hold."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.layouts import shuffle
from relaqs_engine.plans.plan import OutputKind

import relaqs
from tests.relaqs.sessions import every_snapshot
from tests.rows import rows_of

SEEDS = 25
ROWS = 20_000


@pytest.fixture(scope="module")
def rides() -> pa.Table:
    """Rides of up to three days within a week, some of them backwards, and numbers of minutes and months."""
    sql = f"""SELECT i % 4 AS g, start, start + to_seconds((hash(i, 2) % 260000)::BIGINT - 600) AS stop,
        (hash(i, 3) % 90)::INT AS n, start::TIMESTAMPTZ AS zoned, start::TIME AS clock, start::DATE AS day
        FROM (SELECT i, TIMESTAMP '2020-01-01' + to_milliseconds(hash(i, 1) % 300000000) AS start
              FROM range({ROWS}) AS t(i))"""
    with duckdb.connect() as connection:
        return connection.sql(sql).to_arrow_table()


@pytest.fixture(scope="module")
def session(rides: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> relaqs.Session:
    folder = tmp_path_factory.mktemp("rides")
    shuffle(rides, folder / "t", partitions=16)
    return relaqs.connect(folder, threads=1)


def _wanted(sql: str, rides: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("t", rides)
        return connection.sql(sql).to_arrow_table()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT g, avg(stop - start) AS a, count(*) AS n FROM t GROUP BY g",
        "SELECT avg(start - stop) AS a, avg(to_minutes(n)) AS b, avg(INTERVAL 1 HOUR * n) AS c FROM t",
        "SELECT avg(age(stop, start)) AS a, avg(to_months(n)) AS b, avg(to_weeks(n) - to_days(n)) FROM t",
        "SELECT g, avg(CASE WHEN n > 9 THEN stop - start END) AS a, avg(zoned - day) AS b FROM t GROUP BY g",
        "SELECT avg(stop - start) FILTER (WHERE n > 80) AS a, avg(stop - day) AS b FROM t WHERE n > 70",
        "SELECT g, avg(stop - start) AS a FROM t GROUP BY g HAVING avg(stop - start) > INTERVAL 36 HOUR",
        "SELECT g, epoch(avg(stop - start)) AS a, avg(stop - day) - max(stop - day) AS b FROM t GROUP BY g",
        "SELECT (SELECT avg(stop - start) FROM t WHERE g = 1) AS a, (SELECT median(day) FROM t) AS b",
        "SELECT avg(DISTINCT stop - start) AS a FROM t",
        "SELECT g, median(stop - start) AS a, quantile_disc(age(stop, start), 0.1) AS b FROM t GROUP BY g",
        "SELECT g, median(start) AS a, median(day) AS b, quantile_disc(day, 0.9) AS c FROM t GROUP BY g",
        "SELECT median(zoned) AS a, median(clock) AS b, quantile_cont(start, [0.1, 0.2]) AS c FROM t",
        "SELECT avg(stop - start) AS a, median(stop - start) AS b FROM t WHERE g > 9",
    ],
)
def test_the_end_is_that_of_duckdb(sql: str, session: relaqs.Session, rides: pa.Table) -> None:
    wanted = _wanted(sql, rides)
    *early, last = every_snapshot(lambda: session.online_sql(sql, batches=4))
    assert early
    assert all(each.table.schema == last.table.schema for each in early)
    assert last.estimate.schema.types == wanted.schema.types
    assert sorted(map(str, rows_of(last.estimate))) == sorted(map(str, rows_of(wanted)))


def test_intervals_are_estimates_relative_to_their_value(session: relaqs.Session) -> None:
    sql = "SELECT avg(to_minutes(n)) AS a, median(stop - start) AS b, avg(n) AS c FROM t"
    with session.online_sql(sql, batches=4) as query:
        kinds = [output.kind for output in query.plan.outputs]
        first = next(query)
    assert kinds == [OutputKind.ESTIMATE, OutputKind.QUANTILE, OutputKind.ESTIMATE]
    (row,) = first.table.to_pylist()
    assert row["a_certified"]
    assert row["b_certified"]
    length, low, high = (row[name].nanoseconds / 60e9 for name in ("a", "a_low", "a_high"))
    assert (length - low) / length == pytest.approx((row["c"] - row["c_low"]) / row["c"], rel=0.01)
    assert (high - length) / length == pytest.approx((row["c_high"] - row["c"]) / row["c"], rel=0.01)


@pytest.mark.parametrize(
    "value",
    ["avg(stop - start)", "avg(to_months(n))", "median(stop - start)", "quantile_disc(start, 0.25)"],
)
def test_certified_cells_hold(value: str, session: relaqs.Session, rides: pa.Table) -> None:
    """25 seeds at half of the rows. Cells of one seed move together, so the seeds count.

    95 % less 2.6 standard errors of 100 independent intervals, four groups a seed, is 89 %.
    """
    sql = f"SELECT g, {value} AS x FROM t GROUP BY g"
    truth = dict(rows_of(_wanted(sql, rides)))
    held = []
    for seed in range(SEEDS):
        with session.online_sql(sql, batches=2, seed=seed) as query:
            first = next(query)
        for row in first.table.to_pylist():
            if row["x_certified"]:
                held.append(_comes(row["x_low"]) <= _comes(truth[row["g"]]) <= _comes(row["x_high"]))
    assert len(held) >= 0.9 * 4 * SEEDS
    assert np.mean(held) >= 0.89


def _comes(value: Any) -> Any:
    """Return a value that sorts as DuckDB sorts: an interval by its length, where a month has 30 days."""
    if isinstance(value, pa.MonthDayNano):
        months, days, nanoseconds = value
        return (30 * months + days) * 86_400e9 + nanoseconds
    return value


def test_duckdb_adds_what_is_left_of_the_microseconds() -> None:
    """Its average is up to a microsecond a row too large. If it divides them one day, the rule goes."""
    values = "unnest([0, 1, 1]::BIGINT[])"
    sql = f"SELECT epoch_us(avg(to_microseconds(x))) FROM (SELECT {values} AS x)"
    with duckdb.connect() as connection:
        assert connection.execute(sql).fetchall() == [(2,)]


def test_intervals_are_wider_by_what_duckdb_adds(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An average of all rows but few varies by 0.1 ms here, and DuckDB's answer is some ms off the mean."""
    sql = (
        "SELECT to_timestamp(0) AS a, make_timestamptz((900000000 + hash(i) % 10000)::BIGINT) AS b "
        "FROM range(19990) AS t(i)"
    )
    with duckdb.connect() as connection:
        rows = connection.sql(sql).to_arrow_table()
    folder = tmp_path_factory.mktemp("equal")
    shuffle(rows, folder / "t", partitions=8)
    with relaqs.connect(folder, threads=1) as db:
        *early, last = every_snapshot(lambda: db.online_sql("SELECT avg(b - a) AS x FROM t", batches=4))
    truth = last.table["x"][0].as_py().nanoseconds
    mean = sum(b.timestamp() for b in rows["b"].to_pylist()) / len(rows)
    assert abs(truth / 1e9 - mean) > 2e-3
    for snapshot in early:
        low, high = (snapshot.table[name][0].as_py().nanoseconds for name in ("x_low", "x_high"))
        assert low <= truth <= high


def test_sums_of_seconds_are_bounded_by_both_moments(session: relaqs.Session) -> None:
    """What the error for sum(INTERVAL) tells to write has certified numbers, too."""
    with session.online_sql("SELECT sum(epoch(stop - start)) AS s FROM t", batches=2) as query:
        assert next(query).table["s_certified"][0].as_py()


def test_no_error_is_relative_to_an_unknown_span(session: relaqs.Session) -> None:
    with session.online_sql("SELECT avg(to_minutes(n)) AS a FROM t", batches=4) as query:
        error = next(query).error
    assert 0 < error < 0.1
