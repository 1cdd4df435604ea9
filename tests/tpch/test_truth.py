"""How far a snapshot is from the exact answer: by hand, and over a real query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from relaqs_tpch import query
from relaqs_tpch.truth import Truth

import relaqs
from tests.relaqs.sessions import every_snapshot

SQL = "SELECT l_returnflag AS flag, sum(l_quantity) AS pieces, avg(l_tax) AS tax FROM lineitem GROUP BY 1"


@pytest.fixture(scope="module")
def session(tpch_warehouse: Path):
    with relaqs.connect(tpch_warehouse, threads=1) as session:
        yield session


@pytest.fixture(scope="module")
def snapshots(session):
    return every_snapshot(lambda: session.online_sql(SQL))


def test_the_exact_answer_is_not_off(session, snapshots) -> None:
    verdict = Truth(session.plan(SQL), snapshots[-1].estimate).verdict(snapshots[-1])
    assert (verdict.error, verdict.cells) == (0.0, 6)


def test_an_estimate_is_off_by_the_mean_of_its_cells(session, snapshots) -> None:
    first, exact = snapshots[0], snapshots[-1].estimate
    truth = {row["flag"]: row for row in exact.to_pylist()}
    expected = [
        abs(float(row[name]) / float(truth[row["flag"]][name]) - 1)
        for row in first.estimate.to_pylist()
        for name in ("pieces", "tax")
    ]
    verdict = Truth(session.plan(SQL), exact).verdict(first)
    assert verdict.error == pytest.approx(np.mean(expected))
    assert 0 < verdict.held <= verdict.certified <= 6
    assert verdict.half_width > 0


def test_cells_that_are_missing_or_wildly_off_count_one(session, snapshots) -> None:
    last = snapshots[-1]
    truth = Truth(session.plan(SQL), last.estimate)
    one_group = replace(last, table=last.table.slice(0, 1))
    assert truth.verdict(one_group).error == pytest.approx(2 / 3)
    wild = last.table.set_column(1, "pieces", pa.array([1e12] * len(last)))
    assert truth.verdict(replace(last, table=wild)).error == pytest.approx(1 / 2)


def test_intervals_that_miss_are_counted(session, snapshots) -> None:
    first = snapshots[0]
    shifted = pa.table(
        {
            name: [value * 3 for value in column.to_pylist()] if name in ("pieces", "tax") else column
            for name, column in zip(
                snapshots[-1].estimate.column_names, snapshots[-1].estimate.columns, strict=True
            )
        }
    )
    verdict = Truth(session.plan(SQL), shifted).verdict(first)
    assert verdict.certified > 0
    assert verdict.held == 0


def test_rows_without_estimates_are_shown_or_not(session) -> None:
    sql = "SELECT o_orderkey FROM orders WHERE o_totalprice > 400000"
    plan, snapshots = session.plan(sql), every_snapshot(lambda: session.online_sql(sql))
    truth = Truth(plan, snapshots[-1].estimate)
    errors = [truth.verdict(snapshot).error for snapshot in snapshots]
    assert errors[0] == pytest.approx(1 - len(snapshots[0]) / len(snapshots[-1]))
    assert errors[-1] == 0.0
    assert errors == sorted(errors, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 12, 18])
def test_every_kind_of_answer_ends_with_no_error(session, number: int) -> None:
    snapshots = every_snapshot(lambda: session.online_sql(query(number)))
    truth = Truth(session.plan(query(number)), snapshots[-1].estimate)
    assert truth.verdict(snapshots[-1]).error == 0.0
    assert all(0.0 <= truth.verdict(snapshot).error <= 1.0 for snapshot in snapshots)
