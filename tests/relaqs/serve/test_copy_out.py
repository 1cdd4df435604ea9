"""COPY (SELECT …) TO STDOUT gives what SELECT gives, in text, CSV and binary, as a real Postgres does."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.postgres import installed, postgres
from benchmarks.server_process import Running

ODD = (
    "SELECT 1::int AS a, 'x' AS b, NULL::text AS c "
    "UNION ALL SELECT 2, E'tab\\t line\\n \\\\ \"quoted\", comma', '' "
    "UNION ALL SELECT NULL, '\\.', '\\N' UNION ALL SELECT 4, 'ü€', E'\\r' ORDER BY a NULLS LAST"
)
OPTIONS = (
    "",
    "(FORMAT text, DELIMITER '|', NULL 'nil', HEADER)",
    "(FORMAT csv)",
    "WITH CSV HEADER",
    "(FORMAT csv, HEADER, DELIMITER ';', QUOTE '''', FORCE_QUOTE *)",
    "(FORMAT csv, ESCAPE '\\', NULL 'NULL')",
    "WITH (FORMAT binary)",
    "BINARY",
)


@pytest.fixture
def connection(server: Running) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        yield connection


def copied(connection: psycopg.Connection[Any], sql: str) -> bytes:
    with connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
        return b"".join(map(bytes, copy))


@pytest.mark.skipif(installed() is None, reason="no Postgres server is installed")
def test_the_bytes_are_those_of_a_real_postgres(connection: psycopg.Connection[Any]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,  # a short path, which a socket needs
        postgres(Path(folder)) as address,
        psycopg.connect(address, autocommit=True) as real,
    ):
        for options in OPTIONS:
            sql = f"COPY ({ODD}) TO STDOUT {options}"
            assert copied(connection, sql) == copied(real, sql), options


def test_rows_of_csv_read_back(connection: psycopg.Connection[Any]) -> None:
    text = copied(connection, f"COPY ({ODD}) TO STDOUT (FORMAT csv, HEADER)").decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["a", "b", "c"]
    assert rows[2] == ["2", 'tab\t line\n \\ "quoted", comma', ""]


def test_a_table_is_copied_by_its_name_and_in_binary(connection: psycopg.Connection[Any]) -> None:
    sql = "COPY trips (zone, fare) TO STDOUT (FORMAT binary)"
    with connection.cursor() as cursor, cursor.copy(sql) as copy:
        copy.set_types(["int4", "numeric"])
        rows = list(copy.rows())
    wanted = connection.execute("SELECT zone, fare FROM trips ORDER BY 1, 2").fetchall()
    assert sorted(rows) == wanted


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("COPY trips FROM STDIN", "none come in"),
        (f"COPY {'a' * 2000}! TO STDOUT", "none come in"),  # read in one pass, not in 2²⁰⁰⁰ ways
        ("COPY trips TO '/tmp/x'", "none come in"),
        ("COPY trips TO PROGRAM 'cat'", "none come in"),
        ("COPY trips TO STDOUT (FORMAT parquet)", "it is text, csv or binary"),
        ("COPY trips TO STDOUT (DELIMITER 'ab')", "single one-byte character"),
        ("COPY (SELECT nope FROM trips) TO STDOUT", "nope"),
    ],
)
def test_what_is_not_served_says_so(connection: psycopg.Connection[Any], sql: str, words: str) -> None:
    with pytest.raises(psycopg.Error, match=words):
        connection.execute(sql.encode())
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_driver_of_arrow_finds_how_types_are_received(connection: psycopg.Connection[Any]) -> None:
    sql = "SELECT typname, typreceive::TEXT FROM pg_catalog.pg_type WHERE typreceive != 0 OR typsend != 0"
    found = dict(connection.execute(sql).fetchall())
    assert found["date"] == "date_recv"
    assert found["int8"] == "int8recv"
    assert found["numeric"] == "numeric_recv"
