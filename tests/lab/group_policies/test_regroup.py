"""What happens to groups when a job comes or ends, and that nothing happens for little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from relaqs_lab.group_policies.harmony import Harmony, Regrouping, arrangement_of
from relaqs_lab.group_policies.prefixes import PrefixSearch
from relaqs_lab.groups import Fleet, Group, GroupView, Lost, Phase, Subtasks, SubtaskTimes

from tests.lab.group_policies.made_up import random_subtasks

# 1 and 2 are a balanced pair on 10 machines: 12 s of COMP and 12 s of COMM an iteration
PAIR = [
    SubtaskTimes("computes", 90.0, 10 / 3, phase=Phase.RUNNING),
    SubtaskTimes("sends", 30.0, 10.0, phase=Phase.RUNNING),
]
TOGETHER = (Group(("computes", "sends"), 10),)


def planned(
    rows: list[SubtaskTimes], groups: tuple[Group, ...], *lost: Lost, machines: int = 10
) -> set[Group]:
    view = GroupView(9.0, Fleet(machines), Subtasks.of(rows), groups, lost)
    return set(Harmony().plan(view).groups)


def test_what_is_balanced_is_left_as_it_is() -> None:
    assert planned(PAIR, TOGETHER) == set(TOGETHER)


@pytest.mark.parametrize(("off", "is_taken"), [(1.04, True), (1.2, False)])
def test_a_job_that_ended_is_replaced_by_one_within_5_percent(off: float, is_taken: bool) -> None:
    other = SubtaskTimes("other", 1.0, 9.0, arrival_seconds=1.0)
    like = SubtaskTimes("like", 30.0 * off, 10.0, arrival_seconds=2.0)
    # no set of jobs uses more than 1.05 times what is left of the pair: nothing else could change it
    groups, lost = (Group(("computes",), 10),), Lost(0, 30.0, 10.0)
    view = GroupView(9.0, Fleet(10), Subtasks.of([PAIR[0], other, like]), groups, (lost,))
    rules = Regrouping(gain=0.99)
    found = rules.regrouped(view, view.subtasks)
    assert found is not None
    assert found.groups() == ((Group(("computes", "like"), 10),) if is_taken else groups)


def test_two_jobs_that_are_similar_together_replace_one() -> None:
    halves = [SubtaskTimes(name, 15.0, 5.0, arrival_seconds=3.0) for name in ("half", "other half")]
    lost = Lost(0, 30.0, 10.0)
    view = GroupView(9.0, Fleet(10), Subtasks.of([PAIR[0], *halves]), (Group(("computes",), 10),), (lost,))
    found = Regrouping(gain=0.99).regrouped(view, view.subtasks)
    assert found is not None
    assert found.groups() == (Group(("computes", "half", "other half"), 10),)


def test_a_job_that_comes_alone_joins_where_it_helps_most() -> None:
    lonely = SubtaskTimes("lonely", 90.0, 10 / 3, phase=Phase.RUNNING)
    groups = (*TOGETHER, Group(("lonely",), 10))
    newcomer = SubtaskTimes("newcomer", 30.0, 10.0, arrival_seconds=8.0)
    plan = planned([*PAIR, lonely, newcomer], groups, machines=20)
    assert plan == {*TOGETHER, Group(("lonely", "newcomer"), 10)}


def test_a_job_that_comes_waits_where_it_helps_nowhere() -> None:
    newcomer = SubtaskTimes("newcomer", 60.0, 6.0, arrival_seconds=8.0)
    assert planned([*PAIR, newcomer], TOGETHER) == set(TOGETHER)


def test_idle_machines_are_given_out() -> None:
    lonely = SubtaskTimes("lonely", 90.0, 10 / 3)
    plan = planned([*PAIR, lonely], TOGETHER, machines=20)
    assert sum(group.machines for group in plan) == 20
    assert "lonely" in {job for group in plan for job in group.jobs}


def test_nothing_changes_for_less_than_the_gain() -> None:
    """What changes is better by the gain, whatever the jobs; and with a gain out of reach nothing changes."""
    moved = 0
    for seed in range(20):
        jobs, fleet = random_subtasks(12, seed), Fleet(40)
        names = list(jobs.ids)
        groups = tuple(Group(tuple(names[i : i + 3]), 10) for i in range(0, 12, 3))
        view, search = GroupView(0.0, fleet, jobs, groups), PrefixSearch()
        before = arrangement_of(jobs, groups, fleet, search)
        after = Regrouping(search, gain=0.05).regrouped(view, jobs)
        assert after is not None
        if after.groups() != groups:
            moved += 1
            assert after.score >= 1.05 * before.score
        still = Regrouping(search, gain=0.9).regrouped(view, jobs)
        assert still is not None
        assert still.groups() == groups
    assert moved >= 5


def test_the_smallest_change_is_taken_unless_a_larger_one_is_better_by_the_gain() -> None:
    for seed in range(10):
        jobs, fleet = random_subtasks(12, seed), Fleet(40)
        names = list(jobs.ids)
        groups = tuple(Group(tuple(names[i : i + 3]), 10) for i in range(0, 12, 3))
        view = GroupView(0.0, fleet, jobs, groups)
        found = Regrouping().regrouped(view, jobs)
        whole = PrefixSearch().best(jobs, fleet)
        assert found is not None
        assert whole is not None
        assert found.score >= whole.score / 1.05 / 1.05


def test_jobs_with_unknown_times_are_taken_for_the_mean() -> None:
    jobs = [replace(row, phase=Phase.PROFILED) for row in PAIR]
    view = GroupView(0.0, Fleet(10), Subtasks.of([*jobs, SubtaskTimes("new", phase=Phase.NEW)]))
    assert Harmony().plan(view).running


def test_memory_is_kept_when_a_job_joins() -> None:
    rows = [replace(row, model_bytes=9e9) for row in PAIR[:1]]
    like = SubtaskTimes("like", 30.0, 10.0, model_bytes=9e9)
    view = GroupView(
        9.0, Fleet(10, 1e9), Subtasks.of([*rows, like]), (Group(("computes",), 10),), (Lost(0, 30, 10),)
    )
    assert Harmony().plan(view).groups == (Group(("computes",), 10),)


@pytest.mark.parametrize("name", ["gain", "similar"])
def test_rules_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 1.5; give a number from 0"):
        Regrouping(**{name: 1.5})
    with pytest.raises(ValueError, match="subsets is 0; give 1 or more"):
        Regrouping(subsets=0)


def test_plans_settle() -> None:
    """A plan for the groups of a plan changes nothing: no job is moved to and fro."""
    jobs, fleet = random_subtasks(40, seed=7), Fleet(60, 16e9, 125e6)
    groups = Harmony().plan(GroupView(0.0, fleet, jobs)).groups
    phase = np.where(
        np.isin(jobs.ids, [job for g in groups for job in g.jobs]), Phase.RUNNING, Phase.PROFILED
    )
    again = Harmony().plan(GroupView(1.0, fleet, replace(jobs, phase=phase.astype(np.int64)), groups))
    assert again.groups == groups
