"""The knapsack beside all schedules tried one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relaqs_lab.slot_baselines import ExactUtilisation, least_sum, least_sums

from relaqs.sharing.gangs import Gang, Gangs, Nodes, SlotView


@given(st.integers(1, 4), st.integers(0, 9), st.integers(0, 10_000))
def test_no_other_division_of_as_many_slots_costs_less(jobs: int, slots: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    most, cost = random.integers(1, 5, jobs), random.uniform(0, 1, (jobs, 5))
    cost[:, 0] = 0.0
    sums: dict[int, float] = {}
    for division in product(*(range(each + 1) for each in most)):
        total = float(cost[np.arange(jobs), division].sum())
        sums[sum(division)] = min(total, sums.get(sum(division), np.inf))
    usable = min(slots, int(most.sum()))
    taken = least_sum(cost, most, slots)
    assert (taken <= most).all()
    assert taken.sum() == usable
    assert cost[np.arange(jobs), taken].sum() == pytest.approx(sums[usable])
    least = [sums.get(used, np.inf) for used in range(slots + 1)]
    assert least_sums(cost, most, slots).tolist() == pytest.approx(least)


def test_a_running_job_doubles_at_most() -> None:
    rows = [Gang("job", rows_done=1e4, held=(2,), batch_rows=64.0)]
    view = SlotView(0.0, Nodes.equal(1, slots=16), Gangs.of(rows, nodes=1))
    plan = ExactUtilisation().plan(view)
    assert plan.slots.tolist() == [4]
    assert plan.batch_rows.tolist() == [128.0]


def test_a_job_that_has_processed_nothing_costs_nothing() -> None:
    """By equation 7 nothing remains of a job that has not begun, so it is served before all others."""
    rows = [Gang("begun", rows_done=1e3, rows_most=128.0), Gang("new", rows_most=128.0)]
    view = SlotView(0.0, Nodes.equal(1, slots=4), Gangs.of(rows, nodes=1))
    assert ExactUtilisation().plan(view).slots_by_id() == {"begun": 0, "new": 4}
