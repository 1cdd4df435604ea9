"""The policies that Harmony is compared with, against plain loops."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from relaqs_lab.group_policies.baselines import (
    Colocated,
    Isolated,
    Muri,
    ShortestFirst,
    efficiency,
    machines_alone,
    matched,
)
from relaqs_lab.group_policies.group_model import GroupModel
from relaqs_lab.groups import Fleet, Group, GroupView, Subtasks, SubtaskTimes

from tests.lab.group_policies.made_up import random_subtasks


@pytest.mark.parametrize("share", [0.3, 0.56, 0.8])
def test_a_job_alone_has_the_most_machines_with_its_share_of_computing(share: float) -> None:
    jobs, model = random_subtasks(40, seed=1, fixed=2.0), GroupModel()
    found = machines_alone(jobs, Fleet(100), share)
    for job, machines in enumerate(found.tolist()):
        one = jobs.of_jobs(np.array([job]))
        counts = np.arange(1, 101)
        comp = one.comp_machine_seconds / counts + one.comp_fixed_seconds
        comm = np.array([float(model.comm_seconds(one, np.array([m]))[0]) for m in counts])
        enough = counts[comp / (comp + comm) >= share - 1e-12]
        assert machines == enough.max(initial=1)


def test_its_memory_may_need_more() -> None:
    jobs = Subtasks.of([SubtaskTimes("a", 60.0, 4.0, input_bytes=50e9)])
    assert machines_alone(jobs, Fleet(100, 2e9), 0.56).tolist() == [25]


def test_all_have_as_many_machines_where_that_is_said_unless_their_memory_needs_more() -> None:
    rows = [SubtaskTimes("a", 60.0, 4.0), SubtaskTimes("b", 900.0, 4.0, input_bytes=50e9)]
    view = GroupView(0.0, Fleet(60, 2e9), Subtasks.of(rows))
    found = {group.jobs: group.machines for group in Isolated(machines=16).plan(view).groups}
    assert found == {("a",): 16, ("b",): 25}
    with pytest.raises(ValueError, match="machines is 0; give 1 or more, or None"):
        Isolated(machines=0)


def test_first_come_first_served_unless_there_is_backfill() -> None:
    rows = [
        SubtaskTimes("large", 160.0, 4.0, arrival_seconds=0.0, iterations_left=50),
        SubtaskTimes("larger", 180.0, 4.0, arrival_seconds=1.0, iterations_left=50),
        SubtaskTimes("small", 10.0, 4.0, arrival_seconds=2.0, iterations_left=1),
    ]
    view = GroupView(3.0, Fleet(40), Subtasks.of(rows))
    assert Isolated().plan(view).running == {"large"}
    assert Isolated(backfill=True).plan(view).running == {"large", "small"}
    first = ShortestFirst().plan(view).groups[0]
    assert first.jobs == ("small",)


def test_who_runs_alone_goes_on() -> None:
    rows = [
        SubtaskTimes(name, 60.0, 4.0, arrival_seconds=seconds)
        for name, seconds in (("old", 0.0), ("new", 9.0))
    ]
    running = (Group(("new",), 12),)
    plan = Isolated().plan(GroupView(9.0, Fleet(12), Subtasks.of(rows), running))
    assert plan.groups == running


def test_naive_pairs_keep_their_rows_in_memory() -> None:
    rows = [
        SubtaskTimes(name, 60.0, 4.0, input_bytes=20e9, arrival_seconds=i) for i, name in enumerate("abc")
    ]
    tight = Colocated().plan(GroupView(9.0, Fleet(40, 2e9), Subtasks.of(rows)))
    loose = Colocated(together=3).plan(GroupView(9.0, Fleet(40, 9e9), Subtasks.of(rows)))
    assert [group.jobs for group in tight.groups] == [("a",), ("b",), ("c",)]
    assert [group.jobs for group in loose.groups] == [("a", "b", "c")]
    assert loose.turns == "shared"


@pytest.mark.parametrize("seed", range(12))
def test_pairs_are_worth_nearly_as_much_as_the_best_matching(seed: int) -> None:
    jobs = random_subtasks(12, seed)
    worth = efficiency(jobs, machines_alone(jobs, Fleet(100), 0.56))

    @cache
    def best(left: frozenset[int]) -> float:
        if not left:
            return 0.0
        one = min(left)
        return max(worth[one, other] + best(left - {one, other}) for other in left - {one})

    partner = matched(worth)
    assert sorted(partner.tolist()) == list(range(12))
    assert (partner[partner] == np.arange(12)).all()
    found = sum(worth[i, partner[i]] for i in range(12)) / 2
    assert found >= 0.98 * best(frozenset(range(12)))


def test_two_that_cannot_be_together_are_not() -> None:
    worth = np.array([[0, -np.inf, 1.0], [-np.inf, 0, -np.inf], [1.0, -np.inf, 0]])
    assert matched(worth).tolist() == [2, 1, 0]


def test_a_pair_that_lost_a_job_has_the_one_that_suits_it() -> None:
    rows = [
        SubtaskTimes("computes", 90.0, 3.0),
        SubtaskTimes("too", 90.0, 3.0),
        SubtaskTimes("sends", 30.0, 9.0),
    ]
    view = GroupView(9.0, Fleet(10), Subtasks.of(rows), (Group(("computes",), 10),))
    assert Muri().plan(view).groups == (Group(("computes", "sends"), 10),)
