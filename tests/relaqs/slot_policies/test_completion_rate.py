"""Slots by completion rates: beside the best of all divisions, and what each parameter is for."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.slot_views import random_gang
from relaqs.gangs.gangs import Gang, Gangs
from relaqs.gangs.nodes import Nodes
from relaqs.gangs.view import SlotView
from relaqs.slot_policies.completion_rate import CompletionRate, _Rates
from relaqs.slot_policies.ones.progress import by_ended_jobs
from tests.relaqs.slot_policies.made_up import SPEED, any_view

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

POLICY = CompletionRate(minimum_share=0.0, least_gain=0.0)


def view_of(*rows: Gang, nodes: int = 1, slots: int = 4, seconds: float = 10.0) -> SlotView:
    return SlotView(seconds, Nodes.equal(nodes, slots), Gangs.of(rows, nodes))


@given(view=any_view())
@settings(max_examples=60, deadline=None)
def test_plans_are_within_limits_and_the_order_of_the_jobs_changes_nothing(view: SlotView) -> None:
    plan = CompletionRate().plan(view)
    back = np.arange(len(view.gangs))[::-1]
    there = CompletionRate().plan(view.of_gangs(back))
    assert (there.slots_by_node[back] == plan.slots_by_node).all()
    assert (there.batch_rows[back] == plan.batch_rows).all()
    runs = plan.slots > 0
    assert (plan.batch_rows[runs] <= view.gangs.rows_most[runs]).all()
    assert (plan.batch_rows[runs] >= plan.slots[runs] * view.gangs.slot_rows_least[runs]).all()
    idle = view.nodes.usable_slots.sum() - plan.slots.sum()
    assert not (idle and not runs.all())


def best_of_all(rates: _Rates, jobs: int, slots: int) -> float:
    table = rates.at(np.broadcast_to(np.arange(slots + 1), (jobs, slots + 1)))
    divisions = (each for each in product(range(slots + 1), repeat=jobs) if sum(each) <= slots)
    return max(float(table[np.arange(jobs), each].sum()) for each in divisions)


def test_the_sum_of_rates_is_nearly_that_of_the_best_division() -> None:
    """Edges are taken whole, so the last slots may go to the second best: 1 % in the mean, 10 % at most."""
    parts = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        rows = [random_gang(f"job {i}", random, batch_rows=64.0 * 2**i) for i in range(4)]
        rows = [replace(each, rows_most=max(each.rows_most, 4 * each.batch_rows)) for each in rows]
        view = view_of(*rows, nodes=2, slots=4)
        rates = _Rates.of(view.of_gangs(np.argsort(view.gangs.arrival_seconds)), by_ended_jobs)
        order = np.argsort(view.gangs.arrival_seconds)
        taken = POLICY.plan(view).slots[order]
        parts.append(float(rates.at(taken[:, None]).sum()) / best_of_all(rates, 4, 8))
    assert np.mean(parts) > 0.99
    assert min(parts) > 0.9


def test_weights_count() -> None:
    one, other = (Gang(name, rows_done=1e4, passes_done=1, speed=SPEED) for name in "ab")
    assert POLICY.plan(view_of(one, replace(other, weight=3.0), slots=1)).slots_by_id() == {"a": 0, "b": 1}


def test_equal_jobs_end_one_after_another_where_speed_grows_with_slots() -> None:
    """Divided equally, all three would end with the last. The first come has most slots instead."""
    free = (1e-3, 1e-3, 0.01, 0.0, 0.01, 0.0, 1.0)
    jobs = [Gang(name, rows_done=1e5, passes_done=1, speed=free, start_rows=256.0) for name in "abc"]
    slots = POLICY.plan(view_of(*jobs, slots=12)).slots
    assert slots[0] > slots[1] >= slots[2]


def test_slots_are_left_where_they_are_if_a_change_costs_more_than_it_gains() -> None:
    """Of two nearly equal jobs, the one that runs goes on, if a pause costs more than the other gains."""
    runs = Gang("runs", rows_done=1.005e4, passes_done=1, speed=SPEED, held=(1,), batch_rows=32.0)
    waits = Gang("waits", rows_done=1e4, passes_done=1, speed=SPEED, batch_rows=32.0)
    assert POLICY.plan(view_of(runs, waits, slots=1)).slots_by_id() == {"runs": 0, "waits": 1}
    halves = [replace(runs, held=(2,)), replace(runs, id="half", held=(2,))]
    uneven = replace(halves[0], rows_done=0.99e4)
    for kept in ({"pause_seconds": 30.0}, {"least_gain": 0.3}):
        plan = replace(POLICY, **kept).plan(view_of(uneven, halves[1]))
        assert plan.slots.tolist() == [2, 2]


def test_a_job_that_starves_has_a_slot_first() -> None:
    short = Gang("short", rows_done=1e3, pass_rows=1e3, speed=SPEED, attained_slot_seconds=50.0)
    long = Gang("long", rows_done=1e7, passes_done=9, speed=SPEED)
    view = view_of(short, long, slots=1, seconds=100.0)
    assert POLICY.plan(view).slots_by_id() == {"short": 1, "long": 0}
    assert CompletionRate(minimum_share=0.1).plan(view).slots_by_id() == {"short": 0, "long": 1}


def test_a_batch_grows_where_the_gradient_is_noisy_and_by_factors_of_two_at_most() -> None:
    job = Gang("job", rows_done=1e4, speed=SPEED, batch_rows=64.0, held=(2,), noise_rows=1e5)
    calm = replace(job, noise_rows=1.0)
    assert POLICY.plan(view_of(job)).batch_rows.tolist() == [128.0]
    assert POLICY.plan(view_of(calm)).batch_rows.tolist() == [32.0]
    assert POLICY.plan(view_of(replace(job, batch_rows=0.0, held=()))).batch_rows.tolist() == [32.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pause_seconds": -1.0}, "pause_seconds is -1.0; give 0 or more"),
        ({"horizon_seconds": 0.0}, "horizon_seconds is 0.0; give more than 0"),
        ({"least_gain": 1.0}, "least_gain is 1.0; give a number from 0 to below 1"),
        ({"minimum_share": 2.0}, "minimum_share is 2.0; give a number from 0 to 1"),
    ],
)
def test_a_wrong_parameter_is_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompletionRate(**wrong)
