"""Ranks in one process, each with a thread: how they begin, share their state, fail and are freed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

from relaqs.jobs.executor import core_wanted_by
from relaqs.training.elastic.course import Order
from relaqs.training.elastic.membership import RESIDENTS, Actor, Membership, Residents, StateLostError
from relaqs.training.elastic.mesh import Mesh
from relaqs.training.elastic.rank import Lesson, Rank, RankTurn, TurnResult
from relaqs.training.rows import Rows
from tests.relaqs.training.lessons import MadeUpRecipe, Regression

LONG_SECONDS = 60.0
PASS_STEPS = 25  # after a pass a turn ends in any case


def work_of(rank: Rank, membership: Membership, seconds: float = LONG_SECONDS) -> RankTurn:
    return RankTurn("gang", rank.address.slot, membership, 0, seconds)


def turn_of(ranks: list[Rank]) -> list[TurnResult | BaseException]:
    """Let ranks make a pass together, and return what each gives or raises."""
    membership = Membership(0, tuple(rank.address for rank in ranks), "token")

    def take(rank: Rank) -> TurnResult | BaseException:
        try:
            return rank.take(work_of(rank, membership))
        except ZeroDivisionError as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as threads:
        found = list(threads.map(take, ranks))
    for rank in ranks:
        rank.close()
    return found


@dataclass(frozen=True)
class Failing:
    """Has no rows."""

    order: Order

    def rows(self, piece: int) -> Rows:
        raise ZeroDivisionError(piece)


def test_a_rank_that_fails_frees_its_peers_at_once() -> None:
    lesson = replace(MadeUpRecipe().lesson(), patience_seconds=5.0)
    told, failed = turn_of([Rank("a/0", lesson), Rank("b/0", replace(lesson, reader=Failing(lesson.order)))])
    assert isinstance(failed, ZeroDivisionError)
    assert isinstance(told, TurnResult)
    assert "rank 1: " in str(told.broken)
    assert "in time" not in str(told.broken)  # the connection broke before the patience was over


def test_a_large_state_has_time_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 4 ranks it takes two hops. The last one waits while the state is on the first."""
    limits, broadcast = [], Mesh.broadcast

    def note(exchange: Mesh, value: object, root: int) -> object:
        limits.append(exchange.limit_seconds)
        return broadcast(exchange, value, root)

    monkeypatch.setattr(Mesh, "broadcast", note)
    lesson: Lesson = MadeUpRecipe(Regression(padding=250_000)).lesson()  # two arrays of 2 MB
    told = turn_of([Rank(f"{name}/0", lesson) for name in "abcd"])
    assert [isinstance(each, TurnResult) and each.step for each in told] == [PASS_STEPS] * 4
    assert np.array(limits) == pytest.approx(2.0 + 2 * 4.0, rel=0.01)


def test_of_two_that_settle_at_once_the_first_stays() -> None:
    residents, lesson, both = Residents(), MadeUpRecipe().lesson(), threading.Barrier(2)
    made = []

    def make() -> Rank:
        made.append(rank := Rank("a/0", lesson))
        both.wait(LONG_SECONDS)
        return rank

    def settle(_: int) -> Actor:
        return residents.settled("gang", "a/0", make)

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(settle, range(2))
    assert first is second
    assert [rank._listener.fileno() < 0 for rank in made].count(True) == 1  # the other one is freed
    residents.forget("gang", "a/0")
    assert len(residents) == 0
    assert all(rank._listener.fileno() < 0 for rank in made)


@pytest.mark.parametrize(
    ("least_seconds", "is_wanted", "steps"),
    [
        (0.0, True, 1),
        (0.0, False, PASS_STEPS),
        (LONG_SECONDS, True, PASS_STEPS),  # a turn is no shorter than that
    ],
)
def test_a_turn_ends_early_for_a_task_that_waits(
    monkeypatch: pytest.MonkeyPatch,
    least_seconds: float,
    is_wanted: bool,
    steps: int,
) -> None:
    monkeypatch.setattr("relaqs.training.elastic.rank.LEAST_TURN_SECONDS", least_seconds)
    rank = Rank("one", MadeUpRecipe().lesson())
    membership = Membership(0, (rank.address,), "token")
    with core_wanted_by(lambda: is_wanted):
        result = rank.take(work_of(rank, membership))
    rank.close()
    assert (result.broken, result.step) == (None, steps)


def test_a_turn_whose_rank_is_freed_just_then_says_so() -> None:
    rank = Rank("a/0", MadeUpRecipe().lesson())
    work = work_of(rank, Membership(0, (rank.address,), "token"))
    RESIDENTS.settled("gang", "a/0", lambda: rank)
    rank.close()
    try:
        with pytest.raises(StateLostError, match="what was on a/0 was freed"):
            work.run("")
    finally:
        RESIDENTS.forget("gang", "a/0")


def test_the_end_of_a_pass_is_told_again_until_the_driver_has_it() -> None:
    """The rank that told of it is lost, and what it told, while the others are in the next pass."""
    first, second, third = (Rank(f"{name}/0", MadeUpRecipe().lesson()) for name in "abc")
    assert [each.ends[-1].passes for each in turn([first], 0, LONG_SECONDS)] == [1]
    ends = turn([first, second], 1)
    assert [[end.passes for end in each.ends] for each in ends] == [[1], [1]]
    (kept,) = turn([third, second], 2)[0].ends
    assert (kept.passes, kept.step) == (1, PASS_STEPS)
    assert kept.course == ends[0].ends[0].course
    assert [each.ends for each in turn([third], 3, kept_passes=1)] == [()]
    for rank in (first, second, third):
        rank.close()


def turn(ranks: list[Rank], generation: int, seconds: float = 0.0, kept_passes: int = 0) -> list[TurnResult]:
    """Let ranks be a generation, and make a step, or as many as they can in `seconds`.

    kept_passes: of how many the driver has the state.
    """
    membership = Membership(generation, tuple(rank.address for rank in ranks), "token")
    works = [replace(work_of(rank, membership, seconds), kept_passes=kept_passes) for rank in ranks]
    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(Rank.take, ranks, works))
