"""The desk under a fake clock: accounts, plan and turns stay one, as both executors drive them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.policies import Fair, WeightedFair
from relaqs.scheduling import EPOCH_SECONDS, Desk
from relaqs.sharing.view import Plan, View

CORES = 2.0
TASK_CORE_SECONDS = 0.05


@dataclass
class Told:
    """Shares by weight, and stops the jobs it is told to."""

    stops: list[str] = field(default_factory=list)
    name: str = "told"

    def plan(self, view: View) -> Plan:
        return replace(WeightedFair().plan(view), stops=tuple(self.stops))


def desk_of(*descriptions: JobDescription) -> Desk:
    desk = Desk(WeightedFair())
    for description in descriptions:
        desk.enter(description, 0.0)
    return desk


def worked_off(desk: Desk, jobs: str, core_seconds: float, now_seconds: float = 0.0) -> Counter[str]:
    """Drive the desk as an executor does, one core after another, and return who used how much."""
    used: Counter[str] = Counter()
    while used.total() < core_seconds:
        if desk.accounts.is_due(now_seconds, CORES):
            desk.share_out(now_seconds, CORES)
        job = desk.turns.next(jobs)
        assert job is not None
        charged = desk.turns.start(job)
        now_seconds += TASK_CORE_SECONDS / CORES
        desk.turns.settle(job, charged, TASK_CORE_SECONDS)
        desk.accounts.charge(job, TASK_CORE_SECONDS, now_seconds)
        used[job] += TASK_CORE_SECONDS
    return used


def test_core_seconds_follow_the_plan_and_stand_in_both_books() -> None:
    desk = desk_of(JobDescription("a", weight=3.0), JobDescription("b"))
    used = worked_off(desk, "ab", 4.0)
    assert used["a"] == pytest.approx(3.0, abs=2 * TASK_CORE_SECONDS)
    status = desk.accounts.status(2.0, CORES, {})
    assert {job.id: job.attained_core_seconds for job in status.jobs} == pytest.approx(dict(used))
    assert [job.share_cores for job in status.jobs] == [1.5, 0.5]


def test_a_change_counts_from_the_next_task() -> None:
    desk = desk_of(JobDescription("a", weight=3.0), JobDescription("b"))
    worked_off(desk, "ab", 4.0)
    desk.accounts.set_weight("b", 9.0)
    assert desk.accounts.is_due(2.0, CORES)
    assert worked_off(desk, "ab", 4.0, 2.0)["b"] == pytest.approx(3.0, abs=2 * TASK_CORE_SECONDS)


def test_a_plan_holds_until_something_changes() -> None:
    desk = desk_of(JobDescription("a"))
    assert desk.plan.ids == ()
    assert desk.share_out(0.0, CORES) == ()
    plan = desk.plan
    assert plan.cores_by_job() == {"a": CORES}
    assert not desk.accounts.is_due(0.9 * EPOCH_SECONDS, CORES)
    desk.accounts.report("a", StepReport(0, 0.5, 0.1, 0.1, is_final=False))
    assert desk.accounts.is_due(0.9 * EPOCH_SECONDS, CORES)
    desk.share_out(0.1, CORES)
    desk.accounts.policy = Fair()
    assert desk.accounts.is_due(0.1, CORES)
    assert desk.plan is not plan


def test_a_paused_job_is_not_planned_for_and_keeps_its_turn() -> None:
    desk = desk_of(JobDescription("a"), JobDescription("b"))
    desk.accounts.set_waiting("a", False)
    desk.share_out(0.0, CORES)
    assert desk.plan.ids == ("b",)
    assert desk.turns.next(["a"]) == "a"  # what it has submitted still runs


def test_a_job_is_stopped_once_and_only_while_it_is_there() -> None:
    desk = Desk(told := Told())
    for job in "ab":
        desk.enter(JobDescription(job), 0.0)
    told.stops = ["a", "a", "gone"]
    assert desk.share_out(0.0, CORES) == ("a",)
    told.stops = ["a", "b"]
    assert desk.share_out(0.1, CORES) == ("b",)
    assert desk.share_out(0.2, CORES) == ()
    desk.leave("a")
    desk.enter(JobDescription("a"), 0.3)  # another job of that name
    assert desk.share_out(0.3, CORES) == ("a",)


def test_a_job_that_rests_has_no_account_and_keeps_its_turn() -> None:
    desk = desk_of(JobDescription("foreign"), JobDescription("a"))
    desk.share_out(0.0, CORES)
    desk.rest("foreign")
    assert "foreign" not in desk
    assert len(desk) == 1
    desk.turns.wake("foreign")
    assert desk.turns.next(["foreign"]) == "foreign"
    desk.leave("foreign")
    assert "foreign" not in desk.turns


def test_late_words_about_a_job_that_left_change_nothing() -> None:
    desk = desk_of(JobDescription("a"))
    charged = desk.turns.start("a")
    desk.leave("a")
    desk.share_out(0.0, CORES)
    desk.turns.settle("a", charged, 1.0)
    desk.accounts.charge("a", 1.0, 0.1)
    desk.accounts.report("a", StepReport(0, 0.5, 0.1, 0.1, is_final=False))
    desk.accounts.set_weight("a", 2.0)
    assert not desk.accounts.is_due(0.1, CORES)
    assert desk.accounts.status(0.1, CORES, {}).jobs == ()
