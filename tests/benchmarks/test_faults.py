"""The harness of faults: the same seed draws the same ones, wrong answers are told, and a short real run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from relaqs_tpch.data import ORIGINALS

from benchmarks import faults, soak
from benchmarks.faults_client import encoded
from benchmarks.faults_drawn import BITS, KINDS, drawn
from benchmarks.faults_happen import flipped
from benchmarks.faults_judged import CLEAR, EQUAL, HUNG, MIX, UNCLEAR, WRONG, Truth

NUMBERS = pa.table({"n": [1, 2]})
SHORT = ["--faults", "12", "--scale", "0.01"]


def test_a_seed_draws_its_faults() -> None:
    once = drawn(3, 40, KINDS, len(MIX))
    assert drawn(3, 40, KINDS, len(MIX)) == once
    assert drawn(4, 40, KINDS, len(MIX)) != once
    assert Counter(fault.kind for fault in once) == dict.fromkeys(KINDS, 4)
    assert {fault.query for fault in once} == set(range(len(MIX)))


def test_answers_are_judged() -> None:
    truth = Truth((NUMBERS,), (0.5, 0.25))

    def verdict(said: dict[str, object] | None) -> str:
        return truth.verdict(0, said)[0]

    assert verdict({"answer": encoded(NUMBERS)}) == EQUAL
    assert verdict({"answer": encoded(NUMBERS.slice(1))}) == WRONG
    assert verdict({"losses": [0.5, 0.25]}) == EQUAL
    assert verdict({"losses": [0.5]}) == WRONG
    assert verdict({"error": "ClusterError", "text": "gone", "is_clear": True}) == CLEAR
    assert verdict({"error": "KeyError", "text": "0", "is_clear": False}) == UNCLEAR
    assert verdict(None) == HUNG


def test_a_flipped_byte_is_flipped_back(tmp_path: Path) -> None:
    (tmp_path / "lineitem").mkdir()
    paths = [tmp_path / "lineitem" / f"part-{number}.parquet" for number in range(2)]
    for path in paths:
        path.write_bytes(bytes(100))
    undo = flipped(tmp_path, 0.75)
    assert [sum(path.read_bytes()) for path in paths] == [0, 0xFF]
    undo()
    assert [sum(path.read_bytes()) for path in paths] == [0, 0]


def test_an_unknown_kind_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.arguments([]).kinds == list(KINDS)
    assert faults.arguments(["--kinds", BITS]).kinds == [BITS]
    with pytest.raises(SystemExit):
        faults.arguments(["--kinds", "worker bored"])
    assert "worker bored is none of worker killed" in capsys.readouterr().err


def test_what_grows_is_told() -> None:
    steady = soak.Held("steady", 0, [10.0, 90.0, 100.0, 101.0] * 3, [9] * 12)
    leaking = soak.Held("leaking", 0, [float(10 * look) for look in range(12)], [9] * 12)
    opening = soak.Held("opening", 0, [100.0] * 12, list(range(9, 129, 10)))
    assert [each.has_grown for each in (steady, leaking, opening)] == [False, True, True]


@pytest.mark.slow
def test_a_dozen_faults(tpch_warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed, stopped and starved: no answer is wrong, nothing hangs, and no process stays."""
    assert (tpch_warehouse / ORIGINALS).exists()
    code = faults.main([*SHORT, "--data", str(tpch_warehouse)])
    assert code == 0, capsys.readouterr().out


@pytest.mark.slow
def test_queries_one_after_the_other_hold_no_more_than_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--queries", "100", "--scale", "0.01"]) == 0, capsys.readouterr().out
