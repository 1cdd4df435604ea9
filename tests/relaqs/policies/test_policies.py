"""Each policy on a few jobs written out by hand: who gets what, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from relaqs.policies import (
    Fair,
    Fifo,
    Index,
    LeastAttainedService,
    MaxMin,
    MaxSum,
    Milestones,
    ShortestRemainingTime,
    Utility,
    WeightedFair,
)
from relaqs.sharing.view import History, JobView, Kind, Observation, Policy
from tests.relaqs.policies.views import cores, query, training


def exact(id: str) -> JobView:
    return JobView(id, Kind.EXACT, 0.0)


def foreign(id: str) -> JobView:
    return JobView(id, Kind.FOREIGN, 0.0)


@pytest.mark.parametrize(
    ("policy", "jobs", "expected"),
    [
        pytest.param(
            Fair(),
            [query("a", 1), query("b", 9, weight=3.0)],
            {"a": 4, "b": 4},
            id="fair: weights do not count",
        ),
        pytest.param(
            WeightedFair(), [query("a", 1), query("b", 9, weight=3.0)], {"a": 2, "b": 6}, id="weighted fair"
        ),
        pytest.param(
            Fifo(),
            [
                query("a", 5, seconds=3, cores_most=3),
                query("b", 5, seconds=1, cores_most=3),
                query("c", 5, seconds=2, cores_most=3),
            ],
            {"a": 2, "b": 3, "c": 3},
            id="fifo: by arrival, each up to what it can use",
        ),
        pytest.param(
            ShortestRemainingTime(),
            [query("old", 40), query("young", 5)],
            {"old": 8, "young": 0},
            id="srt: the old is nearly done",
        ),
        pytest.param(
            ShortestRemainingTime(),
            [query("old", 40), query("young", 5, weight=9.0)],
            {"old": 0, "young": 8},
            id="srt: by weight",
        ),
        pytest.param(
            ShortestRemainingTime(),
            [query("to the end", 40), query("to its target", 5, target=0.06)],
            {"to the end": 0, "to its target": 8},
            id="srt: to the target, which is near",
        ),
        pytest.param(
            ShortestRemainingTime(),
            [query("known", 40), query("new", 0, cores_most=3, step_core_seconds=math.nan)],
            {"known": 5, "new": 3},
            id="srt: first those nobody knows the cost of",
        ),
        pytest.param(
            ShortestRemainingTime(),
            [training("no end", 10), query("ends", 1)],
            {"no end": 0, "ends": 8},
            id="srt: what has no end goes last",
        ),
        pytest.param(
            LeastAttainedService(),
            [query("a", 20), query("b", 5)],
            {"a": 0, "b": 8},
            id="las: the one that had less",
        ),
        pytest.param(
            LeastAttainedService(),
            [query("a", 6), query("b", 5), query("c", 5)],
            # In the half second, 4 core-seconds: b and c catch up with a by 1 each, and the three share 2.
            {"a": 4 / 3, "b": 10 / 3, "c": 10 / 3},
            id="las: and then equally",
        ),
        pytest.param(
            MaxSum(minimum_share=0.0),
            [query("new", 0), query("a", 4), query("b", 4)],
            {"new": 8 / 3, "a": 8 / 3, "b": 8 / 3},
            id="max-sum: 1/n for the new, equal progress for equals",
        ),
        pytest.param(
            MaxSum(minimum_share=0.0),
            [query("young", 3), query("old", 45)],
            {"young": 8, "old": 0},
            id="max-sum: where progress is",
        ),
        pytest.param(
            MaxSum(minimum_share=0.5),
            [query("young", 3), query("old", 45)],
            {"young": 6, "old": 2},
            id="max-sum: minimum share",
        ),
        pytest.param(
            MaxMin(minimum_share=0.0),
            [query("worse", 3), query("better", 30)],
            {"worse": 8, "better": 0},
            id="max-min: whoever is worst off",
        ),
        pytest.param(
            Index(minimum_share=0.0),
            [query("young", 3), query("old", 30)],
            {"young": 8, "old": 0},
            id="index: the steepest error",
        ),
        pytest.param(
            Index(minimum_share=0.0),
            [query("new", 0, cores_most=3), query("a", 3)],
            {"new": 3, "a": 5},
            id="index: new jobs first, up to what they can use",
        ),
        pytest.param(
            Index(minimum_share=0.0),
            [training("new", 1, cores_most=5), training("a", 9)],
            {"new": 5, "a": 3},
            id="index: one loss is no curve",
        ),
        pytest.param(
            Index(minimum_share=0.0, new_first=False),
            [training("new", 1, cores_most=5), training("a", 9)],
            {"new": 4, "a": 4},
            id="index: or the new on their fair share",
        ),
        pytest.param(
            Index(minimum_share=0.0),
            [query("dear", 5, step_core_seconds=10.0), query("cheap", 5)],
            {"dear": 0, "cheap": 8},
            id="index: what it costs counts",
        ),
        pytest.param(
            Index(minimum_share=0.0),
            [
                query("begun", 5, step_core_seconds=40.0),
                query("nearly there", 5, step_core_seconds=40.0, spent_core_seconds=36.0),
            ],
            {"begun": 0, "nearly there": 8},
            id="index: what is spent already is no cost",
        ),
        pytest.param(
            Index(minimum_share=0.0, normalised=False),
            [query("noisy", 10, error=0.9), query("calm", 3, error=0.01)],
            {"noisy": 8, "calm": 0},
            id="index: relative errors as they are",
        ),
        pytest.param(
            Index(minimum_share=0.0),
            [query("noisy", 10, error=0.9), query("calm", 3, error=0.01)],
            {"noisy": 0, "calm": 8},
            id="index: or each relative to its first",
        ),
        pytest.param(
            Utility(lambda errors, jobs: -errors * (jobs.ids[0] == "x"), minimum_share=0.0),
            [query("a", 5), query("b", 5)],
            {"a": 4, "b": 4},
            id="utility: nobody gains, so all share",
        ),
    ],
)
def test_who_gets_what(policy, jobs: list[JobView], expected: dict[str, float]) -> None:
    assert cores(policy, *jobs) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "policy", [MaxSum(), MaxMin(), Index(), Utility(lambda errors, jobs: -errors)], ids=lambda p: p.name
)
def test_exact_and_foreign_jobs_get_their_fair_share_first(policy) -> None:
    given = cores(policy, exact("exact"), foreign("foreign"), query("a", 4), query("b", 30))
    assert given["exact"] == given["foreign"] == pytest.approx(2.0)
    assert given["a"] + given["b"] == pytest.approx(4.0)


@pytest.mark.parametrize(
    "policy", [MaxSum(), MaxMin(), Index(), Utility(lambda errors, jobs: -errors)], ids=lambda p: p.name
)
def test_cores_are_handed_out_though_nobody_gains(policy) -> None:
    flat = replace(
        training("a", 0), history=History().followed_by(*[Observation(k, 1.0, 1.0) for k in (1.0, 2.0, 3.0)])
    )
    assert cores(policy, flat, replace(flat, id="b")) == pytest.approx({"a": 4, "b": 4})


def test_max_sum_maximises_the_sum_of_predicted_progress() -> None:
    """Two queries whose P̂ = 1/(A·i² + B) is known exactly: no whole split of the cores makes more of it."""
    steps = np.arange(1.0, 13.0)

    def job(id: str, a: float, b: float) -> JobView:
        seen = [Observation(i / 50, 0.1, 1.0, 1 / (a * i**2 + b)) for i in steps]
        return replace(
            query(id, 0), history=History().followed_by(*seen), step_core_seconds=0.5, step_work=0.02
        )

    curves = {"steep": (0.02, 1.0), "flat": (0.0, 6.0)}
    given = cores(MaxSum(minimum_share=0.0), *(job(id, *curve) for id, curve in curves.items()))

    def progress_made(id: str, own_cores: int) -> float:
        a, b = curves[id]
        return sum(1 / (a * i**2 + b) for i in 12 + np.arange(1.0, own_cores + 1))  # a core makes one step

    best = max(range(9), key=lambda own: progress_made("steep", own) + progress_made("flat", 8 - own))
    assert given["steep"] == pytest.approx(best, abs=1.0)
    assert 0 < best < 8


def test_max_sum_without_a_metric_takes_the_changes_of_the_error() -> None:
    def without_progress(job: JobView) -> JobView:
        seen = [Observation(*row[:3]) for row in job.history.newest[-job.history.count :].tolist()]
        return replace(job, history=History().followed_by(*seen))

    jobs = [without_progress(query("young", 3)), without_progress(query("old", 12))]
    assert cores(MaxSum(minimum_share=0.0), *jobs) == pytest.approx({"young": 8, "old": 0})


def test_max_min_lowers_the_largest_error() -> None:
    jobs = [query("a", 2), query("b", 3), query("c", 4)]
    given = cores(MaxMin(minimum_share=0.0), *jobs, cores=20.0)
    # Each step costs a core-second, so that 20 cores make 10 steps; errors are equal where as many were made.
    made = {job.id: job.history.count + 0.5 * given[job.id] for job in jobs}
    assert list(made.values()) == pytest.approx([19 / 3] * 3, abs=0.6)


def test_the_index_serves_the_steepest_until_it_is_no_more_so() -> None:
    jobs = [query(f"q{steps}", steps) for steps in (2, 4, 8, 16)]
    given = cores(Index(minimum_share=0.0), *jobs, cores=24.0)
    # 24 cores make 12 steps by the next plan: three meet after 26/3 steps, where the fourth is flatter.
    made = [job.history.count + 0.5 * given[job.id] for job in jobs]
    assert made == pytest.approx([26 / 3, 26 / 3, 26 / 3, 16.0], abs=0.1)


def test_a_query_about_to_end_counts_for_its_whole_end() -> None:
    """The last steps of a query are worth ever more: √(1/x − 1) falls vertically to the exact answer."""
    ending, middle = query("ending", 47), query("middle", 25)
    given = cores(Index(minimum_share=0.0), ending, middle, cores=2.0)
    # One second ahead the two fall alike; the index looks to the end, 3 core-seconds away.
    assert given == pytest.approx({"ending": 2, "middle": 0})


def test_a_query_without_an_error_counts_for_its_end_alone() -> None:
    """Half way, 25 core-seconds take it from 1 to 0: 0.04 each. After 3 steps of 50, one is worth 0.08; after
    40 of them the rest is worth 0.007 each."""
    unknown = query("unknown", 25, error=math.inf)
    policy = Index(minimum_share=0.0)
    assert cores(policy, unknown, query("young", 3), cores=2.0) == {"unknown": 0, "young": 2}
    assert cores(policy, unknown, query("old", 40), cores=2.0) == {"unknown": 2, "old": 0}


def test_a_target_far_ahead_draws_cores_at_once() -> None:
    policy = Utility(lambda errors, jobs: 1.0 * (errors <= 0.25), minimum_share=0.0)
    given = cores(policy, query("near", 10), query("far", 2), query("through", 40), cores=2.0)
    # No target can be reached before the next plan: 4 and 10 core-seconds ahead, and half a one to give.
    assert given == pytest.approx({"near": 2, "far": 0, "through": 0})


def test_a_utility_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"it must return one finite number for each error"):
        cores(Utility(lambda errors, jobs: errors[:, 0]), query("a", 5))
    with pytest.raises(ValueError, match=r"it must return one finite number for each error"):
        cores(Utility(lambda errors, jobs: np.full_like(errors, math.nan)), query("a", 5))


def test_few_cores_are_shared_in_parts() -> None:
    """Two cores, twelve queries: whole cores would leave ten of them nothing."""
    given = cores(Index(minimum_share=0.1), *(query(f"q{i}", 2 + i) for i in range(12)), cores=2.0)
    assert all(share >= 0.1 * 2 / 12 * (1 - 1e-9) for share in given.values())
    assert max(given.values()) < 2


def soon_and_late(policy: Policy, **more: Any) -> bool:
    """Whether a query that has just begun gets more cores than one that has read most of its rows."""
    given = cores(policy, query("new", 2, **more), query("old", 30, **more))
    return given["new"] > given["old"]


def test_milestones_say_who_is_served() -> None:
    assert soon_and_late(Milestones((0.5,)))
    assert not soon_and_late(Milestones((0.95,)))


def test_the_weights_of_milestones_count() -> None:
    assert soon_and_late(Milestones((0.5, 0.95), (9.0, 1.0)))
    assert not soon_and_late(Milestones((0.5, 0.95), (1.0, 9.0)))


def test_a_target_is_the_one_milestone_of_its_job() -> None:
    """Both have read as much. The one whose target is near is served towards it, and not the other."""
    given = cores(Milestones((0.9,)), query("near", 4, target=0.08), query("usual", 4))
    assert given["near"] > 2 * given["usual"]
    passed = cores(Milestones((0.9,)), query("passed", 4, target=0.5), query("usual", 4))
    assert passed["passed"] < passed["usual"]


def test_milestones_that_count_little_beside_the_error_are_the_index() -> None:
    jobs = [query("new", 2), query("old", 30), query("older", 40)]
    nearly = cores(Milestones((0.9,), (1e-9,), error_weight=1.0), *jobs)
    assert nearly == pytest.approx(cores(Index(), *jobs), abs=0.2)
