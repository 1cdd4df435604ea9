"""One rank by itself: how its turns end."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from relaqs.jobs.wanted_core import core_wanted_by
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.rank import Rank, TurnWork
from tests.relaqs.executors.clusters import LONG_SECONDS
from tests.relaqs.training.lessons import MadeUpRecipe

PASS_STEPS = 25  # after a pass a turn ends in any case


@pytest.fixture
def rank() -> Iterator[Rank]:
    rank = Rank("one", MadeUpRecipe().lesson("owner"))
    yield rank
    rank.close()


@pytest.mark.parametrize(
    ("yields", "least_seconds", "is_wanted", "steps"),
    [
        (True, 0.0, True, 1),
        (True, 0.0, False, PASS_STEPS),
        (False, 0.0, True, PASS_STEPS),
        (True, LONG_SECONDS, True, PASS_STEPS),  # a turn is no shorter than that
    ],
)
def test_a_turn_ends_early_for_a_task_that_waits(
    rank: Rank,
    monkeypatch: pytest.MonkeyPatch,
    yields: bool,
    least_seconds: float,
    is_wanted: bool,
    steps: int,
) -> None:
    monkeypatch.setattr("relaqs.training.elastic.rank.LEAST_TURN_SECONDS", least_seconds)
    membership = Membership(0, (rank.address,), 64, "token")
    with core_wanted_by(lambda: is_wanted):
        result = rank.take(TurnWork("gang", "one", membership, 0, LONG_SECONDS, yields, math.inf))
    assert (result.broken, result.step) == (None, steps)
