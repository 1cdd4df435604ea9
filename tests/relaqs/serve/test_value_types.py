"""Values of every type that a table may have, as text and in binary, through three drivers."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pg8000.native
import psycopg
import pytest

from benchmarks.server_process import Running, serving

UTC = dt.UTC
# column: DuckDB's type, its values as SQL, Postgres's type, and what a client reads
COLUMNS: dict[str, tuple[str, tuple[str, ...], str, tuple[Any, ...]]] = {
    "a_bool": ("BOOLEAN", ("true", "false"), "boolean", (True, False)),
    "a_tiny": ("TINYINT", ("-128", "127"), "smallint", (-128, 127)),
    "a_small": ("SMALLINT", ("-32768", "32767"), "smallint", (-32768, 32767)),
    "an_int": ("INTEGER", ("-2147483648", "2147483647"), "integer", (-(2**31), 2**31 - 1)),
    "a_big": ("BIGINT", ("-9223372036854775808", "9223372036854775807"), "bigint", (-(2**63), 2**63 - 1)),
    "a_huge": (
        "HUGEINT",
        (str(-(2**126)), str(2**127 - 1)),
        "numeric",
        (Decimal(-(2**126)), Decimal(2**127 - 1)),
    ),
    "a_utiny": ("UTINYINT", ("0", "255"), "smallint", (0, 255)),
    "a_usmall": ("USMALLINT", ("0", "65535"), "integer", (0, 65535)),
    "a_uint": ("UINTEGER", ("0", "4294967295"), "bigint", (0, 2**32 - 1)),
    "a_ubig": ("UBIGINT", ("0", str(2**64 - 1)), "numeric", (Decimal(0), Decimal(2**64 - 1))),
    "a_float": ("FLOAT", ("1.5", "'-inf'"), "real", (1.5, -math.inf)),
    "a_double": ("DOUBLE", ("0.1", "'inf'"), "double precision", (0.1, math.inf)),
    "a_nan": ("DOUBLE", ("'nan'", "-1e300"), "double precision", (math.nan, -1e300)),
    "a_decimal": (
        "DECIMAL(9, 2)",
        ("-1234567.89", "0.05"),
        "numeric(9,2)",
        (Decimal("-1234567.89"), Decimal("0.05")),
    ),
    "a_wide": (
        "DECIMAL(38, 10)",
        ("1234567890123456789012345678.0123456789", "-0.0000000001"),
        "numeric(38,10)",
        (Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")),
    ),
    "a_text": ("VARCHAR", ("'naïve, \"quoted\"\\ tab\t'", "''"), "text", ('naïve, "quoted"\\ tab\t', "")),
    "an_enum": ("ENUM('calm', 'windy')", ("'windy'", "'calm'"), "text", ("windy", "calm")),
    "a_blob": ("BLOB", ("'\\x00\\xFFa'", "''"), "bytea", (b"\x00\xffa", b"")),
    "a_uuid": (
        "UUID",
        ("'6f9619ff-8b86-d011-b42d-00cf4fc964ff'", "'00000000-0000-0000-0000-000000000000'"),
        "uuid",
        (uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff"), uuid.UUID(int=0)),
    ),
    "a_date": ("DATE", ("'0001-01-01'", "'9999-12-31'"), "date", (dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    "a_time": (
        "TIME",
        ("'00:00:00'", "'23:59:59.999999'"),
        "time without time zone",
        (dt.time(), dt.time(23, 59, 59, 999999)),
    ),
    "a_moment": (
        "TIMESTAMP",
        ("'1969-12-31 23:59:59.5'", "'2024-02-29 12:00:00.000001'"),
        "timestamp without time zone",
        (dt.datetime(1969, 12, 31, 23, 59, 59, 500000), dt.datetime(2024, 2, 29, 12, 0, 0, 1)),
    ),
    "in_seconds": (
        "TIMESTAMP_S",
        ("'2024-02-29 12:00:00'", "'1900-01-01'"),
        "timestamp without time zone",
        (dt.datetime(2024, 2, 29, 12), dt.datetime(1900, 1, 1)),
    ),
    "in_nanoseconds": (
        "TIMESTAMP_NS",
        ("'2024-02-29 12:00:00.123456789'", "'2000-01-01'"),
        "timestamp without time zone",
        (dt.datetime(2024, 2, 29, 12, 0, 0, 123456), dt.datetime(2000, 1, 1)),
    ),
    "with_zone": (
        "TIMESTAMPTZ",
        ("'2024-02-29 12:00:00+02'", "'1999-12-31 23:59:59.25+00'"),
        "timestamp with time zone",
        (dt.datetime(2024, 2, 29, 10, tzinfo=UTC), dt.datetime(1999, 12, 31, 23, 59, 59, 250000, tzinfo=UTC)),
    ),
    "a_list": ("INTEGER[]", ("[1, NULL, 3]", "[]"), "integer[]", ([1, None, 3], [])),
    "of_texts": (
        "VARCHAR[]",
        ("['', 'NULL', 'a b', '{\"x\\\\', NULL, 'é,']", "[NULL]"),
        "text[]",
        (["", "NULL", "a b", '{"x\\\\', None, "é,"], [None]),
    ),
    "of_dates": ("DATE[]", ("['2024-02-29']", "[]"), "date[]", ([dt.date(2024, 2, 29)], [])),
    "of_decimals": (
        "DECIMAL(9, 2)[]",
        ("[-1234567.89, 0.05]", "[]"),
        "numeric(9,2)[]",
        ([Decimal("-1234567.89"), Decimal("0.05")], []),
    ),
    "of_moments": (
        "TIMESTAMPTZ[]",
        ("['2024-02-29 12:00:00+02', NULL]", "[]"),
        "timestamp with time zone[]",
        ([dt.datetime(2024, 2, 29, 10, tzinfo=UTC), None], []),
    ),
    "of_lists": (
        "DOUBLE[][]",
        ("[[1.5, 2], [NULL, 4]]", "[[], []]"),
        "double precision[]",
        ([[1.5, 2], [None, 4]], []),
    ),
    "of_fixed_size": ("INTEGER[2]", ("[1, NULL]", "[3, 4]"), "integer[]", ([1, None], [3, 4])),
    "a_struct": (
        "STRUCT(a INTEGER, b VARCHAR)",
        ("{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': ''}"),
        "json",
        ({"a": 1, "b": "x"}, {"a": None, "b": ""}),
    ),
}
INTERVAL = "SELECT INTERVAL '25 hours 3 days' AS one, NULL::INTERVAL AS none"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file: Path = tmp_path_factory.mktemp("kinds") / "kinds.duckdb"
    rows = []
    for place in range(2):
        cells = ", ".join(
            f"({values[place]})::{kind} AS {name}" for name, (kind, values, _, _) in COLUMNS.items()
        )
        rows.append(f"SELECT {place} AS place, {cells}")
    empty = ", ".join(f"NULL::{kind} AS {name}" for name, (kind, *_) in COLUMNS.items())
    rows.append(f"SELECT 2 AS place, {empty}")
    with duckdb.connect(str(file)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE kinds AS {' UNION ALL '.join(rows)}")
        for schema in ("north", "south"):
            connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.sales AS SELECT 7 AS n")
        connection.execute("CREATE SCHEMA public; CREATE TABLE public.costs AS SELECT 7 AS n")
        connection.execute("CREATE TABLE costs AS SELECT 8 AS n")
    with serving(file, "--threads", "1") as running:
        yield running


def expected(place: int) -> list[Any]:
    return [None if place == 2 else values[place] for _, _, _, values in COLUMNS.values()]


def check(rows: list[Any]) -> None:
    assert len(rows) == 3
    for place, row in enumerate(rows):
        for name, found, true in zip(COLUMNS, row, expected(place), strict=True):
            if isinstance(true, float) and math.isnan(true):
                assert math.isnan(found), name
                continue
            assert found == true, (name, place)
            assert isinstance(found, type(true)), (name, type(found))


ASKED = f"SELECT {', '.join(COLUMNS)} FROM kinds ORDER BY place"


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_each_type(served: Running, binary: bool) -> None:
    with psycopg.connect(served.address()) as connection:
        check(connection.cursor(binary=binary).execute(ASKED).fetchall())
        interval = connection.cursor(binary=binary).execute(INTERVAL).fetchall()
    assert interval == [(dt.timedelta(days=3, hours=25), None)]


def test_asyncpg_reads_each_type(served: Running) -> None:
    async def ask() -> list[Any]:
        connection = await asyncpg.connect(host=served.host, port=served.port, user="ana", database="relaqs")
        try:
            await connection.set_type_codec(
                "json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )
            return [tuple(row) for row in await connection.fetch(ASKED)]
        finally:
            await connection.close()

    check(asyncio.run(ask()))


def test_pg8000_reads_each_type(served: Running) -> None:
    connection = pg8000.native.Connection("ana", host=served.host, port=served.port, database="relaqs")
    check(connection.run(ASKED))
    connection.close()


def test_tools_see_the_type_of_each_column(served: Running) -> None:
    sql = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'kinds'::regclass AND attnum > 1 ORDER BY attnum"
    )
    with psycopg.connect(served.address()) as connection:
        shown = connection.execute(sql).fetchall()
        sent = connection.execute(f"{ASKED} LIMIT 0").description or []
        schema = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'kinds' "
            "ORDER BY ordinal_position"
        ).fetchall()
    assert shown == [(name, kind) for name, (_, _, kind, _) in COLUMNS.items()]
    assert [column.name for column in sent] == list(COLUMNS)
    assert schema[1:] == [
        (name, "ARRAY" if kind.endswith("[]") else kind.partition("(")[0]) for name, kind in shown
    ]


NESTED = {
    "MAP {}": {},
    "MAP {DATE '2020-01-01': [1, NULL]}": {"2020-01-01": [1, None]},
    "MAP {true: 1}": {"true": 1},
    "{'x': [0.1, 12345678901234567.89, 12345678901234567890::DECIMAL(20, 0)]}": {
        "x": [0.1, "12345678901234567.89", 12345678901234567890]
    },
    "[MAP {'a': 1}, NULL, MAP {}]": [{"a": 1}, None, {}],
    "{'m': MAP {'a': MAP {1: 2}}}": {"m": {"a": {"1": 2}}},
    "{'x': [INTERVAL '25 hours 3 days', NULL]}": {"x": ["3 days 25:00:00", None]},
    "{'x': ['infinity'::TIMESTAMP, '2020-01-01']}": {"x": ["infinity", "2020-01-01T00:00:00"]},
    "{'day': '10000-01-01'::DATE, 'end': TIME '24:00:00'}": {"day": "10000-01-01", "end": "24:00:00"},
    "row()": {},
    "row(1, 'x')": {"element1": 1, "element2": "x"},
    "{'x': [[1, 2], [NULL]]}": {"x": [[1, 2], [None]]},
    "{'x': [[1, 2], [NULL, 3]]::INTEGER[2][2]}": {"x": [[1, 2], [None, 3]]},
}


@pytest.mark.parametrize("literal", NESTED)
def test_nested_values_are_json(served: Running, literal: str) -> None:
    with psycopg.connect(served.address()) as connection:
        one = connection.execute(f"SELECT {literal} AS x").fetchone()
        rows = connection.execute(
            f"SELECT CASE WHEN i % 3 > 0 THEN {literal} END AS x FROM range(3000) AS t(i) ORDER BY i"
        ).fetchall()
    assert one == (NESTED[literal],)
    assert rows == [(NESTED[literal] if i % 3 else None,) for i in range(3000)]


def test_lists_of_several_lengths_are_no_array(served: Running) -> None:
    with psycopg.connect(served.address(), autocommit=True) as connection:
        for sql in ("SELECT [[1], [2, 3]] AS x", "SELECT [[1], NULL] AS x"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="to_json"):
                connection.execute(sql.encode())
        assert connection.execute("SELECT to_json([[1], [2, 3]]) AS x").fetchone() == ([[1], [2, 3]],)


@pytest.mark.parametrize("kind", ["BIT", "UHUGEINT", "TIMETZ", "VARIANT"])
def test_a_type_that_has_no_form_is_refused_and_can_be_cast(served: Running, kind: str) -> None:
    literal = {"BIT": "'101'", "UHUGEINT": str(2**128 - 1), "TIMETZ": "'01:00:00+02'", "VARIANT": "1"}[kind]
    with psycopg.connect(served.address(), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="as text: CAST"):
            connection.execute(f"SELECT {literal}::{kind} AS x")
        assert connection.execute(f"SELECT ({literal}::{kind})::VARCHAR AS x").fetchone() is not None


def test_tables_are_called_by_their_schemas(served: Running) -> None:
    with psycopg.connect(served.address(), autocommit=True) as connection:
        for sql in (
            "SELECT north.sales.n / 2, 7 FROM north.sales",
            'SELECT s.n / 2, (SELECT max(n) FROM kinds.south.sales) FROM "north"."sales" AS s',
            "SELECT n / 2, n FROM south.sales WHERE south.sales.n > %(least)s",
            "SELECT public.costs.n / 2, n FROM public.costs",
            "SELECT public.costs.n / 2, main.costs.n - 1 FROM public.costs, main.costs",
        ):
            assert connection.execute(sql, {"least": 3}).fetchall() == [(3, 7)]
        with connection.cursor().copy("COPY south.sales TO STDOUT") as copy:
            assert list(copy.rows()) == [("7",)]
        with pytest.raises(psycopg.errors.UndefinedTable, match="north_sales"):
            connection.execute("SELECT * FROM sales")
