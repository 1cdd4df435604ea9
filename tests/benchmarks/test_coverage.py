"""The coverage benchmark counts each order of each layout, and judges queries, units and fractions apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage import EVERY_LOOK, FRACTIONS, Counted, Row, Run, count, label, outside, rows_of
from benchmarks.coverage_cases import CASES, UNITS, chosen
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
