"""What `benchmarks.placed_replay` makes of runs, by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")  # of which the benchmark's models are

from benchmarks.placed_live import ModelKind
from benchmarks.placed_replay import LiveTimes, between_turns, simulated
from benchmarks.placed_seen import PinnedRan


def test_two_runs_on_one_core_take_twice_as_long() -> None:
    kind = ModelKind("linear", 1, 1, 10)
    times = LiveTimes((kind, kind), (0.0, 0.0), (), (10.0, 10.0), (1.0, 1.0), 0.0)
    assert simulated(times, "mlf_h", workers=1).tolist() == pytest.approx(
        [20.5, 20.5]
    )  # a plan is made at 0.5
    assert simulated(times, "mlf_h", workers=2).tolist() == pytest.approx([10.5, 10.5])


def test_the_time_between_turns_is_that_of_the_slot_that_is_used_most() -> None:
    pinned = [
        PinnedRan("a", 0, "one", 0.0, 4.0),
        PinnedRan("a", 1, "two", 0.0, 9.0),
        PinnedRan("b", 0, "one", 20.0, 30.0),
    ]
    pinned.append(PinnedRan("a", 2, "one", 5.0, 10.0))
    assert between_turns(pinned) == pytest.approx(1 / 20)
