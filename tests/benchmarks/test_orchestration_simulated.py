"""Live elastic training beside its simulation: what is given to the simulator, and the smallest real run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import relaqs.training.elastic.gang_carrier as gang_carrier
from benchmarks import orchestration_simulated, record
from benchmarks.orchestration_jobs import Drawn, FixedGangs, templates
from benchmarks.orchestration_simulated import Measured, Pair, asked, simulated

SMALLEST = ["--jobs", "2", "--kinds", "1", "--arrival", "0.1", "--seeds", "0"]


def test_a_job_alone_takes_in_the_simulator_what_it_took_when_measured() -> None:
    kind = templates()[1]
    measured = Measured(1024.0, 512.0, (0.5, 0.3, 0.25), {1: 12.0, 2: 8.0})
    options = argparse.Namespace(workers=2)
    drawn = Drawn.of(0, [kind], 1, (), 1.0)
    for slots, seconds in ((1, 12.0), (2, 8.0)):
        [took] = simulated(
            options, FixedGangs(slots), drawn, "fixed", {(kind.name, "fixed"): measured}
        ).values()
        assert took == pytest.approx(seconds + orchestration_simulated.PAUSE_SECONDS)


def test_gangs_of_one_slot_train_beside_each_other() -> None:
    kind = templates()[0]
    measured = Measured(1024.0, 256.0, (0.5, 0.3), {1: 6.0})
    drawn = Drawn.of(0, [kind], 4, (), 1e-6)
    took = simulated(
        argparse.Namespace(workers=2), FixedGangs(), drawn, "fixed", {(kind.name, "fixed"): measured}
    )
    assert sorted(took.values()) == pytest.approx([6.05, 6.05, 12.1, 12.1], abs=1e-3)


def test_apart_is_relative_to_the_live_mean() -> None:
    pairs = [
        Pair("ones", 0, {"a": 10.0, "b": 20.0}, {"a": 12.0, "b": 21.0}),
        Pair("ones", 1, {"a": 10.0}, {"a": 8.8}),
        Pair("fixed gangs", 0, {"a": 10.0}, {"a": 12.0}),
    ]
    (ones, apart, is_reached), (fixed, _, is_fixed_reached) = asked(pairs)
    assert (ones, is_reached, fixed, is_fixed_reached) == ("ones", True, "fixed gangs", False)
    assert apart.mean == pytest.approx((0.10 - 0.12) / 2)


@pytest.mark.slow
def test_the_smallest_run_prints_live_and_simulated(
    tpch_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gang_carrier, "LEAST_PASS_SECONDS", 0.0)  # so that short passes have gangs
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    orchestration_simulated.main([*SMALLEST, "--data", str(tpch_warehouse)])
    [path] = tmp_path.iterdir()
    kept = json.loads(path.read_text())
    assert [each["way"] for each in kept["pairs"]] == ["fixed gangs", "ones", "completion_rate"]
    for each in kept["pairs"]:
        assert set(each["live"]) == set(each["simulated"]) == {"training 0", "training 1"}
        assert min(*each["live"].values(), *each["simulated"].values()) > 0
    assert {each["kind"][1] for each in kept["measured"]} == {"fixed", "elastic"}
    assert "simulated, s" in capsys.readouterr().out
