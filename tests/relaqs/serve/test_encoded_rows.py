"""Rows that are encoded many at once have the bytes of rows that are encoded value by value."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

from relaqs.serve import encoded_rows
from relaqs.serve.column_types import column_type
from relaqs.serve.copy_out import CopiedRows, CopyForm
from relaqs.serve.encoded_rows import AnswerRows
from relaqs.serve.values import BINARY, TEXT

COLUMNS = {
    "a_bool": "i % 2 = 0",
    "a_tiny": "(i % 5)::TINYINT",
    "a_small": "i::SMALLINT",
    "an_int": "i::INTEGER",
    "a_big": "i * 1000003",
    "a_uint": "i::UINTEGER",
    "a_ubig": "i::UBIGINT",
    "a_huge": "i::HUGEINT",
    "a_double": "CASE WHEN i % 9 = 0 THEN 'nan' WHEN i % 7 = 0 THEN i * 1e18 WHEN i % 5 = 0 THEN i * 1e-9 "
    "WHEN i % 4 = 0 THEN 1e14 ELSE i / 3 - 50 END::DOUBLE",
    "a_float": "(CASE WHEN i % 6 = 0 THEN i * 1e7 ELSE i / 7 END)::FLOAT",
    "money": "(i * 0.01 - 3)::DECIMAL(9, 2)",
    "of_six": "(i * 12345.6789 - 100000)::DECIMAL(18, 6)",
    "of_nine": "(i * 0.0000001)::DECIMAL(18, 9)",
    "wide": "(i::HUGEINT * 1000000000000000000000)::DECIMAL(38, 3)",
    "a_text": "CASE i % 6 WHEN 0 THEN 'a,b' WHEN 1 THEN 'q\"x' WHEN 2 THEN '' WHEN 3 THEN 'tab' || chr(9) "
    "WHEN 4 THEN '\\.' ELSE 'n\\' || chr(10) || 'é' END",
    "a_key": "CASE WHEN i % 3 > 0 THEN 'x' || i END",
    "an_enum": "(CASE WHEN i % 2 = 0 THEN 'calm' ELSE 'windy' END)::ENUM('calm', 'windy')",
    "a_date": "DATE '2024-01-01' + i::INTEGER",
    "before": "DATE '0001-01-01' + i::INTEGER - 100",
    "a_moment": "TIMESTAMP '2024-01-01' + INTERVAL (i * 1001) SECOND",
    "a_fraction": "TIMESTAMP '1969-12-31 23:59:59' + INTERVAL (i * 1000500) MICROSECOND",
    "with_zone": "to_timestamp(i * 86399)",
    "a_time": "TIME '00:00:00' + INTERVAL (i * 77) SECOND",
    "a_while": "CASE WHEN i % 4 > 0 THEN INTERVAL (i) HOUR END",
    "a_blob": "('\\x0' || i % 10)::BLOB",
    "an_id": "md5(i::VARCHAR)::UUID",
    "a_list": "[i, NULL, 3]",
    "a_struct": "{'a': i}",
}
FORMS = (
    CopyForm(),
    CopyForm("text", "a", "NULL"),
    CopyForm("csv", ",", ""),
    CopyForm("csv", ",", "", is_forced=True),
    CopyForm("csv", "-", "1"),
    CopyForm("csv", ",", "", escape="\\"),
    CopyForm("csv", "|", "x", quote="'", escape="'"),
    CopyForm("binary"),
)


@pytest.fixture(scope="module", params=[False, True], ids=["all there", "with NULLs"])
def answer(request: pytest.FixtureRequest) -> tuple[pa.Table, list[str]]:
    """Return an answer in several chunks, which do not begin where their memory does."""
    cells = (f"CASE WHEN i % 5 <> 1 THEN {sql} END" if request.param else sql for sql in COLUMNS.values())
    named = ", ".join(f"{sql} AS {name}" for name, sql in zip(COLUMNS, cells, strict=True))
    relation = duckdb.connect().sql(f"SELECT {named} FROM range(500) AS r(i)")
    table = relation.to_arrow_table()
    return pa.concat_tables([table.slice(3, 200), table.slice(250, 111)]), list(map(str, relation.types))


def drained(made: AnswerRows) -> bytes:
    sent, messages = 0, b""
    while (found := made.messages(sent))[0]:
        sent, messages = sent + found[0], messages + found[1]
    return messages


def same_bytes(make: Callable[[], AnswerRows], monkeypatch: pytest.MonkeyPatch) -> bool:
    many = drained(make())
    with monkeypatch.context() as patched:
        patched.setattr(encoded_rows, "_ROWS_BY_VALUES", 1 << 30)
        return drained(make()) == many


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("name", COLUMNS)
def test_each_column_has_the_same_bytes(
    answer: tuple[pa.Table, list[str]], name: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, types = answer
    kind = column_type(types[list(COLUMNS).index(name)])
    for format_ in (TEXT, BINARY):
        assert same_bytes(lambda: AnswerRows(table.select([name]), [kind], [format_], zone), monkeypatch)  # noqa: B023


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_each_form_of_copy_has_the_same_bytes(
    answer: tuple[pa.Table, list[str]], form: CopyForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, types = answer
    kinds = list(map(column_type, types))
    assert same_bytes(lambda: CopiedRows(table, list(COLUMNS), kinds, form, "UTC"), monkeypatch)
