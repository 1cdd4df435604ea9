"""Credits, where the fair queue cannot be used: the same answers, and nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from distributed import Client

from relaqs.executors.dask import DaskExecutor
from relaqs.executors.dask.link import CreditsWarning
from relaqs.jobs.job import StepReport
from relaqs.jobs.runner import JobRunner, RunState
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    eventually,
    run_to_end,
    running_cluster,
    steps_of_light_meanwhile,
)
from tests.relaqs.executors.test_dask_faults import OTHER_CLIENT
from tests.relaqs.executors.toy_jobs import (
    LONG_SQL,
    KillsItsWorker,
    ToyJob,
    counted,
    counting_job,
    query_work,
)
from tests.relaqs.listening import Listens

FORCED = {"DASK_RELAQS__MECHANISM": "credits"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log: Path = tmp_path_factory.mktemp("credits") / "scheduler.log"
    with running_cluster(log, settings=FORCED) as address:
        yield address


@pytest.fixture
def executor(cluster: str) -> Iterator[DaskExecutor]:
    with pytest.warns(CreditsWarning, match=r"by credits.*relaqs\.mechanism on the scheduler"):
        executor = DaskExecutor(cluster)
    with closing(executor):
        yield executor


@pytest.mark.alone
def test_jobs_are_folded_as_with_the_queue_and_share_by_weight(executor: DaskExecutor) -> None:
    heavy = counting_job("heavy", steps=12, tasks=8, core_seconds=0.02)
    light = counting_job("light", steps=100_000, tasks=8, core_seconds=0.02)
    meanwhile = steps_of_light_meanwhile(heavy, light, executor)
    assert heavy.folded == counted(steps=12, tasks=8)
    assert light.folded == counted(steps=len(light.folded), tasks=8)
    assert 1 <= meanwhile <= 8  # 3 by weight; first come, first served gives 11 or 12


def test_two_sessions_of_one_client_get_their_own_credits(cluster: str) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(Client(cluster, set_as_default=False))
        with pytest.warns(CreditsWarning):
            executors = [stack.enter_context(closing(DaskExecutor(client))) for _ in range(2)]
        jobs = [counting_job("same", steps=3, tasks=4) for _ in executors]
        runners = [JobRunner(job, executor) for job, executor in zip(jobs, executors, strict=True)]
        for runner in runners:
            runner.start()
        assert [runner.wait(LONG_SECONDS) for runner in runners] == [True, True]
    assert [job.folded for job in jobs] == [counted(steps=3, tasks=4)] * 2


def test_a_client_that_is_closed_fails_jobs_that_hold_all_their_tasks(
    executor: DaskExecutor, cluster: str
) -> None:
    """They have no task on the cluster that would tell them: another job has all credits, for days."""
    long = JobRunner(ToyJob("long", [[query_work(LONG_SQL)] * 8]), executor)
    long.start()
    eventually(lambda: any(job.used_cores > 1.8 for job in executor.status().jobs))
    client = Client(cluster, set_as_default=False)
    with pytest.warns(CreditsWarning):
        other = DaskExecutor(client)
    runner = JobRunner(counting_job("held", steps=1, tasks=4), other)
    runner.start()
    eventually(lambda: any(job.id == "held" for job in other.status().jobs))
    client.close()
    assert runner.wait(LONG_SECONDS)
    said = str(runner.error)  # who notices first: the watch over the client, or what is sent through it
    assert "does not answer any more" in said or "is closing" in said
    assert "open another session with relaqs.connect" in said
    long.stop()
    assert long.wait(LONG_SECONDS)


def test_a_poisonous_task_fails_its_job_alone(executor: DaskExecutor) -> None:
    poisoned = run_to_end(JobRunner(ToyJob("poison", [[KillsItsWorker()]]), executor))
    assert "killed its worker 2 times" in str(poisoned.error)
    job = counting_job("following", steps=3, tasks=4)
    assert run_to_end(JobRunner(job, executor)).state is RunState.EXACT


def test_the_credits_of_a_client_that_is_killed_go_to_others(executor: DaskExecutor, cluster: str) -> None:
    with subprocess.Popen([sys.executable, "-c", OTHER_CLIENT, cluster]) as process:
        eventually(lambda: any(job.used_cores for job in executor.status().jobs))
        process.send_signal(signal.SIGKILL)
        process.wait(LONG_SECONDS)
    job = counting_job("heir", steps=6, tasks=8)
    assert run_to_end(JobRunner(job, executor)).state is RunState.EXACT
    assert job.folded == counted(steps=6, tasks=8)


def test_a_stopped_job_gives_its_credits_back(executor: DaskExecutor) -> None:
    endless = counting_job("endless", steps=100_000, tasks=8, core_seconds=0.02)

    def stop(report: StepReport) -> bool:
        return report.step == 2

    runner = run_to_end(JobRunner(endless, executor, listener=Listens(should_stop=stop)))
    assert runner.state is RunState.STOPPED
    job = counting_job("next", steps=3, tasks=8)
    assert run_to_end(JobRunner(job, executor)).state is RunState.EXACT
