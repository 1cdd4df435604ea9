"""Connecting to a cluster whose workers hang, or die, just then."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from distributed import Client
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask import DaskExecutor, link, messages
from relaqs.executors.dask.workers import SilentWorkerWarning
from relaqs.jobs.runner import JobRunner, RunState
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    eventually,
    lone_worker_command,
    run_to_end,
    running_cluster,
    started,
)
from tests.relaqs.executors.toy_jobs import counted, counting_job

ANSWER_SECONDS = 2.0  # in these tests


@contextmanager
def stopped(address: str, count: int) -> Iterator[None]:
    """Stop so many workers inside the block, and continue them after it."""
    with Client(address, timeout=LONG_SECONDS, set_as_default=False) as client:
        client.run(messages.versions)  # all have imported what they need: who runs answers soon
        processes = list(client.run(os.getpid).values())[:count]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.mark.slow
def test_an_idle_worker_that_hangs_does_not_keep_anybody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up as soon as it was given a task."""
    monkeypatch.setattr(link, "ANSWER_SECONDS", ANSWER_SECONDS)
    settings = {"DASK_RELAQS__WORKER_SILENCE": "2s"}
    log = tmp_path / "scheduler.log"
    with (
        running_cluster(log, nannies=False, settings=settings) as address,
        stopped(address, 1),
        closing(DaskExecutor(address)) as executor,
    ):
        job = counting_job("beside", steps=5, tasks=4, core_seconds=0.01)
        with pytest.warns(SilentWorkerWarning):
            runner = run_to_end(JobRunner(job, executor))
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded == counted(steps=5, tasks=4)


@pytest.mark.slow
def test_a_cluster_of_workers_that_hang_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "ANSWER_SECONDS", ANSWER_SECONDS)
    with (
        running_cluster(tmp_path / "scheduler.log") as address,
        stopped(address, 2),
        pytest.raises(ClusterError, match=r"none of the 2 workers answered within 2 s, .* see whether they"),
    ):
        DaskExecutor(address)


@pytest.mark.slow
def test_a_scheduler_whose_cores_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "inf"}
    with (
        running_cluster(tmp_path / "scheduler.log", workers=1, settings=settings) as address,
        pytest.raises(ClusterError, match=r"cannot be shared: Dask's setting .*worker-saturation is inf"),
    ):
        DaskExecutor(address)


DIES_WHEN_ASKED = """
import os, signal
from relaqs.executors.dask import messages

def dask_setup(worker):
    messages.versions = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""

DIES_WITH_THE_PLUGIN = """
import os, signal
from relaqs.executors.dask.task import InterruptReleased

def dask_setup(worker):
    InterruptReleased.setup = lambda self, worker: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "preload",
    [
        pytest.param(DIES_WHEN_ASKED, id="asked"),
        pytest.param(DIES_WITH_THE_PLUGIN, id="plugin", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies_meanwhile_is_none_that_cannot_run_relaqs(tmp_path: Path, preload: str) -> None:
    file = tmp_path / "dies.py"
    file.write_text(preload)
    with ExitStack() as stack:
        address = stack.enter_context(running_cluster(tmp_path / "scheduler.log", workers=1, nannies=False))
        stack.enter_context(started(*lone_worker_command(address), "--preload", str(file)))
        client = stack.enter_context(Client(address, timeout=LONG_SECONDS, set_as_default=False))
        client.wait_for_workers(2, timeout=LONG_SECONDS)
        executor = stack.enter_context(closing(DaskExecutor(address)))
        eventually(lambda: executor.capacity == 1)
        job = counting_job("survivor", steps=5, tasks=4)
        assert run_to_end(JobRunner(job, executor)).error is None
    assert job.folded == counted(steps=5, tasks=4)
