"""The benchmarks of runs: kills are counted that were made, and all the work of a run is timed."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDRegressor

from benchmarks import fits, resumed_runs
from benchmarks.resumed_runs import Killed


def test_a_run_that_keeps_no_state_is_no_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumed_runs, "LIVES_SECONDS", 0.1)
    killed = Killed("fit", tmp_path, tmp_path / "fit.run", random.Random(0))
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(Killed, "_life", lambda self, begin: process.pid)
    with pytest.raises(AssertionError, match=r"has kept 0 states in 0\.1 s"):
        killed.gone_on_with(4)
    assert killed.kills == 0


@pytest.mark.parametrize(
    ("given", "kills", "code"), [(b"as it was", 1, 0), (b"another model", 1, 1), (b"as it was", 0, 1)]
)
def test_it_fails_where_runs_differ_or_are_over_too_soon(
    monkeypatch: pytest.MonkeyPatch, given: bytes, kills: int, code: int
) -> None:
    def gone_on_with(self: Killed, kills_most: int) -> bytes:
        self.kills += kills
        return given

    monkeypatch.setattr(Killed, "uninterrupted", lambda self: b"as it was")
    monkeypatch.setattr(Killed, "gone_on_with", gone_on_with)
    assert resumed_runs.main(["--kills", "3", "--kinds", "fit"]) == code


class Clock:
    """A session and the clock of its process: a run takes 7 s with its first pass, and 2 s in each other."""

    def __init__(self) -> None:
        self.now_seconds = 0.0

    def fit(self, model: object, sql: str, *, target: str, batch: int, passes: int) -> Clock:
        self.now_seconds += 3.0 + 4.0 + 2.0 * (passes - 1)  # it goes on while it is looked at
        return self

    steps = (0,)

    def __iter__(self) -> Any:
        return iter(self.steps)

    def result(self) -> None:
        """Wait for nothing."""


def test_all_passes_but_the_first_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = Clock()
    monkeypatch.setattr(fits.time, "process_time", lambda: clock.now_seconds)
    assert fits.fitted_seconds(clock, None, 8, 5) == 10.0


def test_the_loop_draws_its_rows_anew_for_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[float]] = []

    def noted(self: SGDRegressor, features: Any, target: Any) -> None:
        seen.append(target.tolist())

    monkeypatch.setattr(SGDRegressor, "partial_fit", noted)
    rows = np.arange(100.0)
    fits.looped_seconds(SGDRegressor(), rows[:, None], rows, 30, 2)
    assert list(map(len, seen)) == [30, 30, 30, 10] * 2
    for each in (seen[:4], seen[4:]):
        assert sorted(chain.from_iterable(each)) == rows.tolist()
        assert sorted(each[0]) != list(range(int(min(each[0])), int(min(each[0])) + 30))
    assert seen[0] != seen[4]
