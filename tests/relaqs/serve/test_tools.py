"""What drivers of tools ask: Superset's psycopg2 and SQLAlchemy, Metabase's pgjdbc, Grafana's lib/pq and pgx.

The last three need Java and pgjdbc, or Go, lib/pq and pgx, which not every machine has. Debian's packages are
libpostgresql-jdbc-java, golang-github-lib-pq-dev and golang-github-jackc-pgx-v4-dev.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import ibis
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy import text

from benchmarks.server_process import Running
from tests.relaqs.serve.questions import QUESTIONS, close, printed_rows, shown_rows, true_rows
from tests.relaqs.serve.served_tables import ROWS

CLIENTS = Path(__file__).parent / "clients"
JDBC = Path("/usr/share/java/postgresql.jar")
GO_PATH = Path("/usr/share/gocode")
COLUMNS = ["id", "zone", "fare", "distance", "day", "picked_up", "shared", "driver"]
TYPES = ["int4", "int4", "numeric", "float8", "date", "timestamp", "bool", "text"]
TOTAL = "SELECT sum(fare) AS total FROM trips WHERE shared"
PARAMETERS = (
    "SELECT count(*), sum(fare) FROM trips WHERE zone = 2 AND driver LIKE '%1%' AND day > '2024-02-03' "
    "AND fare < 5.5"
)


@pytest.fixture
def engine(server: Running) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(server.url("psycopg2"), poolclass=sqlalchemy.NullPool)
    yield engine
    engine.dispose()


def test_superset_asks_exactly_and_well_enough(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        for sql in QUESTIONS:
            assert close([tuple(row) for row in connection.execute(text(sql))], true_rows(sql)), sql
        connection.execute(text("SET relaqs.exact_below = off; SET relaqs.target = '20%'"))
        assert is_estimate(connection.execute(text(TOTAL)).scalar_one())


def test_superset_finds_tables_and_columns(engine: sqlalchemy.Engine) -> None:
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_schema_names() == ["information_schema", "public"]
    for schema in (None, "public"):
        assert sorted(inspector.get_table_names(schema)) == ["trips", "zones"]
        assert inspector.get_view_names(schema) == inspector.get_materialized_view_names(schema) == []
        assert [column["name"] for column in inspector.get_columns("trips", schema)] == COLUMNS
        assert inspector.get_pk_constraint("trips", schema)["constrained_columns"] == []
        assert inspector.get_foreign_keys("trips", schema) == inspector.get_indexes("trips", schema) == []
        assert inspector.get_table_comment("trips", schema) == {"text": None}
    assert inspector.has_table("zones")
    assert not inspector.has_table("nope")
    assert (
        list(sqlalchemy.Table("trips", sqlalchemy.MetaData(), autoload_with=engine).columns.keys()) == COLUMNS
    )


def test_superset_filters_by_moments_in_the_functions_of_postgres(engine: sqlalchemy.Engine) -> None:
    name = "TO_DATE('2024-01-01', 'YYYY-MM-DD')"
    asked = (
        f"SELECT date_trunc('hour', picked_up) AS __timestamp, count(*) AS \"{name}\" "
        "FROM public.trips WHERE picked_up >= TO_TIMESTAMP('2024-01-01 05:00:00.000000', "
        "'YYYY-MM-DD HH24:MI:SS.US') AND day > TO_DATE('2024-02-01', 'YYYY-MM-DD') GROUP BY 1 ORDER BY 1"
    )
    true = (
        "SELECT date_trunc('hour', picked_up), count(*) FROM trips WHERE picked_up >= '2024-01-01 05:00' "
        "AND day > '2024-02-01' GROUP BY 1 ORDER BY 1"
    )
    with engine.connect() as connection:
        answer = connection.execute(text(asked.replace(":", r"\:")))
        assert list(answer.keys())[1] == name
        assert [tuple(row) for row in answer] == true_rows(true)


def test_superset_pages_through_an_answer_by_a_cursor(engine: sqlalchemy.Engine) -> None:
    with engine.connect().execution_options(stream_results=True, max_row_buffer=400) as connection:
        rows = connection.execute(text("SELECT id FROM trips WHERE id < 2500 ORDER BY id"))
        assert [row.id for row in rows] == list(range(2500))


def test_a_cursor_goes_forward_and_ends_with_its_transaction(server: Running) -> None:
    with closing(psycopg2.connect(server.address())) as connection, connection.cursor() as cursor:
        cursor.execute("DECLARE c NO SCROLL CURSOR FOR SELECT id FROM trips ORDER BY id")
        assert fetched(cursor, "FETCH 2 FROM c") == [0, 1]
        cursor.execute("MOVE FORWARD 5 IN c")
        assert cursor.statusmessage == "MOVE 5"
        assert fetched(cursor, 'FETCH NEXT FROM "c"') == [7]
        assert len(fetched(cursor, "FETCH ALL c")) == ROWS - 8
        assert fetched(cursor, "FETCH FORWARD 3 FROM c") == []
        cursor.execute("DECLARE held CURSOR WITH HOLD FOR SELECT 5 AS five")
        connection.commit()
        assert fetched(cursor, "FETCH ALL FROM held") == [5]
        for sql, code in (
            ("FETCH 1 FROM c", "34000"),
            ("FETCH PRIOR FROM held", "0A000"),
            ("CLOSE c", "34000"),
            ("DECLARE held CURSOR WITH HOLD FOR SELECT 1", "42P03"),
        ):
            with pytest.raises(psycopg2.Error) as refused:
                cursor.execute(sql)
            assert refused.value.pgcode == code, sql
            connection.rollback()
        cursor.execute("CLOSE ALL")
    with closing(psycopg2.connect(server.address())) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        with pytest.raises(psycopg2.Error) as refused:
            cursor.execute("DECLARE c CURSOR FOR SELECT 1")
        assert refused.value.pgcode == "25P01"


def fetched(cursor: Any, sql: str) -> list[Any]:
    cursor.execute(sql)
    return [row[0] for row in cursor.fetchall()]


def test_grafana_finds_tables_and_columns(server: Running) -> None:
    path = "string_to_array(current_setting('search_path'),',')"
    places = (
        f"SELECT CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END FROM "
        f"generate_series(array_lower({path},1), array_upper({path},1)) as i, {path} s"
    )
    tables = f"SELECT quote_ident(table_name) FROM information_schema.tables WHERE table_schema IN ({places})"
    columns = (
        "SELECT quote_ident(column_name), data_type FROM information_schema.columns WHERE CASE WHEN "
        "array_length(parse_ident('trips'),1) = 2 THEN false ELSE quote_ident(table_name) = "
        "(parse_ident('trips'))[1] END ORDER BY ordinal_position"
    )
    with closing(psycopg2.connect(server.address())) as connection, connection.cursor() as cursor:
        assert sorted(fetched(cursor, tables)) == ["trips", "zones"]
        assert fetched(cursor, columns) == COLUMNS
        assert fetched(cursor, "SELECT current_setting('server_version_num')::int/100") == [1500]


def test_ibis_asks_by_text_and_by_expressions(server: Running) -> None:
    connection = ibis.postgres.connect(host=server.host, port=server.port, user="ana", database="relaqs")
    assert sorted(connection.list_tables()) == ["trips", "zones"]
    trips = connection.table("trips")
    assert list(trips.schema().names) == COLUMNS
    for sql in QUESTIONS:
        with connection.raw_sql(sql) as cursor:
            assert close(cursor.fetchall(), true_rows(sql)), sql
    by_zone = trips.group_by("zone").agg(n=trips.count(), total=trips.fare.sum()).order_by("zone")
    assert [tuple(row) for row in by_zone.execute().itertuples(index=False)] == true_rows(QUESTIONS[1])
    connection.raw_sql("SET relaqs.exact_below = off; SET relaqs.target = '20%'").close()
    assert is_estimate(trips.filter(trips.shared).fare.sum().execute())
    connection.disconnect()


def is_estimate(found: Any) -> bool:
    exact = true_rows("SELECT sum(fare) FROM trips WHERE shared")[0][0]
    return bool(0 < abs(Decimal(found) - exact) < exact / 2)


@pytest.fixture(scope="module")
def jdbc(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that asks through pgjdbc."""
    if shutil.which("javac") is None or not JDBC.exists():
        pytest.skip("there is no Java compiler or no pgjdbc on this machine")
    folder = tmp_path_factory.mktemp("java")
    subprocess.run(["javac", "-d", str(folder), str(CLIENTS / "Asks.java")], check=True)
    return ["java", "-cp", f"{JDBC}{os.pathsep}{folder}", "Asks"]


@pytest.mark.slow
def test_metabase_asks_through_its_driver(server: Running, jdbc: list[str]) -> None:
    address = f"jdbc:postgresql://{server.host}:{server.port}/relaqs?user=ana&ApplicationName=Metabase"
    *answers, prepared, paged, tables, columns, schemas, keys, foreign, indexes, words = parts(
        [*jdbc, address], [*QUESTIONS, "SELECT 1", "SHOW TIMEZONE"]
    )
    for sql, answer in zip(QUESTIONS, answers, strict=False):
        assert printed_rows(answer, "\t") == shown_rows(sql), sql
    assert printed_rows(prepared, "\t") == shown_rows(PARAMETERS)
    assert paged == ["2500"]
    assert tables == ["trips", "zones"]
    assert [column.split("\t") for column in columns] == list(map(list, zip(COLUMNS, TYPES, strict=True)))
    assert schemas == ["information_schema", "pg_catalog", "public"]
    assert keys == foreign == indexes == []
    assert words == ["PostgreSQL\ttrue"]
    estimate, *_ = parts(
        [*jdbc, f"{address}&options=-crelaqs.exact_below=off%20-crelaqs.target=20%25"], [TOTAL]
    )
    assert is_estimate(estimate[0])


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that asks through lib/pq or pgx."""
    drivers = [GO_PATH / "src/github.com" / name for name in ("lib/pq", "jackc/pgx")]
    if shutil.which("go") is None or not all(driver.exists() for driver in drivers):
        pytest.skip("there is no Go, no lib/pq or no pgx on this machine")
    folder = tmp_path_factory.mktemp("go")
    environment = {
        **os.environ,
        "GO111MODULE": "off",
        "GOPATH": str(GO_PATH),
        "GOCACHE": str(folder / "cache"),
    }
    program = folder / "asks"
    subprocess.run(["go", "build", "-o", str(program), str(CLIENTS / "asks.go")], env=environment, check=True)
    return [str(program)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "more"),
    [
        ("postgres", ""),
        ("postgres", " binary_parameters=yes"),
        ("pgx", ""),
        ("pgx", " statement_cache_mode=describe"),
    ],
)
def test_grafana_asks_through_its_driver(server: Running, go: list[str], driver: str, more: str) -> None:
    address = f"host={server.host} port={server.port} user=ana dbname=relaqs sslmode=disable{more}"
    *answers, prepared, in_transaction = parts([*go, driver, address], QUESTIONS)
    for sql, answer in zip(QUESTIONS, answers, strict=True):
        assert printed_rows(answer, "\t") == shown_rows(sql), sql
    assert printed_rows(prepared, "\t") == shown_rows(PARAMETERS)
    assert in_transaction == [str(ROWS)]
    estimate, *_ = parts(
        [*go, driver, f"{address} options='-crelaqs.exact_below=off -crelaqs.target=20%'"], [TOTAL]
    )
    assert is_estimate(estimate[0])


def parts(command: list[str], questions: Any) -> list[list[str]]:
    """Return the lines that a client printed, one list an answer."""
    done = subprocess.run(
        command, input="\n".join(questions), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    answers: list[list[str]] = [[]]
    for line in done.stdout.splitlines():
        if line == "--":
            answers.append([])
        else:
            answers[-1].append(line)
    return answers if answers[-1] else answers[:-1]


PSQL = r"""
\d|\d+ trips|\d *.*|\da|\dA+|\dAc|\dAf|\dAo|\dAp|\db+|\dc+|\dC+|\dd|\dD+|\ddp|\dE+|\des+|\det|\deu|\dew
\df+|\dF+|\dFd|\dFp|\dFt|\dg+|\di+|\dl|\dL+|\dm+|\dn+|\do+|\dO+|\dp|\dP+|\drds|\dRp+|\dRs+|\ds+|\dS|\dS trips
\dt+|\dT+|\dTS|\du+|\dv+|\dx+|\dX+|\dy+|\dconfig+|\l+|\lo_list|\z|\conninfo|\encoding|\dt public.*|\dx plpgsql
"""


def test_psql_describes_without_an_error(server: Running) -> None:
    if shutil.which("psql") is None:
        pytest.skip("there is no psql on this machine")
    commands = [each for line in PSQL.strip().splitlines() for each in line.split("|")]
    asked = [word for command in commands for word in ("-c", command)]
    where = ["-h", server.host, "-p", str(server.port), "-U", "ana", "-X", "relaqs"]
    said = subprocess.run(["psql", *where, *asked], capture_output=True, text=True, check=False)
    assert not [line for line in said.stderr.splitlines() if "ERROR" in line or "FATAL" in line]
    assert "public | trips | table" in said.stdout


CATALOG = (
    "SELECT n.oid, n.xmin, d.description FROM pg_namespace n LEFT JOIN pg_description d ON d.objoid = n.oid",
    "SELECT tableoid, oid, extname FROM pg_extension",
    "SELECT 'pg_class'::regclass::oid = max(tableoid) FROM pg_class",
    "SELECT pg_stat_get_live_tuples(oid), pg_opfamily_is_visible(oid), age(xmin) FROM pg_class",
    "SELECT t.typname FROM pg_type t WHERE t.typreceive <> 0 AND NOT (t.typmodin = 0 AND false)",
    "SELECT (SELECT string_agg(option_name, ',') FROM pg_options_to_table(c.reloptions)) FROM pg_class c",
    "SELECT relid, heap_blks_read FROM pg_statio_all_tables",
    "SELECT name, statement FROM pg_prepared_statements UNION ALL SELECT name, statement FROM pg_cursors",
    "SELECT * FROM information_schema.domains",
    "SELECT catalog_name FROM information_schema.information_schema_catalog_name",
    "SELECT pid, ssl FROM pg_stat_ssl",
    "SELECT ARRAY(SELECT oid FROM pg_class WHERE false)",
    "SELECT getdatabaseencoding(), acldefault('n', 10)",
    "SELECT ('\"' || udt_schema || '\".' || udt_name)::regtype::text FROM information_schema.columns",
    "SELECT 1 FROM pg_attribute WHERE attrelid = (quote_ident('public') || '.trips')::regclass::oid",
    "SELECT name, setting FROM pg_show_all_settings()",
    "SELECT (d).grantee FROM (SELECT aclexplode(datacl) AS d FROM pg_database) a",
    "SELECT substring(array_to_string(reloptions, ',') FROM 'fillfactor=([0-9]*)') FROM pg_class",
    "SELECT amname FROM pg_am WHERE EXISTS (SELECT 1 FROM pg_proc WHERE oid = amhandler)",
    "SELECT to_char(state_change, 'HH24:MI:SS'), cardinality(pg_blocking_pids(pid)) FROM pg_stat_activity",
)


@pytest.mark.parametrize("sql", CATALOG)
def test_what_tools_ask_of_the_catalog_is_answered(engine: sqlalchemy.Engine, sql: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(sql.replace(":", r"\:"))).fetchall()
