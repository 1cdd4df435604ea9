"""CSV files where they lie: the rows are DuckDB's own, and its sniffer runs once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from relaqs_engine.duck import Cursor, open_for_reading
from relaqs_engine.errors import DataError
from relaqs_engine.layouts.file_kinds import FileKind
from relaqs_engine.layouts.text_files import checked_read, whole_read

MANY = "".join(f"{i},b{i}\n" for i in range(30_000))

FILES = {
    "usual": "id,name,fare\n1,a,2.5\n2,,3.5\n",
    "semicolons": "id;name;fare\n1;a;2.5\n2;b;3.5\n",
    "texts with commas": "id;name;place\n1;2,5;a, b\n2;b;c, d\n",
    "commas that may separate thousands": "id;people\n1;2,500\n2;3,125\n",
    "decimal commas": "id;amount;pieces\n1;1.234,56;1.800\n2;-7,5;2.000\n",
    "thousands and a slip": "id\tpeople\n"
    + "".join(f"{i}\t{i + 1},{i:03}\n" for i in range(100))
    + "5\t12,34\n",
    "pairs of ids": "id;pair\n1;0,0\n2;3,15\n3;007,5\n",
    "digits beyond doubles": "id;x\n1;1,5\n2;12345678901234567\n",
    "tabs": "id\tname\n1\ta\n2\tb\n",
    "carriage returns": "id,name\r\n1,a\r\n2,b\r\n",
    "no header": "1,a,2.5\n2,b,3.5\n",
    "quotes": 'id,name\n1,"a,b"\n2,"c ""d"""\n',
    "single quotes": "id,name\n1,'a,b'\n2,'c'\n",
    "quotes beyond what is sniffed": f'id,name\n{MANY}5,"a b"\n',
    "a comma in quotes beyond what is sniffed": f'id,name\n{MANY}5,"a, b"\n',
    "quotes in quotes beyond what is sniffed": f'id,name\n0,"x"\n{MANY}5,"a ""b"""\n',
    "names with signs": '"it\'s","a ""b""",ä ö\n1,2,x\n',
    "dates": "id,day,moment\n1,2020-01-02,2020-01-02 10:00:00\n2,2020-01-03,2020-01-03 11:00:00\n",
    "moments of another form": "id,moment\n1,01/02/2020 10:00\n2,01/13/2020 11:00\n",
    "times": "id,at\n1,10:00:00\n2,11:30:00\n",
    "truths": "id,late\n1,true\n2,false\n",
    "one column": "name\na\nb\n",
    "a header alone": "id,name\n",
    "nulls": "id,name\n,\n2,b\n",
    "spaces": "id, name\n1, a\n2, b\n",
    "a comment": "# of 2020\nid,name\n1,a\n2,b\n",
    "an empty line at the end": "id,name\n1,a\n2,b\n\n",
}


@pytest.fixture
def cursor() -> Iterator[Cursor]:
    with closing(open_for_reading()) as opened:
        yield opened


def rows_or_error(cursor: Cursor, source: str) -> object:
    try:
        return cursor.rows(f"FROM {source}")
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_duckdb_reads_it(cursor: Cursor, tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.csv"
    file.write_text(FILES[name])
    read = checked_read(FileKind.CSV, [file], cursor, str(file))
    assert read is not None
    assert cursor.describe(f"FROM {read.sql}") == cursor.describe(f"FROM '{file}'") == list(read.columns)
    is_same = rows_or_error(cursor, read.sql) == rows_or_error(cursor, f"'{file}'")
    assert is_same, read.sql


@pytest.mark.parametrize(
    "name", ["decimal commas", "thousands and a slip", "pairs of ids", "digits beyond doubles"]
)
def test_a_text_that_may_be_a_number_stays_as_it_is_written(
    cursor: Cursor, tmp_path: Path, name: str
) -> None:
    """A comma may part decimals, thousands or ids: to read one for another would give other numbers."""
    file = tmp_path / f"{name}.csv"
    file.write_text(FILES[name])
    read = whole_read(FileKind.CSV, [file], cursor, str(file))
    assert cursor.rows(f"FROM {read.sql}") == cursor.rows(f"FROM '{file}'")
    assert read.columns[1][1] == "VARCHAR"


def test_a_file_is_sniffed_once_and_never_when_it_is_read(
    cursor: Cursor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes half a second where rows are long: DuckDB looks at as many rows as of any other file."""
    file = tmp_path / "trips.csv"
    file.write_text(FILES["dates"])
    ran, rows = list[str](), Cursor.rows

    def noted(cursor: Cursor, sql: str) -> list[tuple[Any, ...]]:
        ran.append(sql)
        return rows(cursor, sql)

    monkeypatch.setattr(Cursor, "rows", noted)
    read = checked_read(FileKind.CSV, [file], cursor, str(file))
    assert read is not None
    assert "auto_detect=false" in read.sql
    assert len([sql for sql in ran if "auto_detect=false" not in sql]) == 1


def test_fields_of_json_that_differ_in_case_alone_are_not_told_apart(cursor: Cursor, tmp_path: Path) -> None:
    file = tmp_path / "trips.ndjson"
    file.write_text('{"id":1,"ID":2}\n')
    assert cursor.rows(f"FROM '{file}'") == [(1, 2)]
    assert checked_read(FileKind.JSON, [file], cursor, str(file)) is None
    file.write_text('{"id":1,"ID_2":2,"fare_1":2.5}\n')
    read = checked_read(FileKind.JSON, [file], cursor, str(file))
    assert read is None  # it may be a name that DuckDB made
    file.write_text('{"ID":1,"other_2":2,"fare_1":2.5}\n')
    read = checked_read(FileKind.JSON, [file], cursor, str(file))
    assert read is not None
    assert cursor.rows(f"FROM {read.sql}") == [(1, 2, 2.5)]


def test_casts_of_many_columns_name_each_column_once(cursor: Cursor, tmp_path: Path) -> None:
    """`* REPLACE` takes time by the square of the number of its columns."""
    file = tmp_path / "trips.csv"
    file.write_text(",".join(f"n{i}" for i in range(300)) + "\n" + ",".join(map(str, range(300))) + "\n")
    read = checked_read(FileKind.CSV, [file], cursor, str(file))
    assert read is not None
    assert "REPLACE" not in read.sql
    assert cursor.rows(f"FROM {read.sql}") == [tuple(range(300))]


@pytest.mark.parametrize("ends", [("\r\n", "\n"), ("\n", "\r\n", "\n"), ("\n", "\r")])
def test_lines_that_end_in_different_ways_are_told(
    cursor: Cursor, tmp_path: Path, ends: tuple[str, ...]
) -> None:
    file = tmp_path / "trips.csv"
    lines = ("id,name", "1,a", "2,b", "3,c", "4,d")
    text = "".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    file.write_bytes(text.encode())
    with pytest.raises(
        DataError, match=r"the lines of .*trips\.csv end in different ways: .*strict_mode=false"
    ):
        checked_read(FileKind.CSV, [file], cursor, str(file))
    said = cursor.rows(f"FROM read_csv('{file}', strict_mode = false)")
    assert len(said) == 4  # what the error advises works
    with file.open("ab") as more:
        more.write(bytes(range(128, 256)))
    with pytest.raises(DataError, match=r"is not UTF-8|its lines do not all have the same number of fields"):
        checked_read(FileKind.CSV, [file], cursor, str(file))


def test_files_without_a_common_column_are_not_one_table(cursor: Cursor, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,price\n1,2.5\n")
    (tmp_path / "people.csv").write_text("name,age\na,5\n")
    files = sorted(tmp_path.glob("*.csv"))
    with pytest.raises(
        DataError, match=r"not one table: .*orders.csv has the columns id, price, and .*people"
    ):
        checked_read(FileKind.CSV, files, cursor, "the files")
