"""What holds for every placed policy and any view: capacity, one place each, whole jobs, equal plans."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_lab.mlf_rl import PlacedLoadControl

from relaqs.placed_policies.mlf_h import MlfH, PartPriority
from relaqs.policies.registry import PLACED_POLICIES, make_placed_policy
from relaqs.sharing.parts import Load, PlacedPlan, PlacedView
from relaqs.training.parted.placing import TakingTurns
from tests.relaqs.placed_policies.made_up import any_placed_view, shuffled

everyone = pytest.mark.parametrize("name", PLACED_POLICIES)
LIMIT = 0.9


def planned(name: str, view: PlacedView) -> PlacedPlan:
    return make_placed_policy(name).plan(view)


def after(view: PlacedView, plan: PlacedPlan) -> PlacedView:
    waits = np.where(plan.node < 0, view.time_seconds, np.nan)
    parts = replace(view.parts, node=plan.node, device=plan.device, queued_since_seconds=waits)
    return replace(view, parts=parts)


@everyone
@given(view=any_placed_view())
@settings(max_examples=25, deadline=None)
def test_nothing_new_is_overloaded(name: str, view: PlacedView) -> None:
    plan = planned(name, view)
    before, load = Load(view), Load(after(view, plan))
    assert not (load.overloaded_devices(LIMIT) & ~before.overloaded_devices(LIMIT)).any()
    assert not (load.overloaded_resources(LIMIT) & ~before.overloaded_resources(LIMIT)).any()
    assert view.nodes.alive[plan.node[plan.node >= 0]].all()


@everyone
@given(view=any_placed_view(whole=False))
@settings(max_examples=25, deadline=None)
def test_jobs_are_placed_whole_or_not_at_all(name: str, view: PlacedView) -> None:
    if name == "gandiva":  # it never takes a part away, so it keeps what it finds in pieces
        view = after(view, MlfH().plan(view))
    plan = planned(name, view)
    for job in range(len(view.jobs)):
        assert len(set((plan.node[view.parts.job == job] >= 0).tolist())) <= 1


@everyone
@given(view=any_placed_view())
@settings(max_examples=10, deadline=None)
def test_equal_views_give_equal_plans(name: str, view: PlacedView) -> None:
    one, other = planned(name, view), planned(name, pickle.loads(pickle.dumps(view)))
    assert one.node.tolist() == other.node.tolist()
    assert one.device.tolist() == other.device.tolist()
    assert one.stops.tolist() == other.stops.tolist()


@everyone
@given(view=any_placed_view(), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_order_of_jobs_parts_and_nodes_changes_nothing(name: str, view: PlacedView, seed: int) -> None:
    other, jobs, parts, nodes = shuffled(view, np.random.default_rng(seed))
    here, there = planned(name, view), planned(name, other)
    by_name = np.where(there.node >= 0, nodes[there.node], -1)
    assert by_name.tolist() == here.node[parts].tolist()
    assert there.device.tolist() == here.device[parts].tolist()
    assert there.stops.tolist() == here.stops[jobs].tolist()


@everyone
@given(view=any_placed_view())
@settings(max_examples=25, deadline=None)
def test_jobs_stop_only_where_they_may_and_have_what_is_needed(name: str, view: PlacedView) -> None:
    plan = PlacedLoadControl(make_placed_policy(name)).plan(view)
    jobs = view.jobs
    assert not (plan.stops & ~(jobs.may_stop & (jobs.accuracy >= jobs.accuracy_required))).any()


@given(view=any_placed_view(whole=False))
@settings(max_examples=50, deadline=None)
def test_part_by_part_nothing_waits_that_a_node_would_take(view: PlacedView) -> None:
    plan = MlfH(gang=False).plan(view)
    load = Load(after(view, plan))
    underloaded = ~load.overloaded(LIMIT)
    for part in np.flatnonzero(plan.node < 0).tolist():
        assert not (load.hosts(part, LIMIT) & underloaded).any()


@pytest.mark.parametrize("gang", [True, False])
@given(view=any_placed_view())
@settings(max_examples=50, deadline=None)
def test_a_second_plan_moves_nothing(gang: bool, view: PlacedView) -> None:
    """And MLF-H leaves no node overloaded, whatever it found."""
    first = MlfH(gang=gang).plan(view)
    seen = after(view, first)
    assert not Load(seen).overloaded(LIMIT).any()
    second = MlfH(gang=gang).plan(seen)
    stays = first.node >= 0
    assert second.node[stays].tolist() == first.node[stays].tolist()
    assert second.device[stays].tolist() == first.device[stays].tolist()


@everyone
@given(view=any_placed_view(whole=False))
@settings(max_examples=25, deadline=None)
def test_by_turns_nobody_waits_where_a_node_is_alive(name: str, view: PlacedView) -> None:
    """Cores and devices are shared; memory and network suffice here."""
    plan = TakingTurns(make_placed_policy(name)).plan(view)
    assert (plan.node >= 0).all() or not view.nodes.alive.any()
    assert view.nodes.alive[plan.node[plan.node >= 0]].all()


@given(view=any_placed_view(), job=st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_more_urgency_never_lowers_a_priority(view: PlacedView, job: int) -> None:
    if job >= len(view.jobs):
        return
    urgency = view.jobs.urgency.copy()
    urgency[job] += 3.0
    before = PartPriority().of_parts(view)
    more = PartPriority().of_parts(replace(view, jobs=replace(view.jobs, urgency=urgency)))
    own = view.parts.job == job
    assert (more[own] >= before[own]).all()
    assert more[~own].tolist() == before[~own].tolist()
