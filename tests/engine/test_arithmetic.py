"""Plain arithmetic gives on arrays what DuckDB gives on columns."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_engine.execution.cells import compile_arithmetic

NAMES = ("b0", "b1", "scale")
LEAVES = st.sampled_from([*NAMES, "2", "0.5", "CAST(b0 AS DOUBLE)", "100.00", "0"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner)
    safe = st.builds("({} / NULLIF({}, 0))".format, inner, inner)
    return binary | safe | st.builds("-({})".format, inner) | st.builds("SQRT({} * {})".format, inner, inner)


EXPRESSIONS = st.recursive(LEAVES, _larger, max_leaves=8)
VALUES = st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, -2.5, 3e5, 1e-3])] * 3), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, VALUES)
def test_arrays_agree_with_columns(
    connection: duckdb.DuckDBPyConnection, sql: str, rows: list[tuple[float, float, float]]
) -> None:
    function = compile_arithmetic(sql, frozenset(NAMES))
    assert function is not None
    arrays = dict(zip(NAMES, np.array(rows).T, strict=True))
    with np.errstate(all="ignore"):
        got = np.broadcast_to(function(arrays), len(rows))
    columns = ", ".join(f"col{i}::DOUBLE AS {name}" for i, name in enumerate(NAMES))
    listed = ", ".join(str(row) for row in rows)
    wanted = connection.execute(
        f"SELECT CAST(TRY({sql}) AS DOUBLE) FROM (SELECT {columns} FROM (VALUES {listed}))"
    ).fetchall()
    for ours, (theirs,) in zip(got, wanted, strict=True):
        # Nothing is known where the value is not finite; NULL, NaN and infinity are alike then.
        if theirs is None or not np.isfinite(theirs):
            assert not np.isfinite(ours)
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(
    "sql",
    [
        "abs(b0)",
        "b0 % 2",
        "CASE WHEN b0 > 0 THEN b1 END",
        "k0 * b0",
        "t.b0",
        "CAST(b0 AS BIGINT)",
        "NULLIF(b0, 1)",
    ],
)
def test_anything_else_is_left_to_duckdb(sql: str) -> None:
    assert compile_arithmetic(sql, frozenset(NAMES)) is None
