"""Errors about types and files name the column or the place, and the next step, in one line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from relaqs_engine.duck import open_for_reading, syntax_error, translated_errors
from relaqs_engine.errors import DataError, ExpressionError, SqlError, Underlined


def as_number(column: str) -> str:
    """Return what makes a text a number, however its decimals are written."""
    signs = f"CAST(regexp_replace({column}, '[$, ]', '', 'g') AS DOUBLE) if it is written as $1,234.56"
    commas = f"CAST(replace(replace({column}, '.', ''), ',', '.') AS DOUBLE) if as 1.234,56"
    return f"CAST({column} AS DOUBLE), or {signs}, or {commas}"


TRIPS = pa.table(
    {
        "name": ["a", "b"],
        "a b": ["c", "d"],
        "x (€), y": ["1,5", "2"],
        "n": [1, 2],
        "d": pa.array([1, 2], pa.decimal128(9, 2)),
    }
)


@pytest.mark.parametrize(
    ("expression", "values", "cast"),
    [
        ("name+1", "+ does not take name (VARCHAR) with 1 (INTEGER)", as_number("name")),
        (
            "d + name",
            "+ does not take d (DECIMAL(9,2)) with name (VARCHAR)",
            as_number("name"),
        ),
        ("-name", "- does not take name (VARCHAR)", as_number("name")),
        (
            'max(t."a b" * 2)',
            '* does not take t."a b" (VARCHAR) with 2 (INTEGER)',
            as_number('t."a b"'),
        ),
        ("avg(t.name)", "avg does not take t.name (VARCHAR)", as_number("t.name")),
        ("upper(n)", "upper does not take n (BIGINT)", "TRY_CAST(n AS VARCHAR)"),
        (
            "year(name)",
            "year does not take name (VARCHAR)",
            "TRY_CAST(name AS TIMESTAMP), or strptime(name, '%d.%m.%Y') if it is not written as 2024-01-31",
        ),
        ("n LIKE 'a'", "LIKE does not take n (BIGINT) with 'a' (VARCHAR)", "TRY_CAST(n AS VARCHAR)"),
        ("lower(name) + 1", "+ does not take VARCHAR with INTEGER", as_number("…")),
        ('avg(t."x (€), y")', 'avg does not take t."x (€), y" (VARCHAR)', as_number('t."x (€), y"')),
    ],
)
def test_an_expression_of_the_wrong_type(expression: str, values: str, cast: str) -> None:
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(SqlError) as error:
        cursor.describe(f"SELECT {expression} FROM trips AS t")
    assert error.value.message == f"{values}; try a cast, as in {cast}"
    assert error.value.candidates == ()
    cursor.close()


@pytest.mark.parametrize("expression", ["name -> 'a' ->> 'b' = 'x'", "name -> 'a' ->> 'b' <> 'x'"])
def test_an_arrow_of_json_that_takes_a_comparison(expression: str) -> None:
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(SqlError, match="put them in brackets, as in"):
        cursor.describe(f"SELECT {expression} FROM trips AS t")
    cursor.close()


@pytest.mark.parametrize(
    ("expression", "row"),
    [
        ("avg(t)", "avg takes no whole row, and t is one"),
        ("abs(struct_pack(a := n, b := d))", "abs takes no whole row"),
    ],
)
def test_a_table_in_the_place_of_a_column(expression: str, row: str) -> None:
    """DuckDB lists its types, and one of its own functions after another."""
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(SqlError) as error:
        cursor.describe(f"SELECT {expression} FROM trips AS t")
    names = "a, b" if "pack" in expression else '"name", "a b", "x (€), y", n, d'
    assert error.value.message == f"{row}; name one of its columns: {names}"
    cursor.close()


def test_what_takes_a_list_is_not_cast_to_text() -> None:
    """The further argument of DuckDB's own function is text, and nobody wrote it."""
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(SqlError) as error:
        cursor.describe("SELECT list_sum(n) FROM trips AS t")
    assert error.value.message == "list_aggr takes a list, and not BIGINT"
    cursor.close()


def test_names_of_parameters_are_not_proposed() -> None:
    """DuckDB lists "left" and "right", the two sides of a sign."""
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(SqlError, match="add explicit type casts") as error:
        cursor.describe("SELECT NULL::INTEGER + 'a' FROM trips AS t")
    assert error.value.candidates == ()
    cursor.close()


def test_no_setting_is_proposed_that_cannot_be_changed() -> None:
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(ExpressionError) as error:
        cursor.table("SELECT (SELECT n FROM trips) AS n")
    assert "More than one row returned" in str(error.value)
    assert "SET" not in str(error.value)
    cursor.close()


def test_what_has_no_value_is_underlined_in_the_statement_that_is_described() -> None:
    sql = "SELECT * FROM range(CAST('x' AS INT))"
    cursor = open_for_reading()
    with pytest.raises(ExpressionError) as error:
        cursor.describe(sql)
    assert error.value.ran == Underlined(sql, position=(1, 21), width=16)
    cursor.close()


def test_a_comparison_of_two_types() -> None:
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(SqlError, match=r"as in TRY_CAST\(… AS DOUBLE\)"):
        cursor.describe("SELECT count(*) FROM trips WHERE name > 5")
    cursor.close()


@pytest.mark.parametrize(
    ("condition", "next_step"),
    [
        ("day > 5", "a day is written as DATE '2024-01-31'"),
        ("day BETWEEN 1 AND 2", "a day is written as DATE '2024-01-31'"),
        ("moment > 20240131", "a moment is written as TIMESTAMP '2024-01-31 18:30:00'"),
        ("moment - moment > 5", "a span is written as INTERVAL 5 DAY, and epoch(…) gives its seconds"),
        (
            "lower('2024-01-31') < moment",
            "TRY_CAST(… AS TIMESTAMP), or strptime(…, '%d.%m.%Y') if it is not written as 2024-01-31",
        ),
    ],
)
def test_a_time_beside_something_else(condition: str, next_step: str) -> None:
    days = pa.table({"day": [date(2024, 1, 31)], "moment": [datetime(2024, 1, 31, 18, 30)]})
    cursor = open_for_reading()
    with cursor.registered(days=days), pytest.raises(SqlError) as error:
        cursor.describe(f"SELECT count(*) FROM days WHERE {condition}")
    assert error.value.message.endswith(next_step)
    cursor.close()


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT * FROM order", "order"),
        ("SELECT * FROM Table WHERE n > 1", "Table"),
        ("SELECT * FROM semi LIMIT 3", "semi"),
        ("SELECT name,\n group FROM trips", "group"),
        ("SELECT count(*) FROM trips WHERE n = 1 AND to > 2", "to"),
        ("SELECT avg(end) FROM trips GROUP BY name", "end"),
        ("SELECT n FROM trips JOIN order USING (n)", "order"),
    ],
)
def test_a_name_that_is_a_word_of_sql(sql: str, word: str) -> None:
    error = syntax_error(sql)
    assert error is not None
    assert error.message.endswith(f'; {word} is a word of SQL; as a name it is written in quotes: "{word}"')
    assert syntax_error(sql.replace(word, f'"{word}"')) is None


def test_a_name_that_begins_with_a_digit() -> None:
    error = syntax_error("SELECT n FROM 2024_01 AS t")
    assert error is not None
    assert error.message.endswith('; a name that begins with a digit is written in quotes: "2024_01"')
    assert syntax_error('SELECT n FROM "2024_01" AS t') is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM 2024-01",
        "SELECT n FROM trips WHERE GROUP BY n",
        "SELECT n FROM trips GROUP ORDER BY n",
        "SELECT n FORM trips x",
        "SELECT sum(n FROM trips",
        "SELECT n FROM FROM trips",
    ],
)
def test_other_errors_of_syntax_name_no_word(sql: str) -> None:
    error = syntax_error(sql)
    assert error is not None
    assert error.message.startswith("syntax error at or near ")
    assert "in quotes" not in error.message


def write_cut_json(path: Path) -> str:
    path.write_text('{"a": 1}\n{"a": 2}\n{"a":')
    return f"read_json('{path}')"


def write_cut_list(path: Path) -> str:
    path.write_text('[{"a": 1}, {"a": 2}, {"a')
    return f"read_json('{path}')"


def write_latin(path: Path) -> str:
    path.write_bytes("city,n\nMünchen,1\nKöln,2\n".encode("latin-1"))
    return f"read_csv('{path}')"


def write_ragged(path: Path) -> str:
    path.write_text("a,b\n" + "1,2\n" * 30_000 + "1,2,3\n")
    return f"read_csv('{path}')"


def write_open_quote(path: Path) -> str:
    path.write_text("a,b\n" + '1,"x y"\n' * 30_000 + '1,"2\n')
    return f"read_csv('{path}')"


def write_ragged_for_all(path: Path) -> str:
    return write_ragged(path).replace("')", "', sample_size = -1)")


def write_cut_gzip(path: Path) -> str:
    path.write_bytes(gzip.compress(b"".join(b"%d,%d\n" % (i, i * i) for i in range(5000)))[:999])
    return f"read_csv('{path}', compression = 'gzip')"


def write_two_tables(path: Path) -> str:
    other = path.with_suffix(".other")
    path.write_text("a,b\n1,2\n")
    other.write_text("a,c\n1,2\n")
    return f"read_csv(['{path}', '{other}'])"


@pytest.mark.parametrize(
    ("make", "place", "step"),
    [
        (write_cut_json, "byte 6 in line 4", "get the file again if it was cut off"),
        (write_cut_list, "in record/value 4", "get the file again if it was cut off"),
        (write_latin, "line 2 of", "encoding='latin-1'"),
        (write_ragged, "(Expected Number of Columns: 2 Found: 3)", "ignore_errors=true"),
        (write_open_quote, "(Value with unterminated quote found)", "ignore_errors=true"),
        (
            write_ragged_for_all,
            "does not read as CSV",
            "read_csv('…', delim=",
        ),
        (write_cut_gzip, "no whole gzip file", "get it again"),
        (write_two_tables, "has a column 'b'", "union_by_name=true"),
    ],
)
def test_a_file_that_cannot_be_read(
    make: Callable[[Path], str], place: str, step: str, tmp_path: Path
) -> None:
    path = tmp_path / "trips"
    read = make(path)
    cursor = open_for_reading()
    with pytest.raises(DataError) as error:
        cursor.rows(f"SELECT * FROM {read}")
    said = str(error.value)
    assert str(path) in said
    assert place in said
    assert step in said
    assert "\n" not in said
    cursor.close()


def test_the_advised_reader_reads_what_is_no_utf_8(tmp_path: Path) -> None:
    read = write_latin(tmp_path / "trips").replace("')", "', encoding='latin-1')")
    cursor = open_for_reading()
    assert cursor.rows(f"FROM {read}") == [("München", 1), ("Köln", 2)]
    cursor.close()


@pytest.mark.parametrize(
    ("sql", "attempt"),
    [
        ("SELECT 9223372036854775807 + n FROM trips", "CAST(… AS HUGEINT)"),
        ("SELECT sum(170141183460469231731687303715884105727 - 1 + n) FROM trips", "CAST(… AS DOUBLE)"),
        ("SELECT 170141183460469231731687303715884105727::HUGEINT * n FROM trips", "CAST(… AS DOUBLE)"),
        ("SELECT repeat('9', 38)::DECIMAL(38, 0) * n FROM trips", "CAST(… AS DOUBLE)"),
    ],
)
def test_an_overflow_names_a_type_that_is_wide_enough(sql: str, attempt: str) -> None:
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(DataError, match="Overflow in ") as error:
        cursor.rows(sql)
    assert str(error.value).endswith(f"as in {attempt}")


@pytest.mark.parametrize(
    ("expression", "refused", "span"),
    [
        ("sum(b - a)", "sum does not take b - a (INTERVAL)", "b - a"),
        ("stddev(w)", "stddev does not take w (INTERVAL)", "w"),
        ("w + 1.5", "+ does not take w (INTERVAL) with 1.5 (DECIMAL(2,1))", "w"),
        ("2.5 + w", "+ does not take 2.5 (DECIMAL(2,1)) with w (INTERVAL)", "w"),
    ],
)
def test_a_span_is_counted_in_seconds(expression: str, refused: str, span: str) -> None:
    """No cast makes a number of it."""
    spans = pa.table({"a": [date(2024, 1, 1)], "b": [datetime(2024, 1, 31, 18)], "w": [timedelta(hours=1)]})
    cursor = open_for_reading()
    with cursor.registered(spans=spans):
        with pytest.raises(SqlError) as error:
            cursor.describe(f"SELECT {expression} FROM spans")
        assert error.value.message == f"{refused}; try its seconds, as in epoch({span})"
        cursor.describe(f"SELECT {expression.replace(span, f'epoch({span})')} FROM spans")
    cursor.close()


def test_bits_without_bounds_say_how_to_give_them() -> None:
    cursor = open_for_reading()
    with pytest.raises(
        SqlError, match=r"give the least and the greatest one, as in bitstring_agg\(x, 0, 100\)"
    ):
        cursor.rows("SELECT bitstring_agg(x) FROM range(5) AS t(x)")


def test_a_name_that_was_meant_is_written_as_a_select_has_it() -> None:
    cursor = open_for_reading()
    with cursor.registered(trips=TRIPS), pytest.raises(SqlError) as error:
        cursor.describe('SELECT "a bb" FROM trips')
    assert "a b" in error.value.candidates
    assert 'did you mean "a b"' in str(error.value)
    assert "!" not in str(error.value)
    assert SqlError("no", None, ("fare", 'my "x"')).hint == 'did you mean \'fare\' or "my ""x"""?'
    cursor.close()


def test_what_duckdb_says_of_a_value_as_long_as_a_table_is_read_in_no_time() -> None:
    """A million blanks took a regular expression hours, and held the interpreter meanwhile."""
    with pytest.raises(ExpressionError, match=r"more\) … .*TRY_CAST"), translated_errors("SELECT 1"):
        raise duckdb.ConversionException("Conversion Error: no date: '" + " " * 1_000_000 + "x'")
