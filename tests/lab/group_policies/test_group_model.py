"""Equations 1 to 4 on groups computed by hand, and an identity that they imply."""

from __future__ import annotations

import numpy as np
import pytest
from relaqs_lab.group_policies.arrangement import Arrangement
from relaqs_lab.group_policies.group_model import Bound, GroupModel, GroupTimes
from relaqs_lab.groups import Fleet, Subtasks, SubtaskTimes

from tests.lab.group_policies.made_up import random_subtasks

# (T_cpu, T_net) of each job, then T_g and what it is bound by
BY_HAND = [
    ([(3, 1)], 4, Bound.JOB),
    ([(3, 1), (2, 1)], 5, Bound.COMP),
    ([(1, 3), (1, 2)], 5, Bound.COMM),
    ([(5, 4), (1, 1)], 9, Bound.JOB),
    ([(2, 2), (2, 2)], 4, Bound.COMP),  # all three are 4: the first is named
    ([(1, 2), (2, 2)], 4, Bound.COMM),  # COMM and the longest job are both 4
    ([(0, 5)], 5, Bound.COMM),
    ([(5, 0)], 5, Bound.COMP),
    ([(4, 2), (3, 2), (2, 2)], 9, Bound.COMP),  # Figure 8a: one resource is short, the other one idles
    ([(6, 6), (1, 1), (1, 1)], 12, Bound.JOB),  # Figure 8b: one job is long, and both resources idle
]


@pytest.mark.parametrize(("jobs", "seconds", "bound"), BY_HAND)
def test_the_time_of_a_group_is_its_largest_sum_or_its_longest_job(
    jobs: list[tuple[float, float]], seconds: float, bound: Bound
) -> None:
    comp, comm = np.array(jobs, dtype=np.float64).T
    times = GroupTimes.of(comp, comm, np.zeros(len(jobs)), np.zeros(len(jobs), dtype=np.int64), 1)
    assert times.seconds.tolist() == [seconds]
    assert Bound(times.bound[0]) is bound
    cpu, net = times.utilisation(np.array([1]), 1)
    assert (cpu, net) == (comp.sum() / seconds, comm.sum() / seconds)


def test_a_rest_makes_a_job_longer_and_takes_nothing_from_others() -> None:
    comp, comm, none = np.array([3.0, 2.0]), np.array([1.0, 1.0]), np.zeros(2)
    times = GroupTimes.of(comp, comm, none, none.astype(np.int64), 1, rest=np.array([0.5, 4.0]))
    assert times.seconds.tolist() == [7.0]
    assert times.longest.tolist() == [7.0]
    assert (times.comp.tolist(), times.comm.tolist()) == ([5.0], [2.0])


def test_use_is_averaged_by_machines_and_idle_ones_count() -> None:
    times = GroupTimes.of(np.array([3.0, 1.0]), np.array([1.0, 3.0]), np.zeros(2), np.array([0, 1]), 2)
    assert times.utilisation(np.array([3, 1]), 4) == ((3 * 0.75 + 0.25) / 4, (3 * 0.25 + 0.75) / 4)
    assert times.utilisation(np.array([3, 1]), 8) == ((3 * 0.75 + 0.25) / 8, (3 * 0.25 + 0.75) / 8)


def test_one_machine_sends_nothing_unless_equation_2_is_taken_literally() -> None:
    jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0, comp_fixed_seconds=1.0, comm_fixed_seconds=0.5)])
    one, four = np.array([1]), np.array([4])
    assert GroupModel().comm_seconds(jobs, one).tolist() == [0.5]
    assert GroupModel().comm_seconds(jobs, four).tolist() == [3.5]
    assert GroupModel().comp_seconds(jobs, four).tolist() == [16.0]
    assert GroupModel(literal=True).comm_seconds(jobs, one).tolist() == [4.0]
    assert GroupModel(literal=True).comp_seconds(jobs, four).tolist() == [15.0]


def test_useful_machine_seconds_a_second_are_the_work_over_the_time() -> None:
    jobs, random = random_subtasks(30, seed=3), np.random.default_rng(0)
    group, machines = random.integers(0, 5, 30), random.integers(1, 40, 5)
    group[:5] = np.arange(5)
    found = Arrangement.of(jobs, group, machines, Fleet(int(machines.sum())), GroupModel(literal=True))
    work = np.bincount(group, jobs.comp_machine_seconds, 5)
    used = machines * found.times.comp / found.times.seconds
    np.testing.assert_allclose(used, work / found.times.seconds)


def test_at_equal_weights_a_job_alone_has_the_same_score_on_any_machines() -> None:
    """So u with a half cannot choose machines: the reason for the weight of two thirds."""
    jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0)])
    for weight, is_same in ((0.5, True), (2 / 3, False)):
        model = GroupModel(weight, literal=True)
        scores = [
            Arrangement.of(jobs, np.array([0]), np.array([m]), Fleet(m), model).score for m in (2, 15, 40)
        ]
        assert (max(scores) - min(scores) < 1e-12) is is_same


def test_a_weight_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cpu_weight is 1\.5; give a number from 0 to 1"):
        GroupModel(cpu_weight=1.5)
