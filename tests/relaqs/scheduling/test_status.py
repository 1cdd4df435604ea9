"""What people are shown of the jobs."""

from __future__ import annotations

import math

import pytest

from relaqs.job import StepReport
from relaqs.policies import Fair, Kind
from relaqs.scheduling import Allocator, JobDescription
from relaqs.scheduling.ledger import KEPT_STEPS
from relaqs.scheduling.usage import WINDOW_SECONDS, Usage


def test_a_query_half_way() -> None:
    allocator = Allocator(Fair())
    allocator.enter(JobDescription("q", Kind.QUERY, "SELECT 1", "me@here:1", 2.0, target=0.01), 100.0)
    allocator.enter(JobDescription("t", Kind.TRAINING, work_total=math.inf), 101.0)
    for step in range(5):
        allocator.charge("q", 0.2, 101.0)
        allocator.report("q", StepReport(step, 0.1 / (step + 1), 0.1 * (step + 1), 0.2, False))
    allocator.plan(101.0, 4.0)
    status = allocator.status(102.0, 4.0)
    assert (status.time_seconds, status.capacity_cores, status.policy) == (102.0, 4.0, "fair")
    query, training = status.jobs
    assert (query.id, query.name, query.kind, query.client) == ("q", "SELECT 1", "query", "me@here:1")
    assert (query.state, query.weight, query.target) == ("running", 2.0, 0.01)
    assert (query.arrived_seconds_ago, query.share_cores) == (2.0, 2.0)
    assert (query.quality, query.work_done, query.work_total) == (0.1 / 5, 0.5, 1.0)
    assert query.attained_core_seconds == pytest.approx(1.0)
    assert query.used_cores == pytest.approx(math.exp(-1.0))
    assert query.history[-1] == (0.5, 0.02)
    # Two core-seconds a unit of work, half of it left; the target, half the error, comes before the end.
    assert query.core_seconds_left is not None
    assert 0.0 < query.core_seconds_left <= 1.0
    assert query.predicted[0] == pytest.approx((0.5, 0.02))
    assert query.predicted[-1] == pytest.approx((1.0, 0.0))
    assert (training.state, training.quality, training.work_total) == ("waiting", None, None)
    assert (training.history, training.predicted, training.core_seconds_left) == ((), (), None)


def test_a_paused_job_says_so_and_has_no_share() -> None:
    allocator = Allocator(Fair())
    allocator.enter(JobDescription("job"), 0.0)
    allocator.set_waiting("job", False)
    allocator.plan(0.0, 4.0)
    [job] = allocator.status(0.0, 4.0).jobs
    assert (job.state, job.share_cores, job.kind) == ("paused", 0.0, "foreign")


def test_nobody_here() -> None:
    assert Allocator(Fair()).status(0.0, 4.0).jobs == ()


def test_the_history_is_bounded() -> None:
    allocator = Allocator(Fair())
    allocator.enter(JobDescription("t", Kind.TRAINING, work_total=math.inf), 0.0)
    for step in range(3 * KEPT_STEPS):
        allocator.report("t", StepReport(step, 0.9**step, None, 0.1, False))
    [job] = allocator.status(0.0, 4.0).jobs
    assert [work for work, _ in job.history] == list(range(2 * KEPT_STEPS + 1, 3 * KEPT_STEPS + 1))
    assert job.predicted[-1][0] == 2 * job.work_done


def test_usage_settles_at_the_cores_that_are_used() -> None:
    """A core-second every quarter second for long is four cores; what was charged last counts most."""
    usage = Usage()
    assert usage.cores(5.0) == 0.0
    for tick in range(100):
        usage.add(1.0, 0.25 * tick)
    # The sum of e^(-k/4) is 4.52 at a charge and 3.52 before the next one.
    assert 3.5 < usage.cores(0.25 * 99) < 4.6
    assert usage.cores(0.25 * 99 + 5 * WINDOW_SECONDS) < 0.05
