"""Another engine's query: its results tell how far it is, and it shares the cores by that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from relaqs import ArgumentError, RelaqsError, Session, connect, shuffle
from relaqs.jobs.job import StepReport
from relaqs.pacing.paced_loop import Movement, QueryPacer
from relaqs.progress import Cells

ROWS = 10_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Session]:
    shuffle(pa.table({"x": np.arange(1000.0)}), tmp_path / "t", partitions=10)
    with connect(tmp_path, threads=1) as session:
        yield session


@pytest.fixture
def reports(db: Session, monkeypatch: pytest.MonkeyPatch) -> list[StepReport]:
    """What the scheduler is told."""
    told: list[StepReport] = []
    monkeypatch.setattr(db._executor, "report", lambda job_id, report: told.append(report))
    return told


def run(pacer: QueryPacer, results: list[tuple[object, float]]) -> None:
    """Report results so that each has a turn of its own."""
    pacer._turn_seconds = 0.0
    for table, fraction in results:
        assert pacer.report_result(table, fraction)


def test_progress_is_the_result_delta_of_the_columns_that_count(
    db: Session, reports: list[StepReport]
) -> None:
    results = [
        ({"key": ["a", "b"], "mean": [1.0, 10.0], "seen": [1, 1]}, 0.1),
        ({"key": ["b", "a"], "mean": [14.0, 3.0], "seen": [2, 2]}, 0.2),
        ({"key": ["a", "b"], "mean": [2.0, 13.0], "seen": [3, 3]}, 0.3),
    ]
    with db.pace_query(["mean"], name="elsewhere") as pacer:
        pacer._turn_seconds = 0.0
        for result, fraction in results:
            keyed = {name: values for name, values in result.items() if name != "seen"}
            pacer.report_result(keyed, fraction)
        [job] = db.status().jobs
        assert (job.name, job.kind, job.work_total) == ("elsewhere", "query", 1.0)
    told = [(report.work_done, report.progress) for report in reports]
    # Moves of 2 and 4, each the largest of its cell so far; then of 1 and 1.
    assert told == [(0.1, 1.0), (0.2, 1.0), (0.3, pytest.approx((1 / 2 + 1 / 4) / 2))][: len(told)]
    assert len(told) >= 2  # leaving the block may cut the last off


@pytest.mark.parametrize("table", [pa.table, pd.DataFrame, pl.DataFrame, dict])
def test_any_table_will_do(db: Session, reports: list[StepReport], table: type) -> None:
    with db.pace_query(["mean"]) as pacer:
        run(pacer, [(table({"mean": [float(i)]}), i / 10) for i in range(1, 4)])
    assert reports[0].work_done == 0.1


def test_an_error_that_the_engine_knows_is_taken_and_a_target_ends_it(
    db: Session, reports: list[StepReport]
) -> None:
    with db.pace_query(["mean"], target="5%") as pacer:
        pacer._turn_seconds = 0.0
        errors = iter([0.5, 0.2, 0.04, 0.01])
        fractions = iter([0.1, 0.2, 0.3, 0.4])
        given = 1
        while pacer.report_result({"mean": [1.0]}, next(fractions), error=next(errors)):
            given += 1
    assert given == 3
    assert [report.quality for report in reports] == [0.5, 0.2, 0.04]


def test_the_error_told_from_movement_is_the_standard_error() -> None:
    """Means of 50 groups of normal numbers of relative deviation 1, over prefixes of a random order.

    Twenty moves of 50 cells are 1,000 squares, whose mean has a relative deviation of √(2/1000); the root of
    it half of that, 2.2 %, and somewhat more for dividing by estimates. Five of these is the band.
    """
    groups, rows = 50, 2_000
    values = np.random.default_rng(5).normal(1.0, 1.0, size=(groups, rows))
    movement = Movement()
    for i in range(1, 21):
        seen = i * rows // 40
        means = values[:, :seen].mean(axis=1, keepdims=True)
        told = movement.error(Cells(tuple(range(groups)), means, np.isfinite(means)), i / 40)
        if i == 1:
            assert told == math.inf
    true = math.sqrt(1 / seen - 1 / rows)
    assert told == pytest.approx(true, rel=0.12)
    assert movement.error(Cells((), np.empty((0, 1)), np.empty((0, 1), dtype=bool)), 1.0) == 0.0


def test_what_cannot_be_a_result_is_refused(db: Session) -> None:
    with db.pace_query(["mean"]) as pacer:
        for wrong, fraction, said in [
            ({"mean": [1.0]}, 0.0, "fraction is 0.0"),
            ({"mean": [1.0]}, 1.5, "fraction is 1.5"),
            ({"median": [1.0]}, 0.5, r"no numbers in \['mean'\]"),
            ({"mean": ["high"]}, 0.5, r"no numbers in \['mean'\]"),
            ("table", 0.5, r"no numbers in \['mean'\]"),
            ({"mean": [1.0, 2.0], "key": ["a", "a"]}, 0.5, "two groups have the same key"),
        ]:
            with pytest.raises(ArgumentError, match=said):
                pacer.report_result(wrong, fraction)
        with pytest.raises(RelaqsError, match="report its results"):
            pacer.report(1.0)


def test_queries_of_both_engines_take_turns(db: Session) -> None:
    with db.pace_query(["mean"]) as pacer:
        query = db.online_sql("SELECT sum(x) AS s FROM t")
        fraction = 0.0
        while query.state != "exact":
            fraction = min(0.99, fraction + 0.01)
            assert pacer.report_result({"mean": [1.0 + fraction]}, fraction)
        assert query.result().table["s"].to_pylist() == [499_500.0]
