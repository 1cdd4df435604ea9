"""The Dask executor on a real cluster, started from the shell, whose processes are really killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from distributed import Client
from relaqs_engine.duck import DatabaseConfig
from relaqs_engine.errors import ClusterError, DataError, RelaqsError
from relaqs_engine.plans.plan import Hoist

from relaqs.executors import open_executor
from relaqs.executors.dask import DaskExecutor, link, messages
from relaqs.executors.dask import client as dask_client
from relaqs.executors.dask.workers import KEPT_SPANS
from relaqs.executors.duck_process import QueryWork
from relaqs.executors.files import UnseenFileError
from relaqs.jobs.job import JobDescription, StepReport, Task, TaskKey, TaskResult
from relaqs.jobs.runner import JobRunner, RunState
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    WITHOUT_RELAQS,
    error_of,
    eventually,
    free_port,
    run_to_end,
    running_cluster,
    scheduler_command,
    started,
    steps_of_light_meanwhile,
)
from tests.relaqs.executors.toy_jobs import (
    DATABASE,
    LONG_SQL,
    Fails,
    FailsUnpicklably,
    GivesALock,
    KillsItsWorker,
    LendsItsCore,
    LongQuery,
    LongQueryOnce,
    Number,
    ToyJob,
    UntilWanted,
    counted,
    counting_job,
    query_work,
)
from tests.relaqs.listening import Listens


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "scheduler.log") as address:
        yield address


@pytest.fixture
def client(cluster: str) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=LONG_SECONDS)
        yield client


@pytest.fixture
def executor(cluster: str, client: Client) -> Iterator[DaskExecutor]:
    with closing(DaskExecutor(cluster)) as executor:
        yield executor


@pytest.fixture
def pipes(tmp_path: Path) -> list[Path]:
    """Two named pipes, by which works say that they run."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        os.mkfifo(path)
    return paths


def test_a_job_is_folded_once_in_order(executor: DaskExecutor) -> None:
    assert executor.capacity == 2
    job = counting_job("counting", steps=4, tasks=6)
    assert run_to_end(JobRunner(job, executor)).state is RunState.EXACT
    assert job.folded == counted(steps=4, tasks=6)


@pytest.mark.alone
def test_core_seconds_are_the_worker_s(executor: DaskExecutor) -> None:
    job = counting_job("costly", steps=1, tasks=4, core_seconds=0.05)
    run_to_end(JobRunner(job, executor))
    assert 0.2 <= job.core_seconds < 0.5


def test_a_killed_worker_changes_no_fold(executor: DaskExecutor, client: Client) -> None:
    """Its replacement prepares the hoist again, since every task carries it."""
    hoist = Hoist("sevens", "SELECT 7 AS seven FROM range(1000)", ())

    def job(id: str) -> ToyJob:
        hoisted = [QueryWork(DATABASE, (hoist,), f"SELECT sum(seven) + {i} FROM sevens") for i in range(4)]
        return ToyJob(id, [[*hoisted, Number(step, 0.02), Number(-step, 0.02)] for step in range(6)])

    def kill_one(report: StepReport) -> None:
        if report.step == 1:
            os.kill(next(iter(pids.values())), signal.SIGKILL)

    pids = client.run(os.getpid)
    survivor, undisturbed = job("survivor"), job("undisturbed")
    runner = run_to_end(JobRunner(survivor, executor, listener=Listens(on_report=kill_one)))
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    run_to_end(JobRunner(undisturbed, executor))
    assert survivor.folded == undisturbed.folded
    assert [step for step, _ in survivor.folded] == list(range(6))
    client.wait_for_workers(2, timeout=LONG_SECONDS)
    assert set(client.run(os.getpid).values()) != set(pids.values())


def test_a_task_that_kills_its_workers_fails_its_job_alone(executor: DaskExecutor) -> None:
    error = error_of(executor, ToyJob("poison", [[KillsItsWorker()]]))
    assert isinstance(error, ClusterError)
    assert "task 0 of step 0 of job poison killed its worker 2 times" in str(error)
    assert "see that worker's log" in str(error)
    following = counting_job("following", steps=2, tasks=4)
    assert run_to_end(JobRunner(following, executor)).state is RunState.EXACT
    assert following.folded == counted(steps=2, tasks=4)


def test_stop_interrupts_what_runs_and_drops_what_waits(executor: DaskExecutor, pipes: list[Path]) -> None:
    """Both workers are busy for days, until the job is stopped."""
    works = [[LongQuery(str(pipe)) for pipe in pipes], [KillsItsWorker(), KillsItsWorker()]]
    runner = JobRunner(ToyJob("long", works), executor)
    runner.start()
    for pipe in pipes:
        pipe.read_text()
    eventually(lambda: executor.status().jobs[0].used_cores > 1.8)  # though no task has ended
    runner.stop()
    assert runner.wait(LONG_SECONDS)
    following = counting_job("following", steps=2, tasks=4)
    assert run_to_end(JobRunner(following, executor)).state is RunState.EXACT


def test_stop_interrupts_what_left_its_core_and_has_one_again(
    executor: DaskExecutor, pipes: list[Path]
) -> None:
    executor.peers()  # they have agents
    runner = JobRunner(ToyJob("lent", [[LendsItsCore(LongQuery(str(pipe))) for pipe in pipes]]), executor)
    runner.start()
    for pipe in pipes:
        pipe.read_text()
    runner.stop()
    assert runner.wait(LONG_SECONDS)
    following = ToyJob("following", [[LendsItsCore(Number(i)) for i in range(12)]])
    assert run_to_end(JobRunner(following, executor)).state is RunState.EXACT
    assert following.folded == [(0, list(range(12)))]


def test_a_task_that_is_released_and_wanted_again_takes_nothing_of_its_job_along(
    executor: DaskExecutor, client: Client, pipes: list[Path], tmp_path: Path
) -> None:
    """A result that was just fetched from a worker that dies is begun elsewhere, and released there.

    The one beside it runs on, and the one that was released runs again, though its worker still stops it.
    """
    first, second = (LongQueryOnce(i, str(pipe), str(tmp_path / f"{i}")) for i, pipe in enumerate(pipes))
    job = ToyJob("spared", [[first, second], [query_work("SELECT 7 AS seven")] * 8])
    runner = JobRunner(job, executor)
    runner.start()
    for pipe in pipes:
        pipe.read_text()
    client.run_on_scheduler(release, index=0)
    eventually(lambda: client.run_on_scheduler(running) == [1])
    client.run_on_scheduler(release, index=1)
    assert runner.wait(LONG_SECONDS)
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded[0] == (0, [0, 1])
    assert len(job.folded[1][1]) == 8


def release(dask_scheduler: Any, index: int) -> None:
    """Do to a running task what is done to one that nobody wants."""
    [key] = [key for key, task in dask_scheduler.tasks.items() if task.processing_on and key[2] == index]
    dask_scheduler.transitions({key: "released"}, stimulus_id="test-release")


def running(dask_scheduler: Any) -> list[int]:
    """Return the indexes of the tasks that run, but of none that has a result."""
    return [key[2] for key, task in dask_scheduler.tasks.items() if task.processing_on]


CLIENT = """
import sys
from relaqs.executors import open_executor
from relaqs.jobs.runner import JobRunner
from tests.relaqs.executors.toy_jobs import KillsItsWorker, LongQuery, ToyJob

address, *pipes = sys.argv[1:]
works = [[LongQuery(pipe) for pipe in pipes], [KillsItsWorker()]]
runner = JobRunner(ToyJob("orphan", works), open_executor(address))
runner.start()
runner.wait()
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_dies_leaves_nothing_running(
    executor: DaskExecutor, cluster: str, pipes: list[Path], blow: signal.Signals
) -> None:
    """Its two statements would take days and its third task would kill a worker."""
    arguments = [sys.executable, "-c", CLIENT, cluster, *map(str, pipes)]
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as process:
        for pipe in pipes:
            pipe.read_text()
        process.send_signal(blow)
        process.wait(LONG_SECONDS)
    job = counting_job("heir", steps=2, tasks=4)
    assert run_to_end(JobRunner(job, executor)).state is RunState.EXACT


def test_errors_of_tasks_come_back_as_they_were(executor: DaskExecutor) -> None:
    error = error_of(executor, ToyJob("failing", [[Fails(DataError("row group 3 is damaged"))]]))
    assert isinstance(error, DataError)
    assert str(error) == "row group 3 is damaged"
    assert "on the worker at tcp://127.0.0.1" in "".join(error.__notes__)


def test_an_error_that_cannot_travel_is_told(executor: DaskExecutor) -> None:
    error = error_of(executor, ToyJob("stuck", [[FailsUnpicklably()]]))
    assert isinstance(error, RelaqsError)
    assert re.match(
        r"a task on the worker at tcp://\S+ failed by a fault in ReLAQS: UnpicklableError", str(error)
    )
    assert "stays where it is" in str(error)


def test_a_result_that_cannot_travel_is_told(executor: DaskExecutor) -> None:
    error = error_of(executor, ToyJob("locked", [[GivesALock()]]))
    assert isinstance(error, ClusterError)
    assert "task 0 of step 0 of job locked gave no result (TypeError" in str(error)


def test_a_file_that_is_there_and_that_a_worker_does_not_see(executor: DaskExecutor, tmp_path: Path) -> None:
    path = tmp_path / "part-0.parquet"
    path.touch()
    error = error_of(executor, ToyJob("blind", [[Fails(UnseenFileError(str(path)))]]))
    assert isinstance(error, ClusterError)
    assert str(error).startswith("the worker at tcp://127.0.0.1:")
    hint = "which this process sees; give all workers the same path to the data"
    assert str(error).endswith(f"does not see {path}, {hint}")


def test_a_file_that_nobody_sees(executor: DaskExecutor, tmp_path: Path) -> None:
    path = tmp_path / "gone" / "part-0.parquet"
    config = DatabaseConfig((str(tmp_path),), 256 << 20)
    work = QueryWork(config, (), f"SELECT * FROM read_parquet('{path}')")
    error = error_of(executor, ToyJob("deleted", [[work]]))
    assert isinstance(error, UnseenFileError)
    assert str(error) == f"{path} is not there; restore it, or lay the table out again with relaqs.shuffle"


@pytest.mark.alone
def test_jobs_share_the_cluster_by_weight(executor: DaskExecutor) -> None:
    heavy = counting_job("heavy", steps=12, tasks=8, core_seconds=0.02)
    light = counting_job("light", steps=12, tasks=8, core_seconds=0.02)
    # The share is 3 of 12 steps; first come, first served gives 11 or 12. test_fair.py has the exact test.
    assert 1 <= steps_of_light_meanwhile(heavy, light, executor) <= 8


def test_results_are_not_kept_on_the_cluster(executor: DaskExecutor, client: Client) -> None:
    results: SimpleQueue[TaskResult] = SimpleQueue()
    tasks = [Task(TaskKey("kept", 0, index), Number(index)) for index in range(4)]
    executor.enter(JobDescription("kept"))
    executor.submit(tasks, results.put)
    got = [results.get(timeout=LONG_SECONDS) for _ in tasks]
    assert sorted(result.value for result in got) == [0, 1, 2, 3]  # type: ignore[type-var]
    # The message of a later job follows those of the releases.
    run_to_end(JobRunner(counting_job("later", steps=1, tasks=1), executor))
    assert not any("kept" in str(key) for key in client.run_on_scheduler(task_keys))


def task_keys(dask_scheduler: Any) -> list[object]:
    return list(dask_scheduler.tasks)


def test_a_client_that_was_handed_in_stays_open_and_our_own_is_closed(cluster: str, client: Client) -> None:
    with closing(open_executor(client)) as executor:
        assert "2 cores" in executor.describe()
    assert client.status == "running"
    own = DaskExecutor(cluster)
    own.close()
    assert own._client.status == "closed"
    with pytest.raises(ClusterError, match="closed"):
        own.enter(JobDescription("late"))


def test_an_asynchronous_client_is_refused(cluster: str) -> None:
    async def use() -> None:
        async with Client(cluster, asynchronous=True, set_as_default=False) as client:
            with pytest.raises(ClusterError, match="client is asynchronous; give the scheduler's address"):
                DaskExecutor(client)

    asyncio.run(use())


def test_workers_with_other_versions_are_refused(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "DUCKDB_VERSION", "9.9.9")
    with pytest.raises(ClusterError, match=r"worker at tcp://.* has .*9\.9\.9.*install the same packages"):
        DaskExecutor(cluster)


def test_a_worker_without_relaqs_is_named(tmp_path: Path) -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    preload = tmp_path / "hide.py"
    preload.write_text(WITHOUT_RELAQS)
    with (
        started(*scheduler_command(port)),
        started("worker", address, "--no-nanny", "--no-dashboard", "--preload", str(preload)),
        Client(address, timeout=LONG_SECONDS, set_as_default=False) as client,
    ):
        client.wait_for_workers(1, timeout=LONG_SECONDS)
        with pytest.raises(
            ClusterError, match=r"worker at tcp.* cannot run ReLAQS .*No module named 'relaqs'"
        ):
            DaskExecutor(client)
        assert client.status == "running"


def test_an_unreachable_address_is_told_soon() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(ClusterError, match=f"no Dask scheduler answered at {address} within 0.2 s"):
        DaskExecutor(address, connect_seconds=0.2)


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("nowhere", "'nowhere' is not the address of a Dask scheduler .missing port"),
        ("http://127.0.0.1:8786", "unknown address scheme 'http'.* write it as tcp://host:8786"),
        ("tcp://no-such-host.invalid:8786", "answered at tcp://no-such-host.invalid:8786"),
    ],
)
def test_an_address_that_is_none_is_refused_before_a_client_is_made(
    monkeypatch: pytest.MonkeyPatch, address: str, complaint: str
) -> None:
    monkeypatch.setattr(link, "Client", lambda *_, **__: pytest.fail("closing it takes seconds"))
    with pytest.raises(ClusterError, match=complaint):
        DaskExecutor(address)


@pytest.mark.slow
def test_capacity_follows_the_workers_and_a_lost_scheduler_fails_its_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dask_client, "CAPACITY_SECONDS", 0.0)
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with ExitStack() as stack:
        scheduler = stack.enter_context(started(*scheduler_command(port)))
        client = stack.enter_context(Client(address, timeout=LONG_SECONDS, set_as_default=False))
        executor = stack.enter_context(closing(DaskExecutor(address, reconnect_seconds=0.5)))
        assert executor.capacity == 0
        with started("worker", address, "--nthreads", "3", "--no-nanny", "--no-dashboard"):
            client.wait_for_workers(1, timeout=LONG_SECONDS)
            assert executor.capacity == 3
            client.retire_workers()
            assert executor.capacity == 0
        results: SimpleQueue[TaskResult] = SimpleQueue()
        executor.enter(JobDescription("waiting"))
        executor.submit([Task(TaskKey("waiting", 0, 0), Number(1))], results.put)
        scheduler.kill()
        lost = results.get(timeout=LONG_SECONDS).error
        refused = error_of(executor, counting_job("late", steps=1, tasks=1))
        assert executor.describe() == f"the Dask cluster at {address}, out of reach"
    assert [type(error) for error in (lost, refused)] == [ClusterError, ClusterError]
    assert str(lost).startswith(f"the Dask scheduler at {address} does not answer any more")
    assert address in str(refused)


def test_the_scheduler_keeps_nothing_of_jobs_that_are_long_over(
    executor: DaskExecutor, client: Client
) -> None:
    for i in range(2 * KEPT_SPANS):  # each after the other: Dask counts every one as work of its own
        run_to_end(JobRunner(counting_job(f"past-{i}", steps=1, tasks=1), executor))
    known = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.extensions["spans"].root_spans))
    assert known <= KEPT_SPANS + 5


def test_a_task_knows_that_another_waits_behind_it(executor: DaskExecutor, client: Client) -> None:
    worker = min(client.scheduler_info(n_workers=-1)["workers"])
    results: SimpleQueue[TaskResult] = SimpleQueue()
    executor.enter(JobDescription("waited-for"))
    for index, work in enumerate((UntilWanted(LONG_SECONDS), Number(7))):
        executor.submit([Task(TaskKey("waited-for", 0, index), work, place=worker)], results.put)
    assert [results.get(timeout=LONG_SECONDS).value for _ in range(2)] == [True, 7]
    executor.cancel("waited-for")


@pytest.mark.slow
def test_a_client_that_is_closed_fails_its_jobs(cluster: str) -> None:
    client = Client(cluster, set_as_default=False)
    executor = DaskExecutor(client)
    runner = JobRunner(ToyJob("long", [[query_work(LONG_SQL)] * 2]), executor)
    runner.start()
    eventually(lambda: any(job.used_cores for job in executor.status().jobs))
    client.close()
    assert runner.wait(LONG_SECONDS)
    assert isinstance(runner.error, ClusterError)
