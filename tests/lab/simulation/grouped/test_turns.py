"""Lanes and shared resources, against equation 1 and against what is known of two jobs."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_lab.groups import TurnTaking
from relaqs_lab.simulation.grouped.queries import EndlessQueries
from relaqs_lab.simulation.grouped.turns import IterationSeconds, Lanes, Sharing, sharing


def iteration_seconds(
    lanes: Sharing, needs: list[IterationSeconds], rounds: int, after: tuple[float, ...] = ()
) -> float:
    """Return the longest mean iteration of a job, over the second half of `rounds` or more."""
    ends: list[list[float]] = [[] for _ in needs]
    for job, each in enumerate(needs):
        lanes.begin(job, each, 0.0, after[job] if after else 0.0)
    while min(map(len, ends)) < rounds:
        now = lanes.next_seconds()
        ended = lanes.step()
        if ended is not None:
            ends[ended].append(now)
            lanes.begin(ended, needs[ended], now)
    halves = [(times[len(times) // 2], times[-1], len(times) - 1 - len(times) // 2) for times in ends]
    return max((last - first) / count for first, last, count in halves)


def equation_1(needs: list[IterationSeconds]) -> float:
    sums = (sum(each.comp for each in needs), sum(each.pull + each.push for each in needs))
    return max(*sums, sum(each.reload for each in needs), max(each.alone for each in needs))


def random_group(seed: int, count: int) -> list[IterationSeconds]:
    random = np.random.default_rng(seed)
    needs = []
    for _ in range(count):
        seconds, comp, pull = random.lognormal(0, 0.5), random.uniform(0.2, 0.8), random.uniform(0.3, 0.7)
        needs.append(
            IterationSeconds(seconds * (1 - comp) * pull, seconds * comp, seconds * (1 - comp) * (1 - pull))
        )
    return needs


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_pull_before_push_makes_equation_1_exact(count: int) -> None:
    for seed in range(40):
        needs = random_group(seed, count)
        found = iteration_seconds(sharing("pull_first"), needs, rounds=240)
        assert found == pytest.approx(equation_1(needs), rel=1e-3), (seed, count)


def test_first_in_first_out_is_slower_than_equation_1_for_two_jobs() -> None:
    """One in four pairs is slower by more than a tenth, and none is faster than the bound."""
    groups = [random_group(seed, 2) for seed in range(40)]
    excess = np.array([iteration_seconds(sharing("fifo"), g, rounds=60) / equation_1(g) - 1 for g in groups])
    assert excess.min() > -1e-9
    assert (excess > 0.1).sum() >= 8


def test_lanes_are_exclusive_and_what_they_did_is_counted() -> None:
    lanes = sharing("pull_first")
    needs = [IterationSeconds(1.0, 3.0, 1.0), IterationSeconds(1.0, 1.0, 1.0)]
    seconds = iteration_seconds(lanes, needs, rounds=100)
    assert seconds == pytest.approx(5.0)
    assert lanes.comp_seconds / lanes.comm_seconds == pytest.approx(4.0 / 4.0, rel=0.02)


def test_a_job_waits_for_its_rows_from_the_disk() -> None:
    needs = [IterationSeconds(1.0, 2.0, 1.0, reload=7.0)]
    assert iteration_seconds(sharing("pull_first"), needs, rounds=50) == pytest.approx(7.0)
    needs = [IterationSeconds(1.0, 2.0, 1.0, reload=4.0)]
    assert iteration_seconds(sharing("pull_first"), needs, rounds=50) == pytest.approx(4.0)
    two = [IterationSeconds(1.0, 2.0, 1.0, reload=4.0), IterationSeconds(1.0, 2.0, 1.0, reload=5.0)]
    assert iteration_seconds(sharing("pull_first"), two, rounds=50) == pytest.approx(9.0)


@pytest.mark.parametrize(("offset", "seconds"), [(0.0, 2.0), (0.25, 1.5), (0.5, 1.0)])
def test_two_equal_jobs_that_share_keep_the_phase_in_which_they_began(offset: float, seconds: float) -> None:
    needs = [IterationSeconds(0.25, 0.5, 0.25)] * 2
    after = (0.0, offset) if offset else ()
    assert iteration_seconds(sharing("shared"), needs, 40, after) == pytest.approx(seconds, rel=0.03)


@pytest.mark.parametrize("turns", ["pull_first", "fifo", "shared"])
def test_a_job_that_leaves_leaves_the_lanes_to_the_others(turns: TurnTaking) -> None:
    group = sharing(turns)
    needs = [IterationSeconds(1.0, 3.0, 1.0)] * 2
    for job in (0, 1):
        group.begin(job, needs[job], 0.0)
    ends: list[float] = []
    while len(ends) < 10:
        now, ended = group.next_seconds(), group.step()
        if ended == 0:
            group.leave(0, now)
        elif ended == 1:
            ends.append(now)
            group.begin(1, needs[1], now)
    assert np.diff(ends)[-5:].tolist() == pytest.approx([5.0] * 5)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_queries_have_what_is_left_of_the_cores_and_delay_a_group_by_a_task_a_job(count: int) -> None:
    for seed in range(20):
        needs = random_group(seed, count)
        said = equation_1(needs)
        alone = Lanes(pull_first=True)
        assert iteration_seconds(alone, needs, 60) == pytest.approx(said, rel=2e-3)
        assert alone.query_seconds == 0.0
        lanes = Lanes(pull_first=True, queries=EndlessQueries(0.01 * said))
        measured = iteration_seconds(lanes, needs, 60)
        assert said * (1 - 2e-3) <= measured <= said * (1 + 0.01 * count + 2e-3)
        busy = lanes.comp_seconds + lanes.query_seconds
        assert lanes.next_seconds() - busy <= max(each.comp for each in needs) + 0.01 * said  # what runs now
