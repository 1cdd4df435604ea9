"""The allocator under a fake clock: when it plans, what policies see, and what people are shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.policies import Fair, Index, MaxSum, WeightedFair
from relaqs.scheduling import EPOCH_SECONDS, Allocator, desk
from relaqs.sharing.division import fill_evenly
from relaqs.sharing.view import Kind, Plan, Policy, View
from tests.relaqs.policies.views import every_policy

CORES = 4.0


def report(
    step: int, quality: float, work_done: float | None = None, *, core_seconds: float = 0.1
) -> StepReport:
    return StepReport(step, quality, work_done, core_seconds, is_final=False)


def with_jobs(policy: Policy, *descriptions: JobDescription, now_seconds: float = 0.0) -> Allocator:
    """Return an allocator with these jobs, and a plan made."""
    allocator = Allocator(policy)
    for description in descriptions:
        allocator.enter(description, now_seconds)
    allocator.plan(now_seconds, CORES)
    return allocator


@dataclass
class Recorder:
    """Plans like another policy, and keeps the views."""

    inner: Policy = field(default_factory=WeightedFair)
    views: list[View] = field(default_factory=list)
    name: str = "recorder"

    def plan(self, view: View) -> Plan:
        self.views.append(view)
        return self.inner.plan(view)


def test_a_plan_holds_for_an_epoch() -> None:
    allocator = with_jobs(Fair(), JobDescription("a"), now_seconds=10.0)
    assert not allocator.is_due(10.0 + 0.99 * EPOCH_SECONDS, CORES)
    assert allocator.is_due(10.0 + EPOCH_SECONDS, CORES)
    assert allocator.is_due(10.0, CORES + 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.enter(JobDescription("new"), 0.1),
        lambda a: a.leave("job"),
        lambda a: a.set_weight("job", 2.0),
        lambda a: a.set_target("job", 0.01),
        lambda a: a.set_waiting("job", False),
        lambda a: a.report("job", report(0, 0.3, 0.1)),
    ],
    ids=["arrival", "end", "weight", "target", "pause", "first result"],
)
def test_a_change_calls_for_a_plan_at_once(change) -> None:  # type: ignore[no-untyped-def]
    allocator = with_jobs(Fair(), JobDescription("job", Kind.QUERY))
    change(allocator)
    assert allocator.is_due(0.1, CORES)
    allocator.plan(0.1, CORES)
    assert not allocator.is_due(0.2, CORES)


@pytest.mark.parametrize(
    "news",
    [
        lambda a: a.report("job", report(1, 0.2, 0.2)),
        lambda a: a.charge("job", 0.1, 0.1),
        lambda a: a.enter(JobDescription("job", weight=9.0), 0.1),  # again, as after a restart
        lambda a: a.leave("nobody"),
        lambda a: a.set_weight("nobody", 2.0),
        lambda a: a.report("nobody", report(0, 0.2, 0.2)),
        lambda a: a.charge("nobody", 1.0, 0.1),
    ],
)
def test_what_is_no_change_waits_for_the_epoch(news) -> None:  # type: ignore[no-untyped-def]
    allocator = with_jobs(Fair(), JobDescription("job", Kind.QUERY))
    allocator.report("job", report(0, 0.3, 0.1))
    allocator.plan(0.0, CORES)
    news(allocator)
    assert not allocator.is_due(0.1, CORES)
    assert [job.weight for job in allocator.status(0.1, CORES).jobs] == [1.0]


def test_paused_and_finished_jobs_leave_their_cores_to_the_others() -> None:
    allocator = with_jobs(Fair(), *(JobDescription(id) for id in "abc"))
    assert allocator.plan(0.0, CORES).cores_by_job() == pytest.approx(dict.fromkeys("abc", CORES / 3))
    allocator.set_waiting("a", False)
    allocator.leave("b")
    assert allocator.plan(0.1, CORES).cores_by_job() == pytest.approx({"c": CORES})
    allocator.set_waiting("a", True)
    assert allocator.plan(0.2, CORES).cores_by_job() == pytest.approx(dict.fromkeys("ac", CORES / 2))


def test_without_jobs_or_without_cores_there_is_an_empty_plan() -> None:
    allocator = Allocator(Index())
    assert allocator.plan(0.0, CORES).ids == ()
    allocator.enter(JobDescription("a", Kind.QUERY), 0.0)
    assert allocator.plan(0.0, 0.0).cores_by_job() == {"a": 0.0}


@pytest.mark.parametrize("policy", [Index(), MaxSum()], ids=lambda policy: policy.name)
def test_exact_and_foreign_jobs_have_their_fair_share_by_weight(policy: Policy) -> None:
    allocator = with_jobs(
        policy,
        JobDescription("query", Kind.QUERY),
        JobDescription("training", Kind.TRAINING, work_total=math.inf),
        JobDescription("exact", Kind.EXACT),
        JobDescription("foreign", weight=5.0),
    )
    for step in range(6):
        allocator.report("query", report(step, 0.5 / (step + 1), 0.1 * (step + 1)))
        allocator.report("training", report(step, 9.0 * 0.5**step))
    cores = allocator.plan(1.0, CORES).cores_by_job()
    assert cores["exact"] == pytest.approx(CORES / 8)
    assert cores["foreign"] == pytest.approx(CORES * 5 / 8)
    assert sum(cores.values()) == pytest.approx(CORES)


@pytest.mark.parametrize("policy", every_policy(), ids=lambda policy: policy.name)
@pytest.mark.parametrize("most", [1.0, 2.5, math.inf])
def test_a_job_alone_has_what_the_policy_would_give_it(policy: Policy, most: float) -> None:
    job = JobDescription("job", Kind.QUERY, cores_most=most)
    recorder = Recorder(policy)  # which is asked, since it does not say that it is work-conserving
    asked, alone = with_jobs(recorder, job), with_jobs(policy, job)
    assert recorder.views
    expected = asked.plan(1.0, CORES).cores_by_job()
    assert alone.plan(1.0, CORES).cores_by_job() == pytest.approx(expected)


def test_a_policy_that_plans_otherwise_than_its_base_is_asked_about_a_job_alone() -> None:
    class Half(Fair):
        def plan(self, view: View) -> Plan:
            return Plan(view.jobs.ids, np.full(len(view.jobs), 1.0), view.capacity_cores, stops=("job",))

    plan = with_jobs(Half(), JobDescription("job", Kind.QUERY)).plan(1.0, CORES)
    assert (plan.cores_by_job(), plan.stops) == ({"job": 1.0}, ("job",))


def test_a_policy_sees_what_was_reported_and_charged() -> None:
    recorder = Recorder()
    allocator = with_jobs(recorder, JobDescription("job", Kind.QUERY, weight=2.0, target=0.01))
    allocator.charge("job", 0.1, 0.1)
    allocator.charge("job", 0.25, 0.2)  # of which the step in hand has 0.05 so far
    allocator.report("job", report(0, 0.4, 0.1, core_seconds=0.1))
    allocator.report("job", report(1, 0.3, 0.3, core_seconds=0.2))
    allocator.plan(0.5, CORES)
    jobs = recorder.views[-1].jobs
    assert (jobs.weight[0], jobs.target[0], jobs.count[0]) == (2.0, 0.01, 2)
    assert jobs.attained_core_seconds[0] == pytest.approx(0.35)
    assert jobs.spent_core_seconds[0] == pytest.approx(0.05)
    assert jobs.step_work[0] == pytest.approx(0.2)
    assert jobs.step_core_seconds[0] == pytest.approx(0.2)  # a core-second a unit of work, as measured twice
    assert jobs.quality[0, -2:].tolist() == [0.4, 0.3]


def test_a_first_look_at_training_data_costs_and_tells_nothing() -> None:
    recorder = Recorder()
    allocator = with_jobs(recorder, JobDescription("job", Kind.TRAINING, work_total=math.inf))
    allocator.charge("job", 3.0, 0.1)
    allocator.report("job", report(0, math.inf, core_seconds=3.0))
    assert not allocator.is_due(0.2, CORES)
    for step in (1, 2):
        allocator.charge("job", 0.5, 0.2)
        allocator.report("job", report(step, 1.0 / step, core_seconds=0.5))
    allocator.plan(0.2, CORES)
    jobs = recorder.views[-1].jobs
    assert (jobs.count[0], jobs.work_done[0], jobs.step_core_seconds[0]) == (2, 2.0, 0.5)
    assert jobs.spent_core_seconds[0] == 0.0


def test_only_jobs_that_reported_anew_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[tuple[str, ...]] = []
    fit = desk.fit_quality_curves

    def noted(jobs):  # type: ignore[no-untyped-def]
        fitted.append(jobs.ids)
        return fit(jobs)

    monkeypatch.setattr(desk, "fit_quality_curves", noted)
    recorder = Recorder()
    allocator = with_jobs(recorder, *(JobDescription(id, Kind.QUERY) for id in "abc"))
    fitted.clear()
    allocator.report("b", report(0, 0.4, 0.1))
    allocator.plan(1.0, CORES)
    allocator.plan(2.0, CORES)
    assert fitted == [("b",)]
    # What is kept of the others is what fitting all of them would give.
    view = recorder.views[-1]
    assert view.curves is not None
    assert view.curves.at(np.full((3, 1), 0.5)) == pytest.approx(fit(view.jobs).at(np.full((3, 1), 0.5)))


@pytest.mark.parametrize("gives", [ZeroDivisionError("in the policy"), None], ids=["raises", "no plan"])
def test_a_broken_policy_stops_nobody(gives: Exception | None) -> None:
    class Broken:
        name = "broken"

        def plan(self, view: View) -> Any:
            if gives is not None:
                raise gives

    allocator = Allocator(Broken())
    allocator.enter(JobDescription("light"), 0.0)
    allocator.enter(JobDescription("heavy", weight=3.0), 0.0)
    with pytest.warns(RuntimeWarning, match=r"policy 'broken' failed .*(in the policy|returned None)"):
        plan = allocator.plan(0.0, CORES)
    assert plan.cores_by_job() == pytest.approx({"light": CORES / 4, "heavy": 3 * CORES / 4})


steps = st.lists(st.floats(1e-6, 1e3), max_size=8)


@given(
    st.lists(st.tuples(st.sampled_from(Kind), st.floats(0.1, 10.0), steps), min_size=1, max_size=6),
    st.sampled_from([Index(minimum_share=0.3), MaxSum(minimum_share=0.3)]),
)
def test_whatever_jobs_report_all_cores_are_given_and_nobody_starves(
    jobs: list[tuple[Kind, float, list[float]]], policy: Policy
) -> None:
    allocator = Allocator(policy)
    for number, (kind, weight, qualities) in enumerate(jobs):
        is_query = kind is Kind.QUERY
        total = 1.0 if is_query else math.inf
        allocator.enter(JobDescription(str(number), kind, weight=weight, work_total=total), 0.0)
        for step, quality in enumerate(qualities):
            work = (step + 1) / 8 if is_query else None
            allocator.report(str(number), report(step, quality, work, core_seconds=quality))
    cores = allocator.plan(1.0, CORES).cores
    weights = np.array([weight for _, weight, _ in jobs])
    fair = fill_evenly(CORES, weights, np.full(len(jobs), math.inf))
    assert cores.sum() == pytest.approx(CORES)
    assert (cores >= 0.3 * fair * (1 - 1e-9)).all()


def test_a_job_s_curves_do_not_depend_on_when_plans_were_made() -> None:
    often, once = (with_jobs(Index(), *(JobDescription(id, Kind.QUERY) for id in "ab")) for _ in range(2))
    for step in range(5):
        for allocator in (often, once):
            allocator.report("a", report(step, 0.9 / (step + 1), 0.1 * (step + 1)))
            allocator.report("b", report(step, 0.2 / (step + 1), 0.05 * (step + 1)))
        often.plan(0.1 * step, CORES)
    assert often.plan(1.0, CORES).cores_by_job() == pytest.approx(once.plan(1.0, CORES).cores_by_job())


def test_all_jobs_of_a_user_together_have_no_more_cores_than_the_user() -> None:
    described = [
        JobDescription("a", Kind.EXACT, user="ben", user_cores_most=1.0, cores_most=8, weight=3.0),
        JobDescription("b", Kind.QUERY, user="ben", user_cores_most=1.0),
        JobDescription("c", Kind.QUERY, user="ana"),
        JobDescription("d", Kind.QUERY),
    ]
    for policy in (WeightedFair(), Fair(), Index()):
        cores = with_jobs(policy, *described).plan(1.0, 8.0).cores_by_job()
        assert 0.9 < cores["a"] + cores["b"] <= 1.0 + 1e-9
        assert cores["c"] + cores["d"] >= 7.0 - 1e-9
    assert with_jobs(WeightedFair(), *described).plan(1.0, 8.0).cores_by_job()["a"] == pytest.approx(0.75)
