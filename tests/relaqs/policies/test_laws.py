"""What holds for every policy and any jobs: capacity, no idle core, symmetry, weights, minimum shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaqs.sharing.division import FEWEST_UNITS, fill_evenly
from relaqs.sharing.outlook import fit_quality_curves
from relaqs.sharing.view import Jobs, JobView, Kind, Policy, View
from tests.relaqs.policies.views import any_job, any_view, every_policy

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

RESERVING = (
    "max_sum",
    "max_min",
    "index",
    "milestones",
    "utility",
    "shortest_remaining_time",
    "weighted_fair",
    "deadlines",
    "load_control",
)

everyone = pytest.mark.parametrize("policy", every_policy(), ids=lambda policy: policy.name)
with_a_minimum = pytest.mark.parametrize(
    "policy",
    [policy for policy in every_policy(minimum_share=0.5) if hasattr(policy, "minimum_share")],
    ids=lambda policy: policy.name,
)


@everyone
@given(view=any_view())
@settings(max_examples=15)
def test_the_cores_are_all_handed_out_and_never_more(policy: Policy, view: View) -> None:
    plan = policy.plan(view)
    assert plan.ids == view.jobs.ids
    assert (plan.cores >= 0).all()
    assert (plan.cores <= view.jobs.cores_most * (1 + 1e-9) + 1e-9).all()
    usable = min(view.capacity_cores, view.jobs.cores_most.sum())
    assert plan.cores.sum() == pytest.approx(usable, rel=1e-9, abs=1e-9)


@everyone
@given(view=any_view(), random=st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_of_the_jobs_changes_nothing(policy: Policy, view: View, random) -> None:
    order = list(range(len(view.jobs)))
    random.shuffle(order)
    shuffled = replace(view, jobs=view.jobs.of_jobs(np.array(order, dtype=np.int64)))
    # A unit can change hands where rounding, which depends on the order, decides between equals.
    unit = view.capacity_cores / FEWEST_UNITS + 1e-9
    there, here = policy.plan(shuffled).cores_by_job(), policy.plan(view).cores_by_job()
    assert there == pytest.approx(here, abs=unit)


@everyone
@given(view=any_view())
@settings(max_examples=15)
def test_the_same_view_gives_the_same_plan(policy: Policy, view: View) -> None:
    assert policy.plan(view).cores.tolist() == policy.plan(view).cores.tolist()


@everyone
@given(view=any_view())
@settings(max_examples=15)
def test_curves_may_come_with_the_view(policy: Policy, view: View) -> None:
    fitted = replace(view, curves=fit_quality_curves(view.jobs))
    assert policy.plan(fitted).cores == pytest.approx(policy.plan(view).cores, abs=1e-6)


@everyone
@given(jobs=st.lists(any_job("x"), min_size=2, max_size=5), factor=st.sampled_from([1.5, 4.0]))
@settings(max_examples=15)
def test_more_weight_never_means_fewer_cores(policy: Policy, jobs: list[JobView], factor: float) -> None:
    jobs = [replace(job, id=f"job {i}") for i, job in enumerate(jobs)]
    heavier = [replace(jobs[0], weight=jobs[0].weight * factor), *jobs[1:]]
    before, after = (policy.plan(View(100.0, 8.0, Jobs.of(each))).cores[0] for each in (jobs, heavier))
    # Cores are handed out in units, and a floor that moves changes the size of a unit and where it begins.
    assert after >= before - 2 * 8.0 / FEWEST_UNITS


@pytest.mark.parametrize(
    "policy",
    [each for each in every_policy() if not getattr(each, "serves_in_order", False)],
    ids=lambda policy: policy.name,
)
@given(job=any_job("x"), count=st.integers(2, 6), capacity=st.sampled_from([1.0, 8.0, 300.0]))
@settings(max_examples=15)
def test_equal_jobs_get_equal_shares(policy: Policy, job: JobView, count: int, capacity: float) -> None:
    jobs = Jobs.of([replace(job, id=f"job {i}") for i in range(count)])
    cores = policy.plan(View(100.0, capacity, jobs)).cores
    assert cores == pytest.approx(np.full(count, min(capacity / count, job.cores_most)), rel=1e-6)


def test_two_of_our_own_policies_serve_in_order() -> None:
    in_order = {each.name for each in every_policy() if getattr(each, "serves_in_order", False)}
    assert in_order >= {"fifo", "shortest_remaining_time"}
    assert not in_order & {"fair", "weighted_fair", "least_attained_service", "max_sum", "max_min", "index"}


@with_a_minimum
@given(view=any_view())
@settings(max_examples=15)
def test_no_job_starves_below_its_minimum_share(policy: Policy, view: View) -> None:
    fair = fill_evenly(view.capacity_cores, view.jobs.weight, view.jobs.cores_most)
    assert (policy.plan(view).cores >= 0.5 * fair * (1 - 1e-9)).all()


@pytest.mark.parametrize(
    "policy",
    [each for each in every_policy() if each.name.partition(":")[0] in RESERVING],
    ids=lambda policy: policy.name,
)
@given(view=any_view())
@settings(max_examples=15)
def test_exact_and_foreign_jobs_have_at_least_their_fair_share(policy: Policy, view: View) -> None:
    fair = fill_evenly(view.capacity_cores, view.jobs.weight, view.jobs.cores_most)
    reserved = view.jobs.is_kind(Kind.EXACT, Kind.FOREIGN)
    assert (policy.plan(view).cores[reserved] >= fair[reserved] * (1 - 1e-9)).all()


@with_a_minimum
@given(view=any_view(most_jobs=5))
@settings(max_examples=15)
def test_a_whole_minimum_share_is_weighted_fair_sharing(policy: Policy, view: View) -> None:
    fair = fill_evenly(view.capacity_cores, view.jobs.weight, view.jobs.cores_most)
    assert replace(policy, minimum_share=1.0).plan(view).cores == pytest.approx(fair, rel=1e-6, abs=1e-9)


@everyone
def test_a_view_without_jobs_gives_an_empty_plan(policy: Policy) -> None:
    assert policy.plan(View(0.0, 8.0, Jobs.of([]))).cores.tolist() == []
