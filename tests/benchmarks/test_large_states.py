"""The benchmark of large states records what it measured, and fails on a wrong answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import large_states, record
from benchmarks.overhead import WrongAnswerError


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that records go to, an empty one."""
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_it_measures_the_questions_asked_for(
    tpch_warehouse: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large_states.main(["--data", str(tpch_warehouse), "--only", "parts,median", "--runs", "1"])
    [path] = results.iterdir()
    lines = json.loads(path.read_text(encoding="utf-8"))["questions"]
    assert [each["question"] for each in lines] == [
        name for name in large_states.QUESTIONS if "parts" in name or "median" in name
    ]
    for each in lines:
        assert 0 < each["first_seconds"] <= each["exact_seconds"]
        assert each["ratio"] == pytest.approx(each["exact_seconds"] / each["duckdb_seconds"])
    assert "no figure here is comparable to an official TPC-H result" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_wrong_answer_fails(tpch_warehouse: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_states, "difference", lambda expected, answer: "17 is not 18")
    with pytest.raises(WrongAnswerError, match="median: 17 is not 18"):
        large_states.main(["--data", str(tpch_warehouse), "--only", "median", "--runs", "0"])
    assert not results.exists()
