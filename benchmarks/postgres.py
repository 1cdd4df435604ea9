"""Statements of Postgres, asked of a real Postgres and of `relaqs serve` over the same rows.

    python -m benchmarks.postgres --statements 3000 --seed 1

A statement that both answer must have the same rows and names of columns. One that the server refuses is
counted, and so is one that Postgres alone refuses: neither is silent. Where both refuse one, the SQLSTATEs
that tools branch on must be the same. The statements go in turn to each kind of table and each time zone. It
needs Debian's package postgresql.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from relaqs_engine.layouts import add_static

import relaqs
from benchmarks.server_process import serving

ROWS, FEW = 400, 12
_T = f"""
    SELECT i::INTEGER AS id, CASE WHEN i % 7 > 0 THEN (i * 37 % 41 - 20)::INTEGER END AS a,
        CASE WHEN i % 5 > 0 THEN (i * 7919 % 100003)::BIGINT END AS b,
        CASE WHEN i % 6 > 0 THEN ((i * 7919) % 2001 / 100.0 - 8)::DECIMAL(9, 2) END AS n,
        CASE WHEN i % 8 > 0 THEN ((i * 31 % 97) / 8.0 - 5)::DOUBLE END AS x,
        CASE WHEN i % 9 > 0
            THEN (['foo', 'Foo bar', 'a_b', 'x%y', '', ' pad ', 'abc', 'né'])[1 + i % 8] END AS s,
        CASE WHEN i % 11 > 0 THEN DATE '2023-11-20' + (i * 5 % 400)::INTEGER END AS d,
        CASE WHEN i % 10 > 0 THEN TIMESTAMP '2023-11-20 01:02:03.25' + INTERVAL (i * 7001) SECOND END AS ts,
        CASE WHEN i % 4 > 0 THEN i % 3 = 0 END AS f,
        CASE WHEN i % 12 > 0 THEN to_timestamp(1709929800 + i * 1733) END AS tz
    FROM range({ROWS}) AS r(i)
"""
_U = f"""
    SELECT i::INTEGER AS a, 'name ' || i AS name, (i * 3 % 7)::INTEGER AS k FROM range(-3, {FEW - 3}) AS r(i)
"""
_TABLES = {"t": _T, "u": _U}
_POSTGRES_TYPES = (
    "id integer, a integer, b bigint, n numeric(9, 2), x float8, s text, d date, ts timestamp, f boolean, "
    "tz timestamptz",
    "a integer, name text, k integer",
)


def installed() -> Path | None:
    """Return the folder of Postgres's programs; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    beside = shutil.which("initdb")
    return found[-1].parent if found else Path(beside).parent if beside else None


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Give the address of a Postgres with the tables, which only this machine's sockets reach."""
    programs = installed()
    assert programs is not None, "there is no Postgres: apt-get install postgresql"
    data = folder / "postgres"
    data.mkdir()
    prefix: list[str | Path] = []
    if (
        shutil.which("runuser") and Path("/root").owner() == Path.home().owner()
    ):  # Postgres refuses to be root
        folder.chmod(0o755)
        shutil.chown(data, "postgres")
        prefix = ["runuser", "-u", "postgres", "--"]
    control: list[str | Path]
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "cwd": "/"}
    subprocess.run(
        [
            *prefix,
            programs / "initdb",
            "-D",
            data,
            "--lc-collate=C",
            "--lc-ctype=C.UTF-8",
            "-E",
            "UTF8",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
        ],
        **quiet,
    )
    settings = f"-c listen_addresses='' -c unix_socket_directories={data} -c fsync=off -c timezone=UTC"
    control = [*prefix, programs / "pg_ctl", "-D", data, "-w", "-l", data / "log"]
    subprocess.run([*control, "-o", settings, "start"], **quiet)
    address = f"host={data} user=postgres dbname=postgres"
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            for (name, sql), types in zip(_TABLES.items(), _POSTGRES_TYPES, strict=True):
                connection.execute(f"CREATE TABLE {name} ({types})")
                with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                    for row in duckdb.connect().sql(sql).to_arrow_table().to_pylist():
                        copy.write_row(tuple(row.values()))
        yield address
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **quiet)


ZONES = ("UTC", "America/New_York", "Asia/Kolkata")


def _by_rows(folder: Path, connection: duckdb.DuckDBPyConnection) -> Path:
    relaqs.shuffle(connection.sql(_T), folder / "t", partitions=8)
    add_static(connection.sql(_U), folder / "u")
    return folder


def _by_key(folder: Path, connection: duckdb.DuckDBPyConnection) -> Path:
    relaqs.shuffle(connection.sql(_T), folder / "t", partitions=8, cluster_by="a")
    relaqs.shuffle(connection.sql(_U), folder / "u", partitions=8, cluster_by="a")
    return folder


def _appended(folder: Path, connection: duckdb.DuckDBPyConnection) -> Path:
    relaqs.shuffle(connection.sql(f"SELECT * FROM ({_T}) WHERE id < 300"), folder / "t", partitions=8)
    relaqs.append(connection.sql(f"SELECT * FROM ({_T}) WHERE id >= 300"), folder / "t")
    add_static(connection.sql(_U), folder / "u")
    return folder


def _plain(folder: Path, connection: duckdb.DuckDBPyConnection) -> Path:
    for name, sql in _TABLES.items():
        connection.sql(sql).write_parquet(str(folder / f"{name}.parquet"))
    return folder


def _duckdb(folder: Path, connection: duckdb.DuckDBPyConnection) -> Path:
    with duckdb.connect(str(folder / "tables.duckdb")) as kept:
        for name, sql in _TABLES.items():
            kept.execute(f"CREATE TABLE {name} AS {sql}")
    return folder / "tables.duckdb"


LAYOUTS: dict[str, Callable[[Path, duckdb.DuckDBPyConnection], Path]] = {
    "rows": _by_rows,
    "key": _by_key,
    "appended": _appended,
    "plain": _plain,
    "duckdb": _duckdb,
}
"""Kinds of tables: each writes t and u into a folder, and returns what to serve."""


_FIXED = (
    *("VALUES (1, 'a'), (2, 'b')", "SELECT column2 FROM (VALUES (1, 'a'), (2, 'b')) v ORDER BY 1"),
    *(
        "SELECT * FROM upper('a') AS U",
        "SELECT l FROM lower('A') l, u WHERE u.a < 0",
        "SELECT n FROM now() n LIMIT 0",
    ),
    *(
        'SELECT A AS Foo, s AS "Bar" FROM t ORDER BY t.id',
        "SELECT FOO FROM (SELECT id AS Foo FROM t) Q ORDER BY 1",
    ),
    *(
        "SELECT encode(decode('6162', 'hex'), 'base64')",
        "SELECT width_bucket(n, 5, 1, 4) FROM t ORDER BY t.id",
    ),
    *("SELECT generate_series(1, 3)", "SELECT 7/2", "SELECT 1/0", "SELECT -7 / 2, -7 % 3, 7.0 / 2"),
    *(
        "SELECT id FROM t ORDER BY id FOR UPDATE",
        "SELECT a, count(*) FROM t GROUP BY a ORDER BY count DESC, a",
    ),
    *("SELECT * FROM current_schema()", "SELECT true, null, current_date IS NULL", "SELECT '1'::int + 1"),
    *(
        "SELECT faer FROM t",
        "SELECT id FROM tt",
        "SELECT nope(id) FROM t",
        "SELECT 'a'::int",
        "SELECT 1 FROM t GROUP",
    ),
    *("SELECT round(0.0179005::float8::numeric, 6)", "SELECT 1.5::numeric", "SELECT 5 / 2.0, 5 / 2::float8"),
    *("SELECT a IS DISTINCT FROM b FROM t ORDER BY id", "SELECT DISTINCT a FROM t ORDER BY a DESC"),
    *("SELECT max(count) FROM (SELECT count(*) FROM t GROUP BY a) q", "SELECT id FROM t LIMIT 0"),
    *("SELECT coalesce(sum(a), 0) / count(*) FROM t WHERE id < 0", "SELECT 2147483647 + 1"),
    *("SELECT a FROM t WHERE s = $$foo$$ ORDER BY id", "SELECT id FROM t ORDER BY 1 FETCH FIRST 3 ROWS ONLY"),
    *(
        "SELECT s, round(avg(n), 2) FROM t GROUP BY s ORDER BY s",
        "SELECT id, x::int FROM t ORDER BY x, id LIMIT 50",
    ),
)
_DIVIDED_BY_ZERO = "22012"
_READ_BY_TOOLS = {"42601", "42703", "42P01", "42883", "22P02", _DIVIDED_BY_ZERO}


class Statements:
    """Draws statements that mean something in Postgres."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> str:
        """Return one more."""
        kinds = (
            self._plain,
            self._plain,
            self._grouped,
            self._grouped,
            self._whole,
            self._derived,
            self._joined,
            self._of_json,
            lambda: self._pick(*_FIXED),
        )
        return str(self._pick(*kinds)())

    def _pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _integer(self, depth: int = 2) -> str:
        if depth <= 0:
            return str(self._pick("a", "b", "id", self._random.randint(-9, 9), "length(s)"))
        one, two = self._integer(depth - 1), self._integer(depth - 1)
        return str(
            self._pick(
                *(
                    f"({one} / {two})",
                    f"{one} / {self._random.randint(1, 9)}",
                    f"({one} + {two})",
                    f"({one} * {two})",
                ),
                *(
                    f"coalesce({one}, {two})",
                    f"abs({one})",
                    f"({one} % 7)",
                    f"nullif({one}, 3)",
                    "d - date '2023-12-01'",
                ),
                *(
                    f"greatest({one}, {two})",
                    f"({self._number(depth - 1)})::int",
                    f"(- {one})",
                    f"div({one}, 4)",
                    "strpos(s, 'o')",
                ),
                *(
                    f"CASE WHEN {self._truth(1)} THEN {one} ELSE {two} END",
                    f"width_bucket(n, -8, 12, {self._random.randint(1, 9)})",
                    "width_bucket(n, 12, -8, 5)",
                    "width_bucket(a, ARRAY[-9, 0, 7])",
                    "octet_length(s)",
                    "array_length(ARRAY[a, id], 1)",
                    "cardinality(string_to_array(s, 'o'))",
                    "(ARRAY[a, id, 7])[id % 5 - 1]",
                    "array_position(ARRAY[3, 1, 2], a % 4)",
                ),
            )
        )

    def _number(self, depth: int = 2) -> str:
        if depth <= 0:
            return str(
                self._pick(
                    "n",
                    "x",
                    "1.5",
                    "0.125",
                    "n::numeric",
                    "x::numeric",
                    "a::numeric",
                    "a::float8",
                    "x::float",
                )
            )
        one, two = self._number(depth - 1), self._number(depth - 1)
        places = self._random.randint(0, 4)
        return str(
            self._pick(
                *(
                    f"({one} / {two})",
                    f"({one} + {self._integer(depth - 1)})",
                    f"({one} * 2)",
                    f"round(({one})::numeric, {places})",
                ),
                *(
                    f"round({one})",
                    f"floor({one})",
                    f"({one} / {self._integer(depth - 1)})",
                    f"trunc(n, {places})",
                    f"({one} - {two})",
                ),
                *(
                    f"coalesce({one}, 0)",
                    f"abs({one})",
                    f"(- {one})",
                    "extract(second from ts)",
                    "extract(dow from ts)",
                ),
                *(
                    "extract(year from d)",
                    "date_part('month', ts)",
                    "ceil(x)",
                    "power(n, 2)",
                    "sign(n)",
                    "mod(n, 3)",
                ),
                *(
                    "extract(epoch from ts)",
                    "extract(milliseconds from ts)",
                    "extract(quarter from d)",
                    "sqrt(abs(x))",
                ),
                *(
                    "extract(hour from tz)",
                    "extract(epoch from tz)",
                    "date_part('day', tz)",
                    "(ARRAY[n, 2.5])[1]",
                ),
            )
        )

    def _text(self) -> str:
        return str(
            self._pick(
                *(
                    "s",
                    "upper(s)",
                    "s || '-' || a",
                    "a::text",
                    "n::text",
                    "x::text",
                    "f::text",
                    "d::text",
                    "ts::text",
                    "btrim(s)",
                ),
                *(
                    "to_char(d, 'YYYY-MM')",
                    "to_char(ts, 'YYYY-MM-DD HH24:MI:SS')",
                    "to_char(n, '999,990.00')",
                ),
                *(
                    "to_char(a, '9999')",
                    "to_char(x, 'FM999.99')",
                    "to_char(b, '999,999')",
                    "to_char(d, 'Mon DD, YYYY')",
                ),
                *(
                    "to_char(d, 'FMMonth FMDD')",
                    "to_char(d, 'Day')",
                    "to_char(ts, 'HH12:MI AM')",
                    "to_char(d, 'Q')",
                ),
                *(
                    "format('%s of %s', a, s)",
                    "format('%s%%', n)",
                    "concat(s, a, f)",
                    "substring(s from 2 for 2)",
                    "left(s, 2)",
                ),
                *(
                    "substr(s, 0, 3)",
                    "replace(s, 'o', '0')",
                    "lpad(a::text, 5, '0')",
                    "initcap(s)",
                    "split_part(s, ' ', 1)",
                ),
                *(
                    "regexp_replace(s, 'o+', '0')",
                    "s::varchar(2)",
                    "(ts - ts)::text",
                    "md5(s)",
                    "concat_ws(',', s, a)",
                    "s::name",
                    "s::char(3)",
                    "s::char(4)::text",
                    "s::char(4) || '.'",
                ),
                *(
                    "trim(both 'f' from s)",
                    "coalesce(s, 'none')",
                    "CASE WHEN f THEN 'yes' ELSE 'no' END",
                    "reverse(s)",
                ),
                *("ARRAY[a, id]::text", "ARRAY[s, 'x y']::text", "ARRAY[f]::text", "ARRAY[x, 1]::text"),
                *("array_to_string(ARRAY[a, id], ',')", "array_to_string(ARRAY[s, NULL], '|', '-')"),
                *("x || s", "(x * 1e14)::text", "(x / 1e6)::text", "(x * 1e20)::text", "power(x, 7)::text"),
                *("tz::text", "to_char(tz, 'YYYY-MM-DD HH24:MI')", "(ts - timestamp '2023-12-01')::text"),
                *(
                    "age(ts, timestamp '2024-07-01')::text",
                    "justify_interval(ts - timestamp '2024-03-01')::text",
                ),
                *(
                    "justify_days(ts - timestamp '2024-03-01')::text",
                    "justify_hours(ts - timestamp '2024-03-01')::text",
                ),
                *(
                    "('{\"a\": ' || id || '}')::jsonb ->> 'a'",
                    "json_build_object('s', s) ->> 's'",
                    "(s || '!')::text",
                ),
            )
        )

    def _moment(self) -> str:
        return str(
            self._pick(
                *(
                    "d",
                    "ts",
                    "date_trunc('month', d)",
                    "date_trunc('hour', ts)",
                    "d + 7",
                    "d + interval '1 month'",
                    "ts::date",
                ),
                *(
                    "ts - interval '36 hours'",
                    "date_bin('15 minutes', ts, timestamp '2020-01-01')",
                    "d::timestamp",
                ),
                *(
                    "ts - timestamp '2023-12-01'",
                    "age(ts, timestamp '2022-01-01')",
                    "interval '14 months 3 days'",
                    "d - 30",
                    "date_trunc('century', ts)",
                    "date_trunc('millennium', d)",
                    "('2024-02-03 0' || id % 9 + 1 || CASE WHEN f THEN ':30PM' ELSE ':30 am' END)::timestamp",
                ),
                *(
                    "to_date('2024-02-03', 'YYYY-MM-DD')",
                    "ts at time zone 'UTC'",
                    "date_trunc('week', d)::date",
                ),
                *(
                    "tz",
                    "tz::date",
                    "tz::timestamp",
                    "ts::timestamptz",
                    "d::timestamptz",
                    "date_trunc('day', tz)",
                ),
                *("tz + interval '1 day'", "tz - interval '36 hours'", "tz at time zone 'Asia/Tokyo'"),
                *(
                    "ts at time zone 'America/New_York'",
                    "tz - timestamptz '2024-03-01 00:00:00+00'",
                    "tz::time",
                ),
                *("date_trunc('month', tz, 'Asia/Tokyo')", "justify_days(ts - timestamp '2023-01-01')"),
                *("age(tz, timestamptz '2023-01-01 00:00:00+00')", "ts::time", "tz > ts", "tz::date = d"),
            )
        )

    def _truth(self, depth: int = 2) -> str:
        if depth > 1 and self._random.random() < 0.4:
            return f"({self._truth(1)} {self._pick('AND', 'OR')} {self._truth(1)})"
        return str(
            self._pick(
                *(
                    "f",
                    "NOT f",
                    "a > 3",
                    "n < x",
                    "s LIKE 'f%'",
                    "s LIKE 'a\\_b'",
                    "s ILIKE '%BAR'",
                    "s ~ '^[fF]oo'",
                    "s ~* 'FOO'",
                ),
                *(
                    "s SIMILAR TO '(f|F)oo%'",
                    "s SIMILAR TO 'a_b'",
                    "a IS NULL",
                    "a IN (1, 2, NULL)",
                    "a BETWEEN SYMMETRIC 5 AND -5",
                ),
                *(
                    "d >= date '2024-01-01'",
                    "a IS DISTINCT FROM 3",
                    "s !~ 'x'",
                    "b / 2 > 100",
                    "a / 2 = 1",
                    "extract(month from d) = 3",
                ),
                *(
                    "a = ANY(ARRAY[1, 2, 3])",
                    "EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
                    "a IN (SELECT u.a FROM u)",
                    "s > 'a'",
                ),
                *(
                    "id = ANY(ARRAY[a, 3])",
                    "id <> ALL(ARRAY[a, 3])",
                    "a > ANY(ARRAY[1, id])",
                    "a < ALL(ARRAY[1, id])",
                ),
                *("ARRAY[a, 3] @> ARRAY[3]", "ARRAY[a, id] && ARRAY[1, 2]", "ARRAY[a] <@ ARRAY[1, 2, 3]"),
                *(
                    "tz > timestamptz '2024-03-10 12:00:00+00'",
                    "a = ANY('{1,2,3}')",
                    "extract(hour from tz) < 6",
                ),
                *("ARRAY[a, id] < ARRAY[3, 4]", "d < tz", "s = ANY(string_to_array('foo,abc', ','))"),
                *("(a, id) > (3, 100)", "(a, f) <> (3, true)", "(a, f) IN ((1, true), (2, NULL))"),
                *(
                    "(a, f) NOT IN ((1, true), (3, false))",
                    "(n, a, id) <= (1.5, 2, 9)",
                    "NOT (a, s) = (1, 'foo')",
                ),
                *("NOT (a = ANY(nullif(ARRAY[id, 3], ARRAY[5, 3])))", "a <> ALL(nullif(ARRAY[3], ARRAY[a]))"),
            )
        )

    def _array(self) -> str:
        return str(
            self._pick(
                *(
                    "ARRAY[a, id]",
                    "ARRAY[s, 'x']",
                    "string_to_array(s, ' ')",
                    "ARRAY[n, 1.5]",
                    "ARRAY[d]",
                    "ARRAY[ts]",
                ),
                *(
                    "ARRAY[f, true]",
                    "ARRAY[x]",
                    "'{1,2,NULL}'::int[]",
                    "'{a,\"b c\"}'::text[]",
                    "ARRAY[a] || id",
                ),
                *(
                    "id || ARRAY[a]",
                    "array_append(ARRAY[a], 3)",
                    "array_remove(ARRAY[a, id], 3)",
                    "ARRAY[tz]",
                ),
                *(
                    "(ARRAY[a, id, 5])[1:2]",
                    "(ARRAY[a, id, 5])[2:]",
                    "ARRAY[a] || ARRAY[id]",
                    "ARRAY[[a, id], [1, 2]]",
                ),
                *("array_replace(ARRAY[a, 3], 3, 4)", "array_cat(ARRAY[a], ARRAY[b::int])", "ARRAY[b]"),
                *(
                    "array_cat(nullif(ARRAY[a], ARRAY[3]), nullif(ARRAY[id], ARRAY[5]))",
                    "ARRAY[a] || nullif(ARRAY[id], ARRAY[7])",
                ),
                *("array_prepend(1, ARRAY[id])", "ARRAY(SELECT k FROM u ORDER BY u.a)", "ARRAY[a]::text[]"),
            )
        )

    def _of_json(self) -> str:
        """Return a statement about JSON, whose values are compared as Python has them."""
        value = self._pick(
            *(
                "json_build_object('a', a, 's', s, 'f', f)",
                "to_json(s)",
                "json_build_array(a, s, f)",
                "to_json(a)",
            ),
            *(
                "('{\"k\": {\"l\": ' || id || '}}')::jsonb -> 'k' ->> 'l' = '3'",
                "('{\"k\": ' || id || '}')::jsonb -> 'l' IS NULL",
                "jsonb_build_object('x', x)",
                "to_jsonb(ARRAY[a, id])",
                "('[' || id || ',2]')::json -> 0",
            ),
            *("('{\"k\": [1, ' || id || ']}')::jsonb #>> '{k,1}'", "('{\"k\": ' || id || '}')::jsonb -> 'k'"),
        )
        return str(
            self._pick(
                f"SELECT id, {value} FROM t{self._where()} ORDER BY id LIMIT 20",
                "SELECT row_to_json(u) FROM u ORDER BY a",
                "SELECT row_to_json(q) FROM (SELECT a, name FROM u ORDER BY a) q",
                f"SELECT f, json_agg({self._pick('a', 's', 'x')} ORDER BY id) FROM t{self._where()} "
                "GROUP BY f ORDER BY f",
                f"SELECT json_agg(a ORDER BY id) FILTER (WHERE {self._truth()}) FROM t WHERE id < 60",
                "SELECT json_object_agg(name, k) FROM u",
                "SELECT json_array_elements_text('[1, 2.50, 3]'::json)",
                "SELECT id, e ->> 'n', e.value FROM t, "
                "json_array_elements(json_build_array(json_build_object('n', n, 'ts', ts))) AS e "
                "WHERE id < 9 ORDER BY id",
                "SELECT u.a, value FROM u CROSS JOIN LATERAL jsonb_each_text(jsonb_build_object('k', k, "
                "'n', name)) AS e ORDER BY u.a, key",
                f"SELECT id FROM t WHERE json_build_object('a', a, 's', s)::jsonb @> '{{\"a\": "
                f"{self._random.randint(-9, 9)}}}' ORDER BY id",
                "SELECT id, jsonb_build_object('a', a) || jsonb_build_object('s', s, 'tz', tz) FROM t "
                "WHERE id < 20 ORDER BY id",
                "SELECT json_agg(tz ORDER BY id), json_agg(ts ORDER BY id) FROM t WHERE id < 20",
                "SELECT row_to_json(q) FROM (SELECT id, ts, tz, d FROM t ORDER BY id LIMIT 9) q",
            )
        )

    def _any(self) -> str:
        kinds = (self._integer, self._number, self._text, self._moment, self._truth, self._array)
        return str(self._pick(*kinds)())

    def _aggregate(self) -> str:
        number = self._pick("a", "b", "n", "x", "a + 1", "a / 2")
        return str(
            self._pick(
                *(
                    "count(*)",
                    f"count({number})",
                    f"sum({number})",
                    f"avg({number})",
                    f"min({number})",
                    f"max({self._text()})",
                ),
                *(
                    f"sum({number}) / count(*)",
                    f"sum({number}) / nullif(count(a), 0)",
                    f"count(*) FILTER (WHERE {self._truth()})",
                ),
                *(
                    "round(avg(x)::numeric, 4)",
                    "round(avg(n), 3)",
                    "round(100.0 * count(a) / count(*), 2)",
                    "count(a) / count(*)",
                ),
                *(
                    "string_agg(s, ',' ORDER BY id)",
                    "string_agg(s, ',' ORDER BY x DESC, id)",
                    "bool_or(f)",
                    "max(d) - min(d)",
                ),
                *(
                    f"stddev({number})",
                    "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
                    "count(DISTINCT a)",
                    "array_agg(DISTINCT a)",
                    "string_agg(DISTINCT s, ',')",
                    "max(ts)",
                ),
                *(
                    f"max({number}) / 2",
                    f"sum({number})::numeric / 7",
                    "variance(a)",
                    "corr(a, x)",
                    "every(f)",
                    f"coalesce(sum({number}), 0)",
                ),
                *("array_agg(a ORDER BY id)", "array_agg(DISTINCT s ORDER BY s)", "array_agg(d ORDER BY id)"),
                *("array_agg(n ORDER BY id DESC)", "array_agg(tz ORDER BY id)", "max(tz)", "min(tz)"),
                *("(array_agg(s ORDER BY id))[1]", "cardinality(array_agg(a))", "count(DISTINCT tz::date)"),
                *(
                    "array_agg(a ORDER BY id) FILTER (WHERE a > 3)",
                    "bool_and(f)",
                    "array_to_string(array_agg(s ORDER BY id), ',')",
                ),
            )
        )

    def _order(self, key: str) -> str:
        return f"{key}{self._pick('', ' DESC', ' DESC', ' ASC NULLS FIRST', ' DESC NULLS LAST')}"

    def _where(self) -> str:
        return f" WHERE {self._truth()}" if self._random.random() < 0.5 else ""

    def _plain(self) -> str:
        items = ", ".join(self._any() for _ in range(self._random.randint(1, 3)))
        items += self._pick("", "", "", " AS Some", ' AS "Some"')
        order = f" ORDER BY {self._order(self._pick('a', 'x', 's', 'd', 'n', 'f'))}, t.id"
        limit = f" LIMIT {self._random.randint(1, 50)}" if self._random.random() < 0.6 else ""
        lock = self._pick("", "", "", " FOR UPDATE", " FOR SHARE")
        return f"SELECT {items} FROM t{self._where()}{order}{limit}{lock}"

    def _grouped(self) -> str:
        key = self._pick(
            "f",
            "s",
            "a / 10",
            "date_trunc('month', d)",
            "to_char(d, 'YYYY-MM')",
            "a % 3",
            "extract(year from d)",
            "b / 20000",
            "tz::date",
            "date_trunc('day', tz)",
            "to_char(tz, 'YYYY-MM-DD')",
            "extract(hour from tz)",
            "ARRAY[f]",
        )
        items = ", ".join(self._aggregate() for _ in range(self._random.randint(1, 3)))
        having = self._pick("", "", " HAVING count(*) > 10", " HAVING sum(a) / count(*) >= 0")
        limit = self._pick("", "", " LIMIT 3")
        rows = f"FROM t{self._where()} GROUP BY 1{having}"
        return f"SELECT {key} AS k, {items} {rows} ORDER BY {self._order('1')}{limit}"

    def _whole(self) -> str:
        items = ", ".join(self._aggregate() for _ in range(self._random.randint(1, 3)))
        return f"SELECT {items} FROM t{self._where()}"

    def _derived(self) -> str:
        return str(
            self._pick(
                "SELECT count, sum FROM (SELECT s, count(*), sum(a) FROM t GROUP BY s) q "
                f"ORDER BY {self._order('s')}",
                f"WITH q AS (SELECT a / 3 AS h, {self._aggregate()} AS m FROM t GROUP BY 1) "
                f"SELECT h / 2, m FROM q ORDER BY {self._order('h')}",
                f"SELECT max(c) / 3 FROM (SELECT count(*) AS c FROM t{self._where()} GROUP BY a) q",
                f"SELECT id, row_number() OVER (ORDER BY {self._order('x')}, id) FROM t ORDER BY 1",
                f"SELECT id, rank() OVER (ORDER BY {self._order('d')}) FROM t ORDER BY 1",
                "SELECT id, first_value(a) OVER "
                f"(PARTITION BY f ORDER BY {self._order('n')}, id) FROM t ORDER BY 1",
                f"SELECT id, sum(a) OVER (PARTITION BY f ORDER BY id) / 2 FROM t{self._where()} ORDER BY id",
                f"SELECT id, generate_series(1, {self._pick(1, 2, 3)}) FROM t WHERE id < 5 ORDER BY 1, 2",
                f"SELECT DISTINCT ON (a) a, x FROM t ORDER BY a, {self._order('x')}, id",
                f"SELECT lag({self._pick('a', 'x')}) OVER (ORDER BY id) / 2 FROM t ORDER BY id LIMIT 20",
                f"SELECT {self._integer()} FROM t UNION ALL SELECT k / 2 FROM u ORDER BY 1 DESC",
                f"SELECT (SELECT max(k) FROM u) / {self._pick(2, 3, 4)}, {self._random.randint(1, 20)} / 4",
                f"SELECT 1 / {self._pick(0, 2, '0.0')}",
                f"SELECT {self._integer(1)} / 0 FROM t WHERE {self._truth()}",
            )
        )

    def _joined(self) -> str:
        kind = self._pick("JOIN", "LEFT JOIN")
        return str(
            self._pick(
                f"SELECT u.name, count(*), sum(t.a) / sum(u.k) FROM t {kind} u ON u.a = t.a "
                f"GROUP BY u.name ORDER BY {self._order('1')}",
                f"SELECT t.id, u.k / 2, t.a / u.k FROM t {kind} u USING (a) WHERE u.k > 0 ORDER BY t.id",
                f"SELECT * FROM {self._pick('t JOIN u', 'u JOIN t', 't LEFT JOIN u')} USING (a) "
                "WHERE a > 3 ORDER BY a, id",
                f"SELECT t.id AS a, u.k FROM t {kind} u ON u.a = t.a ORDER BY t.a + 1, t.id",
                f"SELECT t.id AS a, u.name FROM t NATURAL {kind} u ORDER BY k - 1, id",
                f"SELECT t.id, u.name FROM t {kind} u ON u.a = t.a "
                f"ORDER BY {self._order('u.name')}, t.id LIMIT 30",
            )
        )


@dataclass(frozen=True, slots=True)
class Said:
    """What a server says: rows and the names of their columns, or an error.

    planning_code: of the error that already planning the statement has.
    """

    names: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""
    code: str = ""
    planning_code: str = ""


def ask(connection: psycopg.Connection[Any], sql: str) -> Said:
    """Return the answer to a statement."""
    try:
        cursor = connection.execute(sql)
        return Said(tuple(each.name for each in cursor.description or ()), tuple(cursor.fetchall()))
    except psycopg.Error as error:
        return Said(error=str(error).splitlines()[0], code=error.sqlstate or "?")


def ask_postgres(connection: psycopg.Connection[Any], sql: str) -> Said:
    """Return the answer of Postgres, and whether it divides by zero before it reads a row."""
    said = ask(connection, sql)
    if said.code != _DIVIDED_BY_ZERO:
        return said
    return replace(said, planning_code=ask(connection, f"EXPLAIN {sql}").code)


def verdict(theirs: Said, ours: Said, sql: str) -> str:
    """Return what two answers to one statement are to each other.

    Postgres computes the columns of rows that a LIMIT leaves out, or not, as it plans, and what has no column
    while it plans. Only it divides by zero then.
    """
    if theirs.error and ours.error:
        return "differs" if theirs.code in _READ_BY_TOOLS and theirs.code != ours.code else "both refuse"
    if theirs.error:
        is_by_rows = theirs.code == _DIVIDED_BY_ZERO != theirs.planning_code
        return "differs" if is_by_rows and "LIMIT" not in sql else "only Postgres refuses"
    if ours.error:
        return "refused"
    if theirs.names != ours.names:
        return "differs"
    alike = len(theirs.rows) == len(ours.rows) and all(map(_same_row, theirs.rows, ours.rows))
    return "same" if alike else "differs"


def _same_row(theirs: Sequence[Any], ours: Sequence[Any]) -> bool:
    return len(theirs) == len(ours) and all(map(_same, theirs, ours))


def _same(theirs: Any, ours: Any) -> bool:
    if (
        isinstance(theirs, int | float | Decimal)
        and isinstance(ours, int | float | Decimal)
        and not isinstance(theirs, bool)
    ):
        if math.isnan(theirs) or math.isnan(ours):
            return math.isnan(theirs) and math.isnan(ours)
        return math.isclose(float(theirs), float(ours), rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(_same, theirs, ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(_same(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, datetime | date | time | timedelta) or theirs is None or isinstance(theirs, bool):
        return type(theirs) is type(ours) and bool(theirs == ours)
    return bool(theirs == ours)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement that was not answered alike. where: the kind of table, and the time zone."""

    sql: str
    where: str
    theirs: Said
    ours: Said


def compare(
    folder: Path, statement_count: int, seed: int, layouts: Sequence[str] = tuple(LAYOUTS)
) -> tuple[Counter[str], list[Asked]]:
    """Return how many statements had which verdict, and those that were not the same."""
    tally: Counter[str] = Counter()
    different: list[Asked] = []
    draw = Statements(seed)
    with postgres(folder) as address, psycopg.connect(address, autocommit=True) as real:
        for place, layout in enumerate(layouts):
            warehouse = folder / layout
            warehouse.mkdir()
            data = LAYOUTS[layout](warehouse, duckdb.connect())
            count = (statement_count + place) // len(layouts)
            with (
                serving(data, "--threads", "1") as server,
                psycopg.connect(server.address(), autocommit=True) as own,
            ):
                for number in range(count):
                    if number % (zone_count := -(-count // len(ZONES))) == 0:
                        zone = ZONES[number // zone_count]
                        for connection in (real, own):
                            connection.execute(f"SET TimeZone = '{zone}'".encode())
                    sql = draw.next()
                    theirs, ours = ask_postgres(real, sql), ask(own, sql)
                    said = verdict(theirs, ours, sql)
                    tally[said] += 1
                    if said != "same":
                        different.append(Asked(sql, f"{layout}, {zone}", theirs, ours))
    return tally, different


def main() -> int:
    """Print the tally, and each statement that differs; return 1 where one does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--statements", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if installed() is None:
        print("there is no Postgres here; apt-get install postgresql")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        tally, different = compare(Path(folder), asked.statements, asked.seed)
    refusals = [each for each in different if each.ours.error and not each.theirs.error]
    refused = Counter(each.ours.error[:110] for each in refusals)
    for each in different:
        theirs, ours = each.theirs, each.ours
        if verdict(theirs, ours, each.sql) == "differs":
            pairs = [pair for pair in zip(theirs.rows, ours.rows, strict=False) if not _same_row(*pair)]
            print(f"DIFFERS ({each.where}) {each.sql}")
            print(f"  Postgres {theirs.names} {theirs.error} {pairs[0][0] if pairs else ''}")
            print(
                f"  relaqs   {ours.names} {ours.code} {ours.error} {pairs[0][1] if pairs else ''} "
                f"({len(theirs.rows)} and {len(ours.rows)} rows)"
            )
    for error, count in refused.most_common(20):
        example = next(each.sql for each in refusals if each.ours.error.startswith(error))
        print(f"refused {count} times: {error}\n  {example}")
    errors = (each.theirs.error[:60] for each in different if each.ours.error)
    for error, count in Counter(errors).most_common(8):
        print(f"both refuse {count} times: {error}")
    print(", ".join(f"{name} {count}" for name, count in tally.most_common()))
    return int(tally["differs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
