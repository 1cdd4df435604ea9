"""No policy is below the bound: tiny instances by trying every schedule, and simulated ones."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from relaqs_lab.records.trace import Trace
from relaqs_lab.simulation.bound import core_seconds_to, least_mean_seconds, least_weighted_seconds
from relaqs_lab.simulation.simulator import Options, simulate
from relaqs_lab.simulation.workload import Workload, poisson_arrivals, synthetic_workload, workload_of

from relaqs.policies import Fair, Fifo, Index, ShortestRemainingTime
from relaqs.sharing.view import Kind

REDUCTIONS = np.array([0.7, 0.9])


def unit_steps(*errors: float) -> Trace:
    """A query of steps of one core-second each, with these true errors after them."""
    steps = len(errors)
    column = np.array(errors)
    return Trace(
        "q", Kind.QUERY, np.arange(1, steps + 1) / steps, column, column, np.ones(steps), np.ones(steps)
    )


def tiny(random: np.random.Generator) -> Workload:
    """Three jobs of one to four core-seconds that come within four seconds."""
    jobs = []
    for _ in range(3):
        first, second = sorted(random.integers(1, 5, 2))
        jobs.append(unit_steps(*[1.0] * int(first - 1), *[0.2] * int(second - first), 0.0))
    return workload_of(jobs, np.sort(np.append(0.0, random.integers(0, 5, 2))).astype(np.float64))


def least_by_trial(workload: Workload, weights: tuple[float, float]) -> float:
    """The least weighted sum of mean times on one core, over every schedule that may change each second.

    All times are whole seconds, and to interrupt a job helps only where another one comes or ends. So no
    other schedule is better.
    """
    cost = core_seconds_to(workload, REDUCTIONS)
    arrival = workload.arrival_seconds
    needed = cost.max(axis=1)

    @cache
    def least(now: int, done: tuple[int, ...]) -> float:
        able = [job for job in range(3) if arrival[job] <= now and done[job] < needed[job]]
        if not able:
            later = arrival[arrival > now]
            return least(int(later.min()), done) if len(later) else 0.0
        return min(after(now, done, job) for job in able)

    def after(now: int, done: tuple[int, ...], job: int) -> float:
        further = tuple(each + (index == job) for index, each in enumerate(done))
        reached = (cost[job] == further[job]) * (now + 1 - arrival[job])
        return float(np.dot(weights, reached)) + least(now + 1, further)

    return least(0, (0, 0, 0)) / 3


@pytest.mark.parametrize("seed", range(20))
def test_one_milestone_alone_has_the_least_time_of_every_schedule(seed: int) -> None:
    workload = tiny(np.random.default_rng(seed))
    each = least_mean_seconds(workload, REDUCTIONS, 1.0)
    by_trial = [least_by_trial(workload, (1.0, 0.0)), least_by_trial(workload, (0.0, 1.0))]
    assert each == pytest.approx(by_trial, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_milestones_together_are_never_sooner_than_the_bound(seed: int) -> None:
    workload = tiny(np.random.default_rng(seed))
    for share in (0.0, 0.2, 0.5, 0.8, 1.0):
        weights = (share, 1.0 - share)
        bound = least_weighted_seconds(workload, REDUCTIONS, np.array(weights), 1.0)
        by_trial = least_by_trial(workload, weights)
        assert 0.8 * by_trial <= bound <= by_trial * (1 + 1e-12), (share, bound, by_trial)


def test_a_single_milestone_of_jobs_that_come_together_is_exact() -> None:
    jobs = [unit_steps(*[1.0] * (steps - 1), 0.0) for steps in (3, 1, 2)]
    workload = workload_of(jobs, np.zeros(3))
    weights = np.array([0.0, 1.0])
    assert least_weighted_seconds(workload, REDUCTIONS, weights, 2.0) == pytest.approx((0.5 + 1.5 + 3.0) / 3)


@pytest.mark.parametrize(
    ("policy", "cores_most"),
    [*product([Fair(), Fifo(), Index(), ShortestRemainingTime()], [np.inf, 3.0])],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_no_policy_is_below_the_bound(policy, cores_most: float) -> None:
    random = np.random.default_rng(5)
    arrivals = poisson_arrivals(random, 6, 4.0)
    workload = synthetic_workload(random, arrivals, core_seconds=40.0, cores_most=cores_most)
    mean = simulate(workload, policy, 8.0, Options(0.5)).outcome.seconds_to(REDUCTIONS).mean(axis=0)
    assert (mean >= least_mean_seconds(workload, REDUCTIONS, 8.0) * (1 - 1e-9)).all()
    for share in (0.2, 0.5, 0.8):
        weights = np.array([share, 1.0 - share])
        assert weights @ mean >= least_weighted_seconds(workload, REDUCTIONS, weights, 8.0) * (1 - 1e-9)


def test_a_job_that_can_use_few_cores_alone_takes_its_time() -> None:
    workload = workload_of([unit_steps(0.0)], np.zeros(1), cores_most=2.0)
    assert least_mean_seconds(workload, REDUCTIONS, 100.0).tolist() == [0.5, 0.5]
