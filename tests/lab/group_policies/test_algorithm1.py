"""The steps of Algorithm 1, one by one, against plain loops and solvers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaqs_lab.group_policies.arrangement import least_machines, spilled_shares
from relaqs_lab.group_policies.group_model import GroupModel, group_counts
from relaqs_lab.group_policies.harmony import considered
from relaqs_lab.group_policies.prefixes import PrefixSearch, Ratio, apportioned, exchanged, filled
from relaqs_lab.groups import Fleet, Phase, Subtasks, SubtaskTimes
from scipy.optimize import linprog

from tests.lab.group_policies.made_up import random_subtasks

PAPER = Fleet(100)
seeds = st.integers(0, 10_000)


def imbalance(lean, group, count: int) -> float:
    return float(np.abs(np.bincount(group, lean, count)).sum())


@given(seed=seeds, jobs=st.integers(1, 60), share=st.floats(0.01, 1.0), band=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_groups_are_filled_evenly(seed: int, jobs: int, share: float, band: int) -> None:
    comp, comm = np.random.default_rng(seed).uniform(0, 10, (2, jobs))
    count = max(int(jobs * share), 1)
    sizes = np.bincount(filled(comp, comm, count, band), minlength=count)
    assert len(sizes) == count
    assert sizes.min() >= 1
    assert np.ptp(sizes) <= 2


def test_long_jobs_are_together_in_bands() -> None:
    comp = np.array([1.0, 100.0, 2.0, 90.0])
    group = filled(comp, np.ones(4), count=2, band=1)
    assert group.tolist() == [1, 0, 1, 0]


@given(seed=seeds, jobs=st.integers(2, 40), count=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_swaps_never_raise_the_imbalance_and_end(seed: int, jobs: int, count: int) -> None:
    random = np.random.default_rng(seed)
    lean, count = random.normal(0, 5, jobs), min(count, jobs)
    start = filled(np.maximum(lean, 0), np.maximum(-lean, 0), count)
    steps = [exchanged(lean, start, count, most) for most in range(12)]
    course = [imbalance(lean, group, count) for group in steps]
    assert all(after <= before + 1e-9 for before, after in pairwise(course))
    assert np.bincount(steps[-1], minlength=count).tolist() == np.bincount(start, minlength=count).tolist()
    ended = exchanged(lean, start, count, 10_000)
    assert exchanged(lean, ended, count).tolist() == ended.tolist()


@pytest.mark.parametrize("literal", [True, False])
@given(seed=seeds, count=st.integers(1, 30), more=st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_machines_are_those_of_a_loop_over_machines(literal: bool, seed: int, count: int, more: int) -> None:
    jobs, random = random_subtasks(count + 5, seed, fixed=2.0), np.random.default_rng(seed)
    group = np.concatenate([np.arange(count), random.integers(0, count, 5)])
    least = random.integers(1, 4, count)
    model, total = GroupModel(literal=literal), int(least.sum()) + more
    ratio, machines = Ratio.of(jobs, group, count, model), least.copy()
    for _ in range(more):
        machines[int(np.argmax(ratio.at(machines)))] += 1
    assert apportioned(jobs, group, least, total, model).tolist() == machines.tolist()


def test_the_ratio_is_that_of_the_times() -> None:
    jobs, group = random_subtasks(6, seed=4, fixed=3.0), np.array([0, 0, 1, 1, 2, 2])
    for model in (GroupModel(), GroupModel(literal=True)):
        machines = np.array([3, 9, 30])
        comp = np.bincount(group, model.comp_seconds(jobs, machines[group]))
        comm = np.bincount(group, model.comm_seconds(jobs, machines[group]))
        np.testing.assert_allclose(Ratio.of(jobs, group, 3, model).at(machines), comp / comm)


@given(seed=seeds, machines=st.integers(2, 300))
@settings(max_examples=60, deadline=None)
def test_more_machines_never_make_a_group_slower_in_the_literal_model(seed: int, machines: int) -> None:
    jobs, model = random_subtasks(5, seed), GroupModel(literal=True)
    fewer, more = (model.comp_seconds(jobs, np.full(5, m)) for m in (machines, machines + 1))
    assert (more <= fewer).all()
    assert model.comm_seconds(jobs, np.full(5, machines)).tolist() == jobs.comm_seconds.tolist()


@given(seed=seeds, jobs=st.integers(1, 30), machines=st.integers(1, 200), literal=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_number_of_groups_is_where_the_balance_changes_sides(
    seed: int, jobs: int, machines: int, literal: bool
) -> None:
    chosen, model = random_subtasks(jobs, seed), GroupModel(literal=literal)

    def lean(count: int) -> float:
        each = np.full(jobs, machines / count)
        return float((model.comp_seconds(chosen, each) - model.comm_seconds(chosen, each)).sum())

    counts, most = group_counts(chosen, machines, model), min(jobs, machines)
    assert all(1 <= count <= most for count in counts)
    assert counts[0] == 1 or lean(counts[0]) <= 1e-9  # with fewer groups the network is the bottleneck
    assert counts[-1] == most or lean(counts[-1]) >= -1e-9


@given(seed=seeds, jobs=st.integers(1, 6), memory=st.floats(1e9, 40e9))
@settings(max_examples=40, deadline=None)
def test_what_is_spilled_costs_least(seed: int, jobs: int, memory: float) -> None:
    random = np.random.default_rng(seed)
    rows = [
        SubtaskTimes(
            str(i),
            input_bytes=float(random.uniform(1e9, 50e9)),
            decode_seconds_per_byte=random.uniform(0, 2e-9),
        )
        for i in range(jobs)
    ]
    columns, one = Subtasks.of(rows), np.zeros(jobs, dtype=np.int64)
    fleet, machines = Fleet(4, memory, 1e8), np.array([4])
    lacking = columns.input_bytes.sum() - 4 * memory
    found = spilled_shares(columns, one, machines, fleet)
    cost = columns.input_bytes * (1e-8 + columns.decode_seconds_per_byte)
    if lacking <= 0:
        assert not found.any()
        return
    solved = linprog(cost, A_ub=[-columns.input_bytes / 1e9], b_ub=[-lacking / 1e9], bounds=(0, 1))
    assert found @ cost == pytest.approx(solved.fun, rel=1e-6)
    assert found @ columns.input_bytes == pytest.approx(lacking, rel=1e-9)


def test_each_group_spills_for_itself() -> None:
    jobs = Subtasks.of([SubtaskTimes(name, input_bytes=6e9, model_bytes=1e9) for name in "abcd"])
    fleet, group, machines = Fleet(9, memory_bytes=2e9), np.array([0, 0, 1, 1]), np.array([7, 2])
    found = spilled_shares(jobs, group, machines, fleet)  # 14 GB each, where there are 14 and 4
    np.testing.assert_allclose(found, [0.0, 0.0, 1.0, 4 / 6])
    assert least_machines(jobs, group, 2, fleet, spills=False).tolist() == [7, 7]
    assert least_machines(jobs, group, 2, fleet, spills=True).tolist() == [1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_the_loop_as_it_is_written_stops_after_a_few_jobs(seed: int) -> None:
    """The first job that adds nothing ends it: the best prefix uses the machines much better."""
    jobs = random_subtasks(80, seed)
    model = GroupModel(literal=True)
    first, best = (PrefixSearch(model, stop=stop).best(jobs, PAPER) for stop in ("first", "best"))  # type: ignore[arg-type]
    assert first is not None
    assert best is not None
    assert len(first.jobs) < len(best.jobs)
    assert best.score > 0.93
    assert best.score > first.score + 0.05


def test_at_equal_weights_the_loop_stops_at_the_first_job() -> None:
    found = PrefixSearch(GroupModel(0.5, literal=True), stop="first").best(random_subtasks(80, 0), PAPER)
    assert found is not None
    assert len(found.jobs) == 1


def test_of_prefixes_that_are_as_good_the_shortest_runs() -> None:
    jobs = random_subtasks(40, seed=2)
    tight, loose = (PrefixSearch(tolerance=each).best(jobs, PAPER) for each in (0.0, 0.05))
    assert tight is not None
    assert loose is not None
    assert len(loose.jobs) < len(tight.jobs)
    assert tight.score - 0.05 <= loose.score <= tight.score


def test_the_best_prefix_of_many_jobs_is_near_that_of_all_prefixes() -> None:
    jobs = random_subtasks(80, seed=5)
    some, every = (PrefixSearch(prefixes=each).best(jobs, PAPER) for each in (16, 80))
    assert some is not None
    assert every is not None
    assert some.score >= every.score - 0.02


def test_running_jobs_come_first_then_paused_and_profiled_ones_by_arrival() -> None:
    rows = [
        SubtaskTimes("new", phase=Phase.NEW, arrival_seconds=0.0),
        SubtaskTimes("profiled", 1.0, 1.0, phase=Phase.PROFILED, arrival_seconds=1.0),
        SubtaskTimes("paused late", 3.0, 1.0, phase=Phase.PAUSED, arrival_seconds=3.0),
        SubtaskTimes("paused", 2.0, 1.0, phase=Phase.PAUSED, arrival_seconds=2.0),
        SubtaskTimes("running", 2.0, 5.0, phase=Phase.RUNNING, arrival_seconds=4.0),
    ]
    found = considered(Subtasks.of(rows))
    assert found.ids == ("running", "paused", "paused late", "profiled", "new")
    assert (found.comp_machine_seconds[-1], found.comm_seconds[-1]) == (2.0, 2.0)  # the means of the others


def test_the_shortest_come_first_where_that_is_asked_for() -> None:
    rows = [
        SubtaskTimes("long", 160.0, 1.0, iterations_left=50.0),
        SubtaskTimes("short", 320.0, 2.0, iterations_left=9.0),
    ]
    assert considered(Subtasks.of(rows), "shortest").ids == ("short", "long")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"stop": "never"}, "stop is 'never'; give 'best' or 'first'"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
    ],
)
def test_a_reading_that_is_none_is_refused(settings: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PrefixSearch(**settings)
