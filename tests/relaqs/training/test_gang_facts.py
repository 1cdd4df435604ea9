"""What a gang tells of its changes: how often, and how long it stood still."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaqs.sharing.gangs import Gang
from relaqs.training.elastic.course import Order, StepsMade
from relaqs.training.elastic.gang_carrier import GangFacts, TurnsMade
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.mesh import RankAddress
from relaqs.training.elastic.rank import TurnResult

ORDER = Order((100,), 10, seed=0)


class Facts(GangFacts):
    """With the turns that they are of."""

    def __init__(self, batch_rows: int) -> None:
        super().__init__("gang", ORDER, batch_rows)
        self.made = TurnsMade()

    def take(self, membership: Membership, results: list[TurnResult]) -> None:
        self.turned(membership, self.made.take(membership, results), self.made)

    @property
    def now(self) -> Gang:
        return self.gang(self.made)


def turned(facts: Facts, generation: int, *pauses: float | None) -> None:
    """Let a gang make a turn of one step. pauses: what each of its ranks tells of its own."""
    ranks = tuple(RankAddress(f"tcp://one:1/{rank}", "one", rank) for rank in range(len(pauses)))
    made = StepsMade(generation, np.array([20]), np.array([0.1]))
    results = [
        TurnResult(rank.slot, 0, generation + 1, made=made, pause_seconds=pause)
        for rank, pause in zip(ranks, pauses, strict=True)
    ]
    facts.take(Membership(generation, ranks, "token"), results)


def test_a_pause_is_that_of_the_rank_that_stood_still_longest_and_the_mean_over_changes() -> None:
    facts = Facts(20)
    turned(facts, 0, None)
    assert facts.now.rescales == 0
    assert math.isnan(facts.now.pause_seconds)
    turned(facts, 1, 0.5, None)
    assert facts.now.pause_seconds == pytest.approx(0.5)
    turned(facts, 1, None, None)
    turned(facts, 2, 0.1, 0.3)
    assert facts.now.rescales == 2
    assert facts.now.pause_seconds == pytest.approx(0.4)


def test_the_rows_of_a_pass_count_while_it_is_made_and_none_twice() -> None:
    """The order has 100 rows. All ranks are lost after the third step, and two steps are made once more."""
    facts = Facts(30)
    assert facts.now.rows_done == 0
    told(facts, first_step=0, steps=3, passes=0)
    assert facts.now.rows_done == 90
    told(facts, first_step=1, steps=2, passes=0)
    assert facts.now.rows_done == 90
    told(facts, first_step=3, steps=1, passes=1)  # it has what is left, 10 rows
    assert facts.now.rows_done == 120  # the last step of a pass counts with the rows that it was to have
    told(facts, first_step=4, steps=9, passes=1)
    assert facts.now.rows_done == 200


def told(facts: Facts, first_step: int, steps: int, passes: int) -> None:
    """Let one rank tell of steps of 30 rows."""
    rank = RankAddress("tcp://one:1/0", "one", 1)
    made = StepsMade(first_step, np.full(steps, 30), np.full(steps, 0.1))
    result = TurnResult(rank.slot, 0, made.end, passes, made)
    facts.take(Membership(0, (rank,), "token"), [result])
