"""What a gang tells of its changes: how often, and how long it stood still."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaqs.training.elastic.gang_facts import GangFacts
from relaqs.training.elastic.membership import Membership, RankAddress
from relaqs.training.elastic.order import Order
from relaqs.training.elastic.rank import StepsMade, TurnResult

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
