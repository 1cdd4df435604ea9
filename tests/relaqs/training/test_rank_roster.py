"""Which ranks of a gang are there, which are awaited, and which are given up."""

from __future__ import annotations

from relaqs.training.elastic.membership import PREPARE_SECONDS, RankRoster
from relaqs.training.elastic.mesh import RankAddress


def roster_of(*ready: str) -> RankRoster:
    """Return a roster of which these ranks were ready at 0 s."""
    roster = RankRoster("gang")
    for slot in ready:
        roster.note_ready(slot, RankAddress(slot, "localhost", 1), now_seconds=0.0)
    return roster


def test_a_rank_that_takes_long_is_left_out_only_where_another_one_can_train() -> None:
    roster = roster_of()
    roster.begin("late", now_seconds=0.0)
    roster.give_up_late(2 * PREPARE_SECONDS)
    assert roster.awaits_any
    roster.note_ready("early", RankAddress("early", "localhost", 1), now_seconds=30.0)
    roster.give_up_late(30.0 + PREPARE_SECONDS)
    assert roster.awaits_any, "the seconds count from when the other one was ready"
    roster.give_up_late(30.1 + PREPARE_SECONDS)
    assert not roster.is_preparing
    assert roster.missing(["early", "late"]) == []


def test_the_time_in_which_nobody_could_be_heard_does_not_count() -> None:
    roster = roster_of("early")
    roster.begin("late", now_seconds=0.0)
    roster.postpone(5.0)
    roster.give_up_late(PREPARE_SECONDS + 4.9)
    assert roster.is_preparing
    roster.give_up_late(PREPARE_SECONDS + 5.1)
    assert not roster.is_preparing


def test_nobody_waits_for_a_slot_that_was_silent_until_it_answers() -> None:
    roster = roster_of("a", "b")
    assert [roster.name("a"), roster.name("b")] == ["gang-0", "gang-0"]
    roster.note_silent({"b"})
    roster.lose({"b"})
    assert [roster.name("a"), roster.name("b")] == ["gang-0", "gang-1"]
    roster.try_all_again()
    assert roster.missing(["a", "b"]) == ["b"]
    roster.begin("b", now_seconds=1.0)
    assert roster.is_preparing
    assert not roster.awaits_any
    roster.note_ready("b", RankAddress("b", "localhost", 2), now_seconds=2.0)
    roster.forget({"b"})
    roster.begin("b", now_seconds=3.0)
    assert roster.awaits_any


def test_what_is_tried_again_leaves_out_slots_without_a_worker() -> None:
    roster = roster_of("a", "b")
    roster.gone.add("a")
    roster.lose({"a", "b"})
    assert roster.is_empty
    roster.try_again()
    assert roster.missing(["a", "b"]) == ["b"]


def test_a_rank_that_knows_the_state_stays_in_the_next_generation() -> None:
    roster = roster_of("a", "b", "c")
    assert roster.bridged(["b", "c"]) == ("b", "c"), "nobody knows one"
    roster.knowing.add("a")
    assert roster.bridged(["b", "c"]) == ("a", "b")
    roster.knowing.add("c")
    assert roster.bridged(["b", "c"]) == ("b", "c")
    roster.forget({"a", "c"})
    assert roster.bridged(["b"]) == ("b",), "the state is lost with its ranks"
