"""Snapshots as JSON lines, CSV and text."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from relaqs.cli.output import as_text, json_line, write, write_csv
from relaqs.queries.snapshot import Snapshot
from tests.relaqs.examples import NATIONS, revenue, snapshot

DAY = datetime.date(1998, 8, 2)
KEYS = {
    *("table", "estimate", "columns", "fraction", "error", "confidence", "interval", "batch", "batches"),
    *("elapsed_seconds", "is_exact", "mode", "unseen_groups", "warnings", "target", "certain_rows"),
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
        "raw": "01ff",
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
            *(f"{10**30}", "true", "01ff", "[1, null]", '{"a": "1998-08-02"}', "nan"),
        ],
        ["", "", "", "3.00", "", "false", "", "[]", "", "0.1"],
    ]


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
