"""Turns in flight, and their order."""

from __future__ import annotations

import math

from relaqs.training.elastic.gang_carrier import TurnsInFlight
from relaqs.training.elastic.membership import Membership
from relaqs.training.elastic.mesh import RankAddress
from relaqs.training.elastic.rank import TurnResult

TWO = Membership(0, (RankAddress("a/0", "a", 1), RankAddress("b/0", "b", 2)), "secret")


def answered(turns: TurnsInFlight, number: int, *slots: str) -> list[int]:
    """Let slots answer a turn, and return the turns that are over then."""
    turn = turns.get(number)
    assert turn is not None
    turn.results |= {slot: TurnResult(slot, number) for slot in slots}
    return [turn.number for turn in turns.take_whole()]


def test_turns_are_over_in_their_order() -> None:
    turns = TurnsInFlight()
    for _ in range(3):
        turns.begin(TWO, 0.0)
    assert answered(turns, 1, "a/0", "b/0") == []
    assert answered(turns, 0, "b/0") == []
    assert answered(turns, 0, "a/0") == [0, 1]
    assert turns.get(1) is None
    assert [turn.number for turn in turns] == [2]


def test_a_turn_waits_no_more_for_slots_that_are_lost() -> None:
    turns = TurnsInFlight()
    for _ in range(2):
        turns.begin(TWO, 0.0)
    assert answered(turns, 1, "b/0") == []
    turns.lose({"a/0"}, 7.0)
    assert [turn.number for turn in turns.take_whole()] == []
    assert [(turn.is_broken, turn.over_seconds, turn.missing) for turn in turns] == [
        (True, 7.0, {"b/0"}),
        (True, 7.0, set()),
    ]
    assert answered(turns, 0, "b/0") == [0, 1]
    assert len(turns) == 0


def test_the_rank_of_an_answer_may_be_lost_before_its_turn_is_over() -> None:
    turns = TurnsInFlight()
    turn = turns.begin(TWO, 0.0)
    assert answered(turns, 0, "a/0") == []
    turns.lose({"a/0"}, 7.0)
    assert (turn.lost, turn.missing, turn.is_broken) == ({"a/0"}, {"b/0"}, False)


def test_numbers_go_on_after_turns_are_over() -> None:
    turns = TurnsInFlight()
    turns.begin(TWO, 0.0)
    assert answered(turns, 0, "a/0", "b/0") == [0]
    assert turns.begin(TWO, 0.0).number == 1


def test_the_last_turn_runs_for_so_long_yet() -> None:
    turns = TurnsInFlight()
    assert turns.end_seconds(0.1) == -math.inf
    turns.begin(TWO, 4.5)
    turns.begin(TWO, 5.0)
    assert turns.end_seconds(0.25) == 5.25


def test_a_membership_knows_its_ranks_by_their_slots() -> None:
    assert (TWO.size, TWO.slots, TWO.rank_of("b/0")) == (2, ("a/0", "b/0"), 1)
