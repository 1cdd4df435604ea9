"""Columns, views and plans of groups: what they refuse, and what a plan must keep."""

from __future__ import annotations

import math

import numpy as np
import pytest
from relaqs_lab.groups import (
    Fleet,
    Group,
    GroupPlan,
    GroupView,
    Lost,
    Subtasks,
    SubtaskTimes,
    UnplannableError,
)

TWO = Subtasks.of([SubtaskTimes("a", 60.0, 4.0, input_bytes=8e9), SubtaskTimes("b")])


def test_some_jobs_keep_their_columns() -> None:
    chosen = TWO.of_jobs(np.array([False, True]))
    assert chosen.ids == ("b",)
    assert TWO.is_known.tolist() == [True, False]
    assert math.isnan(chosen.comm_seconds[0])


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two jobs of a view have the same id"):
        Subtasks.of([SubtaskTimes("a"), SubtaskTimes("a")])


@pytest.mark.parametrize("name", ["comp_machine_seconds", "comm_seconds", "input_bytes", "iterations_left"])
def test_negative_values_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} of job 'b' is -1; give 0 or more"):
        Subtasks.of([SubtaskTimes("a"), SubtaskTimes("b", **{name: -1.0})])


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ((Group(("a",), 2), Group(("a",), 2)), "a job is in two groups"),
        ((Group(("c",), 2),), "the job 'c', which is not among the jobs"),
        ((Group(("a", "b"), 5),), "the groups have 5 machines together, and there are 4"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups: tuple[Group, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        GroupView(0.0, Fleet(4), TWO, groups)
    with pytest.raises(UnplannableError, match=says):
        GroupPlan.of(GroupView(0.0, Fleet(4), TWO), groups)


def test_what_is_lost_was_in_a_group() -> None:
    with pytest.raises(ValueError, match="none of the 1"):
        GroupView(0.0, Fleet(4), TWO, (Group(("a",), 2),), (Lost(1, 5.0, 1.0),))


def test_a_plan_beyond_memory_is_refused() -> None:
    view = GroupView(0.0, Fleet(4, memory_bytes=1e9), TWO)
    with pytest.raises(
        UnplannableError, match=r"keeps 8e\+09 bytes in memory, and its 4 machines have 4e\+09"
    ):
        GroupPlan.of(view, (Group(("a",), 4),))
    assert GroupPlan.of(view, (Group(("a",), 4),), {"a": 0.5}).running == {"a"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ((0,), "machines is 0"),
        ((1, -1.0), "memory_bytes is -1"),
        ((1, 1.0, 0.0), "disk_bytes_per_second is 0"),
    ],
)
def test_a_fleet_has_machines_with_memory_and_disks(settings: tuple[float, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Fleet(*settings)  # type: ignore[arg-type]


def test_a_group_has_jobs_and_machines() -> None:
    with pytest.raises(ValueError, match="a group has 0 jobs and 3 machines"):
        Group((), 3)
