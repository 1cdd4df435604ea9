"""The scoring of predicted times: which targets count, and what holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.expected import Prediction, Run, main, predictions
from relaqs.prediction.ahead import Seen


def test_each_target_is_asked_for_until_it_is_reached() -> None:
    errors, seconds = (0.15, 0.04, 0.0), (1.0, 3.0, 7.0)
    seen = tuple(
        Seen(fraction, error, at, 1.0)
        for fraction, error, at in zip((0.1, 0.6, 1.0), errors, seconds, strict=True)
    )
    found = list(predictions(Run("SELECT", 1, 2.0, 0.0, seen)))
    # 20 % is reached with the first answer; 10 and 5 % with the second; 2 and 1 % at the end.
    assert [(each.answers, each.needed) for each in found] == [(1, 2.0)] * 2 + [(1, 6.0), (2, 4.0)] * 2


@pytest.mark.parametrize(("needed", "holds"), [(0.9, False), (1.0, True), (3.0, True), (3.1, False)])
def test_an_interval_holds_with_its_ends(needed: float, holds: bool) -> None:
    assert Prediction(1, 1, 1.0, 2.0, 3.0, needed).holds == holds


def test_it_runs(flights_warehouse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "runs.jsonl"
    main(["--data", str(flights_warehouse), "--runs", "4", "--beside", "1,2", "--keep", str(kept)])
    assert "4 runs" in capsys.readouterr().out
    assert len(kept.read_text().splitlines()) == 4
