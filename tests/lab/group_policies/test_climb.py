"""Climbing: it says what groups are worth as the model does, keeps jobs and machines, and finds the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_lab.group_policies.arrangement import WAITS, Arrangement, better, climbed
from relaqs_lab.group_policies.group_model import Goal, GroupModel
from relaqs_lab.group_policies.harmony import Harmony
from relaqs_lab.group_policies.prefixes import PrefixSearch
from relaqs_lab.groups import Fleet, GroupView

from benchmarks.grouping_oracles import annealed, best_of_prefixes
from tests.lab.group_policies.made_up import random_subtasks

seeds = st.integers(0, 10_000)


def any_groups(seed: int, jobs: int, machines: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each job at random, and the machines of each group, all of them together."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, min(jobs, 4) + 1))
    group = np.concatenate([np.arange(count), random.integers(0, count, jobs - count)])
    cuts = np.sort(random.choice(np.arange(1, machines), count - 1, replace=False))
    return group, np.diff(np.concatenate([[0], cuts, [machines]]))


@given(seed=seeds, jobs=st.integers(1, 9), literal=st.booleans(), memory=st.sampled_from([np.inf, 9e10]))
@settings(max_examples=30, deadline=None)
def test_the_worth_is_u_before_and_after(seed: int, jobs: int, literal: bool, memory: float) -> None:
    columns, model = random_subtasks(jobs, seed, fixed=2.0), GroupModel(literal=literal)
    fleet, (group, machines) = Fleet(24, memory, 125e6), any_groups(seed, jobs, 24)
    goal = Goal.use(columns, fleet, model, spills=True)
    found = climbed(goal, group, machines)
    for where, own in ((group, machines), (found.group, found.machines)):
        worth = climbed(goal, where, own, changes=0).worth
        assert worth == pytest.approx(Arrangement.of(columns, where, own, fleet, model).score)
    assert found.worth >= climbed(goal, group, machines, changes=0).worth
    assert found.machines.sum() <= 24
    assert sorted(set(found.group.tolist())) == list(range(len(found.machines)))


def test_no_single_change_makes_the_end_better() -> None:
    """A job to another group, two that swap, and a machine from one group to another, by plain loops."""
    columns, model, fleet = random_subtasks(7, seed=3), GroupModel(), Fleet(20)
    goal = Goal.use(columns, fleet, model, spills=True)
    found = climbed(goal, *any_groups(3, 7, 20))
    tried = []
    for job in range(7):
        for other in range(7):
            swapped = found.group.copy()
            swapped[[job, other]] = swapped[[other, job]]
            tried.append((swapped, found.machines))
        for place in range(len(found.machines)):
            moved = found.group.copy()
            moved[job] = place
            tried.append((moved, found.machines))
    for giver in range(len(found.machines)):
        for taker in range(len(found.machines)):
            machines = found.machines.copy()
            machines[giver] -= 1
            machines[taker] += 1
            tried.append((found.group, machines))
    possible = [each for each in tried if (each[1] > 0).all() and len(set(each[0].tolist())) == len(each[1])]
    scores = [Arrangement.of(columns, group, own, fleet, model).score for group, own in possible]
    assert len(scores) > 50
    assert max(scores) <= found.worth * (1 + 1e-6)


@given(seed=seeds, jobs=st.integers(2, 9))
@settings(max_examples=20, deadline=None)
def test_who_may_not_wait_does_not(seed: int, jobs: int) -> None:
    columns, random = random_subtasks(jobs, seed), np.random.default_rng(seed)
    value, may_wait = random.uniform(0, 1, jobs), random.uniform(size=jobs) < 0.5
    group, machines = any_groups(seed, jobs, 24)
    goal = Goal.worth_a_second(columns, Fleet(24), GroupModel(), value, spills=True)
    found = climbed(goal, group, machines, may_wait=may_wait)
    assert not (found.group == WAITS)[~may_wait].any()
    assert found.worth >= climbed(goal, group, machines, changes=0).worth


def test_a_job_of_more_worth_takes_the_place_of_one_that_runs() -> None:
    columns = random_subtasks(2, seed=1)
    same = columns.of_jobs(np.array([0, 1]))
    goal = Goal.worth_a_second(same, Fleet(1), GroupModel(), np.array([1e-6, 1.0]), spills=True)
    found = climbed(goal, np.array([0, WAITS]), np.array([1]), may_wait=np.array([True, True]))
    assert found.group.tolist() == [WAITS, 0]


def test_a_group_without_room_for_its_parameters_is_worth_nothing() -> None:
    columns = random_subtasks(2, seed=1)
    fleet = Fleet(2, memory_bytes=float(columns.model_bytes.max()) * 1.01)
    goal = Goal.use(columns, fleet, GroupModel(), spills=True)
    apart = climbed(goal, np.array([0, 1]), np.array([1, 1]))
    assert np.isfinite(apart.worth)
    assert climbed(goal, np.array([0, 0]), np.array([1]), changes=0).worth == -np.inf


def test_the_oracle_is_the_best_of_all_partitions_and_machines() -> None:
    """By plain enumeration: three jobs on four machines."""
    columns, model, fleet = random_subtasks(3, seed=9), GroupModel(), Fleet(4)
    partitions = ([0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2])
    best = 0.0
    for numbers in partitions:
        for one in range(1, 5):
            for two in range(1, 5):
                for three in range(1, 5):
                    machines = np.array([one, two, three][: max(numbers) + 1])
                    if machines.sum() <= 4:
                        found = Arrangement.of(columns, np.array(numbers), machines, fleet, model)
                        best = max(best, found.score)
    assert best_of_prefixes(columns, 4, model)[-1] == pytest.approx(best)


def test_climbing_is_within_2_percent_of_the_best_of_all_groups() -> None:
    model, fleet = GroupModel(), Fleet(20)
    by_rule = []
    for seed in range(6):
        columns = random_subtasks(6, seed)
        best = float(best_of_prefixes(columns, 20, model).max())
        rule, climb = (
            PrefixSearch(model, tolerance=0.0, refined=each).best(columns, fleet)  # type: ignore[arg-type]
            for each in ("rule", "climb")
        )
        assert rule is not None
        assert climb is not None
        assert 0.98 * best <= climb.score <= best * (1 + 1e-9)
        assert rule.score <= climb.score + 1e-9
        by_rule.append(rule.score / best)
    assert min(by_rule) < 0.95


def test_annealing_finds_nothing_above_the_best_of_all_groups() -> None:
    model = GroupModel()
    some = [random_subtasks(5, seed) for seed in range(4)]
    best = [float(best_of_prefixes(jobs, 20, model)[-1]) for jobs in some]
    starts = [(np.zeros(5, dtype=np.int64), np.array([20])) for _ in some]
    found = annealed(some, starts, 20, model, steps=1000)
    assert (found <= np.array(best) + 1e-9).all()
    assert (found >= 0.97 * np.array(best)).all()


def test_the_worst_of_many_groups_are_made_better() -> None:
    columns, model, fleet = random_subtasks(400, seed=2), GroupModel(), Fleet(400)
    start = PrefixSearch(model).arranged(columns, fleet)
    assert start is not None
    assert len(start.machines) > 12
    after = better(start, Goal.use(columns, fleet, model, spills=True), fleet, model)
    assert after.score > start.score
    assert after.machines.sum() == 400
    assert np.bincount(after.group, minlength=len(after.machines)).min() >= 1


def test_harmony_climbs_where_it_is_asked_to() -> None:
    rule, climb = (Harmony(refined=each) for each in ("rule", "climb"))  # type: ignore[arg-type]
    views = [GroupView(0.0, Fleet(20), random_subtasks(8, seed)) for seed in range(4)]
    assert any(climb.plan(view).groups != rule.plan(view).groups for view in views)
    with pytest.raises(ValueError, match="refined is 'twice'; give 'rule' or 'climb'"):
        Harmony(refined="twice")  # type: ignore[arg-type]
