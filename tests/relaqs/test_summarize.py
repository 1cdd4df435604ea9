"""SUMMARIZE before its end: cells with intervals after the first mini-batch, DuckDB's own rows at last."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from relaqs_engine.layouts import shuffle
from relaqs_engine.plans.composite import SampledThenExact
from relaqs_engine.plans.plan import WholePlan

import relaqs
from relaqs.cli import program
from tests.relaqs.sessions import every_snapshot
from tests.rows import rows_of

ROWS = 120_000
EXACT = ["column_name", "column_type", "min", "max", "approx_unique", "count", "null_percentage"]
UGLY = f"""SELECT i AS id, (hash(i) % 7)::TINYINT AS zone, ((hash(i) % 9000) / 100)::DECIMAL(9, 2) AS fare,
    CASE WHEN hash(i) % 10 = 0 THEN NULL ELSE (hash(i + 1) % 1000)::DOUBLE - 500 END AS moved,
    CASE WHEN i % 5000 = 3 THEN 'nan'::DOUBLE ELSE 1.5 END AS odd,
    DATE '2019-01-01' + (hash(i) % 800)::INT AS day,
    make_timestamp(1600000000000000 + (hash(i) % 3000000000)::BIGINT) AS at_us, hash(i) % 3 = 0 AS flag,
    TIME '00:00:00' + to_seconds((hash(i) % 80000)::INT) AS clock,
    to_timestamp((hash(i) % 99999)::BIGINT) AS zoned,
    NULL::INTEGER AS nothing, 'name ' || hash(i) % 4000 AS name, {{'a': i % 3, 'b': [i % 2]}} AS nested,
    hash(i)::HUGEINT AS huge, [i % 4] AS list, ('a' || i % 3)::ENUM ('a0', 'a1', 'a2') AS label,
    encode('x' || i % 50) AS bytes, i % 2 AS " ", uuid_from(i) AS id2 FROM range({ROWS}) AS t(i)"""


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("CREATE MACRO uuid_from(i) AS md5(i::VARCHAR)::UUID")
        return connection.sql(UGLY).to_arrow_table()


@pytest.fixture(scope="module")
def folder(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("summarized")
    with duckdb.connect() as connection:
        connection.execute("CREATE MACRO uuid_from(i) AS md5(i::VARCHAR)::UUID")
        shuffle(connection.sql(UGLY), folder / "trips", partitions=32)
    return folder


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[relaqs.Session]:
    with relaqs.connect(folder, threads=1) as session:
        yield session


def give_trips(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Give DuckDB the rows. Arrow has UUIDs as text, and the layout does not."""
    connection.register("given", rows)
    connection.execute("CREATE TEMP VIEW trips AS SELECT * REPLACE (id2::UUID AS id2) FROM given")


def by_column(snapshot: relaqs.Snapshot) -> dict[str, dict[str, Any]]:
    return {row["column_name"]: row for row in snapshot.table.to_pylist()}


def number(cell: dict[str, Any], name: str) -> tuple[float, float, float]:
    return float(cell[f"{name}_low"]), float(cell[name]), float(cell[f"{name}_high"])


def holds(cell: dict[str, Any], last: dict[str, Any], measure: str) -> bool:
    """Whether a cell's interval holds the last value: of numbers, or of moments, whose text is in order."""
    try:
        low, _, high = number(cell, measure)
        true = float(last[measure])
    except ValueError:
        return bool(cell[f"{measure}_low"] <= last[measure] <= cell[f"{measure}_high"])
    slack = 0.02 * float(last["std"] or 0.0) if measure.startswith("q") else 1e-9
    return low - slack <= true <= high + slack


@pytest.mark.slow
def test_the_first_answer_has_intervals_and_the_last_is_duckdbs(
    session: relaqs.Session, rows: pa.Table
) -> None:
    plan = session.plan("SUMMARIZE trips")
    assert isinstance(plan, SampledThenExact)
    assert plan.summarized
    first, *between, last = every_snapshot(lambda: session.online_sql("SUMMARIZE trips"))
    with duckdb.connect() as connection:
        give_trips(connection, rows)
        wanted = connection.sql("SUMMARIZE trips").to_arrow_table()
    assert last.is_exact
    assert last.error == 0.0
    assert all(each.table.schema == last.table.schema for each in (first, *between))
    assert last.estimate.schema.types == wanted.schema.types
    of_labels = wanted.column("column_name").to_pylist().index("label")  # Arrow has no ENUM of its own
    ours, theirs = rows_of(last.estimate.select(EXACT)), rows_of(wanted.select(EXACT))
    assert [row for i, row in enumerate(ours) if i != of_labels] == [
        row for i, row in enumerate(theirs) if i != of_labels
    ]
    assert first.batch == 1
    assert first.fraction < 0.05
    cells = by_column(first)
    low, mean, high = number(cells["fare"], "avg")
    assert low < mean < high
    assert cells["fare"]["avg_certified"]
    assert low <= 44.995 <= high  # hash(i) % 9000 is uniform
    assert number(cells["fare"], "std")[0] < number(cells["fare"], "std")[2]
    assert number(cells["fare"], "q50")[0] < number(cells["fare"], "q50")[2]
    day = cells["day"]
    ends = [datetime.datetime.fromisoformat(day[name]) for name in ("avg_low", "avg", "avg_high")]
    assert ends[0] < ends[1] < ends[2] < ends[0] + datetime.timedelta(days=200)
    assert datetime.date.fromisoformat(day["q25_low"]) < datetime.date.fromisoformat(day["q75_high"])
    assert cells["fare"]["count"] == cells["fare"]["count_low"] == ROWS


@pytest.mark.slow
def test_intervals_of_a_summary_may_hold_all_together(session: relaqs.Session) -> None:
    alone, together = (
        next(iter(session.online_sql("SUMMARIZE trips", confidence_for=each))) for each in ("cell", "table")
    )
    count = sum(
        row[f"{name}_certified"] and row[f"{name}_low"] != row[f"{name}_high"]
        for row in alone.table.to_pylist()
        for name in (column.name for column in alone.columns)
    )
    by_hand = next(iter(session.online_sql("SUMMARIZE trips", confidence=1 - 0.05 / count)))
    assert count > 10
    cells = [by_column(each)["fare"] for each in (alone, together, by_hand)]
    widths = [number(cell, "avg")[2] - number(cell, "avg")[0] for cell in cells]
    assert 1.3 * widths[0] < widths[1] == pytest.approx(widths[2], rel=0.02)


@pytest.mark.slow
def test_extremes_so_far_are_bounds_and_say_so(session: relaqs.Session) -> None:
    first, *_ = every_snapshot(lambda: session.online_sql("SUMMARIZE trips"))
    cells = by_column(first)
    assert cells["name"]["min_low"] is None
    assert cells["name"]["min_high"] == cells["name"]["min"]
    assert cells["id"]["max_low"] == cells["id"]["max"]
    assert cells["id"]["max_high"] is None
    assert not any(cell["min_certified"] for cell in cells.values() if cell["min"] is not None)
    assert "≤ " in str(first)


def test_what_duckdb_leaves_empty_is_empty_from_the_first(session: relaqs.Session) -> None:
    first, *_ = every_snapshot(lambda: session.online_sql("SUMMARIZE trips"))
    cells = by_column(first)
    for name in ("avg", "std", "q25", "q50", "q75"):
        assert cells["name"][name] is None
        assert cells["name"][f"{name}_certified"]
    nothing = cells["nothing"]
    assert (nothing["null_percentage"], nothing["approx_unique"], nothing["min"]) == (100, 0, None)
    assert nothing["approx_unique_certified"]


MEASURES = ("avg", "std", "q25", "q50", "q75", "count", "null_percentage", "approx_unique")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_intervals_hold_what_the_end_says(session: relaqs.Session, seed: int) -> None:
    """The certified cells of the first mini-batch.

    At least 40 cells a run move together less than half: of 20 independent intervals at 95 %, 83 % hold in
    all but one of a hundred runs. DuckDB's own quantiles are approximate, and 2 % of the spread of the column
    is left for that.
    """
    sql = "SUMMARIZE SELECT * EXCLUDE (odd) FROM trips WHERE zone < 6"
    first, *_, last = every_snapshot(lambda: session.online_sql(sql, seed=seed))
    truth = by_column(last)
    held = [
        holds(cell, truth[name], measure)
        for name, cell in by_column(first).items()
        for measure in MEASURES
        if cell[f"{measure}_certified"] and truth[name][measure] is not None
    ]
    assert len(held) >= 40
    assert sum(held) >= 0.83 * len(held)


def test_a_summary_of_a_query_is_estimated_as_the_query_is(session: relaqs.Session) -> None:
    sql = "SUMMARIZE SELECT fare * 2 AS twice, day, moved FROM trips WHERE flag"
    with_all = "SUMMARIZE SELECT *, fare * 2 AS twice FROM trips WHERE flag"
    plan = session.plan(with_all)
    assert isinstance(plan, SampledThenExact)
    assert plan.summarized
    whole = session.plan(sql)  # three columns of so few rows are read at once
    assert isinstance(whole, WholePlan)
    assert whole.reasons == ("so few values are summarized at once",)
    first, *_ = every_snapshot(lambda: session.online_sql(with_all))
    cells = by_column(first)
    low, count, high = number(cells["twice"], "count")
    assert low < count < high
    low, share, high = number(cells["moved"], "null_percentage")
    assert 0 < low < share < high < 100


@pytest.mark.parametrize(
    "sql",
    [
        "SUMMARIZE SELECT zone, count(*) AS n FROM trips GROUP BY zone",
        "SUMMARIZE SELECT DISTINCT * FROM trips",
        "SELECT * FROM (SUMMARIZE trips) WHERE min < max",
        "SELECT column_name, avg FROM (SUMMARIZE trips)",
    ],
)
def test_other_summaries_run_once(sql: str, session: relaqs.Session) -> None:
    plan = session.plan(sql)
    assert isinstance(plan, WholePlan)
    assert plan.reasons[0]


@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 11))])
def test_random_summaries_end_as_in_duckdb(session: relaqs.Session, rows: pa.Table, seed: int) -> None:
    """Columns, expressions and conditions at random."""
    draw = random.Random(seed)
    columns = [name for name in rows.column_names if name not in ("label", " ")]
    more = ["fare * 2", "length(name)", "day + INTERVAL 1 DAY", "zone::VARCHAR", "moved / fare"]
    conditions = ["true", "zone > 2", "moved IS NOT NULL", "id < 0", "day > DATE '2020-05-01'"]
    with duckdb.connect() as connection:
        give_trips(connection, rows)
        for _ in range(2):
            chosen = draw.sample(columns, draw.randint(10, len(columns)))
            listed = ", ".join([f'"{name}"' for name in chosen] + [f"{draw.choice(more)} AS x"])
            sql = f"SUMMARIZE SELECT {listed} FROM trips WHERE {draw.choice(conditions)}"
            last = session.online_sql(sql, seed=draw.randint(0, 9)).result()
            wanted = connection.sql(sql).to_arrow_table()
            assert rows_of(last.estimate.select(EXACT)) == rows_of(wanted.select(EXACT)), sql


@pytest.mark.slow
def test_the_program_shows_estimates_of_a_summary(folder: Path) -> None:
    """The last of what the program prints is the exact answer, and JSON lines have the first as well."""
    run = CliRunner().invoke(
        program, ["sql", "SUMMARIZE trips", "--data", str(folder), "--format", "jsonl", "--target", "50%"]
    )
    assert run.exit_code == 0, run.output
    assert '"column_name"' in run.output.splitlines()[-1]


@pytest.mark.slow
def test_moments_of_nanoseconds_are_not_counted_by_their_microseconds(tmp_path: Path) -> None:
    """All 900 values lie in one microsecond, and three quarters of the rows above 224 nanoseconds of it."""
    values = "make_timestamp_ns(1600000000000000000 + (hash(i) % 900)::BIGINT)"
    sql = f"SELECT {values} AS at, " + ", ".join(f"i % {n} AS m{n}" for n in range(2, 12))
    with duckdb.connect() as connection:
        shuffle(connection.sql(f"{sql} FROM range({ROWS}) AS t(i)"), tmp_path / "trips", partitions=32)
    with relaqs.connect(tmp_path, threads=1) as session:
        plan = session.plan("SUMMARIZE trips")
        assert isinstance(plan, SampledThenExact)
        assert plan.summarized
        first, *_, last = every_snapshot(lambda: session.online_sql("SUMMARIZE trips"))
    so_far, end = by_column(first)["at"], by_column(last)["at"]
    assert end["approx_unique"] > 800
    assert not so_far["approx_unique_certified"]
    assert so_far["approx_unique_low"] <= end["approx_unique"]
    assert so_far["approx_unique_high"] is None
    for measure in ("q25", "q50", "q75"):
        assert so_far[f"{measure}_low"] <= end[measure] <= so_far[f"{measure}_high"]


@pytest.mark.slow
def test_infinite_dates_leave_the_other_columns_estimated(tmp_path: Path) -> None:
    days = "CASE WHEN i % 3 = 0 THEN 'infinity'::DATE ELSE DATE '2020-01-01' + (i % 40)::INT END"
    sql = f"SELECT {days} AS day, " + ", ".join(f"i % {n} AS m{n}" for n in range(2, 12))
    with duckdb.connect() as connection:
        shuffle(connection.sql(f"{sql} FROM range({ROWS}) AS t(i)"), tmp_path / "trips", partitions=32)
        wanted = connection.sql(f"SUMMARIZE {sql} FROM range({ROWS}) AS t(i)").to_arrow_table()
    with relaqs.connect(tmp_path, threads=1) as session:
        plan = session.plan("SUMMARIZE trips")
        assert isinstance(plan, SampledThenExact)
        assert plan.summarized
        first, *_, last = session.online_sql("SUMMARIZE trips")
    assert rows_of(last.estimate.select(EXACT)) == rows_of(wanted.select(EXACT))
    so_far = by_column(first)
    assert so_far["day"]["max_low"] == "infinity"
    assert [so_far["day"][f"{measure}_certified"] for measure in ("avg", "q50", "approx_unique")] == [
        False
    ] * 3
    assert so_far["m7"]["avg_certified"]
