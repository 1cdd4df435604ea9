"""Two answers are one if their rows are, in any order: integers and decimals identical, floats close."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pytest
from relaqs_tpch.exact import difference

EXPECTED = pa.table(
    {
        "flag": ["A", "N", None],
        "total": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(10, 2)),
        "mean": [0.1, 2e9, float("nan")],
    }
)


def changed(column: str, values: list[object]) -> pa.Table:
    position = EXPECTED.column_names.index(column)
    return EXPECTED.set_column(position, column, pa.array(values, EXPECTED.schema.field(column).type))


@pytest.mark.parametrize(
    "found",
    [EXPECTED, EXPECTED.take([2, 0, 1]), changed("mean", [0.1 * (1 + 1e-12), 2e9 + 1e-3, float("nan")])],
    ids=["itself", "other order", "other rounding"],
)
def test_the_same_answer(found: pa.Table) -> None:
    assert difference(EXPECTED, found) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (EXPECTED.slice(0, 2), "it has 2 rows, not 3"),
        (EXPECTED.drop_columns("mean"), "its types are string, decimal128.10, 2., not string"),
        (changed("total", [Decimal("1.51"), Decimal("2.25"), None]), "total is Decimal.'1.51'., not"),
        (changed("mean", [0.1 * (1 + 1e-8), 2e9, float("nan")]), "mean is 0.10000000"),
        (changed("mean", [0.1, 2e9, None]), "mean is None, not nan"),
        (changed("flag", ["A", "R", None]), "flag is None, not 'N', in sorted row 1"),
    ],
    ids=["row missing", "column missing", "decimal", "float", "null", "key"],
)
def test_another_answer_is_told_apart_and_named(found: pa.Table, said: str) -> None:
    wrong = difference(EXPECTED, found)
    assert wrong is not None
    assert re.search(said, wrong)
