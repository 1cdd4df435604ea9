"""Jobs that a plan stops: each ends as after `stop()`, with what it has, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from distributed import Client

from relaqs.executors import Executor, ThreadExecutor
from relaqs.executors.dask import DaskExecutor
from relaqs.jobs.runner import JobRunner, RunState
from relaqs.opening import connect
from relaqs.policies import Fair
from relaqs.sharing.view import Plan, View
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually, run_to_end, running_cluster
from tests.relaqs.executors.toy_jobs import ToyJob, counted, counting_job

STEPS_ALLOWED = 2


@dataclass(frozen=True)
class StopsHalted:
    """Shares evenly, and stops jobs called "halted" after two steps. It also names a job that never was."""

    name: str = "stops halted"

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        done = [id for id, count in zip(jobs.ids, jobs.count, strict=True) if count >= STEPS_ALLOWED]
        return replace(Fair().plan(view), stops=("gone", *(id for id in done if "halted" in id)))


@dataclass(frozen=True)
class StopsAtFirst:
    """Shares evenly, and stops each job at its first result."""

    name: str = "stops at first"

    def plan(self, view: View) -> Plan:
        done = [id for id, count in zip(view.jobs.ids, view.jobs.count, strict=True) if count]
        return replace(Fair().plan(view), stops=tuple(done))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("stops") / "scheduler.log", nannies=False) as address:
        yield address


@pytest.fixture
def threads() -> Iterator[Executor]:
    with closing(ThreadExecutor(2, policy=StopsHalted())) as threads:
        yield threads


@pytest.fixture
def queue(cluster: str) -> Iterator[Executor]:
    with closing(DaskExecutor(cluster, policy=StopsHalted())) as queue:
        yield queue


@pytest.fixture(params=["threads", "queue"])
def executor(request: pytest.FixtureRequest) -> Executor:
    chosen: Executor = request.getfixturevalue(request.param)
    return chosen


def assert_one_stops_and_the_other_goes_on(executor: Executor) -> None:
    halted = counting_job("halted", steps=100_000, tasks=2, core_seconds=0.01)
    other = counting_job("other", steps=30, tasks=2, core_seconds=0.01)
    first, second = JobRunner(halted, executor), JobRunner(other, executor)
    first.start()
    second.start()
    assert first.wait(LONG_SECONDS)
    assert second.wait(LONG_SECONDS)
    assert (first.state, first.error) == (RunState.STOPPED, None)
    assert len(halted.folded) >= STEPS_ALLOWED
    assert halted.folded == counted(steps=len(halted.folded), tasks=2)
    assert (second.state, other.folded) == (RunState.EXACT, counted(steps=30, tasks=2))
    eventually(lambda: not executor.status().jobs)


def test_a_job_that_the_plan_stops_ends_stopped_and_the_others_go_on(executor: Executor) -> None:
    assert_one_stops_and_the_other_goes_on(executor)


def test_each_session_of_a_client_hears_of_its_own_jobs(cluster: str) -> None:
    with (
        Client(cluster, set_as_default=False) as client,
        closing(DaskExecutor(client, policy=StopsHalted())) as here,
        closing(DaskExecutor(client)) as there,
    ):
        assert_one_stops_and_the_other_goes_on(there)
        job: ToyJob = counting_job("going on", steps=3, tasks=2)
        assert run_to_end(JobRunner(job, here)).state is RunState.EXACT


def test_a_query_that_the_plan_stops_keeps_its_snapshots(tpch_warehouse: Path) -> None:
    with connect(tpch_warehouse, threads=1, policy=StopsAtFirst()) as db:
        query = db.online_sql("SELECT avg(l_tax) AS tax FROM lineitem", batches=16)
        last = query.result()
        assert (query.state, last.is_exact) == ("stopped", False)
        assert 1 <= last.batch < 16
