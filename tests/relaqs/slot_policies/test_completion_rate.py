"""Slots by completion rates: who counts how much, that nobody is left out, and what parameters are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from relaqs_bootstrap.arrays import FloatArray

from relaqs.sharing.gangs import Gang, Gangs, Nodes, SlotView
from relaqs.slot_policies.sia import CompletionRate, Sia
from tests.relaqs.slot_policies.made_up import SPEED, any_view

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

FREE = (1e-6, 1e-3, 1e-9, 0.0, 1e-9, 0.0, 1.0)  # twice the slots, twice the rows a second


def half_done(gangs: Gangs, finished: FloatArray) -> FloatArray:
    """As if jobs that ended had told that each one still needs as many passes as it has made."""
    return np.maximum(gangs.passes_done, 1.0)


POLICY = CompletionRate(minimum_share=0.0, predictor=half_done)


def view_of(*rows: Gang, nodes: int = 1, slots: int = 4, seconds: float = 1e6) -> SlotView:
    """Jobs that came long ago, so that a change costs them next to nothing."""
    return SlotView(seconds, Nodes.equal(nodes, slots), Gangs.of(rows, nodes))


def linear(name: str, held: int = 1, **more: float) -> Gang:
    """A job whose goodput doubles with its slots."""
    return Gang(name, speed=FREE, noise_rows=1e12, start_rows=1024.0, held=(held,), **more)


@given(view=any_view())
@settings(max_examples=60, deadline=None)
def test_plans_are_within_limits_and_the_order_of_the_jobs_changes_nothing(view: SlotView) -> None:
    plan = CompletionRate().plan(view)
    back = np.arange(len(view.gangs))[::-1]
    there = CompletionRate().plan(view.of_jobs(back))
    assert (there.slots_by_node[back] == plan.slots_by_node).all()
    assert (there.batch_rows[back] == plan.batch_rows).all()
    runs = plan.slots > 0
    assert (plan.batch_rows[runs] <= view.gangs.rows_most[runs]).all()


@given(view=any_view())
@settings(max_examples=30, deadline=None)
def test_where_all_jobs_count_alike_it_is_sia(view: SlotView) -> None:
    own = CompletionRate(waiting_cost=1.1, order=0.0, pause_seconds=30.0, minimum_share=0.0).plan(view)
    theirs = Sia().plan(view)
    assert own.slots_by_node.tolist() == theirs.slots_by_node.tolist()
    assert own.batch_rows.tolist() == theirs.batch_rows.tolist()


def test_a_job_that_comes_has_a_slot_while_there_are_enough() -> None:
    """Sia lets it wait for the one that holds both slots, since that is twice as fast with them."""
    view = view_of(linear("old", held=2), Gang("new", start_rows=1024.0, arrival_seconds=1e6), slots=2)
    assert Sia().plan(view).slots_by_id() == {"old": 2, "new": 0}
    assert POLICY.plan(view).slots_by_id() == {"old": 1, "new": 1}


def test_weights_count() -> None:
    one, other = (Gang(name, rows_done=1e4, passes_done=1, speed=SPEED) for name in "ab")
    assert POLICY.plan(view_of(one, replace(other, weight=3.0), slots=1)).slots_by_id() == {"a": 0, "b": 1}


def test_a_job_for_which_more_jobs_wait_has_more_slots() -> None:
    """Of three slots the job that ends first has two. Where all count alike, the first that came has them."""
    long = linear("long", rows_done=1e6, passes_done=1.0)
    short = linear("short", rows_done=1e3, pass_rows=1e3, passes_done=1.0)
    view = view_of(long, short, slots=3)
    assert POLICY.plan(view).slots_by_id() == {"long": 1, "short": 2}
    assert replace(POLICY, order=0.0).plan(view).slots_by_id() == {"long": 2, "short": 1}


def test_a_pause_that_was_measured_counts_instead_of_the_one_that_was_told() -> None:
    """A job that came a minute ago has twice the slots only if that does not take a quarter of an hour."""
    for told, measured, expected in ((0.0, 1e3, 1), (1e3, 0.0, 2), (1e3, np.nan, 1), (0.0, np.nan, 2)):
        view = view_of(linear("job", pause_seconds=measured), slots=2, seconds=60.0)
        for policy in (replace(POLICY, pause_seconds=told), Sia(pause_seconds=told)):
            assert policy.plan(view).slots.tolist() == [expected], (policy.name, told, measured)


def test_a_job_that_starves_has_a_slot_first() -> None:
    short = Gang("short", rows_done=1e3, pass_rows=1e3, speed=SPEED, attained_slot_seconds=50.0)
    long = Gang("long", rows_done=1e7, passes_done=9, speed=SPEED)
    view = view_of(short, long, slots=1, seconds=100.0)
    assert POLICY.plan(view).slots_by_id() == {"short": 1, "long": 0}
    assert CompletionRate(predictor=half_done).plan(view).slots_by_id() == {"short": 0, "long": 1}


def test_until_jobs_have_ended_the_first_to_come_is_before() -> None:
    """Else each would be preferred while it has done least, and all would end late."""
    first = Gang("first", 1.0, rows_done=1e7, passes_done=9, speed=SPEED, attained_slot_seconds=9.0)
    second = Gang("second", 2.0, rows_done=1e3, pass_rows=1e3, speed=SPEED, attained_slot_seconds=9.0)
    view = view_of(second, first, slots=1, seconds=20.0)
    assert CompletionRate().plan(view).slots_by_id() == {"second": 0, "first": 1}
    assert CompletionRate(predictor=half_done).plan(view).slots_by_id() == {"second": 1, "first": 0}
    heavy = view_of(replace(second, weight=2.0), first, slots=1, seconds=20.0)
    assert CompletionRate().plan(heavy).slots_by_id() == {"second": 1, "first": 0}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pause_seconds": -1.0}, "pause_seconds is -1.0; give 0 or more"),
        ({"order": 1.5}, "order is 1.5; give a number from 0 to 1"),
        ({"waiting_cost": 0.5}, "waiting_cost is 0.5"),
        ({"fairness": 0.0}, "fairness is 0.0"),
        ({"minimum_share": 2.0}, "minimum_share is 2.0; give a number from 0 to 1"),
    ],
)
def test_a_wrong_parameter_is_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompletionRate(**wrong)
