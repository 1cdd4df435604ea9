"""The time zone of a session is that of every statement for it, whatever process runs the statement."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from distributed import Client, Nanny, Scheduler, SpecCluster
from relaqs_engine.catalog import Catalog

import relaqs
from benchmarks.server_process import serving
from relaqs.cli import program
from relaqs.python_values import python_values
from relaqs.queries.jobs import query_identity
from relaqs.rendering.rounding import microseconds_between
from relaqs.training import LinearRegression
from tests.made_once import made_once
from tests.relaqs.sessions import every_snapshot

# One changes its clocks while the other does not, and by half an hour only.
ZONES = ("America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")

QUESTIONS = {
    "compared with a text": "SELECT count(*) AS n FROM events WHERE seen >= '2024-03-10'",
    "compared with a clock": "SELECT sum(x) AS s FROM events WHERE seen < TIMESTAMP '2024-11-03 01:30:00'",
    "days": """
        SELECT date_trunc('day', seen) AS day, count(*) AS n, avg(x) AS m FROM events
        GROUP BY 1 ORDER BY 1""",
    "hours": """
        SELECT hour(seen) AS h, sum(x) AS s FROM events GROUP BY 1 HAVING count(*) > 3 ORDER BY 1""",
    "above the aggregates": """
        SELECT max(seen)::DATE AS d, date_trunc('week', min(seen)) AS w, min(seen)::VARCHAR AS v
        FROM events""",
    "both sides of the aggregates": """
        SELECT seen::DATE AS d, max(seen)::VARCHAR AS v FROM events GROUP BY 1 ORDER BY 1 LIMIT 9""",
    "a clock made a moment": """
        SELECT max(wall::TIMESTAMPTZ) AS m, count(*) FILTER (wall < seen) AS n FROM events""",
    "a static side": """
        SELECT name, count(*) AS n FROM events JOIN days ON seen::DATE = day AND since >= '2024-03-10'
        GROUP BY 1 ORDER BY 1""",
    "an inner estimate": """
        SELECT hour(seen) AS h, count(*) AS n FROM events
        WHERE x > (SELECT avg(x) FROM events WHERE seen::DATE > '2024-03-10') GROUP BY 1 ORDER BY 1""",
    "a window": """
        SELECT d, sum(n) OVER (ORDER BY d) AS s
        FROM (SELECT seen::DATE AS d, count(*) AS n FROM events GROUP BY 1) ORDER BY 1 LIMIT 5""",
    "rows": """
        SELECT id, seen, extract('dow' FROM seen) AS w FROM events WHERE hour(seen) = 2
        ORDER BY id LIMIT 5""",
    "distinct days": "SELECT count(DISTINCT seen::DATE) AS n, median(hour(seen)) AS m FROM events",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moments of a year, plain in `plain` and laid out in `laid_out`, by a process in yet another zone."""

    def make(folder: Path) -> None:
        plain = folder / "plain"
        plain.mkdir(parents=True)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(
                "COPY (SELECT i AS id, (i * 7919) % 10007 AS x, wall, if(i % 97 = 0, NULL, "
                "wall::TIMESTAMPTZ) AS seen FROM (SELECT i, TIMESTAMP '2024-02-20' "
                "+ INTERVAL (i * 7177 % 500000) MINUTE AS wall FROM range(20000) AS t(i))) "
                f"TO '{plain}/events.parquet'"
            )
            connection.execute(
                "COPY (SELECT DATE '2024-02-20' + i::INTEGER AS day, 'name ' || i % 7 AS name, TIMESTAMPTZ "
                "'2024-02-20 03:00:00+00' + INTERVAL (i) DAY AS since FROM range(350) AS t(i)) "
                f"TO '{plain}/days.parquet'"
            )
        for table in ("events", "days"):
            relaqs.shuffle(plain / f"{table}.parquet", folder / "laid_out" / table, partitions=8)

    return made_once(tmp_path_factory, "moments", make)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A cluster whose two workers live in two time zones."""
    workers = {
        zone: {"cls": Nanny, "options": {"nthreads": 1, "env": {"TZ": zone}, "dashboard_address": ":0"}}
        for zone in ("UTC", "Asia/Tokyo")
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": ":0"}}
    with SpecCluster(workers, scheduler) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*map(python_values, table.columns), strict=True))


def true_rows(folder: Path, zone: str, sql: str) -> list[tuple[object, ...]]:
    """Return what plain DuckDB says in a time zone."""
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        for table in ("events", "days"):
            connection.execute(f"CREATE VIEW {table} AS FROM '{folder}/plain/{table}.parquet'")
        return rows(connection.sql(sql).to_arrow_table())


def check_same(found: list[tuple[object, ...]], true: list[tuple[object, ...]]) -> None:
    assert len(found) == len(true)
    for value, expected in zip(sum(found, ()), sum(true, ()), strict=True):
        if isinstance(expected, float) and isinstance(value, float):
            assert math.isclose(value, expected, rel_tol=1e-9)
        else:
            assert value == expected


@pytest.mark.parametrize("zone", ZONES)
def test_a_session_answers_in_its_zone(folder: Path, zone: str, tmp_path: Path) -> None:
    with relaqs.connect(
        folder / "plain", timezone=zone, threads=1, background_layouts=False, cache_directory=tmp_path
    ) as db:
        assert db.timezone == zone
        for sql in QUESTIONS.values():
            check_same(rows(db.online_sql(sql).result().estimate), true_rows(folder, zone, sql))


@pytest.mark.slow
def test_a_session_answers_in_several_zones_at_once(folder: Path) -> None:
    """The plans, the hoists and the connections of one zone are not those of another."""
    with relaqs.connect(folder / "laid_out", timezone="UTC", threads=1) as db:
        for questions in (QUESTIONS, ("days", "a static side")):  # these have plans already
            for zone in ZONES[:2]:
                for sql in map(QUESTIONS.get, questions):
                    assert sql is not None
                    query = db.submit(sql, relaqs.QueryOptions(), timezone=zone)
                    check_same(rows(query.result().estimate), true_rows(folder, zone, sql))


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES[:1])
def test_workers_answer_in_the_zone_of_the_session(folder: Path, client: Client, zone: str) -> None:
    with relaqs.connect(folder / "laid_out", timezone=zone, cluster=client) as db:
        for sql in QUESTIONS.values():
            check_same(rows(db.online_sql(sql).result().estimate), true_rows(folder, zone, sql))


@pytest.mark.parametrize("about", ["days", "above the aggregates", "an inner estimate", "rows"])
def test_snapshots_on_workers_are_those_of_an_embedded_run(folder: Path, client: Client, about: str) -> None:
    here, there = (
        every_snapshot(lambda db=db: db.online_sql(QUESTIONS[about], seed=3, batches=3))  # type: ignore[misc]
        for db in (
            relaqs.connect(folder / "laid_out", timezone="America/New_York", threads=1),
            relaqs.connect(folder / "laid_out", timezone="America/New_York", cluster=client),
        )
    )
    assert len(here) == len(there)
    assert all(one.table.equals(other.table) for one, other in zip(here, there, strict=True))


def test_a_cluster_lays_text_out_in_the_zone_of_the_session(client: Client, tmp_path: Path) -> None:
    lines = [f"{i},2024-03-{1 + i % 28:02} 0{i % 10}:30:00{'' if i % 3 else '+02'}" for i in range(12_000)]
    (tmp_path / "texts.csv").write_text("\n".join(["id,seen", *lines]))
    sql = "SELECT max(seen) AS m, sum(epoch(seen)) AS s FROM texts"
    for zone in ("America/New_York", "Asia/Kolkata"):
        with duckdb.connect() as connection:
            connection.execute(f"SET TimeZone = '{zone}'")
            true = rows(connection.sql(sql.replace("texts", f"'{tmp_path}/texts.csv'")).to_arrow_table())
        for place in ({"cluster": client}, {"threads": 1}):
            with relaqs.connect(
                tmp_path / "texts.csv", timezone=zone, cache_directory=tmp_path / "cache", **place
            ) as db:
                check_same(rows(db.online_sql(sql).result().estimate), true)


def test_a_view_of_a_duckdb_file_is_laid_out_for_each_zone(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.duckdb"
    with duckdb.connect(file) as connection:
        connection.execute(f"CREATE TABLE events AS FROM '{folder}/plain/events.parquet'")
        connection.execute("CREATE VIEW days AS SELECT seen::DATE AS day, hour(seen) AS h, x FROM events")
    sql = "SELECT day, count(*) AS n, sum(h) AS h FROM days GROUP BY day ORDER BY day"
    for zone in (*ZONES[:2], ZONES[0]):
        true = true_rows(
            folder, zone, sql.replace("days", "(SELECT seen::DATE AS day, hour(seen) AS h FROM events)")
        )
        with relaqs.connect(
            file, timezone=zone, threads=1, background_layouts=False, cache_directory=tmp_path / "cache"
        ) as db:
            check_same(rows(db.online_sql(sql).result().estimate), true)
            db.lay_out("days")
            check_same(rows(db.online_sql(sql).result().estimate), true)


@pytest.mark.slow
def test_without_a_word_it_is_the_zone_of_the_process(folder: Path) -> None:
    sql = "SELECT date_trunc('day', max(seen))::VARCHAR AS d, hour(min(seen)) AS h FROM events"
    for zone in ("Asia/Kathmandu", "America/St_Johns"):
        command = [
            sys.executable,
            "-m",
            "relaqs",
            "sql",
            "--data",
            str(folder / "laid_out"),
            "--format",
            "csv",
            sql,
        ]
        environment = {**os.environ, "TZ": zone}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        ((day, hour),) = true_rows(folder, zone, sql)
        assert said.splitlines()[-1] == f"{day},{hour}"


def test_a_query_has_one_today_and_it_is_that_of_the_zone(folder: Path, client: Client) -> None:
    sql = (
        "SELECT current_date AS d, today() = current_date AS same, now()::TIMESTAMP AS wall, "
        "count(DISTINCT now()) AS moments FROM events WHERE seen < now() GROUP BY id % 5"
    )
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):  # a day and an hour apart
        with relaqs.connect(folder / "laid_out", timezone=zone, cluster=client) as db:
            found = set(rows(db.online_sql(sql).result().estimate))
        ((day, is_same, wall, moments),) = found
        assert (day, is_same, moments) == (wall.date(), True, 1)  # type: ignore[attr-defined]
        now = datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
        assert abs((now - wall).total_seconds()) < 600  # type: ignore[operator]


def test_a_model_trains_on_the_rows_of_its_zone(folder: Path) -> None:
    """What a process keeps of the rows of one zone is not taken for those of another."""
    sql = """
        SELECT hour(wall) AS x, if(hour(seen) = hour(wall), hour(wall), -hour(wall)) AS y
        FROM events WHERE seen IS NOT NULL"""
    for zone, slope in (("UTC", 1.0), ("Asia/Kolkata", -1.0), ("UTC", 1.0)):
        with relaqs.connect(folder / "laid_out", timezone=zone, threads=1) as db:
            model = db.train(LinearRegression(sql, target="y"), max_steps=30).result()
        assert float(model.coef_[0]) == pytest.approx(slope, abs=0.2)


def test_a_checkpoint_is_of_one_zone(folder: Path) -> None:
    catalog = Catalog.open(folder / "laid_out")
    with relaqs.connect(folder / "laid_out", timezone="UTC", threads=1) as db:
        plans = [db.plan(QUESTIONS["hours"], timezone=zone) for zone in (None, "UTC", *ZONES)]
    one, same, *others = (query_identity(plan, catalog, 0, None) for plan in plans)
    assert one == same
    assert len({one, *others}) == 1 + len(ZONES)


def test_parameters_are_moments_whatever_the_zone(folder: Path) -> None:
    sql = "SELECT count(*) AS n FROM events WHERE seen >= ? AND seen > ?"
    params = [
        datetime(2024, 3, 10, 6, 30, tzinfo=UTC),
        datetime(1800, 1, 1, tzinfo=ZoneInfo("America/New_York")),
    ]
    ((true,),) = true_rows(
        folder, "UTC", sql.replace("?", "'2024-03-10 06:30:00+00'", 1).replace("?", "'1800-01-01'")
    )
    for zone in ZONES:
        with relaqs.connect(folder / "laid_out", timezone=zone, threads=1) as db:
            assert rows(db.online_sql(sql, params=params).result().estimate) == [(true,)]
            old = db.online_sql("SELECT epoch(?) AS s FROM days LIMIT 1", params=params[1:]).result().estimate
            assert rows(old) == [(params[1].timestamp(),)]


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Pariss", "Europe/Paris"),
        ("New York", "America/New_York"),
        ("PST", "'PST'"),
        ("UTC+3", "'UTC"),
        (3, "3"),
    ],
)
def test_a_wrong_zone_is_told(folder: Path, zone: str, hint: str) -> None:
    with pytest.raises(relaqs.ArgumentError, match=rf"timezone is .*{hint}") as raised:
        relaqs.connect(folder / "laid_out", timezone=zone)
    assert "the name of a time zone, such as" in str(raised.value)


def test_commands_take_a_zone(folder: Path) -> None:
    sql = "SELECT date_trunc('day', max(seen))::VARCHAR AS d FROM events"
    said = CliRunner().invoke(
        program,
        ["sql", "--data", str(folder / "laid_out"), "--format", "csv", "--timezone", "asia/kolkata", sql],
    )
    ((day,),) = true_rows(folder, "Asia/Kolkata", sql)
    assert said.output.splitlines()[-1] == f"{day}"
    wrong = CliRunner().invoke(
        program, ["explain", "--data", str(folder / "laid_out"), "--timezone", "Mars", sql]
    )
    assert wrong.exit_code == 2
    assert "timezone is 'Mars'" in wrong.output


def test_a_margin_over_a_change_of_clocks_is_the_time_that_passed() -> None:
    zone = ZoneInfo("America/New_York")
    before, after = datetime(2024, 3, 10, 1, tzinfo=zone), datetime(2024, 3, 10, 3, tzinfo=zone)
    assert microseconds_between(before, after) == 3_600_000_000


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[str]:
    """The address of a server in Tokyo."""
    with serving(folder / "laid_out", "--timezone", "Asia/Tokyo", "--threads", "1") as running:
        yield running.address()


@pytest.fixture
def connection(served: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(served, autocommit=True) as connection:
        yield connection


def check_zone_served(connection: psycopg.Connection[Any], folder: Path, zone: str) -> None:
    """Check that the zone is the one that is told, computed and shown, as text and in binary."""
    assert connection.info.parameter_status("TimeZone") == zone
    settings = "SELECT current_setting('TimeZone'), setting FROM pg_settings WHERE name = 'timezone'"
    for told in ("SHOW TIME ZONE", "SHOW timezone", settings):
        assert set(connection.execute(told).fetchone() or ()) == {zone}
    sql = "SELECT date_trunc('day', seen) AS day, count(*) AS n FROM events GROUP BY 1 ORDER BY 1"
    shown = [row[:1] for row in true_rows(folder, zone, f"SELECT day::VARCHAR FROM ({sql})")]
    found = connection.pgconn.exec_(sql.encode())
    assert [
        (text and text.decode(),) for text in map(found.get_value, range(found.ntuples), [0] * 999)
    ] == shown
    assert connection.execute(sql, binary=True).fetchall() == true_rows(folder, zone, sql)


@pytest.mark.parametrize(
    ("statement", "zone"),
    [
        ("SET TIME ZONE 'America/New_York'", "America/New_York"),
        ("SET SESSION timezone TO 'asia/kolkata'", "Asia/Kolkata"),
        ("SET TimeZone = 'Australia/Lord_Howe'", "Australia/Lord_Howe"),
        ("SET TIME ZONE -7", "Etc/GMT+7"),
        ("SET TIME ZONE INTERVAL '+05:00' HOUR TO MINUTE", "Etc/GMT-5"),
        ("SET timezone = 'UTC+3'", "Etc/GMT+3"),  # behind, as in Postgres
        ("SET timezone = 'GMT-03:00'", "Etc/GMT-3"),
        ("SET TIME ZONE 0", "UTC"),
        ("SET TIME ZONE LOCAL", "Asia/Tokyo"),
        ("SET timezone TO DEFAULT", "Asia/Tokyo"),
    ],
)
def test_a_connection_is_served_in_its_zone(
    connection: psycopg.Connection[Any], folder: Path, statement: str, zone: str
) -> None:
    check_zone_served(connection, folder, "Asia/Tokyo")
    connection.execute(statement)
    check_zone_served(connection, folder, zone)
    connection.execute("RESET ALL")
    check_zone_served(connection, folder, "Asia/Tokyo")


def test_a_zone_goes_with_its_transaction(connection: psycopg.Connection[Any], folder: Path) -> None:
    for statement, after in (("SET LOCAL TIME ZONE 'UTC'", "COMMIT"), ("SET TIME ZONE 'UTC'", "ROLLBACK")):
        connection.execute("BEGIN")
        connection.execute(statement)
        check_zone_served(connection, folder, "UTC")
        connection.execute(after)
        check_zone_served(connection, folder, "Asia/Tokyo")


def test_a_zone_is_given_at_the_start(served: str, folder: Path) -> None:
    with psycopg.connect(f"{served} options='-c TimeZone=Europe/Paris'") as connection:
        check_zone_served(connection, folder, "Europe/Paris")
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("RESET timezone")
        check_zone_served(connection, folder, "Europe/Paris")
    with pytest.raises(
        psycopg.OperationalError, match="TimeZone is 'Mars'; it must be the name of a time zone"
    ):
        psycopg.connect(f"{served} options='-c TimeZone=Mars'")


def test_a_wrong_zone_changes_nothing(connection: psycopg.Connection[Any], folder: Path) -> None:
    for wrong in ("Mars", "PST", "+05:30", "15", "-13"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="it must be"):
            connection.execute(f"SET TIME ZONE '{wrong}'")
    check_zone_served(connection, folder, "Asia/Tokyo")


def test_moments_are_written_as_postgres_writes_them(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SET TIME ZONE 'America/New_York'")
    moments = {
        "'1800-01-01'": "1800-01-01 00:00:00-04:56:02",
        "'2024-03-10 02:30:00'": "2024-03-10 03:30:00-04",
        "'2024-11-03 01:30:00.25'": "2024-11-03 01:30:00.25-05",
        "'infinity'": "infinity",
        "'-infinity'": "-infinity",
        "'0044-03-15 (BC) 00:00:00+00'": "0044-03-14 19:03:58-04:56:02 BC",
        "'20000-01-01 00:00:00+00'": "19999-12-31 19:00:00-05",
        "NULL": None,
    }
    sql = f"SELECT {', '.join(f'{moment}::TIMESTAMPTZ' for moment in moments)} FROM days LIMIT 1"
    found = connection.pgconn.exec_(sql.encode())
    for place, text in enumerate(moments.values()):
        assert found.get_value(0, place) == (text and text.encode())


def test_a_parameter_without_a_zone_is_in_that_of_the_connection(
    connection: psycopg.Connection[Any], folder: Path
) -> None:
    zone, sql = "America/New_York", "SELECT count(*) FROM events WHERE seen < $1"
    connection.execute(f"SET TIME ZONE '{zone}'")
    for wall in ("2024-03-10 02:30:00", "2024-11-03 01:30:00", "2024-06-01"):
        for type_oid in (0, 1184):
            found = connection.pgconn.exec_params(sql.encode(), [wall.encode()], [type_oid])
            true = true_rows(folder, zone, sql.replace("$1", f"'{wall}'"))
            assert [(int(found.get_value(0, 0) or -1),)] == true


@pytest.mark.slow
def test_a_date_may_be_truncated_in_another_zone(connection: psycopg.Connection[Any], folder: Path) -> None:
    """What Postgres has since version 12, and Metabase writes."""
    connection.execute("SET TIME ZONE 'UTC'")
    sql = (
        "SELECT date_trunc('day', seen, 'America/New_York') AS day, count(*) AS n FROM events "
        "GROUP BY 1 ORDER BY 1"
    )
    true = (
        "SELECT timezone('America/New_York', date_trunc('day', timezone('America/New_York', seen))) AS day, "
    )
    assert connection.execute(sql).fetchall() == true_rows(
        folder, "UTC", f"{true}{sql.partition('day, ')[2]}"
    )
    with (
        relaqs.connect(folder / "laid_out", threads=1) as db,
        pytest.raises(
            relaqs.SqlError, match=r"date_trunc takes 2 values; in time zone Z it is timezone\(Z, date_trunc"
        ),
    ):
        db.plan(sql)
