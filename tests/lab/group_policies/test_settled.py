"""A view in which nothing has changed gets its plan again, and any change is decided on."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from relaqs_lab.group_policies.harmony import Harmony, Settled
from relaqs_lab.groups import Fleet, GroupPlan, GroupView, Lost, Phase

from tests.lab.group_policies.made_up import random_subtasks

FLEET = Fleet(60, 16e9, 125e6)


def decided(count: int = 40) -> tuple[GroupView, GroupPlan]:
    """Return a view as it is after a plan of its jobs, and the plan."""
    view = GroupView(0.0, FLEET, random_subtasks(count, seed=7))
    plan = Harmony().plan(view)
    return replace(view, time_seconds=1.0, groups=plan.groups, memory=plan.memory), plan


def is_as_before(view: GroupView) -> bool:
    """Return whether the plan is the one in the view's memory, and not decided anew."""
    assert isinstance(view.memory, Settled)
    return view.memory.same(view, "pull_first") is not None


def test_nothing_changed_is_the_same_plan_in_any_order() -> None:
    view, plan = decided()
    backwards = replace(view, subtasks=view.subtasks.of_jobs(np.arange(len(view.subtasks))[::-1]))
    for each in (view, backwards, pickle.loads(pickle.dumps(view))):
        assert is_as_before(each)
        again = Harmony().plan(each)
        assert (again.groups, again.spilled, again.turns) == (plan.groups, plan.spilled, plan.turns)
        assert again.memory is each.memory


def test_what_moves_while_jobs_run_changes_nothing() -> None:
    view, plan = decided()
    running = np.where(np.isin(view.subtasks.ids, list(plan.running)), Phase.RUNNING, Phase.PROFILED)
    later = replace(
        view.subtasks,
        phase=running.astype(np.int64),
        iterations_left=view.subtasks.iterations_left - 0.5,
    )
    assert is_as_before(replace(view, time_seconds=500.0, subtasks=later))


@pytest.mark.parametrize(
    "what", ["times", "bytes", "fleet", "came", "went", "groups", "lost", "turns", "became known"]
)
def test_any_other_change_is_decided_on(what: str) -> None:
    view, plan = decided()
    jobs = view.subtasks
    off = np.where(np.arange(len(jobs)) == 3, 1.01, 1.0)
    unknown = np.where(np.arange(len(jobs)) == 3, np.nan, 1.0)
    first = plan.groups[0]
    changed = {
        "times": replace(view, subtasks=replace(jobs, comp_machine_seconds=jobs.comp_machine_seconds * off)),
        "bytes": replace(view, subtasks=replace(jobs, input_bytes=jobs.input_bytes * off)),
        "fleet": replace(view, fleet=replace(FLEET, machines=61)),
        "came": replace(view, subtasks=random_subtasks(41, seed=7)),
        "went": replace(view, groups=(), subtasks=jobs.of_jobs(np.arange(39))),
        "groups": replace(view, groups=(replace(first, machines=first.machines - 1), *plan.groups[1:])),
        "lost": replace(view, lost=(Lost(0, 300.0, 20.0),)),
        "turns": view,
        "became known": replace(view, subtasks=replace(jobs, comm_seconds=jobs.comm_seconds * unknown)),
    }[what]
    assert isinstance(changed.memory, Settled)
    policy = Harmony(turns="fifo" if what == "turns" else "pull_first")
    assert changed.memory.same(changed, policy.turns) is None
    again = policy.plan(changed)
    assert again.memory is not view.memory
    assert again.groups == policy.plan(replace(changed, memory=None)).groups
