"""Plans carried out by real threads on real CPU work, counted in measured core-seconds.

A busy machine changes none of these: what is compared is core-seconds of one job with those of the others,
and the order in which tasks come back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from relaqs.executors import ThreadExecutor
from relaqs.jobs.job import JobDescription, StepReport, Task, TaskKey, TaskResult
from relaqs.jobs.runner import JobRunner
from relaqs.policies import Index
from relaqs.sharing.view import Kind, Plan, Policy, View
from tests.relaqs.executors.toy_jobs import Number, ToyJob, Waits
from tests.relaqs.listening import Listens

CORES = 2
TASK_CORE_SECONDS = 0.01
LONG_SECONDS = 60.0

pytestmark = pytest.mark.alone

# What a job may be off after so many core-seconds: a task in each core and one of its own, and that its first
# tasks are charged 0.05 in advance instead of 0.01 until five of them have been measured.
OFF_CORE_SECONDS = (CORES + 1) * TASK_CORE_SECONDS + 5 * 0.04


@dataclass
class Told:
    """A policy that is told what to plan."""

    shares: dict[str, float]
    name: str = "told"

    def plan(self, view: View) -> Plan:
        cores = np.array([self.shares.get(id, 0.0) for id in view.jobs.ids])
        return Plan(view.jobs.ids, cores * view.capacity_cores, view.capacity_cores)


@dataclass
class Meter:
    """Counts measured core-seconds by job, and the jobs in the order in which their tasks came back."""

    used: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def done(self, result: TaskResult) -> None:
        with self.changed:
            self.used[result.key.job] += result.core_seconds
            self.order.append(result.key.job)
            self.changed.notify_all()

    def over(self, core_seconds: float) -> Counter[str]:
        """Wait until so many more core-seconds are used; return by whom."""
        with self.changed:
            before = self.used.copy()
            ends = before.total() + core_seconds
            assert self.changed.wait_for(lambda: self.used.total() >= ends, LONG_SECONDS)
            return self.used - before

    def until_first_of(self, job: str) -> list[str]:
        """Wait for the job's first result; return whose came back up to then."""
        with self.changed:
            assert self.changed.wait_for(lambda: job in self.order, LONG_SECONDS)
            return self.order[: self.order.index(job)]


@contextmanager
def executor_of(policy: Policy) -> Iterator[tuple[ThreadExecutor, Meter]]:
    with closing(ThreadExecutor(CORES, policy=policy)) as executor:
        yield executor, Meter()


def enter(executor: ThreadExecutor, meter: Meter, description: JobDescription, tasks: int = 1000) -> None:
    """Let a job come whose work outlasts the test."""
    executor.enter(description)
    work = Number(0, TASK_CORE_SECONDS)
    executor.submit([Task(TaskKey(description.id, 0, i), work) for i in range(tasks)], meter.done)


def assert_shared(used: Mapping[str, float], shares: Mapping[str, float]) -> None:
    total = sum(used.values())
    off = {job: used.get(job, 0.0) - share * total for job, share in shares.items()}
    assert off == pytest.approx(dict.fromkeys(shares, 0.0), abs=OFF_CORE_SECONDS)


def test_core_seconds_follow_the_plan_and_turn_with_it() -> None:
    first, then = {"a": 0.6, "b": 0.3, "c": 0.1}, {"a": 0.1, "b": 0.2, "c": 0.7}
    with executor_of(told := Told(dict(first))) as (executor, meter):
        for job in first:
            enter(executor, meter, JobDescription(job))
        assert_shared(meter.over(1.2), first)
        told.shares = dict(then)
        executor.set_weight("a", 1.0)  # calls for a new plan
        assert_shared(meter.over(1.2), then)


def test_a_job_that_comes_is_served_within_a_task_and_one_that_goes_leaves_its_cores() -> None:
    with executor_of(told := Told({"old": 1.0})) as (executor, meter):
        enter(executor, meter, JobDescription("old"))
        meter.over(0.2)
        told.shares = {"old": 0.1, "new": 0.9}
        meter.order.clear()
        enter(executor, meter, JobDescription("new"))
        while_submitted = len(meter.order)
        before = meter.until_first_of("new")
        # Those that ran, and those that began while a plan was made.
        assert len(before[while_submitted:]) <= 2 * CORES
        assert_shared(meter.over(1.0), {"old": 0.1, "new": 0.9})
        executor.cancel("new")
        told.shares = {"old": 1.0}
        meter.order.clear()
        meter.over(1.0)
        assert meter.order.count("new") <= CORES  # those that ran: they may come back late


def test_no_core_idles_beside_work_whatever_the_plan_says() -> None:
    """Nothing is planned for anybody, as if no gain were predicted."""
    with executor_of(Told({})) as (executor, meter):
        for job in "ab":
            enter(executor, meter, JobDescription(job))
        assert_shared(meter.over(1.0), {"a": 0.5, "b": 0.5})


@pytest.mark.parametrize("minimum_share", [0.2, 0.8])
def test_nobody_starves_above_the_minimum_share(minimum_share: float) -> None:
    """`flat` has converged and `steep` falls and falls: the index policy gives flat its minimum alone."""
    with executor_of(Index(minimum_share=minimum_share)) as (executor, meter):
        for job, losses in (("flat", [9.0, *[1.0] * 7]), ("steep", range(9, 1, -1))):
            executor.enter(JobDescription(job, Kind.TRAINING, work_total=1e9))
            for step, loss in enumerate(losses):
                executor.report(job, StepReport(step, loss, None, 1.0, is_final=False))
        for job in ("flat", "steep"):
            enter(executor, meter, JobDescription(job, Kind.TRAINING))
        used = meter.over(2.0)
        fair = used.total() / 2
        assert used["flat"] >= minimum_share * fair - OFF_CORE_SECONDS
        assert used["flat"] <= minimum_share * fair + OFF_CORE_SECONDS


def test_weights_count_among_equals() -> None:
    with executor_of(Index()) as (executor, meter):
        enter(executor, meter, JobDescription("heavy", weight=3.0))
        enter(executor, meter, JobDescription("light", weight=1.0))
        assert_shared(meter.over(1.0), {"heavy": 0.75, "light": 0.25})
        executor.set_weight("light", 9.0)
        assert_shared(meter.over(1.0), {"heavy": 0.25, "light": 0.75})


def test_a_paused_job_ends_what_it_has_submitted() -> None:
    with executor_of(Index()) as (executor, meter):
        enter(executor, meter, JobDescription("other"))
        enter(executor, meter, JobDescription("paused"), tasks=20)
        executor.set_waiting("paused", False)
        with meter.changed:
            assert meter.changed.wait_for(lambda: meter.order.count("paused") == 20, LONG_SECONDS)
        assert [job.state for job in executor.status().jobs] == ["running", "paused"]


def test_a_task_that_waits_is_charged_for_the_thread_it_holds() -> None:
    """Else it would take nothing of its share, and all the threads. Equal shares are as many tasks."""
    seconds = 0.02
    waits = ToyJob("waits", [[Waits(0, seconds)]] * 100_000)
    computes = ToyJob("computes", [[Number(0, seconds)]] * 100_000)
    enough = threading.Event()

    def look(report: StepReport) -> None:
        if computes.core_seconds >= 1.0:
            enough.set()

    with closing(ThreadExecutor(1, policy="fair")) as executor:
        runners = [
            JobRunner(waits, executor),
            JobRunner(computes, executor, listener=Listens(on_report=look)),
        ]
        for runner in runners:
            runner.start()
        assert enough.wait(LONG_SECONDS)
        for runner in runners:
            runner.stop()
            assert runner.wait(LONG_SECONDS)
    assert waits.core_seconds >= 0.9 * seconds * len(waits.folded)
    # A busy machine makes waiting longer, and so dearer; unmeasured it would be charged next to nothing.
    assert len(waits.folded) <= 1.5 * len(computes.folded)


def test_the_status_tells_measured_cores() -> None:
    with executor_of(Told({"a": 0.75, "b": 0.25})) as (executor, meter):
        for job in "ab":
            enter(executor, meter, JobDescription(job))
        used = meter.over(1.2)
        status = executor.status()
        a, b = status.jobs
        assert (a.share_cores, b.share_cores) == (0.75 * CORES, 0.25 * CORES)
        assert a.attained_core_seconds >= used["a"]
        assert a.used_cores > b.used_cores > 0
        assert "@" in a.client
