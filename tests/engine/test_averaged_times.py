"""Averages of dates and times: the end is DuckDB's, intervals before it are certified and hold."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from relaqs_engine.arrow_arrays import arrow_moments, microseconds
from relaqs_engine.layouts import shuffle
from relaqs_engine.plans.aggregate import MergePlan
from relaqs_engine.plans.plan import OutputKind

import relaqs
from tests.engine.world import World, same
from tests.rows import rows_of

SEEDS = 25
ROWS = 20_000


@pytest.fixture(scope="module")
def moments() -> pa.Table:
    """Moments of every type that has an average, before and after 1970, some NULL."""
    random = f"(hash(i) % {10**15}) / {10**15}::DOUBLE"
    sql = f"""SELECT i % 5 AS g, DATE '1969-01-01' + ({random} * 800)::INT AS day,
        CASE WHEN i % 9 > 0 THEN make_timestamp(({random} * 1e15 - 5e14)::BIGINT) END AS at_us,
        make_timestamp((1.6e15 + {random} * 3e9)::BIGINT)::TIMESTAMP_NS AS at_ns,
        make_timestamp((1.6e15 + {random} * 3e9)::BIGINT)::TIMESTAMP_S AS at_s,
        to_timestamp(1.6e9 + {random} * 3e6) AS zoned,
        TIME '08:00:00' + to_microseconds(({random} * 3e10)::BIGINT) AS clock,
        CASE WHEN i % 100 = 3 THEN TIMESTAMP 'infinity' ELSE TIMESTAMP '2020-01-01' END AS endless,
        TIMESTAMP '2020-06-01' + to_microseconds((hash(i) % 2)::BIGINT) AS tick,
        NULL::DATE AS never, (i % 31)::INT AS n FROM range({ROWS}) AS t(i)"""
    with duckdb.connect() as connection:
        return connection.sql(sql).to_arrow_table()


@pytest.fixture(scope="module")
def session(moments: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> relaqs.Session:
    folder = tmp_path_factory.mktemp("moments")
    shuffle(moments, folder / "t", partitions=16)
    return relaqs.connect(folder, threads=1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT avg(day) AS a, avg(at_us) AS b, avg(at_ns) AS c, avg(at_s) AS d, avg(zoned) AS e FROM t",
        "SELECT g, avg(at_us) AS a, avg(day)::DATE AS b, count(*) AS n FROM t GROUP BY g",
        "SELECT g, avg(day) FILTER (WHERE n > 9) AS a, avg(never) AS b, avg(clock) AS c FROM t GROUP BY g",
        "SELECT g, avg(day) AS a FROM t GROUP BY g HAVING avg(day) > DATE '1970-02-04'",
        "SELECT g, avg(clock) AS a FROM t GROUP BY g ORDER BY avg(at_us) DESC LIMIT 3",
        "SELECT avg(endless) AS a, avg(to_days(n)) AS b, avg(day + INTERVAL 1 DAY) AS c FROM t",
        "SELECT avg(DISTINCT day) AS a FROM t",
        "SELECT g, avg(day) AS a, rank() OVER (ORDER BY avg(day)) AS r FROM t GROUP BY g",
        "SELECT (SELECT avg(day) FROM t WHERE g = 1) AS a, (SELECT avg(at_us) FROM t WHERE g = 2) AS b",
        "SELECT count(*) AS n FROM t WHERE day > (SELECT avg(day) FROM t)",
        "SELECT count(*) AS n, avg(day) AS a FROM t WHERE n < (SELECT avg(n) FROM t)",
        "SELECT epoch(avg(at_us)) AS a, year(avg(day)) AS b, avg(zoned) - max(zoned) AS c FROM t",
        "SELECT avg(day) AS a FROM t WHERE g > 9",
    ],
)
def test_the_end_is_that_of_duckdb(sql: str, session: relaqs.Session, moments: pa.Table) -> None:
    with duckdb.connect() as connection:
        connection.register("t", moments)
        wanted = connection.sql(sql).to_arrow_table()
    *early, last = session.online_sql(sql, batches=4)
    assert all(each.table.schema == last.table.schema for each in early)
    assert last.estimate.schema.types == wanted.schema.types
    for ours, theirs in zip(sorted(rows_of(last.estimate)), sorted(rows_of(wanted)), strict=True):
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True)), (ours, theirs)


@pytest.mark.parametrize(
    "values", ["0, 1", "0, 0, 1", "0, 1, 1", "0, 0, 0, 1", "-1, 0", "-1, 0, 0, 0", "-3, -1, 0"]
)
def test_an_average_is_rounded_as_duckdb_does(values: str, tmp_path: Path) -> None:
    """The whole part is cut off towards 1970, and a rest above a half adds one."""
    rows = duckdb.sql(f"SELECT make_timestamp(unnest([{values}])::BIGINT) AS x").to_arrow_table()
    shuffle(rows, tmp_path / "t", partitions=2)
    with relaqs.connect(tmp_path, threads=1) as session:
        found = session.online_sql("SELECT epoch_us(avg(x)) AS x FROM t").result()
    assert rows_of(found.estimate) == duckdb.sql("SELECT epoch_us(avg(x)) FROM rows").fetchall()


def test_averages_of_moments_are_estimates_with_moments_as_ends(flights: World) -> None:
    plan = flights.check(
        "SELECT origin, avg(time_hour) AS a, avg(time_hour)::DATE AS d FROM flights GROUP BY origin"
    )
    assert isinstance(plan, MergePlan)
    assert [output.kind for output in plan.outputs[1:]] == [OutputKind.ESTIMATE] * 2
    first = next(flights.estimates(plan))
    assert first.table.column("a_low").type == pa.timestamp("us")
    assert first.table.column("d_high").type == pa.date32()
    row = first.table.to_pylist()[0]
    assert row["a_low"] < row["a"] < row["a_high"]
    assert row["a_high"] - row["a_low"] < datetime.timedelta(days=60)


def test_an_error_is_relative_to_the_time_that_the_column_spans(flights: World) -> None:
    """A year of flights: an error of 1 % is 3.65 days, whatever the distance to 1970 is."""
    first = next(flights.estimates(flights.plan("SELECT avg(time_hour) AS a FROM flights")))
    (row,) = first.table.to_pylist()
    half_days = (row["a_high"] - row["a_low"]) / datetime.timedelta(days=2)
    assert first.certified.all()
    assert first.relative_error() == pytest.approx(half_days / 365, rel=0.01)


def test_certified_intervals_hold(flights: World) -> None:
    """25 seeds at a quarter of the table. Cells of one seed move together, so the seeds count.

    95 % less 2.6 standard errors of 75 independent intervals, three airports a seed, is 88 %.
    """
    sql = "SELECT origin, avg(time_hour) AS a FROM flights WHERE distance > 500 GROUP BY origin"
    plan = flights.plan(sql)
    truth = dict(flights.oracle.rows(sql))
    held = []
    for seed in range(SEEDS):
        first = next(flights.estimates(plan, seed=seed, batches=4))
        for row in first.table.to_pylist():
            if row["a_certified"]:
                held.append(row["a_low"] <= truth[row["origin"]] <= row["a_high"])
    assert len(held) >= 0.9 * 3 * SEEDS
    assert np.mean(held) >= 0.88


@pytest.mark.parametrize(
    ("chosen", "certain"),
    [
        ("HAVING avg(day) > DATE '1969-12-01'", True),
        ("HAVING TIME '13:00:00' > avg(clock)", True),
        ("HAVING avg(zoned) BETWEEN TIMESTAMPTZ '2020-01-01' AND TIMESTAMPTZ '2021-01-01'", True),
        ("HAVING avg(at_s) > '2020-01-01'", True),
        ("ORDER BY avg(day + to_days(CAST(9 * g AS INTEGER))) DESC LIMIT 5", True),
        ("HAVING avg(day)::DATE > DATE '1969-12-01'", False),  # it moves by whole days
        ("HAVING avg(day - at_us) > to_days(-9999)", False),  # DuckDB rounds each row
    ],
)
def test_averages_of_moments_decide_which_rows_are_certain(
    chosen: str, certain: bool, session: relaqs.Session
) -> None:
    first, *_ = session.online_sql(f"SELECT g, count(*) AS n FROM t GROUP BY g {chosen}", batches=4)
    assert not first.is_exact
    assert first.certain_rows is not None
    assert first.certain_rows.to_pylist() == [certain] * 5


@pytest.mark.slow
def test_less_than_a_microsecond_makes_no_row_certain(session: relaqs.Session) -> None:
    """Each average is half a microsecond beyond that moment, and DuckDB rounds it."""
    sql = "SELECT g, count(*) AS n FROM t GROUP BY g HAVING avg(tick) > TIMESTAMP '2020-06-01'"
    for seed in range(SEEDS):
        *before, _ = session.online_sql(sql, seed=seed, batches=4)
        assert not any(row for each in before for row in each.certain_rows.to_pylist())


@pytest.mark.slow
def test_rows_that_a_moment_makes_certain_stay(session: relaqs.Session) -> None:
    """The thresholds are within 3 days of a group's average, of which the first estimates know ± 12 days."""
    truth = dict(rows_of(session.sql("SELECT g, avg(day) AS a FROM t GROUP BY g").estimate))
    near = sorted(truth.values())[2]
    certain = wrong = 0
    for days in (-20, -3, -1, 1, 3):
        least = near + datetime.timedelta(days=days)
        sql = f"SELECT g FROM t GROUP BY g HAVING avg(day) > TIMESTAMP '{least}'"
        for seed in range(SEEDS):
            for each in session.online_sql(sql, seed=seed, batches=4):
                rows = zip(rows_of(each.estimate), each.certain_rows.to_pylist(), strict=True)
                known = [truth[group] > least for (group,), is_certain in rows if is_certain]
                certain, wrong = certain + len(known), wrong + known.count(False)
    assert certain > 100
    assert wrong <= 0.05 * certain


def test_what_has_no_bounds_is_a_value_so_far(session: relaqs.Session) -> None:
    """An infinite moment is no number of microseconds."""
    plan = session.plan("SELECT avg(endless) AS a, avg(day) AS b FROM t")
    assert [output.kind for output in plan.outputs] == [OutputKind.OPAQUE, OutputKind.ESTIMATE]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Oslo"])
def test_moments_of_every_unit_are_the_same_moments(unit: str, zone: str | None) -> None:
    """DuckDB's average of dates has microseconds, or nanoseconds from 2.0.1 on."""
    seconds = np.array([-86_400.0 * 365, 0.0, 1.7e9])
    moments = arrow_moments(seconds * 1e6 - 1e15, 10**15, pa.timestamp(unit, zone))
    assert moments.cast(pa.timestamp("us", zone)).cast(pa.int64()).to_pylist() == (seconds * 1e6).tolist()
    assert microseconds(moments).tolist() == (seconds * 1e6).tolist()


def test_a_moment_that_nanoseconds_do_not_reach_is_not_known() -> None:
    assert arrow_moments(np.array([1e16, np.nan, 5.0]), 0, pa.timestamp("ns")).is_null().to_pylist() == [
        *(True, True, False)
    ]
