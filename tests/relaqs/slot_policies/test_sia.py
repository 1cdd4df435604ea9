"""Sia: beside its integer program, which configurations jobs may have, and what each parameter is for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_bootstrap.arrays import FloatArray, IntArray
from scipy.optimize import Bounds, LinearConstraint, milp

from relaqs.sharing.gangs import Gang, Gangs, Nodes, SlotView
from relaqs.slot_policies.sia import Sia, SlotOptions, configurations, largest_sum
from tests.relaqs.slot_policies.made_up import SPEED, any_view

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

FREE = (1e-6, 1e-3, 1e-9, 0.0, 1e-9, 0.0, 1.0)  # twice the slots, twice the rows a second


def view_of(*rows: Gang, nodes: int = 1, slots: int = 4, seconds: float = 1e6) -> SlotView:
    """Jobs that came long ago, so that a change costs them next to nothing."""
    return SlotView(seconds, Nodes.equal(nodes, slots), Gangs.of(rows, nodes))


def linear(name: str, held: int = 1, **more: float) -> Gang:
    """A job whose goodput doubles with its slots."""
    return Gang(name, speed=FREE, noise_rows=1e12, start_rows=1024.0, held=(held,), **more)


def least_cost(job: IntArray, slots: IntArray, costs: FloatArray, waiting: FloatArray, total: int) -> float:
    """Return the least sum of costs by an integer program: each job takes one option, or waits."""
    jobs = len(waiting)
    possible = np.isfinite(costs)
    job, slots, costs = job[possible], slots[possible], costs[possible]
    one_each = np.concatenate([job[None] == np.arange(jobs)[:, None], np.eye(jobs)], axis=1)
    fits = np.concatenate([slots, np.zeros(jobs)])[None]
    solved = milp(
        np.concatenate([costs, waiting]),
        integrality=np.ones(len(costs) + jobs),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(fits, 0, total)],
        options={"mip_rel_gap": 0.0},
    )
    return float(solved.fun)


@given(jobs=st.integers(1, 6), total=st.integers(0, 20), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_no_choice_of_one_option_each_is_worth_more(jobs: int, total: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = np.array([1, 2, 4, 8])
    job, size = np.nonzero(random.uniform(size=(jobs, len(sizes))) < 0.8)
    slots, worth = sizes[size], random.uniform(-0.3, 1.0, len(job))
    taken = largest_sum(job, slots, worth, jobs, total)
    assert taken.sum() <= total
    chosen = slots == taken[job]
    assert np.bincount(job[chosen], minlength=jobs).tolist() == (taken > 0).astype(int).tolist()
    best = -least_cost(job, slots, -worth, np.zeros(jobs), total)
    assert worth[chosen].sum() == pytest.approx(best, abs=1e-9)


@given(view=any_view(), fairness=st.sampled_from([-1.0, -0.5]), cost=st.sampled_from([1.1, 3.0]))
@settings(max_examples=60, deadline=None)
def test_plans_are_the_optimum_of_the_integer_program(view: SlotView, fairness: float, cost: float) -> None:
    """The program is as Sia has it: the costs of jobs with slots, and λ for each job without."""
    plan = Sia(fairness, cost).plan(view)
    if not len(view.gangs) or not view.nodes.usable_slots.any():
        assert not plan.slots.any()
        return
    gangs, options = view.gangs, SlotOptions.of(view)
    present = np.where(view.nodes.alive, gangs.held, 0).sum(axis=1)
    costs = np.zeros(len(options.job))
    for at, (job, slots) in enumerate(zip(options.job.tolist(), options.slots.tolist(), strict=True)):
        age = view.time_seconds - gangs.arrival_seconds[job]
        kept = max(age - gangs.rescales[job] * 30.0, 0.0) / (age + 30.0)
        share = kept if present[job] and slots != present[job] else 1.0
        costs[at] = (share * options.speedup[at]) ** fairness if share else np.inf
    costs *= gangs.weight[options.job]
    waiting = gangs.weight * cost
    chosen = options.slots == plan.slots[options.job]
    assert chosen.sum() == (plan.slots > 0).sum()
    total = int(view.nodes.usable_slots.sum())
    best = least_cost(options.job, options.slots, costs, waiting, total)
    assert costs[chosen].sum() + waiting[plan.slots == 0].sum() == pytest.approx(best, abs=1e-9)


@given(view=any_view())
@settings(max_examples=60, deadline=None)
def test_jobs_have_configurations_and_at_most_double(view: SlotView) -> None:
    slots = Sia().plan(view).slots
    assert set(slots.tolist()) <= {0, *configurations(view.nodes).tolist()}
    assert (slots <= np.maximum(2 * view.gangs.slots, 1)).all()
    assert (slots <= view.gangs.slots_most).all()


def test_configurations_are_powers_of_two_and_then_whole_nodes() -> None:
    assert configurations(Nodes.equal(4, slots=4)).tolist() == [1, 2, 4, 8, 12, 16]
    assert configurations(Nodes.equal(3, slots=1)).tolist() == [1, 2, 3]
    uneven = Nodes(("a", "b", "c"), np.array([3, 6, 8]), np.array([True, True, False]))
    assert configurations(uneven).tolist() == [1, 2, 4, 6, 9]
    assert configurations(Nodes.equal(2, slots=0)).tolist() == []


def test_a_job_alone_doubles_plan_by_plan_until_it_has_all() -> None:
    job, seen = linear("job", held=0), []
    for _ in range(6):
        plan = Sia().plan(view_of(job, nodes=3))
        seen.append(int(plan.slots[0]))
        job = replace(job, held=tuple(plan.slots_by_node[0].tolist()))
    assert seen == [1, 2, 4, 8, 12, 12]


def test_by_hand_with_a_goodput_that_doubles() -> None:
    """p = −0.5: 1, 2 and 4 slots cost 1, 0.707 and 0.5. Of 2 jobs on 2 slots one has both at λ = 1.1."""
    two = [linear("a"), linear("b")]
    assert Sia().plan(view_of(*two, slots=2)).slots_by_id() == {"a": 2, "b": 0}  # 0.707 + 1.1 < 1 + 1
    assert Sia(waiting_cost=1.3).plan(view_of(*two, slots=2)).slots_by_id() == {"a": 1, "b": 1}
    assert Sia().plan(view_of(*two, slots=4)).slots_by_id() == {"a": 2, "b": 2}
    four = [linear("a", held=2), linear("b", held=2)]
    assert Sia().plan(view_of(*four, slots=4)).slots_by_id() == {"a": 2, "b": 2}  # 1.414 < 0.5 + 1.1
    assert Sia(fairness=0.5).plan(view_of(*four, slots=4)).slots_by_id() == {"a": 2, "b": 2}
    assert Sia(fairness=2.0).plan(view_of(*four, slots=4)).slots_by_id() == {"a": 4, "b": 0}  # 16 > 4 + 4 + λ


def test_weights_count() -> None:
    one, other = linear("a", held=0), linear("b", held=0, weight=3.0)
    assert Sia().plan(view_of(one, other, slots=1)).slots_by_id() == {"a": 0, "b": 1}
    assert Sia().plan(view_of(one, replace(other, weight=1.0), slots=1)).slots_by_id() == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    ("age", "changes", "slots"),
    [(0.0, 0, 1), (29.0, 0, 1), (31.0, 0, 2), (89.0, 1, 1), (91.0, 1, 2)],
)
def test_a_job_changes_once_that_costs_less_than_it_gains(age: float, changes: int, slots: int) -> None:
    """Twice the goodput is worth a change where r = (T − 30·N) / (T + 30) is above a half.

    So from 30 s on without a change before, and from 90 s on with one.
    """
    job = linear("job", rescales=changes)
    plan = Sia().plan(view_of(job, slots=2, seconds=age))
    assert plan.slots.tolist() == [slots]


def test_a_change_that_takes_no_time_costs_nothing() -> None:
    job = linear("job", rescales=9)
    assert Sia(pause_seconds=0.0).plan(view_of(job, slots=2, seconds=0.0)).slots.tolist() == [2]


def test_a_job_stays_smaller_where_more_slots_make_it_slower() -> None:
    slow = Gang("slow", speed=(0.1, 1e-3, 5.0, 0.0, 9.0, 0.0, 1.0), noise_rows=1.0, held=(1,))
    assert Sia().plan(view_of(slow)).slots.tolist() == [1]


def test_an_unknown_speed_is_taken_to_grow_with_slots_and_the_batch_stays_the_first() -> None:
    new = Gang("new", held=(2,), start_rows=64.0, slot_rows_least=32.0)
    plan = Sia().plan(view_of(new))
    assert (plan.slots.tolist(), plan.batch_rows.tolist()) == ([4], [128.0])


def test_the_batch_is_that_with_the_best_goodput() -> None:
    noisy = Gang("noisy", speed=SPEED, held=(2,), noise_rows=1e5, rows_most=1024.0)
    calm = replace(noisy, id="calm", noise_rows=1e-3)
    batches = Sia().plan(view_of(noisy, calm)).batch_rows
    assert batches.tolist() == [1024.0, 32.0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fairness": 0.0}, "fairness is 0.0; give a number above or below 0"),
        ({"waiting_cost": 1.0}, "waiting_cost is 1.0; with fairness -0.5 it must be above 1"),
        ({"waiting_cost": 0.0, "fairness": 1.0}, "with fairness 1.0 it must be above 0"),
        ({"pause_seconds": -1.0}, "pause_seconds is -1.0; give 0 or more"),
    ],
)
def test_a_wrong_parameter_is_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sia(**wrong)
