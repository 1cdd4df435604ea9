"""`relaqs tpch run` and `schedule`: what they record, that they go on where they stopped, and bad input."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from relaqs_engine.layouts.checksums import SEAL, seal
from relaqs_lab.records import QueryRun, RecordFile, ScheduleRun
from relaqs_lab.simulation.study import agreement
from relaqs_tpch.measuring import MeteredExecutor
from relaqs_tpch.schedule import arrivals, in_words
from relaqs_tpch.warehouse import Warehouse
from rich.console import Console

from relaqs.executors import ThreadExecutor
from relaqs.sharing.view import Kind
from tests.conftest import TPCH_PARTITIONS
from tests.tpch.command_line import MIX, run

PARTITIONS = f"in {TPCH_PARTITIONS} partitions"


@pytest.mark.slow
def test_a_run_records_each_snapshot_beside_the_truth(runs: Path) -> None:
    first, exact, _, training, _ = RecordFile(runs / "run.jsonl").read(
        QueryRun.kind_of_record, QueryRun.of_record
    )
    assert (first.name, first.kind, first.mode, first.scale) == ("Q1", Kind.QUERY, "mergeable", 0.01)
    steps = first.steps
    assert steps.work_done[-1] == 1.0
    assert steps.true_error[-1] == steps.quality[-1] == 0.0
    assert (steps.true_error[:-1] > 0).all()
    assert (steps.core_seconds > 0).all()
    assert (np.diff(steps.elapsed_seconds) >= 0).all()
    assert steps.progress[0] == 1.0
    assert first.core_seconds >= steps.core_seconds.sum() > 0
    assert 0.5 < first.coverage <= 1.0
    assert first.duckdb_seconds > 0
    assert (exact.kind, len(exact.steps.work_done)) == (Kind.EXACT, 1)
    assert (training.kind, training.steps.true_error[-1]) == (Kind.TRAINING, 0.0)


def test_what_was_measured_is_not_measured_again(runs: Path, tpch_warehouse: Path) -> None:
    kept = (runs / "run.jsonl").read_bytes()
    code, output = run("tpch", "run", "--data", str(tpch_warehouse), "--queries", "2,1", "--out", str(runs))
    assert code == 0
    assert "Q1" in output
    assert "no figure here is comparable to an official TPC-H result" in " ".join(output.split())
    assert (runs / "run.jsonl").read_bytes() == kept


def test_runs_are_replayed_by_the_simulator(runs: Path) -> None:
    code, output = run(
        "simulate", "--traces", str(runs / "run.jsonl"), "--cores", "4", "--jobs", "6", "--arrival", "0.05",
        "--seeds", "1", "--policies", "fair", "--format", "jsonl",
    )  # fmt: skip
    assert code == 0
    assert "5 traces of run.jsonl" in json.loads(output)["setting"]


@pytest.mark.slow
def test_records_of_another_scale_are_not_mixed(runs: Path, tmp_path: Path) -> None:
    code, _ = run("tpch", "generate", "--scale", "0.001", "--into", str(tmp_path), "--partitions", "4")
    assert code == 0
    code, output = run("tpch", "run", "--data", str(tmp_path), "--queries", "1", "--out", str(runs))
    assert code == 1
    assert "runs on data of scale 0.01" in output
    assert "of scale 0.001" in output


def unsealed(line: str) -> str:
    """Return the text of a record before it was sealed."""
    return line.rpartition(f', "{SEAL}": ')[0] + "}"


def test_data_laid_out_otherwise_is_measured_anew(runs: Path, tpch_warehouse: Path, tmp_path: Path) -> None:
    out = shutil.copytree(runs, tmp_path / "out")
    file = out / "run.jsonl"
    first = unsealed(file.read_text().splitlines()[0])
    file.write_bytes(seal(first.replace(PARTITIONS, "in 7 partitions")) + b"\n")
    code, _ = run("tpch", "run", "--data", str(tpch_warehouse), "--queries", "1", "--out", str(out))
    assert code == 0
    old, new = RecordFile(file).read(QueryRun.kind_of_record, QueryRun.of_record)
    assert (old.name, old.scale, old.seed, old.run) == (new.name, new.scale, new.seed, new.run)
    assert old.data != new.data


@pytest.mark.slow
def test_a_schedule_records_every_job_to_its_end(schedules: Path) -> None:
    file = RecordFile(schedules / "schedule.jsonl")
    every = list(file.read(ScheduleRun.kind_of_record, ScheduleRun.of_record))
    assert [(run.arrival_seconds, run.policy) for run in every] == [
        (0.05, "fair"), (0.05, "index"), (0.02, "fair"), (0.02, "index")
    ]  # fmt: skip
    assert len({run.jobs.names for run in every}) == 1  # the same jobs, whatever the policy and the arrivals
    assert len(every[0].jobs.names) == 5
    for each in every:
        assert np.isfinite(each.jobs.completion_seconds).all()
        assert (each.jobs.first_seconds <= each.jobs.completion_seconds).all()
        assert (each.jobs.reduced(0.7) <= each.jobs.reduced(0.95)).all()
        assert (each.jobs.error_seconds > 0).all()
        assert each.plans > 0
        assert each.series.mean_error[-1] == pytest.approx(0.0, abs=1e-9)
        assert agreement(each).jobs == 5


def test_a_schedule_goes_on_where_it_stopped(schedules: Path, tpch_warehouse: Path, tmp_path: Path) -> None:
    out = shutil.copytree(schedules, tmp_path / "out")
    kept = (out / "schedule.jsonl").read_bytes()
    code, _ = run(
        "tpch", "schedule", "--data", str(tpch_warehouse),
        *MIX, "--arrival", "0.05", "--policies", "fair,fifo", "--out", str(out)
    )  # fmt: skip
    assert code == 0
    now = (out / "schedule.jsonl").read_bytes()
    assert now.startswith(kept)
    assert now.count(b"\n") == kept.count(b"\n") + 1


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ('"Q6, scale 0.01"', '"Q5, scale 0.01"'),  # other queries have estimates
        pytest.param(PARTITIONS, "in 7 partitions", marks=pytest.mark.slow),
        pytest.param("partitions of seed 0", "partitions of seed 1", marks=pytest.mark.slow),
    ],
)
def test_a_schedule_of_other_jobs_or_data_is_run_anew(
    schedules: Path, tpch_warehouse: Path, tmp_path: Path, now: str, then: str
) -> None:
    out = shutil.copytree(schedules, tmp_path / "out")
    file = out / "schedule.jsonl"
    first = unsealed(file.read_text().splitlines()[0])
    assert now in first
    file.write_bytes(seal(first.replace(now, then)) + b"\n")
    code, _ = run(
        "tpch", "schedule", "--data", str(tpch_warehouse),
        *MIX, "--arrival", "0.05", "--policies", "fair", "--out", str(out)
    )  # fmt: skip
    assert code == 0
    assert file.read_bytes().count(b"\n") == 2


def test_runs_on_a_cluster_are_told_from_those_in_this_process(tpch_warehouse: Path) -> None:
    warehouse = Warehouse.open(tpch_warehouse)
    here, there = (in_words([warehouse], [1], 0.255, is_on_cluster=each) for each in (False, True))
    assert here == f"TPC-H scale 0.01 with lineitem, orders {PARTITIONS} of seed 0: Q1, 25.5% training"
    assert there == f"{here}, on a Dask cluster"


def test_live_runs_are_laid_beside_their_simulation(schedules: Path, runs: Path) -> None:
    code, output = run("simulate", "--validate", str(schedules / "schedule.jsonl"))
    assert code == 0
    assert "off live ones" in output
    code, output = run("simulate", "--validate", str(runs / "run.jsonl"))
    assert code == 2
    assert "no live runs" in output


def test_the_same_seed_draws_the_same_jobs_and_arrivals_do_not_change_who_comes(tpch_warehouse: Path) -> None:
    warehouse = Warehouse.open(tpch_warehouse)

    def draw(seed: int, mean: float):
        return arrivals([warehouse], [1, 6, 12], jobs=8, mean_seconds=mean, training_share=0.3, seed=seed)

    assert draw(1, 1.0) == draw(1, 1.0)
    assert [each.name for each in draw(1, 1.0)] == [each.name for each in draw(1, 9.0)]
    assert [each.name for each in draw(1, 1.0)] != [each.name for each in draw(2, 1.0)]
    times = [each.at_seconds for each in draw(1, 1.0)]
    assert times[0] == 0.0
    assert times == sorted(times)


def test_a_meter_adds_up_what_tasks_took(tpch_warehouse: Path) -> None:
    executor = MeteredExecutor(ThreadExecutor(2))
    with Warehouse.open(tpch_warehouse).session(executor, is_embedded=True) as session:
        query = session.online_sql("SELECT count(*) FROM lineitem WHERE l_tax > 0.01")
        snapshots = list(query)
        query.wait()
    steps = executor.steps(query.id)
    assert sorted(steps) == list(range(snapshots[-1].batches))
    assert all(step.core_seconds > 0 for step in steps.values())
    assert executor.steps("nobody") == {}


def test_the_live_view_is_drawn_only_where_a_terminal_can() -> None:
    from relaqs_tpch.cli_schedule import drawing, live_view

    from relaqs.jobs.job import ClusterStatus

    status = ClusterStatus(0.0, 2.0, "fair", ())
    with live_view(Console(force_terminal=False), "a run") as watch:
        watch(0.0, status, [])
    console = Console(force_terminal=True, no_color=True, width=80)
    with console.capture() as captured:
        console.print(drawing("a run", 3.0, status, []))
    assert "a run · 3 s · 0 of 0 jobs are over" in captured.get()
    assert "\x1b[3" not in captured.get()  # no colour


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(tpch_warehouse: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from relaqs.cli import main; main()", "tpch", "run", "--data"]
    command += [str(tpch_warehouse), "--queries", "1,6", "--runs", "2000", "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not _has_a_record(out / "run.jsonl"):
            time.sleep(0.01)  # a busy wait would take the core that it waits for
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The same command goes on" in said
    kept = list(RecordFile(out / "run.jsonl").read(QueryRun.kind_of_record, QueryRun.of_record))
    assert 0 < len(kept) < 4000


def _has_a_record(path: Path) -> bool:
    return path.exists() and b"\n" in path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--queries", "1,99"), "there is no TPC-H query '99'; the queries are 1 to 22"),
        (("run", "--training", "k means"), "did you mean 'K-Means'"),
        (("schedule", "--policies", "relax"), "did you mean 'relaqs'"),
        (("schedule", "--arrival", "0"), "no number above 0"),
    ],
)
def test_bad_usage_is_exit_code_2(tpch_warehouse: Path, arguments: tuple[str, ...], message: str) -> None:
    code, output = run("tpch", arguments[0], "--data", str(tpch_warehouse), *arguments[1:])
    assert code == 2
    assert message in " ".join(output.replace("│", " ").split())


@pytest.mark.slow
def test_a_folder_without_the_tables_is_refused(flights_warehouse: Path, tmp_path: Path) -> None:
    code, output = run("tpch", "run", "--data", str(flights_warehouse), "--out", str(tmp_path))
    assert code == 1
    assert "has no lineitem" in output
    assert "relaqs tpch generate" in output


def test_a_broken_record_file_is_named(tpch_warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"schema":1,"record":"query run","name":"Q1"}\n')
    code, output = run("tpch", "run", "--data", str(tpch_warehouse), "--queries", "1", "--out", str(tmp_path))
    assert code == 1
    assert "run.jsonl, line 1" in output
