"""Queries beside jobs in groups: what they get of the cores, what jobs lose, and what is equal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from relaqs_lab.group_policies import make_group_policy
from relaqs_lab.group_policies.harmony import Harmony
from relaqs_lab.groups import Fleet, Group, GroupPlan, GroupView
from relaqs_lab.simulation.grouped.grouped_simulator import GroupedRules, simulate_groups
from relaqs_lab.simulation.grouped.grouped_workload import PAPER_FLEET, GroupedJob, harmony_jobs
from relaqs_lab.simulation.grouped.queries import QueryLoad, QueryPool, error_integral
from relaqs_lab.simulation.grouped.turns import IterationSeconds, Lanes

MACHINES, TASK_SECONDS = 10, 0.1
ENDLESS = QueryLoad(machine_seconds=1e12, task_seconds=TASK_SECONDS)
FREE = GroupedRules(profile_iterations=0, decode_seconds_per_byte=0.0)


def beside_one_query(needs: list[IterationSeconds], rounds: int = 100) -> tuple[float, float]:
    """Return the mean iteration of the first of some jobs, and the share of the cores that a query has."""
    pool = QueryPool(ENDLESS, MACHINES, seed=0, begins=0.0)
    pool.arrive()
    lanes = Lanes(pull_first=True, queries=pool.beside(lambda: MACHINES))
    ends: list[float] = []
    for job, each in enumerate(needs):
        lanes.begin(job, each, 0.0)
    while len(ends) < rounds:
        now = lanes.next_seconds()
        if (ended := lanes.step()) is not None:
            ends.extend([now] if ended == 0 else [])
            lanes.begin(ended, needs[ended], now)
    return (ends[-1] - ends[0]) / (rounds - 1), lanes.query_seconds / now


def test_a_query_has_an_equal_share_where_jobs_want_all_cores() -> None:
    """Two jobs that always compute, and a query: each has a third, to a task and a COMP in the whole time."""
    seconds, share = beside_one_query([IterationSeconds(0.05, 3.0, 0.05)] * 2)
    assert share == pytest.approx(1 / 3, abs=0.02)
    assert seconds == pytest.approx(1.5 * 6.0, rel=0.02)


def test_a_query_has_what_is_idle_and_delays_no_job_by_more_than_a_task() -> None:
    seconds, share = beside_one_query([IterationSeconds(2.0, 1.0, 2.0)] * 2)
    assert share == pytest.approx(1 - 2 / 8, abs=0.03)
    assert 8.0 - 1e-9 <= seconds <= 8.0 + 2 * TASK_SECONDS


def test_an_equal_share_is_that_of_each_job_and_each_query() -> None:
    load = QueryLoad(every_seconds=1e9, machine_seconds=500.0, task_seconds=1.0)
    pool = QueryPool(load, MACHINES, seed=3, begins=0.0)
    begun = pool.next_arrival
    pool.arrive()
    alone = pool.beside(lambda: 1)
    now, tasks = begun, 0
    while alone.task_seconds(None):
        now, tasks = now + 1.0, tasks + 1
        alone.task_ended(now)
    pool.pass_equal(begun, 1e9, jobs=3)
    found = pool.outcome()
    assert found.machine_seconds == tasks > 10
    assert found.seconds.tolist() == pytest.approx([tasks])
    assert found.equal_seconds.tolist() == pytest.approx([tasks * 4 / MACHINES])
    assert found.equal_error_seconds.tolist() == pytest.approx([error_integral(0, 1) * tasks * 4 / MACHINES])
    # In tasks the error stays until the next one ends: it is more than the integral, by a task's at most.
    assert 0 < found.error_seconds[0] - error_integral(0, 1) * tasks <= 1.0


@dataclass(frozen=True)
class Always:
    """The jobs that are there are one group, or none is."""

    machines: int
    name: str = "always"

    def plan(self, view: GroupView) -> GroupPlan:
        groups = (Group(view.subtasks.ids, self.machines),) if self.machines else ()
        return GroupPlan.of(view, groups)


def computing(name: str, iterations: int = 40) -> GroupedJob:
    return GroupedJob(name, 0.0, iterations, comp_machine_seconds=80.0, comm_seconds=1.0)


def test_queries_have_free_machines_and_the_jobs_keep_theirs() -> None:
    rules = replace(FREE, queries=QueryLoad(every_seconds=30.0, machine_seconds=40.0, task_seconds=0.1))
    jobs = [computing("a")]
    without = simulate_groups(jobs, Always(8), Fleet(MACHINES), FREE)
    beside = simulate_groups(jobs, Always(8), Fleet(MACHINES), rules)
    assert beside.queries is not None
    assert without.queries is None
    assert len(beside.queries.seconds) >= 8
    took = beside.queries.machine_seconds / (MACHINES * beside.makespan_seconds)
    lost = 1 - without.makespan_seconds / beside.makespan_seconds
    assert 0 < lost <= took


def test_queries_beside_harmony_lose_nothing_against_equal_shares() -> None:
    jobs = tuple(replace(each, iterations=5 + each.iterations % 7) for each in harmony_jobs(3)[:24])
    rules = GroupedRules(queries=QueryLoad(every_seconds=120.0))
    one, two = (simulate_groups(jobs, Harmony(), PAPER_FLEET, rules, seed=1) for _ in range(2))
    assert np.isfinite(one.end_seconds).all()
    assert one.end_seconds.tolist() == two.end_seconds.tolist()
    assert one.queries is not None
    assert len(one.queries.seconds) >= 5
    assert one.queries.error_seconds.sum() <= one.queries.equal_error_seconds.sum()


def test_what_cannot_be_beside_queries_is_named() -> None:
    rules = GroupedRules(queries=QueryLoad())
    with pytest.raises(ValueError, match="policy 'colocated' lets jobs share all at once"):
        simulate_groups([computing("a")], make_group_policy("colocated"), Fleet(MACHINES), rules)
    with pytest.raises(ValueError, match="policy 'always' starts none of them"):
        simulate_groups([computing("a")], Always(0), Fleet(MACHINES), rules)
    with pytest.raises(ValueError, match="every_seconds of queries is 0"):
        QueryLoad(every_seconds=0)
