"""Virtual time: shares followed, changed and left over, without a clock or a thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.scheduling.virtual_time import CREDIT_CORE_SECONDS, HEAD_START_SECONDS, FairShares

Costs = dict[str, float]


def serve(
    shares: FairShares, costs: Costs, core_seconds: float, asking: Collection[str] = ()
) -> Counter[str]:
    """Return what each job got of one core that is never idle. costs: of a task of each job."""
    used: Counter[str] = Counter()
    while used.total() < core_seconds:
        job = shares.next(asking or costs)
        assert job is not None
        shares.settle(job, shares.start(job), costs[job])
        used[job] += costs[job]
    return used


def opened(**shares: float) -> FairShares:
    accounts = FairShares()
    for job, share in shares.items():
        accounts.enter(job, share)
    return accounts


@given(
    st.lists(st.tuples(st.floats(0.05, 4.0), st.floats(0.001, 0.2)), min_size=2, max_size=6),
    st.data(),
)
def test_after_any_change_of_shares_nobody_is_off_by_more_than_a_task(
    jobs: list[tuple[float, float]], data: st.DataObject
) -> None:
    """Each job's core-seconds are its share of the total, but for a task of its own and one of each other.

    So they are before the change, and, as what a job is ahead is kept, after it as well.
    """
    costs = {str(i): cost for i, (_, cost) in enumerate(jobs)}
    shares = FairShares()
    for i, (share, _) in enumerate(jobs):
        shares.enter(str(i), share)
    owed: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for planned in (
        dict(enumerate(share for share, _ in jobs)),
        data.draw(st.fixed_dictionaries({i: st.floats(0.05, 4.0) for i in range(len(jobs))})),
    ):
        shares.set_shares({str(i): share for i, share in planned.items()})
        served = serve(shares, costs, 3.0)
        used += served
        total = sum(planned.values())
        owed += Counter({str(i): share / total * served.total() for i, share in planned.items()})
    off_at_most = 2 * sum(costs.values()) + max(costs.values())
    assert all(abs(used[job] - owed[job]) <= off_at_most for job in costs)


def test_a_change_shows_within_one_task() -> None:
    shares = opened(a=9.0, b=1.0)
    serve(shares, {"a": 0.05, "b": 0.05}, 5.0)
    shares.set_shares({"a": 1.0, "b": 9.0})
    assert serve(shares, {"a": 0.05, "b": 0.05}, 1.0)["b"] == pytest.approx(0.9, abs=0.051)


def test_without_a_share_a_job_gets_what_nobody_else_asks_for() -> None:
    shares = opened(rich=1.0, poor=0.0)
    costs = {"rich": 0.05, "poor": 0.05}
    assert serve(shares, costs, 2.0) == {"rich": pytest.approx(2.0)}
    assert serve(shares, costs, 2.0, asking=["poor"]) == {"poor": pytest.approx(2.0)}
    # What it got for nothing is not held against it, nor against the other.
    shares.set_shares({"poor": 1.0})
    used = serve(shares, costs, 2.0)
    assert used["poor"] == pytest.approx(1.0, abs=0.051)


def test_several_without_a_share_take_turns() -> None:
    used = serve(opened(a=0.0, b=0.0), {"a": 0.01, "b": 0.1}, 3.0)
    assert used["a"] == pytest.approx(used["b"], abs=0.11)


def test_tasks_that_run_together_are_charged_in_advance() -> None:
    shares = opened(a=3.0, b=1.0)
    started = []
    for _ in range(8):  # eight cores, nothing measured yet
        job = shares.next("ab")
        assert job is not None
        shares.start(job)
        started.append(job)
    assert Counter(started) == {"a": 6, "b": 2}


def test_idle_time_earns_a_bounded_credit() -> None:
    shares = FairShares(credit_core_seconds=0.4)
    for job in ("guest", "host"):
        shares.enter(job, 1.0)
    costs = {"guest": 0.05, "host": 0.05}
    serve(shares, costs, 10.0, asking=["host"])
    shares.wake("guest")
    assert serve(shares, costs, 2.0)["guest"] == pytest.approx(1.0 + 0.4 / 2, abs=0.051)
    assert CREDIT_CORE_SECONDS < 0.4


def test_a_share_that_could_not_be_used_earns_no_more_than_the_credit() -> None:
    """One task at a time is all `narrow` has, on four cores of which it is given three."""
    shares = opened(narrow=3.0, wide=1.0)
    running = []
    for _ in range(100):  # rounds in which every core does one task
        shares.wake("narrow")
        running = [("narrow", shares.start("narrow"))]
        for _ in range(3):
            assert shares.next(["wide"]) == "wide"
            running.append(("wide", shares.start("wide")))
        for job, charged in running:
            shares.settle(job, charged, 0.05)
    shares.wake("narrow")  # now it has tasks for all cores
    used = serve(shares, {"narrow": 0.05, "wide": 0.05}, 4.0)
    assert used["narrow"] == pytest.approx(3.0 + CREDIT_CORE_SECONDS, abs=0.06)


def test_of_jobs_at_the_same_time_the_first_that_came_is_next() -> None:
    shares = opened(z=1.0, a=1.0)
    assert shares.next(["a", "z"]) == "z"


def test_a_stream_of_newcomers_keeps_nobody_waiting() -> None:
    """Ten wait at any time, one of them with many tasks. Newcomers have one task, and others follow.

    By their shares the long job has a tenth of the core. A newcomer waits for ten tasks, and for the head
    start of those behind it.
    """
    shares = opened(long=0.1)
    came_at, now, used, longest = {}, 0.0, 0.0, 0.0
    asking = {"long"}
    for number in range(2_000):
        while len(asking) < 10:
            newcomer = f"{number * 7919 % 1_000:03}-{number}-{len(asking)}"  # names in no order
            shares.enter(newcomer, 0.1)
            came_at[newcomer] = now
            asking.add(newcomer)
        job = shares.next(asking)
        assert job is not None
        shares.settle(job, shares.start(job), 0.02)
        now += 0.02
        if job == "long":
            used += 0.02
        else:
            longest = max(longest, now - came_at[job])
            asking.remove(job)
            shares.leave(job)
    assert 0.09 < used / now < 0.11
    assert longest < 10 * 0.02 + HEAD_START_SECONDS


def test_entering_twice_keeps_the_account_and_leaving_ends_it() -> None:
    shares = opened(a=1.0)
    shares.enter("a", 5.0)
    charged = shares.start("a")
    shares.leave("a")
    shares.settle("a", charged, 1.0)
    assert shares.jobs() == []
    assert shares.next([]) is None
