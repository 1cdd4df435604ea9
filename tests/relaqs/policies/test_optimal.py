"""The index policy against the least possible integral of the error over time, by dynamic programming."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from relaqs.policies import Index, LeastAttainedService, MaxSum
from relaqs.sharing.view import History, Jobs, JobView, Kind, Observation, Policy, View

STEPS = 12  # of every query
UNKNOWN = 1.0  # relative error before the first result


class Problem:
    """Three queries, one core, steps that are not interrupted, errors known to follow √(1/x − 1)."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        i = np.arange(1.0, STEPS + 1)
        first = random.uniform(0.05, 0.9, 3)
        self.costs = random.uniform(0.2, 3.0, 3)
        self.errors = first[:, None] * np.sqrt((STEPS / i - 1) / (STEPS - 1))

    def error(self, state: tuple[int, ...]) -> float:
        """The sum of the errors when so many steps of each query are done."""
        return sum(UNKNOWN if n == 0 else float(self.errors[job, n - 1]) for job, n in enumerate(state))

    def least_integral(self, start: tuple[int, ...]) -> float:
        @cache
        def from_here(state: tuple[int, ...]) -> float:
            choices = [
                self.costs[job] * self.error(state) + from_here(after(state, job))
                for job in range(3)
                if state[job] < STEPS
            ]
            return min(choices, default=0.0)

        return from_here(start)

    def integral(self, policy: Policy, start: tuple[int, ...]) -> float:
        """The integral when, whenever a step is over, the query with the largest share gets the core."""
        state, total = start, 0.0
        while any(n < STEPS for n in state):
            live = [job for job in range(3) if state[job] < STEPS]
            job = live[int(policy.plan(self.view(state)).cores.argmax())]
            total += self.costs[job] * self.error(state)
            state = after(state, job)
        return total

    def above_optimum(self, policy: Policy, start: tuple[int, ...]) -> float:
        return float(self.integral(policy, start) / self.least_integral(start) - 1.0)

    def view(self, state: tuple[int, ...]) -> View:
        live = [self.job(job, n) for job, n in enumerate(state) if n < STEPS]
        return View(0.0, 1.0, Jobs.of(live), epoch_seconds=0.05)

    def job(self, job: int, done: int) -> JobView:
        cost = float(self.costs[job])
        seen = [Observation((i + 1) / STEPS, float(self.errors[job, i]), cost) for i in range(done)]
        empty = JobView(f"q{job}", Kind.QUERY, 0.0, step_work=1 / STEPS, step_core_seconds=cost)
        return replace(empty, history=History().followed_by(*seen))


def after(state: tuple[int, ...], job: int) -> tuple[int, ...]:
    return tuple(n + (j == job) for j, n in enumerate(state))


INDEX = Index(minimum_share=0.0, normalised=False)
NEW, KNOWN = (0, 0, 0), (1, 1, 1)


@pytest.mark.parametrize("seed", range(6))
def test_the_index_is_close_to_the_optimum(seed: int) -> None:
    problem = Problem(seed)
    assert problem.above_optimum(INDEX, KNOWN) <= 0.01
    assert problem.above_optimum(INDEX, NEW) <= 0.08  # nobody knows what a first result will be worth


@pytest.mark.parametrize("other", [LeastAttainedService(), MaxSum(minimum_share=0.0)], ids=lambda p: p.name)
def test_other_aims_are_far_from_it(other: Policy) -> None:
    """The comparison tells policies apart: those that do not weigh an error's fall by its cost."""
    assert np.median([Problem(seed).above_optimum(other, KNOWN) for seed in range(6)]) > 0.2
