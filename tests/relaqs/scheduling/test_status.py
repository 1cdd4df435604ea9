"""What people are shown of the jobs."""

from __future__ import annotations

import math

import pytest

from relaqs.jobs.job import JobDescription, StepReport
from relaqs.policies import Fair
from relaqs.scheduling import Allocator
from relaqs.scheduling.desk import KEPT_STEPS, WINDOW_SECONDS, Usage
from relaqs.sharing.view import Kind


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
    # Five tasks, each spread over 0.2 s, faded for a second, over the job's two seconds, which fade as well.
    assert query.used_cores == pytest.approx(5 * (1 - math.exp(-0.2)) * math.exp(-1.0) / (1 - math.exp(-2.0)))
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


def test_a_job_in_its_first_task_is_running() -> None:
    allocator = Allocator(Fair())
    allocator.enter(JobDescription("exact", Kind.EXACT), 0.0)
    allocator.enter(JobDescription("later"), 0.0)
    exact, later = allocator.status(9.0, 4.0, running={"exact": [9.0, 9.0]}).jobs
    assert (exact.state, exact.used_cores) == ("running", pytest.approx(2.0))
    assert (later.state, later.used_cores) == ("waiting", 0.0)


def test_usage_settles_at_the_cores_that_are_used() -> None:
    """A core-second every quarter second for long is four cores; what was charged last counts most."""
    usage = Usage(0.0)
    assert usage.cores(5.0) == 0.0
    for tick in range(1, 101):
        usage.add(0.1, 0.025 * tick)
    # 40 charges a second, of each of which 0.0952 has not faded at once; the sum of e^(-k/40) is 40.5.
    assert 3.7 < usage.cores(0.025 * 100) < 4.0
    assert usage.cores(0.025 * 100 + 5 * WINDOW_SECONDS) < 0.05


def test_usage_of_a_young_job_is_over_its_own_time() -> None:
    """Half a core from the beginning is half a core, after a tenth of the window as after all of it."""
    usage = Usage(100.0)
    for tick in range(1, 301):
        usage.add(0.005, 100.0 + 0.01 * tick)
        assert usage.cores(100.0 + 0.01 * tick) == pytest.approx(0.5, rel=0.01)


def test_a_task_that_runs_counts_as_it_will_at_its_end() -> None:
    """Ten tasks of a quarter second ended; the next one runs for a tenth."""
    usage = Usage(0.0)
    for tick in range(1, 11):
        usage.add(0.25, 0.25 * tick)
    assert usage.cores(2.6, [0.1]) == pytest.approx(1.0)
    usage.add(0.1, 2.6)
    assert usage.cores(2.6) == pytest.approx(1.0)


def test_a_long_task_is_no_burst() -> None:
    """Twenty core-seconds on one core are charged at their end, and were never more than one core."""
    usage = Usage(0.0)
    usage.add(20.0, 20.0)
    assert usage.cores(20.0) == pytest.approx(1.0)
