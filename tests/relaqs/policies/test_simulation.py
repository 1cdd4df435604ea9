"""Policies under a fake clock: simulated jobs, all from one integer seed, to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

from relaqs.policies import (
    Fair,
    Fifo,
    Index,
    LeastAttainedService,
    MaxSum,
    ShortestRemainingTime,
    Utility,
    WeightedFair,
)
from relaqs.sharing.division import fill_evenly
from relaqs.sharing.view import Kind, Policy
from tests.relaqs.policies.cluster import (
    EPOCH_SECONDS,
    Epoch,
    FakeJob,
    error_integral_seconds,
    query,
    run,
    training,
)
from tests.relaqs.policies.views import every_policy

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

CORES = 8.0
SEEDS = (1, 2, 3)


def arrivals(seed: int, count: int = 8, training_share: float = 0.5, **more: float) -> list[FakeJob]:
    """Jobs of 5 to 30 core-seconds that arrive at random, every 1.5 s: half as much again as 8 cores do."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1.5, count))
    makers: list[Callable[..., FakeJob]] = [
        training if each < training_share else query for each in random.random(count)
    ]
    return [
        make(f"job {i}", time, seed * 1000 + i, core_seconds=random.uniform(5, 30), **more)
        for i, (make, time) in enumerate(zip(makers, times, strict=True))
    ]


@pytest.mark.parametrize("policy", every_policy(), ids=lambda policy: policy.name)
def test_every_job_ends_and_no_core_idles_before(policy: Policy) -> None:
    jobs = arrivals(seed=4, cores_most=6.0)
    epochs = run(policy, jobs, CORES)
    assert all(job.is_over for job in jobs)
    assert all(
        epoch.plan.cores.sum() == pytest.approx(min(CORES, 6.0 * len(epoch.view.jobs))) for epoch in epochs
    )


@pytest.mark.parametrize("policy", every_policy(), ids=lambda policy: policy.name)
def test_one_seed_one_history(policy: Policy) -> None:
    first, second = (run(policy, arrivals(seed=5, count=5), CORES) for _ in range(2))
    assert [epoch.plan.cores.tolist() for epoch in first] == [epoch.plan.cores.tolist() for epoch in second]
    assert [epoch.errors for epoch in first] == [epoch.errors for epoch in second]


def test_another_seed_another_history() -> None:
    first, second = (run(Fair(), arrivals(seed), CORES) for seed in (5, 6))
    assert [epoch.errors for epoch in first] != [epoch.errors for epoch in second]


def test_first_in_first_out() -> None:
    jobs = arrivals(seed=7)
    run(Fifo(), jobs, CORES)
    ends = [job.end_seconds for job in jobs]
    assert ends == sorted(ends)


def test_core_seconds_follow_the_weights() -> None:
    jobs = [
        query("light", 0.0, 1, weight=1.0, core_seconds=50),
        query("heavy", 0.0, 2, weight=3.0, core_seconds=50),
    ]
    run(WeightedFair(), jobs, CORES, until_seconds=4.0)
    assert jobs[1].attained_core_seconds / jobs[0].attained_core_seconds == pytest.approx(3.0)


def test_a_plan_reacts_to_an_arrival_at_once() -> None:
    jobs = [query("first", 0.0, 1, core_seconds=60), query("second", 3.0, 2, core_seconds=60)]
    epochs = run(Index(), jobs, CORES)
    before, after = (next(e for e in epochs if len(e.view.jobs) == count) for count in (1, 2))
    assert before.plan.cores_by_job() == pytest.approx({"first": CORES})
    assert after.plan.cores_by_job()["second"] > CORES / 2  # a new job goes first
    assert after.time_seconds == 3.0 + EPOCH_SECONDS


@pytest.mark.parametrize("policy", every_policy(minimum_share=0.4), ids=lambda policy: policy.name)
def test_no_job_waits_below_its_minimum_share(policy: Policy) -> None:
    if not hasattr(policy, "minimum_share"):
        policy = WeightedFair()  # fair sharing is its own minimum
    owed: dict[str, float] = {}

    def add_up(epoch: Epoch) -> None:
        jobs = epoch.view.jobs
        fair = fill_evenly(epoch.view.capacity_cores, jobs.weight, jobs.cores_most)
        for id, cores in zip(jobs.ids, 0.4 * fair, strict=True):
            owed[id] = owed.get(id, 0.0) + cores * EPOCH_SECONDS

    jobs = arrivals(seed=8)
    run(policy, jobs, CORES, after_epoch=add_up)
    assert all(job.attained_core_seconds >= owed[job.id] * (1 - 1e-9) for job in jobs)


@cache
def mean_integral(name: str, training_share: float) -> float:
    """The integral of the jobs' errors over time, averaged over the seeds."""
    runs = [run(CONTENDERS[name], arrivals(seed, training_share=training_share), CORES) for seed in SEEDS]
    return float(np.mean([error_integral_seconds(epochs) for epochs in runs]))


CONTENDERS: dict[str, Policy] = {
    "index": Index(),
    "index, the new wait": Index(new_first=False),
    "max_sum": MaxSum(),
    "las": LeastAttainedService(),
    "fair": Fair(),
    "fifo": Fifo(),
}


@pytest.mark.parametrize(
    ("better", "worse", "training_share", "ratio"),
    [
        ("index", "fair", 0.0, 0.9),
        ("index", "fair", 1.0, 0.7),
        ("index", "las", 0.0, 1.0),
        ("index", "las", 1.0, 1.0),
        ("index", "max_sum", 0.0, 0.95),
        ("index", "max_sum", 1.0, 0.95),
        ("index", "index, the new wait", 1.0, 0.95),
        ("max_sum", "fair", 0.0, 1.0),
        ("max_sum", "fair", 1.0, 1.0),
        ("fair", "fifo", 0.0, 0.8),
    ],
)
def test_errors_over_time(better: str, worse: str, training_share: float, ratio: float) -> None:
    assert mean_integral(better, training_share) < ratio * mean_integral(worse, training_share)


def seconds_to(error: float, jobs: Sequence[FakeJob], epochs: Sequence[Epoch]) -> float:
    """The mean time from arrival until the true error is that small."""
    reached: dict[str, float] = {}
    for epoch in epochs:
        for id, now in epoch.errors.items():
            if now <= error:
                reached.setdefault(id, epoch.time_seconds)
    return float(np.mean([reached[job.id] - job.arrival_seconds for job in jobs]))


def test_a_utility_serves_its_own_aim() -> None:
    """Who wants many jobs below a tenth of their first error gets them there sooner than by any average."""
    reaches_a_tenth = Utility(lambda errors, jobs: 1.0 * (errors <= 0.1))
    times = {
        policy.name: np.mean(
            [
                seconds_to(0.1, jobs := arrivals(seed, training_share=0.0), run(policy, jobs, CORES))
                for seed in SEEDS
            ]
        )
        for policy in (reaches_a_tenth, Index(), Fair())
    }
    assert times["utility"] < 0.9 * min(times["index"], times["fair"])


def test_the_shortest_remaining_time_ends_jobs_soonest() -> None:
    means = {}
    for policy in (ShortestRemainingTime(), Fair(), Fifo()):
        jobs = arrivals(seed=9, training_share=0.0)
        run(policy, jobs, CORES)
        means[policy.name] = np.mean([job.end_seconds - job.arrival_seconds for job in jobs])
    assert means["shortest_remaining_time"] < min(means["fair"], means["fifo"])


def test_queries_and_training_share_by_what_they_gain() -> None:
    jobs = arrivals(seed=10, count=10)
    assert {job.kind for job in jobs} == {Kind.QUERY, Kind.TRAINING}
    mixed, halves = run(Index(), jobs, CORES), []
    for kind in (Kind.QUERY, Kind.TRAINING):
        own = [job for job in arrivals(seed=10, count=10) if job.kind is kind]
        halves.append(run(Index(), own, CORES / 2))
    assert error_integral_seconds(mixed) < sum(error_integral_seconds(half) for half in halves)
