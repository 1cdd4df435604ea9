"""What holds for every group policy and any jobs: machines, memory, and equal plans for equal views."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_lab.group_policies import GROUP_POLICIES, make_group_policy
from relaqs_lab.groups import Fleet, GroupPlan, GroupPolicy, GroupView, Subtasks, SubtaskTimes

from relaqs.policies.registry import PolicyError
from tests.lab.group_policies.made_up import any_group_view, random_subtasks

everyone = pytest.mark.parametrize("name", GROUP_POLICIES)


def planned(name: str, view: GroupView) -> GroupPlan:
    return make_group_policy(name).plan(view)


@everyone
@given(view=any_group_view())
@settings(max_examples=40, deadline=None)
def test_jobs_machines_and_memory_are_within_their_limits(name: str, view: GroupView) -> None:
    plan = planned(name, view)  # GroupPlan.of refuses a job twice, and too little memory or machines
    assert sum(group.machines for group in plan.groups) <= view.fleet.machines
    assert plan.running <= set(view.subtasks.ids)
    assert all(0 <= share <= 1 for share in plan.spilled.values())


@everyone
@given(view=any_group_view())
@settings(max_examples=15, deadline=None)
def test_equal_views_give_equal_plans(name: str, view: GroupView) -> None:
    one, other = planned(name, view), planned(name, pickle.loads(pickle.dumps(view)))
    assert (one.groups, one.spilled) == (other.groups, other.spilled)


@everyone
@given(view=any_group_view(), random=st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_jobs_changes_nothing(name: str, view: GroupView, random) -> None:
    order = list(range(len(view.subtasks)))
    random.shuffle(order)
    shuffled = replace(view, subtasks=view.subtasks.of_jobs(np.array(order, dtype=np.int64)))
    here, there = planned(name, view), planned(name, shuffled)
    assert [(set(g.jobs), g.machines) for g in here.groups] == [
        (set(g.jobs), g.machines) for g in there.groups
    ]


@everyone
def test_a_fleet_with_jobs_to_spare_is_used(name: str) -> None:
    plan = planned(name, GroupView(0.0, Fleet(100), random_subtasks(80, seed=1)))
    given_out = sum(group.machines for group in plan.groups)
    # a job alone has 63 machines at most (it computes for 80 % of its time on 16), and may wait for them
    assert given_out == 100 if name.startswith("harmony") else given_out >= 37


@everyone
def test_a_job_that_fits_nowhere_waits(name: str) -> None:
    jobs = Subtasks.of([SubtaskTimes("huge", 60.0, 4.0, model_bytes=1e12)])
    assert planned(name, GroupView(0.0, Fleet(10, memory_bytes=1e9), jobs)).groups == ()


@everyone
def test_each_is_made_by_its_name(name: str) -> None:
    policy = make_group_policy(name)
    assert isinstance(policy, GroupPolicy)
    assert policy.name == name


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("harmonie", {}, "there is no group policy 'harmonie'; did you mean 'harmony'"),
        (
            "isolated",
            {"share": 1},
            "cannot be made from .*'share': 1.*; it takes comp_share, order, backfill",
        ),
        ("isolated", {"comp_share": 2.0}, "comp_share is 2.0; give a number between 0 and 1"),
        ("colocated", {"together": 1}, "together is 1; give 2 or more"),
        ("colocated", {"comp_share": 0.0}, "comp_share is 0.0; give a number between 0 and 1"),
        ("muri", {"comp_share": 1.0}, "comp_share is 1.0; give a number between 0 and 1"),
        ("harmony", {"turns": "shared"}, "where no row can be spilled; give spills=False, too"),
    ],
)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        make_group_policy(name, **parameters)
