"""What an operator does to jobs of a cluster that other programs run, here of real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from relaqs_engine.errors import ClusterError

from relaqs.cli import program
from relaqs.executors.dask import DaskExecutor
from relaqs.executors.dask.messages import RELAQS_VERSION, same_release
from relaqs.jobs.job import JobDescription
from relaqs.jobs.runner import JobRunner, RunState
from relaqs.sharing.view import Kind
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually, running_cluster
from tests.relaqs.executors.toy_jobs import Number, ToyJob


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "log", workers=4) as address:
        yield address


@pytest.fixture
def executor(address: str) -> Iterator[DaskExecutor]:
    executor = DaskExecutor(address)
    yield executor
    executor.close()


@pytest.fixture
def endless(executor: DaskExecutor) -> Iterator[JobRunner]:
    """A job of somebody that would run for days, on all workers."""
    job = ToyJob("endless", [[Number(1, 0.2)] * 8] * 1_000_000)
    runner = JobRunner(job, executor, JobDescription("endless", Kind.QUERY, name="SELECT [b]1[/b]"))
    runner.start()
    eventually(lambda: runner.state is RunState.RUNNING)
    yield runner
    runner.stop()
    assert runner.wait(LONG_SECONDS)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["cluster", *arguments], env={"COLUMNS": "250"})


def test_jobs_are_listed_with_their_ids(address: str, endless: JobRunner) -> None:
    shown = _run("list", address)
    assert shown.exit_code == 0, shown.output
    assert "SELECT [b]1[/b]" in shown.stdout
    (job,) = [json.loads(line) for line in _run("list", address, "--format", "jsonl").stdout.splitlines()]
    assert job["id"].startswith("relaqs-endless-")
    assert job["id"] in shown.stdout


def test_a_job_of_another_program_is_cancelled(address: str, endless: JobRunner) -> None:
    done = _run("cancel", address, "endless")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("stopped relaqs-endless-")
    assert endless.wait(LONG_SECONDS)
    assert endless.state is RunState.STOPPED
    eventually(lambda: _run("list", address, "--format", "jsonl").stdout == "")  # its last tasks end


def test_a_cap_holds_though_cores_are_idle(address: str, endless: JobRunner, executor: DaskExecutor) -> None:
    def used_cores() -> float:
        (job,) = executor.status().jobs
        return job.used_cores

    eventually(lambda: used_cores() > 1.5)
    done = _run("cap", address, "endless", "--cores", "1")
    assert done.exit_code == 0, done.output
    flight = executor._flights["endless"]
    eventually(lambda: len(flight.futures) <= 1)  # what was sent before has ended
    seen = []
    while len(seen) < 200:
        seen.append(len(flight.futures))
        executor.status()  # a round trip to the scheduler
    assert max(seen) == 1
    eventually(lambda: used_cores() < 1.2)
    assert _run("cap", address, "endless", "--cores", "100").exit_code == 0
    eventually(lambda: used_cores() > 1.5)


@pytest.mark.parametrize("command", [("cancel",), ("cap", "--cores", "2")])
def test_an_unknown_job_is_told_with_those_that_there_are(
    address: str, endless: JobRunner, command: tuple[str, ...]
) -> None:
    name, *options = command
    done = _run(name, address, "nosuch", *options)
    assert done.exit_code == 1
    assert "there is no job whose id begins with 'nosuch'; there are: relaqs-endless-" in done.stderr


def test_the_scheduler_refuses_what_is_no_job(executor: DaskExecutor) -> None:
    with pytest.raises(ClusterError, match="there is no job 'nosuch'; there are: none"):
        executor.stop_of_any("nosuch")
    with pytest.raises(ClusterError, match="tasks of another program"):
        executor.cap_of_any("foreign", 1)


def test_a_patch_version_is_no_other_release() -> None:
    major, minor, _ = RELAQS_VERSION.split(".")
    assert same_release(f"{major}.{minor}.999")
    assert not same_release(f"{major}.{int(minor) + 1}.0")
    assert not same_release("another")
