"""What `benchmarks.part_turns` makes of turns, by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")  # of which the benchmark's models are

from benchmarks.part_turns import TurnGaps
from benchmarks.placed_seen import PinnedRan, SentTurn, SentTurns


def test_a_gap_in_which_a_model_is_judged_is_not_lost() -> None:
    """Two parts turn three times; the model is judged after the second time."""
    sent, pinned = SentTurns(), []
    for number, (start, end) in enumerate([(0.0, 1.0), (1.5, 2.0), (5.0, 6.0)]):
        for part, late in enumerate((0.0, 0.5)):
            task = 2 * number + part
            sent.by_task["a", task] = SentTurn((0, 10 * number), start, f"{part}/0", (), {})
            pinned.append(PinnedRan("a", task, str(part), start + late, end + late))
    pinned.append(PinnedRan("a", 6, "0", 9.0, 9.1))  # no turn
    sent.others["a"].append(3.0)
    gaps = TurnGaps.of(pinned, sent)
    assert (gaps.turns, gaps.within_passes, gaps.at_ends) == ((1.5, 1.0, 1.5), (0.0,), (2.5,))
    sent.others.clear()
    assert TurnGaps.of(pinned, sent).lost == pytest.approx(2.5 / 6.5)
