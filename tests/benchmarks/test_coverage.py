"""The coverage benchmark counts each order of each layout, and judges queries, units and fractions apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

import relaqs
from benchmarks.coverage import (
    EVERY_LOOK,
    FRACTIONS,
    TOGETHER,
    Counted,
    Row,
    Run,
    count,
    label,
    outside,
    rows_of,
)
from benchmarks.coverage_cases import CASES, UNITS, Case, chosen
from benchmarks.tally import FIELDS, Coverage

LATE = next(case for case in CASES if case.name == "late")
ROWS = UNITS["flights"][0]


def run(folder: Path, flights_oracle, *, seeds: tuple[int, ...], anytime: bool = False) -> Run:
    return Run(LATE, ROWS, folder, flights_oracle.table(LATE.sql), seeds, anytime)


def coverage(share: float) -> Coverage:
    return Coverage(1000, 1.0, share, 0.002, 0.1, 1.0, share)


def test_every_order_is_counted_at_every_fraction(flights_warehouse: Path, flights_oracle) -> None:
    counted = count(run(flights_warehouse, flights_oracle, seeds=(1, 2, 3)))
    assert counted.columns == ("flights", "delay", "distance")
    assert counted.counts.keys() == {label(fraction) for fraction in FRACTIONS}
    for counts in counted.counts.values():
        assert counts.shape == (3, 3, len(FIELDS))
        assert (counts[:, :, FIELDS.index("cells")] == 3).all()  # three airports, three numbers each
        assert (counts[:, :, FIELDS.index("held")] <= counts[:, :, FIELDS.index("certified")]).all()
        assert counts[:, :, FIELDS.index("bounded_held")].sum() > 0.8 * counts[:, :, 0].sum()


def test_anytime_intervals_are_also_judged_over_every_look(flights_warehouse: Path, flights_oracle) -> None:
    counted = count(run(flights_warehouse, flights_oracle, seeds=(1,), anytime=True))
    every, late = counted.counts[EVERY_LOOK], counted.counts[label(0.5)]
    certified, held = FIELDS.index("certified"), FIELDS.index("held")
    assert (every[:, :, certified] >= late[:, :, certified]).all()
    assert (every[:, :, certified] - every[:, :, held] >= late[:, :, certified] - late[:, :, held]).all()


MADE = """
    SELECT (i % 8)::INT AS g, (hash(i) % 1000)::DOUBLE AS x, (hash(i + 24000) % 100 < 10)::INT AS rare
    FROM range(24000) AS r(i)
"""
CELLS = "SELECT g, avg(x) AS mean, sum(rare) AS total FROM made GROUP BY g"


@pytest.mark.slow
@pytest.mark.parametrize("anytime", [False, True])
def test_certified_cells_hold_all_together(tmp_path: Path, anytime: bool) -> None:
    """All 16 cells hold together in 95 of 100 orders. Alone at 95 %, they would in 0.95¹⁶ = 44.

    Orders of one layout share its 100 partitions, whose spread is off by 7 %. That makes 92 of 95 at worst: a
    cell at 1 − 0.05/16 is 2.95 errors wide, and its tail 0.07 · 2.95² = 0.61 of itself larger if all cells
    had the same luck. Of 20 orders 14 or fewer hold with a chance of 0.4 % then.
    """
    relaqs.shuffle(duckdb.sql(MADE), tmp_path / "made", partitions=100)
    answer = duckdb.sql(CELLS.replace("made", f"({MADE})")).to_arrow_table()
    case = Case("made", "made", CELLS)
    asked = Run(case, ROWS, tmp_path, answer, tuple(range(20)), anytime)
    together = count(replace(asked, together="table")).counts
    held, certified = FIELDS.index("held"), FIELDS.index("certified")
    for name in [EVERY_LOOK] if anytime else [label(0.10), label(0.25)]:
        of_orders = together[name + TOGETHER]
        assert of_orders[:, 0, certified].sum() == 20
        assert of_orders[:, 0, held].sum() >= 15
    if not anytime:
        alone = count(replace(asked, seeds=tuple(range(10)), together="cell")).counts
        assert alone[label(0.10) + TOGETHER][:, 0, held].sum() < 9


def test_layouts_are_pooled_and_columns_kept_apart(flights_oracle) -> None:
    counts = np.zeros((2, 2, len(FIELDS)))
    counts[:, :, FIELDS.index("cells")] = counts[:, :, FIELDS.index("certified")] = 10
    counts[:, :, FIELDS.index("held")] = [10, 5]
    found = Counted(("right", "wrong"), {"5%": counts})
    runs = [run(Path(), flights_oracle, seeds=(0, 1)), run(Path(), flights_oracle, seeds=(2, 3))]
    rows = {row.column: row for row in rows_of((each, found) for each in runs)}
    assert [rows[column].coverage.coverage for column in ("", "right", "wrong")] == [0.75, 1.0, 0.5]
    assert rows[""].coverage.cells == 80
    assert outside(rows.values()) == [
        "late by rows, 5% scanned, wrong: 50.0 % ± 6.9 covered, 100.0 % certified"
    ]


@pytest.mark.parametrize(
    ("share", "anytime", "verdict"),
    [(0.99, False, "high"), (0.99, True, ""), (0.90, True, "low"), (0.95, False, "")],
)
def test_anytime_intervals_may_hold_more_often(share: float, anytime: bool, verdict: str) -> None:
    assert Row("late", "rows", "5%", "delay", anytime, coverage(share)).verdict == verdict


def test_queries_are_chosen_by_number_or_name() -> None:
    assert [case.name for case in chosen(["6", " Late"])] == ["Q6", "late"]
    assert chosen([]) == CASES
    with pytest.raises(SystemExit, match="no query 'q7'; the queries are q1, q6"):
        chosen(["7"])
