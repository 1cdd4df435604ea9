"""Bounds hold for every row: random expressions over random rows, evaluated by DuckDB itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_engine.layouts.manifest import Column
from relaqs_engine.value_bounds import Bounds, value_bounds
from sqlglot import exp

# name: (lowest, highest); `free` has no statistics.
RANGES = {"a": (0.0, 10.0), "b": (-3.5, 4.25), "c": (2.0, 2.0), "d": (-8.0, -1.0)}
NUMBERS = st.sampled_from(["0", "1", "2.5", "100", "0.001"])
COLUMNS = st.sampled_from([*RANGES, "free"])
LEAVES = NUMBERS | COLUMNS


def statistics(column: exp.Column) -> Column | None:
    if column.name not in RANGES:
        return None
    low, high = RANGES[column.name]
    return Column(column.name, "DOUBLE", low, high, 0, 0, 0)


def bounds_of(sql: str, column_of: Callable[[exp.Column], Column | None] = statistics) -> Bounds:
    return value_bounds(sqlglot.parse_one(sql, dialect="duckdb"), column_of)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/"]), inner)
    case = st.builds("CASE WHEN a > 4 THEN {} WHEN b > 0 THEN {} ELSE {} END".format, inner, inner, inner)
    one_sided = st.builds("CASE a WHEN 1 THEN {} ELSE NULL END".format, inner)
    call = st.builds("{}({})".format, st.sampled_from(["-", "abs", "round", ""]), inner)
    return binary | case | one_sided | call


EXPRESSIONS = st.recursive(LEAVES, _larger, max_leaves=8)
ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.none() | st.floats(low, high) for name, (low, high) in RANGES.items()}
        | {"free": st.none() | st.floats(-1e6, 1e6)}
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
        (value,) = connection.execute(f"SELECT ({sql})::DOUBLE FROM (SELECT {values})").fetchall()[0]
        if value is None or math.isnan(value):
            continue
        slack = 1e-9 * (1 + abs(value))
        assert bounds.lowest is None or bounds.lowest <= value + slack, (bounds, row)
        assert bounds.highest is None or value - slack <= bounds.highest, (bounds, row)


def _literal(value: float | None) -> str:
    return "NULL" if value is None else repr(value)


@pytest.mark.parametrize(
    ("sql", "lowest", "highest"),
    [
        ("a", 0, 10),
        ("-a", -10, 0),
        ("a + b", -3.5, 14.25),
        ("a - b", -4.25, 13.5),
        ("a * b", -35, 42.5),
        ("b * b", -14.875, 18.0625),  # not [0, …]: the two sides are taken for independent
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
        ("a / 2", None, None),
        ("sqrt(a)", None, None),
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
