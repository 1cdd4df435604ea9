"""Policies that look at deadlines, urgency and accuracy: who is on time, and who is stopped."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaqs.policies import Deadlines, Fair, Index, LoadControl, PolicyError, make_policy
from relaqs.policies.deadlines import core_seconds_to_goal, jobs_in_time
from relaqs.policies.load_control import is_good_enough
from relaqs.sharing.view import Jobs, JobView, View
from tests.relaqs.policies.views import any_job, cores, training, view

NOW = 100.0  # of the views


@st.composite
def any_run(draw: st.DrawFn, id: str) -> JobView:
    """Any job, and any goals."""
    return replace(
        draw(any_job(id)),
        urgency=draw(st.sampled_from([1.0, 5.0, 10.0])),
        deadline_seconds=draw(st.sampled_from([math.inf, NOW - 1, NOW + 1, NOW + 20, NOW + 500])),
        accuracy=draw(st.sampled_from([math.nan, 0.5, 0.9, 0.95])),
        accuracy_required=draw(st.sampled_from([math.nan, 0.9])),
        is_best=draw(st.booleans()),
        work_needed=draw(st.sampled_from([math.nan, math.inf, 3.0, 40.0])),
        may_stop_best=draw(st.booleans()),
        may_stop_required=draw(st.booleans()),
    )


@st.composite
def any_goal_view(draw: st.DrawFn) -> View:
    jobs = [draw(any_run(f"job {i}")) for i in range(draw(st.integers(1, 6)))]
    return View(NOW, draw(st.sampled_from([0.5, 2.0, 8.0, 100.0])), Jobs.of(jobs))


@pytest.mark.parametrize("policy", [Deadlines(), LoadControl(Deadlines())], ids=lambda policy: policy.name)
@given(view=any_goal_view())
@settings(max_examples=60)
def test_all_cores_are_handed_out_whatever_is_wanted(policy: Deadlines | LoadControl, view: View) -> None:
    plan = policy.plan(view)
    usable = min(view.capacity_cores, view.jobs.cores_most.sum())
    assert plan.cores.sum() == pytest.approx(usable, rel=1e-9, abs=1e-9)
    assert (plan.cores <= view.jobs.cores_most * (1 + 1e-9) + 1e-9).all()
    again = policy.plan(view)
    assert (again.cores.tolist(), again.stops) == (plan.cores.tolist(), plan.stops)


@given(view=any_goal_view(), normalised=st.booleans())
@settings(max_examples=100)
def test_only_what_is_good_enough_and_allowed_is_stopped(view: View, normalised: bool) -> None:
    jobs = view.jobs
    for id in LoadControl(Fair(), normalised=normalised).plan(view).stops:
        row = jobs.ids.index(id)
        at_required = jobs.may_stop_required[row] and jobs.accuracy[row] >= jobs.accuracy_required[row]
        assert at_required or (jobs.may_stop_best[row] and jobs.is_best[row])


@given(view=any_goal_view())
@settings(max_examples=50)
def test_with_cores_to_spare_nothing_is_stopped_and_the_inner_plan_stands(view: View) -> None:
    calm = replace(view, capacity_cores=2.0 * len(view.jobs))
    plan, inner = LoadControl(Index()).plan(calm), Index().plan(calm)
    assert plan.stops == inner.stops == ()
    assert plan.cores.tolist() == inner.cores.tolist()


def test_read_literally_it_is_always_on() -> None:
    done = training("done", 5, accuracy=0.95, accuracy_required=0.9, may_stop_required=True)
    assert LoadControl(Fair()).plan(view(done, cores=8.0)).stops == ()
    assert LoadControl(Fair(), normalised=False).plan(view(done, cores=8.0)).stops == ("done",)


def test_the_stops_of_the_policy_behind_it_stay() -> None:
    class StopsOne(Fair):
        def plan(self, view: View):  # type: ignore[no-untyped-def]
            return replace(super().plan(view), stops=("mine",))

    done = training("done", 5, accuracy=0.95, accuracy_required=0.9, may_stop_required=True)
    assert LoadControl(StopsOne()).plan(view(done, cores=1.0)).stops == ("mine", "done")


def test_a_query_is_never_good_enough_by_accuracy() -> None:
    from tests.relaqs.policies.views import query

    row = query("q", 3, accuracy=0.95, accuracy_required=0.9, may_stop_required=True)
    assert not is_good_enough(Jobs.of([row])).any()


def test_its_name_says_what_is_behind_it() -> None:
    assert make_policy("load_control").name == "load_control:index"
    assert make_policy("load_control:milestones:70+90").name == "load_control:milestones:70+90"
    with pytest.raises(PolicyError, match="there is no policy 'fare'; did you mean 'fair'"):
        make_policy("load_control:fare")


def run(id: str, core_seconds: float, seconds: float, **more: float) -> JobView:
    """A run that needs so many core-seconds to its end and so many seconds may pass."""
    end = 5 + core_seconds
    return training(id, 5, work_total=end, deadline_seconds=NOW + seconds, **more)


def test_a_deadline_that_can_be_met_gets_the_cores_it_needs() -> None:
    exact = Deadlines(minimum_share=0.0, headroom=1.0)
    given = cores(exact, run("due", 100.0, 20.0), *(training(f"other {i}", 3) for i in range(7)))
    assert given["due"] >= 5.0 - 1e-6


def test_of_deadlines_that_cannot_all_be_met_the_urgent_one_is() -> None:
    """Of 8 cores for 20 s, what is given up has the most work for its urgency: 120 / 1.2 is above 90."""
    exact = Deadlines(minimum_share=0.0, headroom=1.0)
    for urgency, kept in ((1.0, "small"), (1.2, "small"), (1.5, "large")):
        given = cores(exact, run("large", 120.0, 20.0, urgency=urgency), run("small", 90.0, 20.0))
        assert given[kept] >= (6.0 if kept == "large" else 4.5) - 1e-6
        assert given["small" if kept == "large" else "large"] < 4.5


def test_the_goal_is_the_required_accuracy_where_one_is_wanted() -> None:
    jobs = [
        training("in sight", 5, work_needed=15.0, accuracy_required=0.9, work_total=100.0),
        training("never", 5, work_needed=math.inf, accuracy_required=0.9, work_total=100.0),
        training("unknown", 5, accuracy_required=0.9, work_total=100.0),
    ]
    assert core_seconds_to_goal(view(*jobs)).tolist() == [10.0, math.inf, 95.0]


def test_what_is_late_already_is_not_kept() -> None:
    jobs = Jobs.of([run("late", 10.0, -5.0), run("impossible", 1000.0, 5.0, cores_most=2.0)])
    work = np.array([10.0, 1000.0])
    assert jobs_in_time(work, jobs.deadline_seconds - NOW, jobs, 100.0).tolist() == []


def test_without_deadlines_it_is_the_index() -> None:
    jobs = [training("a", 5), training("b", 20, rate=1.0)]
    assert cores(Deadlines(), *jobs) == cores(Index(), *jobs)
