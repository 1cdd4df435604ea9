"""What a gang tells of its changes: how often, and how long it stood still."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaqs.training.elastic.course import Order, StepsMade
from relaqs.training.elastic.gang_executor import GangFacts
from relaqs.training.elastic.membership import Membership, RankAddress
from relaqs.training.elastic.rank import TurnResult

ORDER = Order((100,), 10, seed=0)


def turned(facts: GangFacts, generation: int, *pauses: float | None) -> None:
    """Let a gang of so many ranks make a turn of one step. pauses: what each rank tells of its own."""
    ranks = tuple(RankAddress(f"tcp://one:1/{rank}", "one", rank) for rank in range(len(pauses)))
    made = StepsMade(generation, np.array([20]), np.array([0.1]), np.array([1.0]))
    results = [
        TurnResult(rank.slot, generation, 0, generation + 1, made=made, pause_seconds=pause)
        for rank, pause in zip(ranks, pauses, strict=True)
    ]
    facts.turned(Membership(generation, ranks, 20, "token"), results)


def test_a_pause_is_that_of_the_rank_that_stood_still_longest_and_the_mean_over_changes() -> None:
    facts = GangFacts("gang", ORDER, 20)
    turned(facts, 0, None)
    assert facts.gang().rescales == 0
    assert math.isnan(facts.gang().pause_seconds)
    turned(facts, 1, 0.5, None)
    assert facts.gang().pause_seconds == pytest.approx(0.5)
    turned(facts, 1, None, None)
    turned(facts, 2, 0.1, 0.3)
    assert facts.gang().rescales == 2
    assert facts.gang().pause_seconds == pytest.approx(0.4)


def test_the_rows_of_a_pass_count_while_it_is_made_and_none_twice() -> None:
    """The order has 100 rows. All ranks are lost after the third step, and two steps are made once more."""
    facts = GangFacts("gang", ORDER, 30)
    assert facts.gang().rows_done == 0
    told(facts, first_step=0, steps=3, passes=0)
    assert facts.gang().rows_done == 90
    told(facts, first_step=1, steps=2, passes=0)
    assert facts.gang().rows_done == 90
    told(facts, first_step=3, steps=1, passes=1)  # it has what is left, 10 rows
    assert facts.gang().rows_done == 120  # the last step of a pass counts with the rows that it was to have
    told(facts, first_step=4, steps=9, passes=1)
    assert facts.gang().rows_done == 200


def told(facts: GangFacts, first_step: int, steps: int, passes: int) -> None:
    """Let one rank tell of steps of 30 rows."""
    rank = RankAddress("tcp://one:1/0", "one", 1)
    made = StepsMade(first_step, np.full(steps, 30), np.full(steps, 0.1), np.ones(steps))
    result = TurnResult(rank.slot, 0, 0, made.end, passes, made)
    facts.turned(Membership(0, (rank,), 30, "token"), [result])
