"""Machines that jobs share in groups: what is charged, what is known, and what cannot be."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from relaqs_lab.group_policies import GROUP_POLICIES, make_group_policy
from relaqs_lab.group_policies.harmony import Harmony
from relaqs_lab.groups import Fleet, Group, GroupPlan, GroupView, TurnTaking
from relaqs_lab.simulation.grouped.grouped_simulator import GroupedRules, simulate_groups
from relaqs_lab.simulation.grouped.grouped_workload import PAPER_FLEET, GroupedJob, harmony_jobs

FREE = GroupedRules(profile_iterations=0, decode_seconds_per_byte=0.0)


def job(name: str, iterations: int = 10, **more: float) -> GroupedJob:
    given = {"arrival_seconds": 0.0, "comp_machine_seconds": 90.0, "comm_seconds": 9.0 / 0.9, **more}
    return GroupedJob(name, iterations=iterations, **given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Fixed:
    """A policy that always says the same of the jobs that are there, until a time and after it."""

    groups: tuple[Group, ...]
    later: tuple[Group, ...] = ()
    at_seconds: float = np.inf
    spilled: tuple[tuple[str, float], ...] = ()
    turns: TurnTaking = "pull_first"
    name: str = "fixed"

    def plan(self, view: GroupView) -> GroupPlan:
        chosen = self.later if view.time_seconds >= self.at_seconds else self.groups
        left = [tuple(job for job in group.jobs if job in view.subtasks.ids) for group in chosen]
        groups = tuple(replace(g, jobs=jobs) for g, jobs in zip(chosen, left, strict=True) if jobs)
        spilled = {name: share for name, share in self.spilled if name in view.subtasks.ids}
        return GroupPlan.of(view, groups, spilled, self.turns)


@dataclass(frozen=True)
class NewestFirst:
    """The newest job has all machines."""

    name: str = "newest first"

    def plan(self, view: GroupView) -> GroupPlan:
        newest = view.subtasks.ids[int(np.argmax(view.subtasks.arrival_seconds))]
        return GroupPlan.of(view, (Group((newest,), view.fleet.machines),))


def test_a_job_alone_takes_its_loading_and_its_iterations() -> None:
    fleet = Fleet(10, disk_bytes_per_second=100.0)
    outcome = simulate_groups([job("a", input_bytes=5000.0)], Fixed((Group(("a",), 10),)), fleet, FREE)
    assert outcome.end_seconds.tolist() == pytest.approx([5.0 + 10 * (9.0 + 9.0)])
    assert outcome.cpu_share == pytest.approx(90 / 185)
    assert outcome.net_share == pytest.approx(90 / 185)


def test_two_balanced_jobs_need_little_more_than_one() -> None:
    pair = Fixed((Group(("a", "b"), 10),))
    both = simulate_groups([job("a", 100), job("b", 100)], pair, Fleet(10), FREE)
    alone = simulate_groups([job("a", 100)], Fixed((Group(("a",), 10),)), Fleet(10), FREE)
    assert both.makespan_seconds == pytest.approx(alone.makespan_seconds, rel=0.02)
    assert both.model_errors.size == 1
    assert both.model_errors[0] < 0.01
    assert both.cpu_share == pytest.approx(0.99, abs=0.02)


def test_moving_costs_a_checkpoint_and_loading() -> None:
    fleet = Fleet(10, disk_bytes_per_second=100.0)
    jobs = [job("a", 10, model_bytes=1000.0, input_bytes=2000.0), job("late", 1, arrival_seconds=30.0)]
    split = (Group(("a",), 5), Group(("late",), 5))
    moved = Fixed((Group(("a",), 10),), split, at_seconds=30.0)
    outcome = simulate_groups(jobs, moved, fleet, FREE)
    # loads for 2 s, ends an iteration at 38, is saved on 10 machines for 1 s, is loaded on 5 for 6 s
    step = 90 / 5 + 10 * (1 - 1 / 5)
    assert outcome.end_seconds[0] == pytest.approx(2 + 2 * 18 + 1 + 6 + 8 * step)
    assert outcome.moves.tolist() == [1, 0]
    assert outcome.paused_seconds[0] == pytest.approx(7.0)
    free = simulate_groups(jobs, moved, fleet, replace(FREE, moving=False))
    assert free.end_seconds[0] == pytest.approx(2 * 18 + 8 * step)


def test_a_new_group_waits_for_its_machines() -> None:
    jobs = [job("a", 3), job("b", 1, arrival_seconds=5.0)]
    outcome = simulate_groups(jobs, NewestFirst(), Fleet(10), FREE)
    # a's first iteration ends at 18; b has the machines until 36; a makes its two others after that
    assert outcome.end_seconds.tolist() == pytest.approx([18 + 18 + 2 * 18, 36])


def test_rows_on_disk_bind_an_iteration() -> None:
    fleet = Fleet(10, memory_bytes=600.0, disk_bytes_per_second=10.0)
    alone = Fixed((Group(("a",), 10),), spilled=(("a", 0.5),))
    outcome = simulate_groups([job("a", 20, input_bytes=6000.0)], alone, fleet, FREE)
    # 300 bytes a machine take 30 s, and an iteration without them 18
    assert (outcome.end_seconds[0] - 30) / 20 == pytest.approx(30, rel=0.05)
    assert outcome.spilled_mean == pytest.approx(0.5)


def test_times_are_known_after_some_iterations_where_a_policy_profiles() -> None:
    seen: list[tuple[float, bool]] = []

    @dataclass(frozen=True)
    class Looks:
        name: str = "looks"
        profiles: bool = True

        def plan(self, view: GroupView) -> GroupPlan:
            seen.append((view.time_seconds, bool(view.subtasks.is_known.all())))
            return GroupPlan.of(view, (Group(("a",), 10),))

    simulate_groups([job("a")], Looks(), Fleet(10), replace(FREE, profile_iterations=6))
    assert seen == [(0.0, False), (pytest.approx(6 * 18.0), True)]


def test_the_loss_is_its_integral_and_waiting_is_counted() -> None:
    jobs = [job("a", 4, loss_decay=0.0), job("b", 2, arrival_seconds=10.0, loss_decay=math.log(2) * 2)]
    one_by_one = Fixed((Group(("a",), 10),), (Group(("b",), 10),), at_seconds=4 * 18.0)
    outcome = simulate_groups(jobs, one_by_one, Fleet(10), FREE)
    assert outcome.end_seconds.tolist() == pytest.approx([72.0, 72.0 + 36.0])
    halfway = (0.5 - 0.25) / (1 - 0.25)
    assert outcome.loss_seconds.tolist() == pytest.approx(
        [18 * (1 + 0.75 + 0.5 + 0.25), 62 + 18 + 18 * halfway]
    )
    assert outcome.waited_seconds.tolist() == pytest.approx([0.0, 62.0])


def test_a_policy_is_asked_as_often_as_it_says_and_handed_its_memory() -> None:
    asked: list[float] = []
    remembered: list[object] = []

    @dataclass(frozen=True)
    class Often:
        name: str = "often"
        asks_every_seconds: float = 50.0

        def plan(self, view: GroupView) -> GroupPlan:
            asked.append(view.time_seconds)
            remembered.append(view.memory)
            return GroupPlan.of(view, (Group(("a",), 10),), memory=len(asked))

    simulate_groups([job("a")], Often(), Fleet(10), FREE)
    assert asked == [0.0, 50.0, 100.0, 150.0]
    assert remembered == [None, 1, 2, 3]


def test_policies_may_be_misled() -> None:
    told: list[float] = []

    @dataclass(frozen=True)
    class Listens:
        name: str = "listens"

        def plan(self, view: GroupView) -> GroupPlan:
            told.append(float(view.subtasks.comp_machine_seconds[0]))
            return GroupPlan.of(view, (Group((view.subtasks.ids[0],), 10),))

    for seed in range(20):
        simulate_groups([job("a", 1)], Listens(), Fleet(10), replace(FREE, misled=0.2), seed=seed)
    assert 72.0 <= min(told) < 80.0
    assert 100.0 < max(told) <= 108.0


@pytest.mark.parametrize("name", GROUP_POLICIES)
def test_every_policy_brings_every_job_to_its_end(name: str) -> None:
    jobs = tuple(replace(each, iterations=5 + each.iterations % 7) for each in harmony_jobs(3)[:24])
    one, two = (
        simulate_groups(jobs, make_group_policy(name), PAPER_FLEET, GroupedRules(noise=0.1), seed=1)
        for _ in range(2)
    )
    assert np.isfinite(one.end_seconds).all()
    assert one.end_seconds.tolist() == two.end_seconds.tolist()
    assert 0 < one.cpu_share < 1
    assert 0 < one.net_share < 1
    work = sum(each.iterations * each.comp_machine_seconds for each in jobs)
    assert one.cpu_share * 100 * one.makespan_seconds >= 0.85 * work  # spilled rows and noise add to it


def test_the_model_is_right_within_5_percent_for_harmony() -> None:
    outcome = simulate_groups(harmony_jobs(4)[:40], Harmony(), PAPER_FLEET, seed=4)
    assert len(outcome.model_errors) > 10
    assert np.percentile(outcome.model_errors, 95) < 0.05


def test_a_fleet_without_enough_memory_is_named() -> None:
    with pytest.raises(ValueError, match="policy 'isolated' starts none of them; give more machines"):
        simulate_groups([job("a", input_bytes=1e9)], make_group_policy("isolated"), Fleet(2, 1e6), FREE)
    with pytest.raises(ValueError, match="no jobs to simulate"):
        simulate_groups([], Harmony(), Fleet(2))


def test_what_did_not_end_has_no_end() -> None:
    outcome = simulate_groups(
        [job("a")], Fixed((Group(("a",), 10),)), Fleet(10), replace(FREE, until_seconds=40.0)
    )
    assert np.isnan(outcome.makespan_seconds)
    assert outcome.cpu_share == pytest.approx(18 / 36, abs=0.15)


@pytest.mark.parametrize(
    ("setting", "says"), [({"misled": 1.0}, "misled is 1.0"), ({"noise": -1.0}, "noise is -1")]
)
def test_rules_that_cannot_be_are_refused(setting: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        GroupedRules(**setting)  # type: ignore[arg-type]


def test_every_processor_simulates_the_same() -> None:
    """numpy computes by the vector instructions of the processor. Some of them are switched off for this."""
    program = """
from relaqs_lab.group_policies.harmony import Harmony
from relaqs_lab.simulation.grouped.grouped_simulator import GroupedRules, simulate_groups
from relaqs_lab.simulation.grouped.grouped_workload import PAPER_FLEET, harmony_jobs
jobs = [job for job in harmony_jobs(1)[:12]]
outcome = simulate_groups(jobs, Harmony(), PAPER_FLEET, GroupedRules(noise=0.1))
print(outcome.end_seconds.tolist())
"""
    printed = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env=os.environ | {"NPY_DISABLE_CPU_FEATURES": disabled},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for disabled in ("", "X86_V4 AVX512_ICL AVX512_SPR")
    ]
    assert printed[0] == printed[1] != ""
