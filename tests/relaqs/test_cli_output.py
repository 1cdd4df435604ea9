"""Snapshots as JSON lines, CSV and text."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

import relaqs
from relaqs import UnsupportedError
from relaqs.cli import program
from relaqs.cli.output import as_text, json_line, write, write_csv, write_parquet
from relaqs.queries.snapshot import Snapshot
from tests.relaqs.examples import NATIONS, revenue, snapshot

DAY = datetime.date(1998, 8, 2)
KEYS = {
    *(
        "table",
        "estimate",
        "columns",
        "fraction",
        "error",
        "confidence",
        "interval",
        "confidence_for",
        "batch",
        "batches",
    ),
    *(
        "elapsed_seconds",
        "is_exact",
        "mode",
        "unseen_groups",
        "warnings",
        "target",
        "certain_rows",
        "version",
        "not_judged",
        "reasons",
        "measures",
        "calls",
        "cost",
    ),
}


def of_every_type() -> Snapshot:
    amounts = pa.array([Decimal("56586554400.73"), Decimal("3.00")], pa.decimal128(38, 2))
    return snapshot(
        {
            "name": ['quote " comma , line\n日', None],
            "day": [DAY, None],
            "at": [datetime.datetime(2020, 1, 2, 3, 4, 5), None],
            "amount": amounts,
            "big": pa.array([Decimal(10**30), None], pa.decimal128(38, 0)),
            "flag": [True, False],
            "raw": [b"\x01\xff", None],
            "list": [[1, None], []],
            "struct": [{"a": DAY}, None],
            "real": [float("nan"), 0.1],
        },
        error=float("inf"),
        warnings=("w",),
    )


def strict(text: str) -> Any:
    """Parse JSON and refuse the NaN and Infinity that Python would let pass."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_line_has_the_attributes_of_a_snapshot() -> None:
    line = json_line(dataclasses.replace(revenue(), certain_rows=pa.array([True, False] * 3)))
    assert "\n" not in line
    values = strict(line)
    assert set(values) == KEYS
    assert values["certain_rows"] == [True, False] * 3
    assert values["fraction"] == 0.42
    assert values["columns"] == [
        {
            "name": "revenue",
            "low": "revenue_low",
            "high": "revenue_high",
            "certified": "revenue_certified",
            "position": 2,
        }
    ]
    assert [row["n_name"] for row in values["table"]] == list(NATIONS)
    assert values["table"][0]["revenue_certified"] is True
    assert values["estimate"][0] == {"n_name": "FRANCE", "year": 1992, "revenue": 57.1e6}


def test_values_in_json() -> None:
    line = json_line(of_every_type())
    assert line.isascii()
    values = strict(line)
    assert values["error"] is None
    assert values["warnings"] == ["w"]
    first, second = values["table"]
    assert first == {
        "name": 'quote " comma , line\n日',
        "day": "1998-08-02",
        "at": "2020-01-02T03:04:05",
        "amount": 56586554400.73,
        "big": 10**30,
        "flag": True,
        "raw": "\\x01\\xFF",
        "list": [1, None],
        "struct": {"a": "1998-08-02"},
        "real": None,
    }
    assert (second["amount"], second["name"], second["real"]) == (3, None, 0.1)


def test_csv_has_the_last_snapshot() -> None:
    file = io.StringIO()
    write_csv([revenue(), of_every_type()], file, every=False)
    rows = list(csv.reader(io.StringIO(file.getvalue())))
    assert rows == [
        of_every_type().table.column_names,
        [
            *('quote " comma , line\n日', "1998-08-02", "2020-01-02T03:04:05", "56586554400.73"),
            *(f"{10**30}", "true", "\\x01\\xFF", "[1, null]", '{"a": "1998-08-02"}', "nan"),
        ],
        ["", "", "", "3.00", "", "false", "", "[]", "", "0.1"],
    ]


def test_csv_is_written_as_duckdb_writes_it(tmp_path: Path) -> None:
    texts = ["", None, "NULL", 'a "b"', "a,b", "two\nlines", " ", "x"]
    numbers = [None, 1.5, math.nan, math.inf, 0.0, -1.0, 2.0, 3.0]
    rows = pa.table({"s": texts, "t": texts[::-1], "n": numbers})
    with relaqs.connect(tables={"t": rows}) as db, duckdb.connect() as connection:
        connection.register("t", rows)
        for sql in ("SELECT * FROM t", "SELECT s FROM t"):
            connection.sql(sql).write_csv(str(tmp_path / "theirs.csv"))
            file = io.StringIO()
            write([db.sql(sql)], "csv", file=file)
            assert file.getvalue() == (tmp_path / "theirs.csv").read_text(encoding="utf-8")


def test_csv_of_an_exact_answer_has_no_intervals() -> None:
    file = io.StringIO()
    write([revenue(exact=True)], "csv", file=file)
    header, *rows = csv.reader(io.StringIO(file.getvalue()))
    assert header == revenue().estimate.column_names
    assert {len(row) for row in rows} == {len(header)}
    assert revenue().table.num_columns > len(header)


def test_csv_of_every_snapshot_begins_with_its_number_and_share() -> None:
    file = io.StringIO()
    write_csv([revenue(), revenue(exact=True)], file, every=True)
    rows = list(csv.reader(io.StringIO(file.getvalue())))
    assert rows[0][:3] == ["relaqs_batch", "relaqs_fraction", "n_name"]
    assert [row[:2] for row in rows[1:]] == [["3", "0.42"]] * 6 + [["20", "1.0"]] * 6


def test_columns_of_one_name_are_all_written() -> None:
    table = pa.Table.from_arrays([[1], [2], [3], [4]], names=["x", "x_1", "x", "x"])
    twins = dataclasses.replace(snapshot({}), table=table)
    assert strict(json_line(twins))["table"] == [{"x": 1, "x_1": 2, "x_2": 3, "x_3": 4}]
    file = io.StringIO()
    write_csv([twins], file, every=False)
    assert file.getvalue() == "x,x_1,x,x\n1,2,3,4\n"


def test_no_snapshot_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("table", "jsonl", "csv"):
        write([], name)
    assert capsys.readouterr().out == ""


def test_a_table_that_nobody_watches_is_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    write([revenue(), revenue(exact=True)], "table")
    assert capsys.readouterr().out == f"{revenue(exact=True)}\n\n"
    write([revenue(), revenue(exact=True)], "table", every=True)
    assert capsys.readouterr().out == f"{revenue()}\n\n{revenue(exact=True)}\n\n"


@pytest.mark.parametrize(("encoding", "sign"), [("utf-8", "±"), ("ascii", "+/-"), ("iso-8859-1", "+/-")])
def test_text_in_what_the_file_can_take(encoding: str, sign: str) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert f"57.1 M {sign} 1.7 M" in as_text(revenue(), file)


def test_markdown_has_all_rows_with_their_margins() -> None:
    file = io.StringIO()
    write([revenue()], "markdown", file=file)
    lines = file.getvalue().splitlines()
    assert lines[0].startswith("*Estimate · 42 % of rows")
    assert lines[2:5] == ["| n\\_name | year | revenue |", "| --- | ---: | ---: |", lines[4]]
    assert lines[4].startswith("| FRANCE | 1992 | 57.1 M ± 1.7 M")
    assert sum(line.startswith("|") for line in lines) == 2 + len(NATIONS)


def test_markdown_of_odd_text_stays_one_table() -> None:
    file = io.StringIO()
    write([snapshot({"a|b": ["x|y\nz", "*_`<b>"], "n": [1, None]}, is_exact=True)], "markdown", file=file)
    rows = [line for line in file.getvalue().splitlines() if line.startswith("|")]
    assert rows[0] == "| a\\|b | n |"
    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)
    assert "\\<b\\>" in rows[3]


def test_parquet_keeps_types_and_what_is_known_of_the_answer() -> None:
    file = io.BytesIO()
    write_parquet([revenue(), revenue(exact=True)], file)
    table = pyarrow.parquet.read_table(file)
    assert table.equals(revenue(exact=True).table)
    assert json.loads(table.schema.metadata[b"relaqs"])["is_exact"] is True


def test_parquet_of_columns_with_one_name_can_be_read() -> None:
    file, table = io.BytesIO(), pa.table([[1], [2]], names=["a", "a"])
    write_parquet([dataclasses.replace(snapshot({"a": [1]}), table=table)], file)
    assert pyarrow.parquet.read_table(file).to_pydict() == {"a": [1], "a_1": [2]}


def test_an_interval_is_written_as_duckdb_writes_it() -> None:
    """Not as the list of its three parts."""
    length = pa.array([pa.MonthDayNano([1, 2, 3_000_000_000])])
    assert json.loads(json_line(snapshot({"a": length})))["estimate"] == [{"a": "1 month 2 days 00:00:03"}]
    file = io.StringIO()
    write_csv([snapshot({"a": length})], file, every=False)
    assert file.getvalue().splitlines()[1] == "1 month 2 days 00:00:03"


def test_a_type_that_parquet_lacks_is_named() -> None:
    months = pa.array([pa.MonthDayNano([1, 2, 3])])
    with pytest.raises(UnsupportedError, match="cast it to VARCHAR"):
        write_parquet([snapshot({"a": months})], io.BytesIO())


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    duckdb.sql("SELECT i % 3 AS k, i AS x FROM range(3000) AS t(i)").write_parquet(
        str(tmp_path / "n.parquet")
    )
    return tmp_path / "n.parquet"


SUMS = "SELECT k, sum(x) AS s FROM n GROUP BY k ORDER BY k"


def relaqs_sql(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, ["sql", *map(str, arguments)])


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.md", "o.jsonl", "o.txt"])
def test_a_file_is_written_in_the_format_of_its_name(numbers: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir()
    done = relaqs_sql(SUMS, "--data", numbers, "--output", path)
    assert (done.exit_code, done.output) == (0, "")
    assert list(path.parent.iterdir()) == [path]
    content = path.read_bytes()
    if name == "o.parquet":
        assert pyarrow.parquet.read_table(path)["k"].to_pylist() == [0, 1, 2]
        return
    begins = {"o.csv": b"k,s", "o.md": b"*Exact", "o.jsonl": b"{", "o.txt": b"Exact"}
    assert content.startswith(begins[name])
    assert b"1498500" in content.replace(b",", b"").replace(b".", b"")


def test_a_file_is_kept_where_the_query_fails(numbers: Path, tmp_path: Path) -> None:
    path = tmp_path / "out" / "o.csv"
    path.parent.mkdir()
    path.write_text("before")
    done = relaqs_sql("SELECT nope FROM n", "--data", numbers, "-o", path)
    assert done.exit_code == 1
    assert path.read_text() == "before"
    assert list(path.parent.iterdir()) == [path]


def test_parquet_goes_to_standard_output(numbers: Path) -> None:
    done = relaqs_sql(SUMS, "--data", numbers, "--format", "parquet", "--output", "-")
    assert pyarrow.parquet.read_table(io.BytesIO(done.stdout_bytes)).num_rows == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "parquet", "--every"), "leave --every out"),
        (("--output", "nowhere/o.csv"), "there is no folder"),
        (("--output", "o.xlsx"), ".xlsx cannot be written; call it .parquet,"),
    ],
)
def test_what_cannot_be_written_says_so(numbers: Path, arguments: tuple[str, ...], words: str) -> None:
    done = relaqs_sql(SUMS, "--data", numbers, *arguments)
    assert done.exit_code == 2
    assert words in done.output


def test_a_parquet_file_has_one_answer(numbers: Path, tmp_path: Path) -> None:
    script = tmp_path / "two.sql"
    script.write_text(f"{SUMS}; {SUMS}")
    done = relaqs_sql("--file", script, "--data", numbers, "-o", tmp_path / "o.parquet")
    assert done.exit_code == 2
    assert "there are 2 SELECTs" in done.output


def test_several_answers_share_a_file(numbers: Path, tmp_path: Path) -> None:
    script = tmp_path / "two.sql"
    script.write_text(f"{SUMS}; {SUMS}")
    done = relaqs_sql("--file", script, "--data", numbers, "-o", tmp_path / "o.md")
    assert done.exit_code == 0
    assert (tmp_path / "o.md").read_text().count("*Exact") == 2
