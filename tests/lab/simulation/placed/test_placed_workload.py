"""What the scenarios draw, what the trace gives, and what is said of a file that is none."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from relaqs_engine.errors import DataError
from relaqs_lab.simulation.placed.placed_workload import (
    ALGORITHMS,
    SCENARIOS,
    Scenario,
    learning_curve,
    read_philly,
)


def test_durations_of_the_paper_s_scenario_have_a_mean_of_half_an_hour() -> None:
    """Within four standard errors of 32 min, what the trace's own durations give when they are clipped."""
    seconds = np.array([job.run_seconds for job in Scenario("paper", jobs=2000).workload(0).jobs])
    error = seconds.std() / math.sqrt(len(seconds))
    assert abs(seconds.mean() - 32.1 * 60) < 4 * error
    assert 0.3 * 60 <= seconds.min() <= seconds.max() <= 0.3 * 86_400


@pytest.mark.parametrize(("name", "least", "most"), [("paper", 0.5 * 3600, math.inf), ("tight", 0, 3.0)])
def test_deadlines_leave_the_time_that_is_promised(name: str, least: float, most: float) -> None:
    for job in Scenario(name, jobs=200).workload(3).jobs:
        within = job.deadline_seconds - job.arrival_seconds
        assert within >= max(least, 1.1 * job.run_seconds * (1 - 1e-9))
        assert within <= most * job.run_seconds


def test_what_jobs_are_does_not_depend_on_how_many_come_or_when() -> None:
    """Two scenarios of one seed differ in deadlines alone."""
    one, other = (Scenario(name, jobs=30).workload(5).jobs for name in ("paper", "tight"))
    assert [j.run_seconds for j in one] == [j.run_seconds for j in other]
    assert [j.arrival_seconds for j in one] == [j.arrival_seconds for j in other]
    assert [j.name for j in one] == [j.name for j in other]
    assert [j.deadline_seconds for j in one] != [j.deadline_seconds for j in other]


def test_the_trace_s_scenario_asks_for_nine_tenths_of_the_devices() -> None:
    jobs = Scenario("trace", jobs=400, devices=40).workload(2).jobs
    assert {job.devices for job in jobs} <= {1, 2, 4, 8, 16}
    wanted = sum(job.device_seconds for job in jobs) / (40 * 0.9)
    assert jobs[-1].arrival_seconds == pytest.approx(wanted, rel=0.2)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda each: each.name)
def test_accuracy_rises_to_its_end_and_the_loss_falls(algorithm) -> None:  # type: ignore[no-untyped-def]
    curve = learning_curve(algorithm, 200, np.random.default_rng(4))
    assert (np.diff(curve.accuracy) >= 0).all()
    assert curve.accuracy[0] == 0
    assert curve.accuracy[-1] == pytest.approx(algorithm.accuracy_end, abs=0.06)
    assert curve.loss[-1] < 0.3 < 2 < curve.loss[0]
    assert (np.diff(curve.loss) > 0).any()


def test_durations_and_arrivals_of_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    rows = [f"2017-10-0{1 + i % 7} 07:01:0{i % 10},{100 + i},1" for i in range(50)]
    path.write_text("timestamp,duration,num_gpus\n" + "\n".join(rows))
    trace = read_philly(path)
    assert trace.arrival_seconds[0] == 0
    assert sorted(trace.seconds) == [100.0 + i for i in range(50)]
    jobs = Scenario("paper", jobs=20, philly=path).workload(0).jobs
    assert {round(job.run_seconds / 0.3) for job in jobs} <= set(range(100, 150))
    assert str(Scenario("paper", philly=path)) == "scenario paper, durations of philly.csv"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("timestamp,duration\n", "has no jobs"),
        ("when,long\n1,2\n", "needs the columns timestamp"),
        ("timestamp,duration\nsoon,2\n", "is not the trace of Philly"),
    ],
)
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read_philly(path)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_load_says_how_fast_jobs_come(name: str) -> None:
    """Twice the load lets the same jobs come in half the time, and all their work fills that share."""
    one, two = (Scenario(name, jobs=200, devices=40, load=load).workload(1) for load in (0.75, 1.5))
    assert [job.run_seconds for job in one.jobs] == [job.run_seconds for job in two.jobs]
    work = sum(job.device_seconds for job in one.jobs)
    spans = [work / 40 / load for load in (0.75, 1.5)]
    bursts = 3600.0  # a burst may begin at the end of the span
    for workload, span in zip((one, two), spans, strict=True):
        assert 0.5 * span < workload.jobs[-1].arrival_seconds < span + bursts


def test_a_load_of_nothing_is_named() -> None:
    with pytest.raises(ValueError, match=r"load is 0\.0; give a finite number above 0"):
        Scenario("paper", load=0.0)


def test_jobs_may_be_of_some_algorithms_alone() -> None:
    alone = Scenario("paper", jobs=30, algorithms=ALGORITHMS[3:])
    assert {job.algorithm for job in alone.workload(0).jobs} == set(ALGORITHMS[3:])
    assert str(alone) == "scenario paper, durations made up, LSTM, SVM alone"
    with pytest.raises(ValueError, match="algorithms is empty; give one or more"):
        Scenario("paper", algorithms=())
