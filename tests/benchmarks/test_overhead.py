"""The overhead benchmark records what it measured, marks what is over budget, and fails on a wrong answer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from relaqs_tpch.data import ORIGINALS

from benchmarks import overhead, record
from benchmarks.medians import Medians, Runs
from benchmarks.timed import OnlineRun, PlainRun

NOTHING = pa.table({})


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that records go to, an empty one."""
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def run_on(warehouse: Path, raw: Path, queries: str) -> None:
    overhead.main(["--data", str(warehouse), "--raw", str(raw), "--queries", queries, "--runs", "1"])


@pytest.mark.slow
def test_it_measures_what_can_be_estimated(
    tpch_warehouse: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_on(tpch_warehouse, tpch_warehouse / ORIGINALS, "2,6,12")
    [path] = results.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {"processor", "cores", "duckdb", "command", "scale"} <= found.keys()
    # The second query returns rows, so it runs as a whole and has no estimates to time.
    assert [each["number"] for each in found["queries"]] == [6, 12]
    assert [each["is_join"] for each in found["queries"]] == [False, True]
    for each in found["queries"]:
        figures = each["figures"]
        assert 0 < figures["first"] <= figures["within_5"] <= figures["within_1"] <= figures["exact"]
        assert figures["core_tasks"] > 0
        assert each["rows"] == 60_175
    printed = capsys.readouterr().out
    assert "python -m benchmarks.overhead --data" in printed
    assert "no figure here is comparable to an official TPC-H result" in " ".join(printed.split())


def test_a_wrong_answer_fails(tpch_warehouse: Path, tmp_path: Path, results: Path) -> None:
    for original in (tpch_warehouse / ORIGINALS).glob("*.parquet"):
        table = pa.parquet.read_table(original)
        pa.parquet.write_table(table.slice(0, table.num_rows - 40), tmp_path / original.name)
    with pytest.raises(overhead.WrongAnswerError, match="Q1: "):
        run_on(tpch_warehouse, tmp_path, "1")
    assert not results.exists()


def online(first: float, exact: float, core: float) -> OnlineRun:
    return OnlineRun(first, first, exact, exact, core, core * 0.75, tasks=9, batches=5, answer=NOTHING)


def medians(*, is_join: bool, exact: float) -> Medians:
    runs = Runs(
        cold=online(0.5, 9.0, 9.0),
        online=[online(0.02, exact, 2.0), online(0.03, exact, 2.4), online(0.9, 5.0, 8.0)],
        without_bars=[online(0.02, 1.0, 2.0)],
        duckdb=[PlainRun(1.0, 2.0, NOTHING)],
        duckdb_on_originals=[PlainRun(0.5, 1.0, NOTHING)],
    )
    return Medians.of(7, 60, is_join, runs)


def test_figures_are_medians_and_their_ratios() -> None:
    figures = medians(is_join=False, exact=1.2).figures
    assert (figures["first_cold"], figures["first"], figures["exact"]) == (0.5, 0.03, 1.2)
    assert figures["ratio"] == pytest.approx(1.2)
    assert figures["ratio_originals"] == pytest.approx(2.4)
    assert figures["ratio_core"] == pytest.approx(1.2)
    assert figures["bars_core"] == pytest.approx(1.2)
    assert (figures["core_tasks"], figures["core_else"]) == pytest.approx((1.8, 0.6))


def test_a_join_may_take_longer_than_a_scan() -> None:
    assert medians(is_join=False, exact=1.2).over_budget() == {"ratio", "bars"}
    assert medians(is_join=True, exact=1.09).over_budget() == frozenset()
    assert medians(is_join=True, exact=1.5).over_budget() == {"ratio", "bars"}
