"""What `benchmarks.placed_replay` makes of runs, by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")  # of which the benchmark's models are

from benchmarks.placed_live import ModelKind
from benchmarks.placed_replay import LiveTimes, simulated


def test_two_runs_on_one_core_take_twice_as_long() -> None:
    kind = ModelKind("linear", 1, 1, 10)
    times = LiveTimes((kind, kind), (0.0, 0.0), (), (10.0, 10.0), (1.0, 1.0))
    assert simulated(times, "mlf_h", workers=1).tolist() == pytest.approx(
        [20.5, 20.5]
    )  # a plan is made at 0.5
    assert simulated(times, "mlf_h", workers=2).tolist() == pytest.approx([10.5, 10.5])
