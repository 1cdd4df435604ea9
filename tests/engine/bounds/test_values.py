"""Bounds hold for every row: random expressions over random rows, evaluated by DuckDB itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_engine.bounds import Bounds
from relaqs_engine.layouts.manifest import Column
from relaqs_engine.sql.dialect import DIALECT
from relaqs_engine.sql.expressions import Ranges
from sqlglot import exp

# name: (lowest, highest); `free` has no statistics. What has no highest may be infinite, or NaN.
RANGES: dict[str, tuple[float | None, float | None]] = {
    "a": (0.0, 10.0),
    "b": (-3.5, 4.25),
    "c": (2.0, 2.0),
    "d": (-8.0, -1.0),
    "up": (0.5, None),
    "down": (None, 3.0),
}
NEVER_NULL = ("a", "d")
NUMBERS = st.sampled_from(["0", "1", "2.5", "100", "0.001"])
COLUMNS = st.sampled_from([*RANGES, "free"])
LEAVES = NUMBERS | COLUMNS
CALLS = ("abs", "round", "ceil", "floor", "trunc", "sign", "cbrt", "sin", "cos", "exp")
OF_TWO = ("coalesce", "least", "greatest", "nullif", "ifnull", "mod")
WITH_NUMBER = (
    "TRY_CAST({} AS BIGINT)",
    "TRY_CAST({} AS DECIMAL(18, 2))",
    "CAST({} > 1 AS INTEGER)",
    "round({}, 1)",
    "round({}, -1)",
    "least({}, 5)",
    "greatest({}, -2.5)",
    "power({}, 2)",
    "{} ** 3",
    "sqrt(abs({}))",
    "ln(1 + abs({}))",
    "log2(1 + abs({}))",
    "log(abs({}) + 10)",
    "if(a > 4, {}, b)",
    "{} / nullif(c, 0)",
    "{} % 3",
)


def statistics(column: exp.Column) -> Column | None:
    if column.name not in RANGES:
        return None
    low, high = RANGES[column.name]
    return Column(column.name, "DOUBLE", low, high, int(column.name not in NEVER_NULL), 0, 0)


def bounds_of(sql: str, column_of: Callable[[exp.Column], Column | None] = statistics) -> Bounds:
    return Ranges(column_of)(sqlglot.parse_one(sql, dialect=DIALECT))


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/"]), inner)
    case = st.builds("CASE WHEN a > 4 THEN {} WHEN b > 0 THEN {} ELSE {} END".format, inner, inner, inner)
    one_sided = st.builds("CASE a WHEN 1 THEN {} ELSE NULL END".format, inner)
    call = st.builds("{}({})".format, st.sampled_from(["-", *CALLS, ""]), inner)
    of_two = st.builds("{}({}, {})".format, st.sampled_from(OF_TWO), inner, inner)
    with_number = st.builds(str.format, st.sampled_from(WITH_NUMBER), inner)
    return binary | case | one_sided | call | of_two | with_number


def _floats(low: float | None, high: float | None) -> st.SearchStrategy[float]:
    """Return values between two ends, with an infinity where there is no end, and NaN where none is above."""
    found = st.floats(-1e6 if low is None else low, 1e6 if high is None else high)
    odd = [*([] if low is not None else [-math.inf]), *([] if high is not None else [math.inf, math.nan])]
    return found | st.sampled_from(odd) if odd else found


EXPRESSIONS = st.recursive(LEAVES, _larger, max_leaves=8)
ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.none() | _floats(low, high) for name, (low, high) in RANGES.items()}
        | {name: _floats(*RANGES[name]) for name in NEVER_NULL}
        | {"free": st.none() | _floats(None, None)}
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, ROWS)
def test_no_row_lies_outside(
    connection: duckdb.DuckDBPyConnection, sql: str, rows: list[dict[str, float | None]]
) -> None:
    bounds = bounds_of(sql)
    for row in rows:
        values = ", ".join(f"{_literal(value)}::DOUBLE AS {name}" for name, value in row.items())
        (value,) = connection.execute(f"SELECT TRY(({sql})::DOUBLE) FROM (SELECT {values})").fetchall()[0]
        if value is None:
            continue
        if not math.isfinite(value):
            assert (bounds.lowest if value == -math.inf else bounds.highest) is None, (bounds, row, value)
            continue
        slack = 1e-9 * (1 + abs(value))
        assert bounds.lowest is None or bounds.lowest <= value + slack, (bounds, row)
        assert bounds.highest is None or value - slack <= bounds.highest, (bounds, row)


def _literal(value: float | None) -> str:
    return "NULL" if value is None else f"'{value}'"


@pytest.mark.parametrize(
    ("sql", "lowest", "highest"),
    [
        ("a", 0, 10),
        ("-a", -10, 0),
        ("a + b", -3.5, 14.25),
        ("a - b", -4.25, 13.5),
        ("a * b", -35, 42.5),
        ("b * b", 0, 18.0625),
        ("b * (b + 0)", -14.875, 18.0625),  # not [0, …]: the two sides are taken for independent
        ("d * d", 1, 64),
        ("a * (1 - 0.5)", 0, 5),
        ("3", 3, 3),
        ("-3", -3, -3),
        ("((a))", 0, 10),
        ("CASE WHEN b > 0 THEN a ELSE 0 END", 0, 10),
        ("CASE WHEN b > 0 THEN a END", 0, 10),
        ("CASE WHEN b > 0 THEN a ELSE NULL END", 0, 10),
        ("CASE WHEN b > 0 THEN a ELSE d END", -8, 10),
        ("CASE WHEN b > 0 THEN a ELSE free END", None, None),
        ("CASE WHEN b > 0 THEN NULL END", None, None),
        ("a + free", None, None),
        ("a / 2", 0, 5),
        ("a / c", 0, 5),
        ("a / b", None, None),  # b may be 0
        ("a / nullif(a, 0)", None, None),  # no whole number: it may be as near to 0 as it likes
        ("sqrt(a)", 0, 10**0.5),
        ("power(d, 2)", 1, 64),
        ("power(d, 3)", -512, -1),
        ("ln(c)", math.log(2), math.log(2)),
        ("ln(a)", None, math.log(10)),
        ("ln(ln(a))", None, None),
        ("abs(b)", 0, 4.25),
        ("CAST(b AS BIGINT)", -4, 4),
        ("TRY_CAST(free AS TINYINT)", -128, 128),
        ("CAST(free AS BIGINT)", None, None),
        ("CAST(a > 1 AS INTEGER)", 0, 1),
        ("a > 1 AND b < 0", 0, 1),
        ("round(b)", -4, 4.75),
        ("coalesce(b, 100)", -3.5, 100),
        ("coalesce(NULL, b)", -3.5, 4.25),
        ("least(a, 3)", 0, 3),
        ("greatest(free, 3)", 3, None),
        ("greatest(a, nullif(1, 1), 2 - 3)", 0, 10),
        ("greatest(b, nullif(1, 1), 2 - 4)", -2, 4.25),
        ("least(a, 100)", 0, 10),  # a is never NULL
        ("least(b, 100)", -3.5, 100),
        ("least(b, a, 100)", -3.5, 10),
        ("greatest(d + a, -100)", -8, 9),
        ("coalesce(a, 100)", 0, 10),
        ("coalesce(b, a * 2, 100)", -3.5, 20),
        ("a % 3", 0, 3),
        ("free % 3", None, None),
        ("TRY_CAST(free AS BIGINT) % 3", -3, 3),
        ("sin(free)", None, None),
        ("-up", None, None),
        ("-down", -3, None),
        ("greatest(5 - up, 0)", 0, None),
        ("exp(-up)", 0, None),
        ("a / up", 0, None),
        ("least(up, 3)", 0.5, 3),
        ("if(a > 1, b, d)", -8, 4.25),
        ("month(free)", None, None),  # of an interval it may be any number
        ("a % 0", None, None),
        ("sqrt(b)", None, None),  # no number below 0
        ("trunc(a, 1)", None, None),
        ("round(a, -400)", None, None),
        ("ascii(free)", None, None),
        ("'7'", None, None),
    ],
)
def test_bounds_of(sql: str, lowest: float | None, highest: float | None) -> None:
    assert bounds_of(sql) == Bounds(lowest, highest)


def test_products_of_what_has_no_highest_stay_above_zero() -> None:
    """A column without a maximum is still not negative, and so is what it is multiplied with."""

    def open_ended(column: exp.Column) -> Column:
        return Column(column.name, "DOUBLE", 0, None, 0, 0, 0)

    assert bounds_of("a * b", open_ended) == Bounds(0, None)
    assert bounds_of("a - b", open_ended) == Bounds(None, None)
    assert bounds_of("a + 1", open_ended) == Bounds(1, None)


@pytest.mark.parametrize("minimum", ["1992-01-01", True, None])
def test_statistics_that_are_no_numbers_bound_nothing(minimum: str | bool | None) -> None:
    column = Column("a", "DATE", minimum, minimum, 0, 0, 0)
    assert bounds_of("a", lambda _: column) == Bounds(None, None)


DAY = Column("day", "DATE", "2001-01-01", "2008-08-08", 0, 0, 0)


@pytest.mark.parametrize(
    ("sql", "of_rows"),
    [
        ("year(day)", [2001, 2008]),
        ("date_diff('day', day, DATE '2009-01-01')", [146, 2922]),
        ("date_diff('month', DATE '2001-01-01', day)", None),  # months have no fixed length
        ("day - DATE '2001-01-01'", [0, 2776]),
        ("epoch(day)", [978307200, 1218153600]),
        ("epoch(day::TIME)", None),
        ("extract(day FROM day - DATE '2001-01-01')", None),
        ("epoch(day::TIMESTAMP - TIMESTAMP '2001-01-01')", [0, 239846400]),
        ("epoch_us(to_hours(month(day)))", [3.6e9, 12 * 3.6e9]),
        ("epoch(INTERVAL 2 MONTH * month(day))", [2 * 2592000, 24 * 2592000]),
        ("epoch(CASE WHEN month(day) > 3 THEN to_days(month(day)) END)", [4 * 86400, 12 * 86400]),
        ("epoch(age(day, DATE '2001-01-01'))", None),
        ("month(day)", [1, 12]),
        ("date_part('hour', day::TIMESTAMP)", [0, 23]),
    ],
)
def test_dates_are_bounded_by_their_statistics(sql: str, of_rows: list[float] | None) -> None:
    bounds = bounds_of(sql, lambda _: DAY)
    if of_rows is None:
        assert bounds == Bounds(None, None)
        return
    assert bounds.lowest is not None
    assert bounds.highest is not None
    assert bounds.lowest <= of_rows[0] <= of_rows[1] <= bounds.highest
    assert bounds.highest - bounds.lowest < 3 * (of_rows[1] - of_rows[0]) + 10


def test_a_whole_number_that_is_not_zero_is_at_least_one() -> None:
    def count(column: exp.Column) -> Column:
        return Column(column.name, "BIGINT", 0, 9, 0, 0, 0)

    assert bounds_of("5 / nullif(a, 0)", count) == Bounds(5 / 9, 5)
