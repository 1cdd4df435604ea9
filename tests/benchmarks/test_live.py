"""Jobs that really run under a policy: every step is there, errors end at nothing, and the clock adds up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from relaqs_tpch.warehouse import query

from benchmarks import mixed_live, record
from benchmarks.live import Clock, Driver, LiveJob, LiveRun
from benchmarks.live_record import lowest_losses, query_trace, schedule_run, training_trace
from benchmarks.policies_live import query_job
from benchmarks.training_data import live_job
from relaqs.sharing.view import Kind
from relaqs.training import LinearRegression

TRAINED = "SELECT l_quantity, l_discount, l_extendedprice FROM lineitem"


@pytest.fixture(scope="module")
def finished(tpch_warehouse: Path) -> tuple[LiveRun, list[object]]:
    """Two queries and a training run on one core, and the queries' plans."""
    jobs: list[LiveJob] = [
        query_job(6, 1),
        live_job("linear", LinearRegression(TRAINED, target="l_extendedprice"), 20),
        query_job(1, 2),
    ]
    with Driver(tpch_warehouse, 1, "relaqs", "work") as driver:
        run = driver.run(jobs, np.array([0.0, 0.01, 5.0]))
        plans = [driver.session.plan(query(number)) for number in (6, 1)]
    return run, plans


def test_every_step_is_noted_at_its_time(finished: tuple[LiveRun, list[object]]) -> None:
    run, _ = finished
    for each in run.finished:
        assert [report.step for report in each.reports] == list(range(len(each.reports)))
        assert each.reports[-1].is_final
        assert (np.diff(each.at_seconds) >= 0).all()
        assert each.at_seconds[0] >= each.arrival_seconds
    # Both jobs before are over after much less than 5 s of work; the clock went on to the last arrival.
    assert run.finished[2].at_seconds[0] == pytest.approx(5.0, abs=2.0)
    used = sum(report.core_seconds for each in run.finished[:2] for report in each.reports)
    assert max(each.at_seconds[-1] for each in run.finished[:2]) == pytest.approx(used, rel=0.2)


def test_a_run_leaves_a_record_with_true_errors(finished: tuple[LiveRun, list[object]]) -> None:
    run, plans = finished
    first, training, last = run.finished
    lowest = lowest_losses([run])
    traced = [
        query_trace(first, plans[0]),  # type: ignore[arg-type]
        training_trace(training, lowest["linear"]),
        query_trace(last, plans[1]),  # type: ignore[arg-type]
    ]
    for trace, _ in traced:
        assert trace.true_error[-1] == 0.0
        assert trace.true_error[0] > 0.0
    record = schedule_run(
        run, traced, 1, seed=0, arrival_seconds=1.0, workload="test", circumstances={"at": "now"}
    )
    assert record.jobs.kinds == (Kind.QUERY, Kind.TRAINING, Kind.QUERY)
    assert (record.jobs.error_seconds > 0).all()
    assert (record.jobs.reduced(0.9) <= record.jobs.completion_seconds).all()
    assert record.policy == "index"
    assert record.plans == len(run.plans) > 0


def test_the_work_clock_counts_core_seconds_and_skips_idle_time() -> None:
    clock = Clock("work", cores=2)
    clock.worked(3.0)
    assert clock.now() == 1.5
    clock.wait_until(4.0, lambda: True)
    assert clock.now() == 4.0
    clock.begin()
    assert clock.now() == 0.0


def test_queries_and_training_shared_and_split_are_compared(
    tpch_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    words = ["--seeds", "3", "--each", "1", "--cores", "2", "--arrival", "0.01"]
    mixed_live.main([str(tpch_warehouse), *words])
    [path] = tmp_path.iterdir()
    [seed] = json.loads(path.read_text())["split_and_shared"]
    assert set(seed) == {"query", "training"}
    assert all(value > 0 for pair in seed.values() for each in pair for value in each)
    assert "training" in capsys.readouterr().out
