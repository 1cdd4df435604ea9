"""Fair shares: whatever tasks cost, jobs get core-seconds in proportion to their weights."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.scheduling.virtual_time import CREDIT_CORE_SECONDS, FairQueue, FairShares


def serve(queue: FairQueue[float], until_core_seconds: float) -> Counter[str]:
    """Return the core-seconds each job got of one core. Items are their own costs."""
    used: Counter[str] = Counter()
    while used.total() < until_core_seconds and (turn := queue.pop()) is not None:
        queue.settle(turn, turn.item)
        used[turn.job] += turn.item
    return used


costs = st.lists(st.floats(0.001, 0.3), min_size=1, max_size=8)


@given(costs, costs, st.sampled_from([0.1, 1.0, 3.0, 10.0]))
def test_shares_follow_the_weights(first: list[float], second: list[float], weight: float) -> None:
    queue: FairQueue[float] = FairQueue()
    queue.enter("first", weight)
    queue.add("first", first * 3000)
    queue.enter("second", 1.0)
    queue.add("second", second * 3000)
    used = serve(queue, until_core_seconds=2.0)
    # One job is served while its virtual time is least, so they never part by more than the largest task.
    assert used["first"] / weight == pytest.approx(used["second"], abs=0.3 + 0.3 / weight)


def test_items_of_a_job_keep_their_order() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("job", 1.0)
    queue.add("job", [1, 2])
    queue.enter("job", 1.0)
    queue.add("job", [3])
    turns = [queue.pop(), queue.pop(), queue.pop(), queue.pop()]
    assert [turn.item for turn in turns if turn is not None] == [1, 2, 3]
    assert turns[3] is None


def test_tasks_that_start_together_spread_over_the_jobs() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("a", 1.0)
    queue.add("a", range(4))
    queue.enter("b", 1.0)
    queue.add("b", range(4))
    turns = [queue.pop() for _ in range(4)]  # four cores, nothing measured yet
    assert Counter(turn.job for turn in turns if turn is not None) == {"a": 2, "b": 2}


def test_a_new_job_owes_nothing_and_is_owed_nothing() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.enter("old", 1.0)
    queue.add("old", [0.1] * 200)
    serve(queue, until_core_seconds=10.0)
    queue.enter("new", 1.0)
    queue.add("new", [0.1] * 200)
    used = serve(queue, until_core_seconds=4.0)
    assert used["new"] == pytest.approx(2.0, abs=0.2)


def test_a_job_that_comes_back_has_a_bounded_credit() -> None:
    queue: FairQueue[float] = FairQueue()
    queue.enter("guest", 1.0)
    queue.add("guest", [0.1])
    serve(queue, until_core_seconds=0.1)
    queue.enter("busy", 1.0)
    queue.add("busy", [0.1] * 400)
    serve(queue, until_core_seconds=10.0)
    queue.enter("guest", 1.0)
    queue.add("guest", [0.1] * 400)
    used = serve(queue, until_core_seconds=4.0)
    assert used["guest"] == pytest.approx(2.0 + CREDIT_CORE_SECONDS / 2, abs=0.15)


def test_a_new_weight_counts_from_the_next_task() -> None:
    shares = FairShares()
    queue: FairQueue[float] = FairQueue(shares)
    queue.enter("a", 1.0)
    queue.add("a", [0.05] * 400)
    queue.enter("b", 1.0)
    queue.add("b", [0.05] * 400)
    serve(queue, until_core_seconds=4.0)
    shares.set_shares({"a": 4.0})
    assert serve(queue, until_core_seconds=5.0)["a"] == pytest.approx(4.0, abs=0.2)


def test_a_dropped_job_is_forgotten_even_while_a_task_of_it_runs() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("job", 1.0)
    queue.add("job", [1, 2])
    turn = queue.pop()
    queue.drop("job")
    assert turn is not None
    queue.settle(turn, 1.0)
    assert queue.pop() is None
    assert queue.jobs() == []


def test_a_job_prepares_itself_on_one_core_while_others_ask() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("old", 0.01)
    queue.add("old", range(4))
    first = queue.pop()
    assert first is not None
    queue.settle(first, 0.05)
    queue.enter("new", 2.0)
    queue.add("new", range(4))
    assert [turn.job for turn in (queue.pop(), queue.pop()) if turn is not None] == ["new", "old"]
    queue.drop("old")
    assert [turn.job for turn in (queue.pop(), queue.pop()) if turn is not None] == ["new", "new"]


def test_once_its_first_item_has_ended_a_job_has_all_its_share() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.enter("old", 0.01)
    queue.add("old", range(8))
    queue.enter("new", 2.0)
    queue.add("new", range(8))
    turns = [queue.pop(), queue.pop()]
    for turn in turns:
        assert turn is not None
        queue.settle(turn, 0.05)
    assert [turn.job for turn in (queue.pop(), queue.pop()) if turn is not None] == ["new", "new"]
