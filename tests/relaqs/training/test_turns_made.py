"""What a driver takes in of turns: the state at the end of each pass, each once, in their order."""

from __future__ import annotations

import numpy as np

from relaqs.training.elastic.course import StepsMade
from relaqs.training.elastic.gang_carrier import TurnsMade
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.mesh import RankAddress
from relaqs.training.elastic.rank import (
    EndOfPass,
    TurnResult,
)

PASS_STEPS = 10
TWO = Membership(0, (RankAddress("a/0", "a", 1), RankAddress("b/0", "b", 2)), "secret")


def result(step: int, *ends: int, kept: bytes | None = None) -> TurnResult:
    """Return what a rank tells that has made all steps until one. ends: the passes whose ends it tells."""
    made = StepsMade(0, np.full(step, 64), np.full(step, 0.1))
    told = tuple(EndOfPass(passes, passes * PASS_STEPS, b"end %d" % passes) for passes in ends)
    return TurnResult("a/0", 0, step, step // PASS_STEPS, made, ends=told, kept=kept)


def test_each_end_of_a_pass_is_told_of_once() -> None:
    made = TurnsMade()
    made.take(TWO, [result(13, 1), result(13, 1)])
    made.take(TWO, [result(23, 1, 2)])
    assert made.passed == [(1, b"end 1"), (2, b"end 2")]
    assert (made.kept, made.kept_step, made.kept_passes) == (b"end 2", 20, 2)


def test_no_pass_is_passed_over_where_the_rank_that_told_of_its_end_is_lost() -> None:
    made = TurnsMade()
    made.take(TWO, [result(13, kept=b"in the second pass")])
    made.take(TWO, [result(23, 2)])
    assert (made.kept, made.kept_passes, made.passed) == (None, 0, [])
    made.take(TWO, [result(24, 1, 2, kept=b"in the third pass")])
    assert [passes for passes, _ in made.passed] == [1, 2]
    assert (made.kept, made.kept_step) == (b"in the third pass", 24)
