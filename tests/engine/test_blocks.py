"""Sums per block are the same from Arrow and from DuckDB, and belong to the groups shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from relaqs_bootstrap import jackknife_variance
from relaqs_engine.execution import state
from relaqs_engine.execution.cells import group_of_rows
from relaqs_engine.execution.variance import Scan
from relaqs_engine.plans.plan import ErrorBars

from tests.engine.world import World


def groups(rows: pa.Table, shown: pa.Table) -> list[int] | None:
    found = group_of_rows(shown, rows)
    return None if found is None else found.tolist()


def test_rows_find_their_group_by_all_keys_and_null_is_a_value() -> None:
    shown = pa.table({"k0": ["b", "a", None], "k1": [1, 1, None]})
    rows = pa.table({"k0": ["a", "b", None, None, "b", "c"], "k1": [1, 1, None, 1, None, 1]})
    assert groups(rows, shown) == [1, 0, 2, -1, -1, -1]


def test_without_keys_all_rows_are_of_the_one_group() -> None:
    assert groups(pa.table({"m": [1, 2]}).select([]), pa.table({"m": [1]}).select([])) == [0, 0]


def test_no_row_has_a_group_where_none_is_shown() -> None:
    keys = pa.table({"k0": ["a", "b"]})
    assert groups(keys, keys.slice(0, 0)) == [-1, -1]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        (pa.array([0.0, float("nan")]), pa.array([-0.0])),
        (pa.array([[1]]), pa.array([[1]])),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
    ],
)
def test_what_arrow_compares_otherwise_than_sql_is_left_to_sql(rows: pa.Array, shown: pa.Array) -> None:
    assert groups(pa.table({"k0": rows}), pa.table({"k0": shown})) is None


def test_keys_of_more_combinations_than_an_integer_can_number_are_left_to_sql() -> None:
    keys = pa.table({f"k{i}": list(range(1 << 13)) for i in range(5)})
    assert groups(keys, keys) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(arr_delay) AS s, avg(arr_delay) AS a, stddev(arr_delay) AS d FROM flights",
        "SELECT carrier, month, avg(dep_delay) AS a, var_pop(air_time) AS v, count(*) AS n FROM flights "
        "GROUP BY carrier, month ORDER BY carrier, month",
        "SELECT arr_delay > 60 AS late, origin, count(*) AS n, stddev(distance) AS d FROM flights "
        "GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT dest, avg(air_time) AS a FROM flights GROUP BY dest HAVING count(*) > 3000 ORDER BY dest",
        "SELECT carrier, sum(distance) AS s FROM flights GROUP BY carrier ORDER BY s DESC LIMIT 3",
        "SELECT distance / 2 AS half, count(*) AS n FROM flights GROUP BY 1 ORDER BY 1",
    ],
)
def test_error_bars_do_not_depend_on_where_the_state_is(
    flights: World, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    plan = flights.plan(sql)
    in_arrow = list(flights.estimates(plan, batches=5))
    monkeypatch.setattr(state, "ARROW_ROWS", 0)
    in_duckdb = list(flights.estimates(plan, batches=5))
    assert np.nansum(in_arrow[0].half_widths) > 0.0
    for one, other in zip(in_arrow, in_duckdb, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-9)
        np.testing.assert_allclose(one.half_widths, other.half_widths, rtol=1e-7)
        np.testing.assert_array_equal(one.certified, other.certified)


def test_blocks_of_unlike_units_have_nearly_the_variance_of_their_units() -> None:
    """An average over users of their rows, a twentieth of 20,000 users read, sizes like Pareto 1.3 values.

    The variance by blocks is compared with that of single users, which has no weights.
    """
    draw = np.random.default_rng(5)
    sizes = np.ceil(1.0 + draw.pareto(1.3, 40_000)).astype(np.int64)
    sizes = sizes[sizes <= 60][:20_000]
    counted = draw.binomial(sizes, 0.3)
    fourths, squares = (float((sizes.astype(float) ** power).sum()) for power in (4, 2))
    like = Scan(np.ones(64, dtype=np.int64), int(sizes.sum()), 1_000, len(sizes), int(sizes.max()))
    scan = replace(like, unit_kurtosis_rows=sizes.sum() * fourths / squares**2)
    kurtosis = scan.kurtosis(ErrorBars(rows_are_of_units=True))
    found = []
    for _ in range(150):
        read = draw.choice(len(sizes), 1_000, replace=False)
        block, own, rows = draw.integers(0, 64, 1_000), counted[read], sizes[read]
        met = own > 0
        sums = np.stack([np.bincount(block, each, 64) for each in (own, met, rows)])
        rest = sums.sum(axis=1)[:, None] - sums
        mean = own.sum() / met.sum()
        by_blocks = jackknife_variance(
            np.array([[mean]]),
            (rest[0] / rest[1])[:, None, None],
            sums[2].astype(np.int64),
            np.array([met.sum()]),
            0.05,
            kurtosis,
        )
        of_users = 0.95 * ((own - mean * met) ** 2).sum() / met.sum() ** 2
        found.append((by_blocks.variance.item(), of_users))
    of_blocks, of_users = np.mean(found, axis=0)
    assert of_blocks / of_users == pytest.approx(1.0, abs=0.04)
