"""Points in time as Python's own."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pytest

import relaqs
import relaqs.dbapi
from relaqs.python_values import fetched_rows, python_values
from relaqs.rendering.rounding import show_value

NANOSECONDS = [0, 999_999_999_999_999_000, -1_000, None]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "+05:30"])
@pytest.mark.parametrize("unit", ["s", "us"])
def test_points_in_time_with_a_zone_are_those_of_pyarrow(zone: str, unit: str) -> None:
    summer, winter = (dt.datetime(2020, month, 1, 12, tzinfo=dt.UTC) for month in (7, 1))
    column = pa.chunked_array([pa.array([summer, None, winter], pa.timestamp(unit, tz=zone))])
    values = python_values(column)
    assert values == column.to_pylist() == [summer, None, winter]
    assert [str(value) for value in values] == [str(value) for value in column.to_pylist()]


def test_nanoseconds_that_python_has_no_type_for_are_text() -> None:
    whole = pa.chunked_array([pa.array(NANOSECONDS, pa.timestamp("ns"))])
    moments = [None if value is None else value.to_pydatetime() for value in whole.to_pylist()]
    assert python_values(whole) == moments
    fine = pa.chunked_array([pa.array([1, -1], pa.timestamp("ns"))])
    assert python_values(fine) == ["1970-01-01 00:00:00.000000001", "1969-12-31 23:59:59.999999999"]


def test_other_values_are_those_of_pyarrow() -> None:
    for values in ([1, None], ["a"], [dt.date(2020, 1, 1)], [[1, None]], [dt.datetime(2020, 1, 1, 1)]):
        assert python_values(pa.chunked_array([pa.array(values)])) == values


def test_a_time_that_python_has_no_value_for_is_text() -> None:
    times = pa.chunked_array([pa.array([9 * 10**18, 1_000_000, None], pa.timestamp("us"))])
    first, second, third = python_values(times)
    assert "9000000000000000000" in first
    assert (second.second, third) == (1, None)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ"])
def test_infinite_moments_are_called_so(kind: str) -> None:
    with duckdb.connect() as connection:
        sql = f"SELECT unnest(['infinity', '-infinity', '2020-01-01', NULL])::{kind} AS v"
        column = connection.sql(sql).to_arrow_table().column("v")
        first, second, third, fourth = python_values(column)
        [nested] = connection.sql(f"SELECT [v] AS v FROM ({sql} LIMIT 1)").to_arrow_table().columns
    assert (first, second, third.year, fourth) == ("infinity", "-infinity", 2020, None)
    assert python_values(nested) == [["infinity"]]


def test_intervals_are_written_as_duckdb_writes_them() -> None:
    texts = ["0 days", "1 day", "-1 day", "14 months 2 days", "-14 months", "1 year 1 month", "49.5 days"]
    texts += ["100 hours 30 milliseconds", "-90 seconds", "1 month -1 microsecond"]
    with duckdb.connect() as connection:
        sql = f"SELECT v, v::VARCHAR AS t FROM (SELECT unnest({texts})::INTERVAL AS v)"
        table = connection.sql(sql).to_arrow_table()
    shown = [show_value(value) for value in python_values(table.column("v"))]
    assert shown == table.column("t").to_pylist()


def test_the_end_of_a_day_is_not_its_begin() -> None:
    with duckdb.connect() as connection:
        sql = "SELECT unnest(['00:00:00', '24:00:00', '12:30:00.5', NULL])::TIME AS v"
        column = connection.sql(sql).to_arrow_table().column("v")
    assert python_values(column) == [dt.time(), "24:00:00", dt.time(12, 30, 0, 500000), None]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("[TIME '24:00:00', NULL]", ["24:00:00", None]),
        ("{'a': TIME '24:00:00', 'b': [1]}", {"a": "24:00:00", "b": [1]}),
        ("MAP {'a': TIMESTAMP 'infinity'}", [("a", "infinity")]),
        ("MAP {}", []),
        ("union_value(k := MAP {'a': DATE '-infinity'})", [("a", "-infinity")]),
        (
            "[{'a': [TIMESTAMP_NS '2020-01-01 00:00:00.000000001']}]",
            [{"a": ["2020-01-01 00:00:00.000000001"]}],
        ),
        ("[1, 2]::INTEGER[2]", [1, 2]),
        ("NULL::INTEGER[]", None),
    ],
)
def test_nested_values_are_what_they_are_outside(sql: str, value: object) -> None:
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT {sql} AS v FROM range(3) WHERE range > 0").to_arrow_table()
    assert python_values(found.column("v")) == [value, value]
    assert python_values(found.column("v").slice(1)) == [value]


def test_rows_are_fetched_with_the_types_of_duckdb() -> None:
    sql = (
        "SELECT sum(i) AS s, sum(i::DECIMAL(9, 2)) AS m, max(to_days(i::INT)) AS long, to_months(-14) AS b, "
        "max(MAP {i: 'x'}) AS pairs, [to_seconds(1), NULL] AS spans, {'a': sum(i)} AS inside, "
        "MAP {to_days(1): [1]} AS keyed, sum(i) FILTER (i < 0) AS none "
        "FROM range(5) AS t(i)"
    )
    with relaqs.connect(tables={"t": pa.table({"i": range(5)})}) as db, relaqs.dbapi.connect(db) as door:
        theirs = duckdb.sql(sql).fetchall()
        answer = db.sql(sql.replace("range(5) AS t(i)", "t"))
        rows = door.cursor().execute(sql.replace("range(5) AS t(i)", "t")).fetchall()
        for ours in (answer.fetchall(), [answer.fetchone()], rows):
            assert ours == theirs
            assert [type(value) for value in ours[0]] == [type(value) for value in theirs[0]]

    pairs = pa.array([[([1], 2)], [], None], pa.map_(pa.list_(pa.int64()), pa.int64()))
    assert fetched_rows(pa.table({"m": pairs})) == [([([1], 2)],), ({},), (None,)]  # a list is no key
    long, short = pa.MonthDayNano([2**31 - 1, 0, 0]), pa.MonthDayNano([0, 1, 0])
    spans = pa.table({"s": pa.array([short, long, None], pa.month_day_nano_interval())})
    assert fetched_rows(spans) == [(dt.timedelta(1),), (long,), (None,)]
