"""The 22 queries are the specification's: plain DuckDB runs them all, with the published answers."""

from __future__ import annotations

from decimal import Decimal

import pytest
import sqlglot
from relaqs_tpch import QUERIES, query

# Q1 and Q6 at scale 0.01, as other engines publish them for their own tests.
PRICING_SUMMARY = [
    ("A", "F", Decimal("380456.00"), Decimal("532348211.65"), Decimal("505822441.4861"), 14876),
    ("N", "F", Decimal("8971.00"), Decimal("12384801.37"), Decimal("11798257.2080"), 348),
    ("N", "O", Decimal("742802.00"), Decimal("1041502841.45"), Decimal("989737518.6346"), 29181),
    ("R", "F", Decimal("381449.00"), Decimal("534594445.35"), Decimal("507996454.4067"), 14902),
]
REVENUE_CHANGE = Decimal("1193053.2253")


def test_there_are_22_queries() -> None:
    assert len({query(number) for number in QUERIES}) == 22


@pytest.mark.parametrize("number", [0, 23, -1])
def test_an_unknown_number_is_named(number: int) -> None:
    with pytest.raises(ValueError, match=f"{number}.*1 to 22"):
        query(number)


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_is_one_select(number: int) -> None:
    statements = sqlglot.parse(query(number), dialect="duckdb")
    assert [type(statement).__name__ for statement in statements] == ["Select"]


@pytest.mark.parametrize("number", QUERIES)
def test_duckdb_answers_every_query(number: int, tpch_oracle) -> None:
    answer = tpch_oracle.table(query(number))
    assert answer.num_rows > 0
    assert len(set(answer.column_names)) == len(answer.column_names)


def test_answers_are_the_published_ones(tpch_oracle) -> None:
    summary = tpch_oracle.rows(query(1))
    assert [(*row[:5], row[-1]) for row in summary] == PRICING_SUMMARY
    assert tpch_oracle.rows(query(6)) == [(REVENUE_CHANGE,)]
