"""The figures of a shared cluster, from observations made up so that the right ones are known."""

from __future__ import annotations

import math

import pytest

from benchmarks.cluster_due import Fluid
from benchmarks.cluster_figures import Figures, epochs, idle_beside_work
from benchmarks.cluster_observer import Asked, Observed, Planned, Ran, Waiting

PLAN = {"a": 1.5, "b": 0.5}


def busy(job: str, worker: str, begin: float, end: float) -> Ran:
    return Ran(job, worker, begin, end, end - begin)


def seen(
    runs: list[Ran], *, plans: list[Planned] | None = None, asked: list[Asked] | None = None
) -> Observed:
    """Return what was seen of two workers; as a rule both jobs always have four tasks."""
    usual = [Asked(0.0, "a", 4), Asked(0.0, "b", 4)]
    waiting = (Waiting(0.0, 5), Waiting(6.0, 0))
    return Observed(tuple(runs), tuple(plans or [Planned(0.0, PLAN)]), tuple(asked or usual), waiting)


def test_shares_that_follow_the_plan_are_off_by_nothing() -> None:
    runs = [busy("a", "one", 0.0, 1.0), busy("a", "two", 0.0, 0.5), busy("b", "two", 0.5, 1.0)]
    assert Figures(seen(runs), 2).deviation(0.0, 1.0) == pytest.approx(0.0)


def test_the_job_that_is_farthest_off_counts() -> None:
    runs = [busy("a", "one", 0.0, 1.0), busy("b", "two", 0.0, 1.0)]
    runs += [busy("a", "one", 1.0, 2.0), busy("a", "two", 1.0, 2.0)]  # which could have run at once
    assert Figures(seen(runs), 2).deviation(0.0, 1.0) == pytest.approx(0.25)
    assert math.isnan(Figures(seen(runs), 2).deviation(5.0, 6.0))


def test_a_job_is_not_due_more_than_its_tasks_hold() -> None:
    """It is due a core at most, for its one task, until that is done; the rest is the other job's."""
    asked = [Asked(0.0, "a", 1), Asked(0.0, "b", 4)]
    runs = [busy("b", "one", 0.0, 1.0), busy("b", "two", 0.0, 0.8), busy("a", "two", 0.8, 1.0)]
    fluid = Fluid(seen(runs, asked=asked), 2)
    assert fluid.due(0.0, 0.1) == pytest.approx({"a": 0.1, "b": 0.1})
    assert fluid.due(0.0, 0.5) == pytest.approx({"a": 0.2, "b": 0.8})
    assert Figures(seen(runs, asked=asked), 2).deviation(0.0, 1.0) == pytest.approx(0.0)


def test_what_was_not_given_is_not_due_later() -> None:
    """The span begins with the tasks there are then, and their planned shares."""
    runs = [busy("a", "one", 0.0, 1.0), busy("a", "two", 0.0, 1.0)]
    runs += [busy("a", "one", 1.0, 2.0), busy("b", "two", 1.0, 2.0)]
    runs += [busy("a", "one", 2.0, 4.0), busy("a", "two", 2.0, 4.0)]
    asked = [Asked(0.0, "a", 5), Asked(0.0, "b", 1)]
    assert Fluid(seen(runs, asked=asked), 2).due(1.0, 2.0) == pytest.approx({"a": 1.5, "b": 0.5})


def test_a_plan_counts_from_when_it_was_made() -> None:
    plans = [Planned(0.0, PLAN), Planned(1.0, {"a": 0.5, "b": 1.5})]
    runs = [busy("a", worker, 0.0, 2.0) for worker in ("one", "two")]
    runs += [busy("b", worker, 2.0, 4.0) for worker in ("one", "two")]
    due = Fluid(seen(runs, plans=plans), 2).due(0.5, 2.0)
    assert due == pytest.approx({"a": 0.75 + 0.5, "b": 0.25 + 1.5})


def test_the_delay_is_the_time_until_shares_have_followed() -> None:
    plans = [Planned(0.0, PLAN), Planned(2.0, {"a": 0.0, "b": 2.0})]
    runs = [busy("a", "one", 0.0, 2.0), busy("b", "two", 0.0, 2.0)]
    late = [busy("a", "one", 2.0, 2.5), busy("a", "two", 2.0, 2.5)]
    rest = [busy("b", "one", 2.5, 4.0), busy("b", "two", 2.5, 4.0)]
    figures = Figures(seen([*runs, *late, *rest], plans=plans), 2)
    # A window of 0.6 s from 0.44 s after the change on has 0.06 of it left before: a tenth.
    assert figures.delay(2.0, 4.0) == pytest.approx(0.44, abs=0.011)
    assert figures.delay(0.0, 2.0) == math.inf


def test_a_gap_is_idle_only_where_work_waited() -> None:
    runs = [busy("a", "one", 0.0, 4.0), busy("a", "one", 5.0, 7.0), busy("a", "one", 9.0, 10.0)]
    assert Figures(seen(runs), 2).idle_share(0.0, 10.0) == pytest.approx(1.0 / 8.0)


def test_epochs_of_time_and_of_core_time() -> None:
    assert list(epochs(1.0, 3.5)) == [(1.0, 2.0), (2.0, 3.0)]
    runs = [Ran("a", "one", 0.1 * number, 0.1 * (number + 1), 0.05) for number in range(100)]
    found = list(Figures(seen(runs), 2).core_epochs(0.0, 10.0))
    assert [round(end - begin, 1) for begin, end in found] == [4.0, 4.0]


def test_idle_beside_work_counts_queued_tasks_and_jobs_that_run_nothing() -> None:
    def run(id: str, worker: str, begin: float, end: float) -> Ran:
        return busy(f"relaqs-{id}-session", worker, begin, end)

    runs = [run("a", "one", 0.0, 4.0), run("b", "two", 2.0, 4.0), run("a", "two", 6.0, 10.0)]
    waiting = (Waiting(-1.0, 0), Waiting(8.0, 3), Waiting(9.0, 0))
    found = Observed(tuple(runs), (), (), waiting)
    jobs = {"a": (0.0, 10.0), "b": (1.0, 4.0)}
    # b waits from 1 to 2 beside a free worker, a from 4 to 6 beside two, and tasks are queued from 8 to 9.
    assert idle_beside_work(found, 2, jobs) == pytest.approx((1.0 + 2.0 + 1.0) / 20.0)
    assert idle_beside_work(found, 1, jobs) == pytest.approx(2.0 / 10.0)
