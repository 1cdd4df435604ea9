"""The one error of an answer: what its cells weigh, what their errors are relative to, and their signs."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
import sqlglot
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate, Judge, Reason, relative_widths
from relaqs_engine.sql.expressions import Sign, Signs

from tests.engine.world import World

NAN, INF = math.nan, math.inf


def error(judge: Judge, *columns: list[float], rows: list[float] | None = None) -> float:
    widths = np.array(columns, dtype=float).T
    return judge.error(widths, np.array(rows or [1.0] * len(widths), dtype=float))


@pytest.mark.parametrize(
    ("judge", "expected"),
    [
        (Judge(), 0.02),
        (Judge(share=0.9), 0.01),
        (Judge(share=1.0), INF),
        (Judge("cells"), INF),
        (Judge("cells", 0.5), 0.02),
        (Judge("max"), 0.5),
        (Judge(together=True), 0.02),
        (Judge(share=0.98, together=True), 0.5),
        (Judge("cells", 0.5, together=True), 0.02),
        (Judge("max", together=True), 0.5),
    ],
)
def test_a_judge_weighs_as_it_is_told(judge: Judge, expected: float) -> None:
    """The first group has nearly all rows; of the last two, one is wide and one is not certified."""
    found = error(judge, [0.01, 0.02, 0.5, INF], rows=[900, 60, 20, 20])
    assert found == expected or found == pytest.approx(expected, rel=0.03)


def test_a_small_group_hides_nothing_of_the_others() -> None:
    widths, rows = [*[0.01] * 228, 137.0], [*[1000.0] * 228, 3.0]
    assert error(Judge(), widths, rows=rows) == pytest.approx(0.011, rel=0.03)
    assert error(Judge("max"), widths, rows=rows) == pytest.approx(137.0, rel=1e-3)
    assert error(Judge("max"), [0.01] * 228) == pytest.approx(0.01 * 3.70 / 1.96, rel=0.01)  # Bonferroni


def test_every_column_must_be_within() -> None:
    assert error(Judge(), [0.01], [0.03]) == pytest.approx(0.03)
    assert error(Judge(), [0.01] * 20, [0.03] * 20) == pytest.approx(error(Judge(), [0.03] * 20), rel=0.05)
    assert error(Judge(), [0.01] * 20, [INF] * 20) == INF  # not certified yet: it may be anywhere
    assert error(Judge("max"), [0.01], [INF]) == 0.01


def test_one_cell_has_its_own_half_width() -> None:
    assert error(Judge(), [0.0123]) == 0.0123


SHAPES = {
    "alike": np.ones,
    "one over n": lambda n: 1 / np.arange(1, n + 1),
    "two": lambda n: np.arange(n) < 2,
}


@pytest.mark.parametrize("cells", [2, 10, 30, 100, 1000])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("columns", [1, 3])
def test_the_truth_is_above_it_in_five_of_a_hundred_samples(cells: int, shape: str, columns: int) -> None:
    """Errors are normal numbers, and 95 % of them are within the half-widths.

    The share of 2,000 samples has a standard error of 0.5 points, and what 300 draws tell one of 1.3. Three
    of both together are 4 points.
    """
    rows = np.maximum(np.asarray(SHAPES[shape](cells), dtype=float), 1e-3)
    widths = np.repeat((0.01 / np.sqrt(rows))[:, None], columns, axis=1)
    told = Judge().error(widths, rows)
    rng = np.random.default_rng(3)
    off = np.abs(rng.normal(size=(2000, cells, columns))) * widths / 1.96
    order = np.argsort(off, axis=1)
    reached = np.cumsum(rows[order], axis=1) < 0.95 * rows.sum() * (1 - 1e-9)
    within = np.take_along_axis(np.take_along_axis(off, order, axis=1), reached.sum(axis=1)[:, None], axis=1)
    assert 0.01 <= float(np.mean(within.max(axis=2) > told)) <= 0.09


@pytest.mark.parametrize("cells", [4, 12, 30])
@pytest.mark.parametrize("blocks", [8, 24])
def test_luck_in_half_widths_of_few_blocks_does_not_count(cells: int, blocks: int) -> None:
    """Like cells have the headline of their true half-widths, the truth above it in five of 100 samples.

    Pooled variances of c cells on ν degrees of freedom have c·ν of them: a half-width is off by 1 in √(2cν),
    and the mean of 100 headlines by a tenth of that, at most 0.011. To that come two tenths of a half-width:
    with few cells it is uncertain how unlike they are, and it stays partly the largest that counts. Without
    pooling it is 1.24 to 1.46 times as large from 8 blocks.
    """
    rng, freedom, rows = np.random.default_rng(5), blocks - 1, np.ones(cells)
    errors = np.sqrt(rng.chisquare(freedom, (100, cells)) / freedom)
    widths = scipy.stats.t.ppf(0.975, freedom) * errors / 1.96 * 0.01
    known = np.full((cells, 1), float(freedom))
    told = [Judge().error(each[:, None], rows, known) for each in widths]
    assert 0.95 < float(np.mean(told)) / Judge().error(np.full((cells, 1), 0.01), rows) < 1.2
    apart = [Judge().error(each[:, None], rows) for each in widths]
    assert np.mean(told) < np.mean(apart)


def test_one_very_wide_cell_of_many_does_not_blur_the_error_of_the_others() -> None:
    rows, widths = np.ones(100), np.full((100, 1), 0.01)
    widths[0] = 1.0
    before = Judge().error(widths, rows)
    widths[0] = 1e6
    assert Judge().error(widths, rows) == pytest.approx(before, rel=0.001)


@pytest.mark.parametrize("cells", [60, 150, 300])
def test_cells_that_are_exact_have_no_error(cells: int) -> None:
    """Where they have 95 % of the weight the error is 0; else the others are drawn, as when there are few."""
    widths = np.zeros((cells, 1))
    assert Judge().error(widths, np.ones(cells)) == 0.0
    widths[: cells // 25] = 0.01
    assert Judge().error(widths, np.ones(cells)) == 0.0
    widths[: cells // 2] = 0.01
    off = np.abs(np.random.default_rng(3).normal(size=(2000, cells // 2))) * 0.01 / 1.96
    inside = np.sort(off, axis=1)[:, int(np.ceil(0.95 * cells)) - cells + cells // 2 - 1]
    assert 0.01 <= float(np.mean(inside > Judge().error(widths, np.ones(cells)))) <= 0.09


def test_bars_that_hold_together_need_no_draws() -> None:
    """Ten bars of ± 1 % are all within ± 1.4 %, and bars that hold together are as wide."""
    assert error(Judge(), [0.01] * 10) == pytest.approx(0.014, rel=0.05)
    assert error(Judge(together=True), [0.014] * 10) == 0.014
    assert error(Judge("max", together=True), [0.01] * 10) == 0.01
    assert error(Judge(together=True), [0.01, NAN], [0.03, 0.02]) == 0.03
    assert error(Judge("max", together=True), [INF]) == error(Judge(together=True), [NAN]) == INF


def test_what_has_no_value_is_not_judged() -> None:
    assert error(Judge(), [0.01, 0.02], [NAN, NAN]) == 0.02
    assert error(Judge(), [0.01, NAN], rows=[1, 99]) == 0.01
    assert error(Judge(), [NAN, NAN]) == INF
    assert error(Judge()) == INF
    assert Judge().error(np.empty((0, 1)), np.empty(0)) == INF


def test_groups_without_rows_weigh_alike() -> None:
    assert error(Judge(), [0.3], rows=[0]) == 0.3


def widths_of(values: list[float], *, either_sign: bool, rows: list[float] | None = None) -> list[float]:
    column = np.array(values)[:, None]
    certified = np.ones(column.shape, dtype=bool)
    counts = np.array(rows or [1.0] * len(values))
    half = np.where(np.isnan(column), NAN, 1.0)
    return relative_widths(column, half, certified, np.array([either_sign]), counts)[:, 0].tolist()


def test_where_values_cross_zero_an_error_is_relative_to_the_columns_scale() -> None:
    assert widths_of([10.0, 0.1], either_sign=False) == [0.1, 10.0]
    assert widths_of([-10.0, 0.1, 0.0], either_sign=True) == [0.1, 0.1, 0.1]
    assert widths_of([0.1], either_sign=True) == [10.0]  # one number alone has no other scale
    assert widths_of([NAN, 5.0], either_sign=True)[1] == 0.2


def test_a_tiny_groups_value_is_no_scale() -> None:
    widths = widths_of([*[10.0] * 30, 1e6], either_sign=True, rows=[*[1000.0] * 30, 2.0])
    assert widths[:30] == [0.1] * 30


def test_what_is_not_certified_is_infinitely_wide() -> None:
    values, half = np.array([[4.0], [4.0], [0.0], [0.0]]), np.array([[1.0], [1.0], [0.0], [1.0]])
    certified = np.array([[True], [False], [True], [True]])
    widths = relative_widths(values, half, certified, np.array([False]), np.ones(4))
    assert widths[:, 0].tolist() == [0.25, INF, 0.0, INF]


def estimate(never: tuple[str, ...]) -> Estimate:
    names = ("a", "b")
    return Estimate(
        table=pa.table({}),
        columns=names,
        approximate=tuple(ApproximateColumn(x, f"{x}_low", f"{x}_high", f"{x}_certified", 0) for x in names),
        fraction=0.5,
        is_exact=False,
        values=np.ones((1, 2)),
        half_widths=np.array([[0.1, 0.2]]),
        doubts=np.array([[Reason.NONE, Reason.FEW_ROWS]]),
        never=never,
    )


def test_a_column_that_never_can_be_certified_is_left_out() -> None:
    assert estimate(("", "")).relative_error() == INF
    assert estimate(("", "no sum")).relative_error() == 0.1
    assert estimate(("", "")).relative_error(("a",)) == 0.1
    assert estimate(("no sum", "no sum")).relative_error() == INF


SIGNS = {"p": Sign.POSITIVE, "n": Sign.NEGATIVE, "e": Sign.EITHER}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("p * p / nullif(p, 0)", Sign.POSITIVE),
        ("p - n", Sign.POSITIVE),
        ("p - p", Sign.EITHER),
        ("p + n", Sign.EITHER),
        ("-p * 2", Sign.NEGATIVE),
        ("n * n", Sign.POSITIVE),
        ("n / p", Sign.NEGATIVE),
        ("e * p", Sign.EITHER),
        ("e * 0", Sign.NONE),
        ("CAST(p AS DOUBLE) * 3", Sign.POSITIVE),
        ("CAST(p AS VARCHAR)", Sign.EITHER),
        ("round(coalesce(p, 0), 2)", Sign.POSITIVE),
        ("CASE WHEN e > 0 THEN p WHEN e < 0 THEN 0 END", Sign.POSITIVE),
        ("CASE WHEN e > 0 THEN p ELSE n END", Sign.EITHER),
        ("sqrt(e)", Sign.POSITIVE),
        ("abs(e) + 1", Sign.POSITIVE),
        ("ln(p)", Sign.EITHER),
        ("'1'", Sign.EITHER),
    ],
)
def test_the_sign_of_an_expression(sql: str, expected: Sign) -> None:
    tree = sqlglot.parse_one(f"SELECT {sql}", dialect="duckdb").expressions[0]
    assert Signs(lambda column: SIGNS[column.name])(tree) == expected


@pytest.mark.parametrize(
    ("value", "either"),
    [
        ("avg(dep_delay)", True),  # from -43 minutes
        ("sum(dep_delay - arr_delay)", True),
        ("median(arr_delay)", True),
        ("count(*)", False),
        ("avg(air_time)", False),
        ("sum(distance) / sum(air_time)", False),
        ("median(distance)", False),
        ("stddev(dep_delay)", False),
        ("var_samp(dep_delay)", False),
        ("var_pop(dep_delay) / 2", False),
        ("covar_samp(dep_delay, distance)", True),
        ("regr_sxx(dep_delay, distance) / nullif(count(*) - 3, 0)", True),  # of a group of two rows
        ("regr_sxx(dep_delay, distance) / nullif(count(dep_delay) FILTER (WHERE hour > 9) - 1, 0)", True),
        ("count(*) FILTER (WHERE dep_delay > 0) / count(*)", False),
        ("100.0 * count(*) / sum(count(*)) OVER ()", False),
        ("avg(air_time) - avg(distance)", True),
    ],
)
def test_a_plan_says_whether_values_may_cross_zero(flights: World, value: str, either: bool) -> None:
    plan = flights.plan(f"SELECT carrier, {value} AS v FROM flights GROUP BY carrier")
    assert (plan.outputs[1].sign is Sign.EITHER) == either
