"""Groups by what waits behind them: who comes first, who is bound to run, and when groups stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from relaqs_lab.group_policies import make_group_policy
from relaqs_lab.group_policies.harmony import HarmonyProgress, density, held_up, values
from relaqs_lab.groups import Fleet, GroupView, Subtasks, SubtaskTimes

from relaqs.policies.registry import PolicyError
from tests.lab.group_policies.made_up import random_subtasks

EQUAL = SubtaskTimes("", 60.0, 4.0, iterations_left=10.0, loss=1.0, loss_fall=0.1)


def jobs_like(**changes: dict[str, float]) -> Subtasks:
    """Return equal jobs by name, each with its changes."""
    return Subtasks.of([replace(EQUAL, id=name, **change) for name, change in changes.items()])  # type: ignore[arg-type]


def test_an_iteration_is_worth_its_fall_or_its_part_of_the_end() -> None:
    jobs = jobs_like(
        steep={"loss_fall": 0.5},
        ends={"loss": 0.2, "loss_fall": 0.01, "iterations_left": 3.0},
        heavy={"weight": 2.0},
        unknown={"loss": np.nan, "loss_fall": np.nan, "iterations_left": np.nan},
    )
    known = [0.5, 1.2 / 3, 2 * 0.2]
    assert values(jobs, end=1.0)[:3].tolist() == pytest.approx(known)
    assert values(jobs, end=1.0)[3] == pytest.approx((0.5 + 0.4 + 0.2) / 3)  # as the others, without weights
    assert values(jobs, end=0.0)[1] == pytest.approx(0.2 / 3)


def test_the_rank_is_value_for_what_is_taken() -> None:
    jobs = jobs_like(usual={}, large={"comp_machine_seconds": 120.0, "comm_seconds": 8.0})
    usual, large = density(jobs, end=1.0)
    assert usual == pytest.approx(2 * large)


def test_a_second_is_worth_what_waits_behind_it() -> None:
    """The slope of the cost of serving whole jobs one after another, by a difference."""
    left, loss = np.array([7.0, 2.0, 4.0]), np.array([0.9, 0.5, 0.7])

    def cost(units: np.ndarray) -> float:
        order = np.argsort(-((loss + 1.0) / left))
        return float((np.cumsum(units[order]) * (loss + 1.0)[order]).sum())

    rows = {f"job {i}": {"iterations_left": left[i], "loss": loss[i], "loss_fall": 0.0} for i in range(3)}
    found = held_up(jobs_like(**rows), end=1.0)  # an iteration of each of three equal jobs takes 2/3
    slopes = [cost(left + np.eye(3)[i]) - cost(left) for i in range(3)]
    assert (found / (2 / 3)).tolist() == pytest.approx(slopes)


def test_the_short_and_the_steep_run_where_not_all_can() -> None:
    many = {f"long {i}": {"iterations_left": 500.0, "loss_fall": 0.001} for i in range(30)}
    jobs = jobs_like(
        **many, short={"iterations_left": 3.0}, steep={"iterations_left": 90.0, "loss_fall": 0.3}
    )
    running = HarmonyProgress().plan(GroupView(0.0, Fleet(2), jobs)).running
    assert {"short", "steep"} <= running
    assert len(running) < 32


def test_who_waited_for_too_long_runs_and_is_not_taken_out() -> None:
    many = {f"short {i}": {"iterations_left": 3.0} for i in range(30)}
    late = {"iterations_left": 5000.0, "loss_fall": 0.0, "comp_machine_seconds": 600.0, "comm_seconds": 90.0}
    waits = jobs_like(**many, late={**late, "waited_seconds": 99.0})
    overdue = jobs_like(**many, late={**late, "waited_seconds": 101.0})
    policy = HarmonyProgress(longest_wait_seconds=100.0)
    assert "late" not in policy.plan(GroupView(0.0, Fleet(3), waits)).running
    plan = policy.plan(GroupView(0.0, Fleet(3), overdue))
    assert "late" in plan.running
    shorter = jobs_like(**many, new={"iterations_left": 1.0}, late={**late, "waited_seconds": 101.0})
    assert "late" in policy.plan(GroupView(9.0, Fleet(3), shorter, plan.groups)).running


def test_groups_stay_where_little_would_be_gained() -> None:
    for seed in range(5):
        jobs, fleet = random_subtasks(20, seed), Fleet(40)
        first = HarmonyProgress().plan(GroupView(0.0, fleet, jobs))
        again = HarmonyProgress().plan(GroupView(1.0, fleet, jobs, first.groups))
        assert set(again.groups) == set(first.groups)
        apart = tuple(replace(group, jobs=group.jobs[:1]) for group in first.groups)
        assert set(HarmonyProgress().plan(GroupView(1.0, fleet, jobs, apart)).groups) != set(apart)
        still = HarmonyProgress(gain=99.0).plan(GroupView(1.0, fleet, jobs, apart))
        assert set(still.groups) == set(apart)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"end": -1.0}, "end is -1.0; give 0 or more"),
        ({"longest_wait_seconds": float("nan")}, "longest_wait_seconds is nan"),
        ({"asks_every_seconds": 0.0}, "asks_every_seconds is 0.0; give a number above 0"),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, float], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        make_group_policy("harmony_progress", **parameters)
