"""Live sharing of elastic training: fixed gangs, the same jobs in each way, and the smallest real run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import relaqs.training.elastic.gang_carrier as gang_carrier
from benchmarks import orchestration_live, record
from benchmarks.orchestration_jobs import Drawn, FixedGangs, templates
from benchmarks.orchestration_live import Asked, Way, asked
from benchmarks.policies_live import query_job
from relaqs.sharing.gangs import Gang, Gangs, Nodes, SlotView

SMALLEST = ["--jobs", "2", "--queries", "1", "--kinds", "1", "--arrival", "0.1", "--seeds", "0"]


def view(sizes: dict[str, int], slots: int) -> SlotView:
    gangs = [
        Gang(id, float(at), rows_most=32.0 * size, slot_rows_least=32.0)
        for at, (id, size) in enumerate(sizes.items())
    ]
    return SlotView(9.0, Nodes.equal(1, slots=slots), Gangs.of(gangs[::-1], nodes=1))


def test_fixed_gangs_have_their_size_or_nothing_in_the_order_of_arrival() -> None:
    sizes = {"a": 1, "b": 2, "c": 1}
    assert FixedGangs().plan(view(sizes, 2)).slots_by_id() == {"a": 1, "b": 0, "c": 0}
    assert FixedGangs().plan(view(sizes, 3)).slots_by_id() == {"a": 1, "b": 2, "c": 0}
    assert FixedGangs().plan(view({"large": 8, "next": 1}, 2)).slots_by_id() == {"large": 2, "next": 0}


def test_a_seed_draws_the_same_jobs_for_each_way() -> None:
    queries = [query_job(6, 0)]
    drawn = Drawn.of(3, templates(), 5, queries, 1.0)
    losses = {each.name: 0.5 for each in templates()}
    fixed, elastic = drawn.by_gangs("fixed", losses), drawn.by_gangs("elastic", losses)
    names = [job.name for job in fixed.jobs]
    assert sorted(names) == ["Q6", *(f"training {number}" for number in range(5))]
    assert [job.name for job in elastic.jobs] == names
    assert (fixed.arrival_seconds == elastic.arrival_seconds).all()
    assert Drawn.of(3, templates(), 5, queries, 1.0).order == drawn.order
    assert drawn.targets(losses) == {f"training {number}": 0.5 for number in range(5)}


def test_what_is_asked_is_reached_or_not() -> None:
    fixed, whole = Way({"training 0": 10.0}, {}, 3.0, 0.1), Way({"training 0": 7.0}, {}, 1.0, 0.1)
    elastic = Way({"training 0": 8.0}, {}, 1.2, 0.03)
    seed = {"fixed gangs": fixed, "ones": elastic, "completion_rate": elastic, "whole passes": whole}
    rows = asked([seed, seed])
    assert [row.is_reached for row in rows] == [True, False, True] * 2
    assert rows[0].cells()[1:] == ("≤ 0.85", "0.80 ± 0.00", "reached")
    assert rows[1].figure.mean == pytest.approx(1.2)
    assert Asked("idle", 0.04, (0.125,), is_share=True).cells() == (
        "idle",
        "≤ 4.0 %",
        "12.5 %",
        "not reached",
    )


@pytest.mark.slow
def test_the_smallest_run_prints_what_was_asked_and_read(
    tpch_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gang_carrier, "LEAST_PASS_SECONDS", 0.0)  # so that short passes have gangs
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    orchestration_live.main([*SMALLEST, "--data", str(tpch_warehouse)])
    [path] = tmp_path.iterdir()
    kept = json.loads(path.read_text())
    [ways] = kept["seeds"]
    assert set(ways) == {"fixed gangs", "ones", "completion_rate", "whole passes"}
    for each in ways.values():
        assert min(each["completion_seconds"].values()) > 0
        assert each["error_seconds"] > 0
        assert 0 <= each["idle_share"] < 1
    # The same steps at other slots: by gangs of fixed size the bits are those that gave the target.
    assert len(set(np.round([*ways["fixed gangs"]["losses"].values()], 12))) == 1
    assert ways["ones"]["losses"] == ways["completion_rate"]["losses"]
    assert len(kept["asked"]) == 6
    shown = capsys.readouterr()
    assert "completion, ones / fixed gangs" in shown.out
    assert "seed 0, whole passes" in shown.err


@pytest.mark.slow
def test_ctrl_c_leaves_no_process(tpch_warehouse: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.orchestration_live", *SMALLEST, "--data", str(tpch_warehouse)]
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        group = process.pid
        for line in process.stderr:
            if "fixed gangs" in line:
                break
        time.sleep(5.0)  # the cluster starts, or the jobs run
        os.killpg(group, signal.SIGINT)
        process.stderr.read()
        assert process.wait(120.0) == 130
    left = [each for each in psutil.process_iter() if _session(each.pid) == group]
    assert not psutil.wait_procs(left, timeout=10.0)[1]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1
