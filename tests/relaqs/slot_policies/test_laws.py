"""What holds for every slot policy and any jobs: capacity, limits, and equal plans for equal views."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaqs.policies.registry import SLOT_POLICIES, make_slot_policy
from relaqs.sharing.gangs import Gang, Gangs, Nodes, SlotPlan, SlotView
from tests.relaqs.slot_policies.made_up import SPEED, any_view

FULL = ("one_at_a_time", "equal_slots")  # give every slot that some job can use
everyone = pytest.mark.parametrize("name", SLOT_POLICIES)


def planned(name: str, view: SlotView) -> SlotPlan:
    return make_slot_policy(name).plan(view)


@everyone
@given(view=any_view())
@settings(max_examples=15, deadline=None)
def test_slots_and_batches_are_within_their_limits(name: str, view: SlotView) -> None:
    plan = planned(name, view)
    assert plan.ids == view.gangs.ids
    assert (plan.slots_by_node.sum(axis=0) <= view.nodes.usable_slots).all()
    runs = plan.slots > 0
    assert (plan.batch_rows[runs] >= 1).all()
    assert (plan.batch_rows[runs] <= view.gangs.rows_most[runs] + 1e-6).all()


@everyone
@pytest.mark.parametrize("held", [0, 1])
def test_a_gang_alone_has_a_slot_although_its_gradients_are_nothing_but_noise(name: str, held: int) -> None:
    gang = Gang("a", speed=SPEED, noise_rows=math.inf, held=(held,), rows_most=512.0, batch_rows=64.0)
    plan = planned(name, SlotView(1e3, Nodes.equal(1, 2), Gangs.of([gang], 1)))
    assert plan.slots[0] >= 1
    assert plan.batch_rows[0] >= 1


@everyone
def test_a_machine_may_have_more_slots_than_fit_a_byte(name: str) -> None:
    new = Gang("new", 5.0, speed=SPEED, noise_rows=1e4, rows_most=4096.0, slots_asked=40, rows_asked=4096.0)
    old = replace(new, id="old", slots_seen_most=150, held=(150,), batch_rows=4096.0, passes_since_change=2.0)
    jobs = [old, new]
    plan = planned(name, SlotView(1e3, Nodes.equal(1, 200), Gangs.of(jobs, 1)))
    assert plan.slots.sum() >= 1
    assert plan.slots_by_node.sum() <= 200


@everyone
@given(view=any_view())
@settings(max_examples=10, deadline=None)
def test_equal_views_give_equal_plans(name: str, view: SlotView) -> None:
    one, other = planned(name, view), planned(name, pickle.loads(pickle.dumps(view)))
    assert one.slots_by_node.tolist() == other.slots_by_node.tolist()
    assert one.batch_rows.tolist() == other.batch_rows.tolist()


@everyone
@given(view=any_view(), random=st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_jobs_changes_nothing(name: str, view: SlotView, random) -> None:
    order = list(range(len(view.gangs)))
    random.shuffle(order)
    shuffled = planned(name, view.of_jobs(np.array(order, dtype=np.int64)))
    here = planned(name, view)
    assert shuffled.slots_by_node.tolist() == here.slots_by_node[order].tolist()


@everyone
@given(view=any_view())
@settings(max_examples=10, deadline=None)
def test_what_a_policy_remembers_survives_pickling(name: str, view: SlotView) -> None:
    memory = pickle.loads(pickle.dumps(planned(name, view).memory))
    plan = planned(name, replace(view, memory=memory))
    assert (plan.slots_by_node.sum(axis=0) <= view.nodes.usable_slots).all()


@pytest.mark.parametrize("name", FULL)
@given(view=any_view())
@settings(max_examples=15, deadline=None)
def test_no_slot_idles_that_a_job_could_use(name: str, view: SlotView) -> None:
    total = int(view.nodes.usable_slots.sum())
    usable = int(np.minimum(view.gangs.slots_most, total).sum())
    assert planned(name, view).slots.sum() == min(total, usable)
