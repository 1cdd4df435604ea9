"""What a shared cluster survives: real processes, really killed and started again."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Scheduler
from relaqs_engine.errors import ClusterError

from relaqs.executors.dask import DaskExecutor, link
from relaqs.executors.dask import client as dask_client
from relaqs.executors.dask.workers import SilentWorkerWarning
from relaqs.jobs.job import JobDescription, JobStatus, StepReport, Work
from relaqs.jobs.runner import JobRunner, RunState
from relaqs.sharing.view import Kind
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    WITHOUT_RELAQS,
    Process,
    address_of,
    error_of,
    eventually,
    free_port,
    lone_worker_command,
    run_to_end,
    running_cluster,
    scheduler_command,
    started,
    workers_command,
)
from tests.relaqs.executors.toy_jobs import (
    FillsItsWorkerOnce,
    Number,
    StopsItsWorkerOnce,
    StopsItsWorkerWhenFetched,
    ToyJob,
    counted,
    counting_job,
)
from tests.relaqs.listening import Listens

STEPS, TASKS = 10, 4
FILLING_BYTES = 1 << 30
CONNECT_TIMEOUT_SECONDS = 30.0  # of Dask, for each attempt to connect


@contextmanager
def client_of(address: str, workers: int) -> Iterator[Client]:
    with Client(address, timeout=LONG_SECONDS, set_as_default=False) as client:
        if workers:
            client.wait_for_workers(workers, timeout=LONG_SECONDS)
        yield client


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("faults") / "scheduler.log") as address:
        yield address


@pytest.fixture
def executor(cluster: str) -> Iterator[DaskExecutor]:
    with closing(DaskExecutor(cluster)) as executor:
        yield executor


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """What is only let go by chance stays."""
    gc.disable()
    yield
    gc.enable()


def tasks_of(dask_scheduler: Scheduler) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_collection")
def test_jobs_go_on_when_the_scheduler_is_started_again(tmp_path: Path) -> None:
    """It has forgotten the plugin, the jobs, the tasks and the workers, who end with it."""
    port = free_port()
    address = address_of(port)
    with ExitStack() as stack:
        first = stack.enter_context(started(*scheduler_command(port)))
        stack.enter_context(started(*workers_command(address)))
        with client_of(address, workers=2):
            executor = stack.enter_context(closing(DaskExecutor(address)))

        def restart(report: StepReport) -> None:
            if report.step == 2:
                first.kill()
                first.join(LONG_SECONDS)
                log = tmp_path / "scheduler.log"
                stack.enter_context(started(*scheduler_command(port), log=log))
                stack.enter_context(started(*workers_command(address)))
            if report.step == STEPS - 2:
                standing.append(executor.status().jobs[0])

        standing: list[JobStatus] = []
        job = counting_job("survivor", steps=STEPS, tasks=TASKS, core_seconds=0.01)
        description = JobDescription("survivor", kind=Kind.TRAINING, name="it survives", weight=3.0)
        runner = run_to_end(JobRunner(job, executor, description, listener=Listens(on_report=restart)))
        with client_of(address, workers=0) as client:
            eventually(lambda: not client.run_on_scheduler(tasks_of))
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded == counted(steps=STEPS, tasks=TASKS)
    [known] = standing
    assert (known.id, known.name, known.weight) == ("survivor", "it survives", 3.0)
    assert len(known.history) >= STEPS - 3  # also of the steps before


def test_a_scheduler_that_is_away_is_looked_for_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask doubles its pauses within one attempt, which is short therefore."""
    port, seconds, open_comm = free_port(), list[float](), link.open_comm

    async def attempt(address: str, timeout: float, **arguments: Any) -> Any:
        if address == address_of(port):
            seconds.append(timeout)
        return await open_comm(address, timeout=timeout, **arguments)

    monkeypatch.setattr(link, "ATTEMPT_SECONDS", 0.5)
    with ExitStack() as stack:
        scheduler = stack.enter_context(started(*scheduler_command(port)))
        with client_of(address_of(port), workers=0):
            stack.enter_context(closing(DaskExecutor(address_of(port))))
        monkeypatch.setattr(link, "open_comm", attempt)
        scheduler.kill()
        eventually(lambda: len(seconds) > 3)
    assert max(seconds) <= 0.5


def test_a_scheduler_that_is_there_may_take_its_time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the search for it is short."""
    monkeypatch.setattr(link, "ATTEMPT_SECONDS", 0.2)
    answered: list[str] = []

    async def answer_late() -> None:
        await asyncio.sleep(1.0)
        answered.append("late")

    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(started(*scheduler_command(port)))
        client = stack.enter_context(closing(link.connect(address_of(port), LONG_SECONDS, 5.0)))
        monkeypatch.setattr(client, "_update_scheduler_info", answer_late)
        client.loop.add_callback(client.scheduler_comm.comm.abort)
        eventually(lambda: answered and client.status != "connecting")
        assert client.status == "running"


@pytest.mark.usefixtures("no_garbage_collection")
def test_jobs_go_on_when_somebody_restarts_the_workers(executor: DaskExecutor, cluster: str) -> None:
    """`Client.restart` drops the tasks of all clients."""

    def restart(report: StepReport) -> None:
        if report.step == 2:
            with client_of(cluster, workers=2) as client:
                client.restart(timeout=LONG_SECONDS)

    job = counting_job("restarted", steps=STEPS, tasks=TASKS, core_seconds=0.01)
    runner = run_to_end(JobRunner(job, executor, listener=Listens(on_report=restart)))
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded == counted(steps=STEPS, tasks=TASKS)
    with client_of(cluster, workers=0) as client:
        eventually(lambda: not client.run_on_scheduler(tasks_of))


def test_a_scheduler_that_is_busy_for_long_fails_no_job(
    executor: DaskExecutor, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is issued by the last count of the cores."""
    monkeypatch.setattr(dask_client, "CAPACITY_SECONDS", 0.0)
    with client_of(cluster, workers=2) as client:
        scheduler = client.run_on_scheduler(os.getpid)

    def stop(report: StepReport) -> None:
        if report.step == 2:
            os.kill(scheduler, signal.SIGSTOP)
            monkeypatch.setattr(dask_client, "CONNECT_SECONDS", 0.1)
            try:
                counts.append(executor.capacity)
            finally:
                os.kill(scheduler, signal.SIGCONT)

    counts: list[int] = []
    job = counting_job("patient", steps=STEPS, tasks=TASKS)
    runner = run_to_end(JobRunner(job, executor, listener=Listens(on_report=stop)))
    assert (runner.state, runner.error, counts) == (RunState.EXACT, None, [2])
    assert job.folded == counted(steps=STEPS, tasks=TASKS)


def test_workers_that_join_and_leave_change_the_plan_and_no_fold(tmp_path: Path) -> None:
    """As adaptive scaling does: one more, and then the first one away."""
    with ExitStack() as stack:
        log = tmp_path / "scheduler.log"
        address = stack.enter_context(running_cluster(log, workers=1, nannies=False))
        client = stack.enter_context(client_of(address, workers=1))
        executor = stack.enter_context(closing(DaskExecutor(address)))
        [old] = client.scheduler_info(n_workers=-1)["workers"]
        cores: list[float] = []

        def scale(report: StepReport) -> None:
            cores.append(executor.status().jobs[0].share_cores)
            if report.step == 2:
                stack.enter_context(started(*lone_worker_command(address)))
                client.wait_for_workers(2, timeout=LONG_SECONDS)
                eventually(lambda: executor.status().jobs[0].share_cores == 2.0)
            if report.step == 5:
                client.retire_workers([old])
                eventually(lambda: executor.status().jobs[0].share_cores == 1.0)

        job = counting_job("scaled", steps=STEPS, tasks=TASKS, core_seconds=0.01)
        runner = run_to_end(JobRunner(job, executor, listener=Listens(on_report=scale)))
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded == counted(steps=STEPS, tasks=TASKS)
    assert (cores[2], cores[5], cores[-1]) == (1.0, 2.0, 1.0)


@pytest.mark.parametrize(
    ("has_nanny", "hangs"),
    [
        pytest.param(True, StopsItsWorkerOnce, id="nanny", marks=pytest.mark.slow),
        pytest.param(False, StopsItsWorkerOnce, id="no nanny", marks=pytest.mark.slow),
        pytest.param(False, StopsItsWorkerWhenFetched, id="with a result"),
    ],
)
def test_the_tasks_of_a_worker_that_hangs_are_run_elsewhere(
    tmp_path: Path, has_nanny: bool, hangs: Callable[[int, str], Work]
) -> None:
    """It is given up and, if no nanny kills it, continued: what it gives then is folded by nobody."""
    mark = tmp_path / "stopped"
    numbers = [[Number(step * TASKS + i, 0.01) for i in range(TASKS)] for step in range(STEPS)]
    steps: list[list[Work]] = [list(step) for step in numbers]
    steps[2][1] = hangs(2 * TASKS + 1, str(mark))
    with ExitStack() as stack:
        log = tmp_path / "scheduler.log"
        address = stack.enter_context(
            running_cluster(log, nannies=has_nanny, settings={"DASK_RELAQS__WORKER_SILENCE": "2s"})
        )
        executor = stack.enter_context(closing(DaskExecutor(address)))

        def go_on(report: StepReport) -> None:
            if report.step == 2 and not has_nanny:
                os.kill(int(mark.read_text()), signal.SIGCONT)

        job = ToyJob("hangs", steps)
        with pytest.warns(SilentWorkerWarning, match=r"not heard of for \d+ s and is given up"):
            runner = run_to_end(JobRunner(job, executor, listener=Listens(on_report=go_on)))
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded == counted(steps=STEPS, tasks=TASKS)


@pytest.mark.slow
@pytest.mark.parametrize("has_nanny", [True, False], ids=["nanny", "no nanny"])
def test_what_waits_on_a_worker_without_memory_is_run_elsewhere(tmp_path: Path, has_nanny: bool) -> None:
    """Dask pauses it: it lives and is heard of, and starts none of the tasks that it has."""
    settings = {
        "DASK_RELAQS__WORKER_SILENCE": "2s",
        "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",  # it takes some of the tasks, not all
        "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0.5",
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    }
    numbers = [[Number(step * TASKS + i, 0.01) for i in range(TASKS)] for step in range(STEPS)]
    steps: list[list[Work]] = [list(step) for step in numbers]
    steps[0][0] = FillsItsWorkerOnce(0, str(tmp_path / "filled"), FILLING_BYTES)
    limit = ["--memory-limit", str(2 * FILLING_BYTES - (100 << 20))]
    with ExitStack() as stack:
        port = free_port()
        address = address_of(port)
        stack.enter_context(started(*scheduler_command(port), settings=settings))
        for _ in range(2):
            worker = workers_command(address, 1) if has_nanny else lone_worker_command(address)
            stack.enter_context(started(*worker, *limit, settings=settings))
        stack.enter_context(client_of(address, workers=2))
        executor = stack.enter_context(closing(DaskExecutor(address)))
        job = ToyJob("filled", steps)
        with pytest.warns(SilentWorkerWarning, match=r"has been paused for want of memory for \d+ s"):
            runner = run_to_end(JobRunner(job, executor))
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded == counted(steps=STEPS, tasks=TASKS)


DIES_BEFORE_IT_IS_FETCHED_FROM = """
import asyncio, os, psutil, signal

def process_at(address):
    port = int(address.rsplit(":", 1)[1])
    return next(c.pid for c in psutil.net_connections() if c.status == "LISTEN" and c.laddr.port == port)

def dask_setup(scheduler):
    connect = scheduler.rpc.connect

    async def connect_late(address, *arguments, **options):
        worker = scheduler.workers.get(address)
        if worker is not None and worker.has_what:
            scheduler.rpc.connect = connect
            os.kill(process_at(address), signal.SIGKILL)
            while address in scheduler.workers:
                await asyncio.sleep(0.01)
        return await connect(address, *arguments, **options)

    scheduler.rpc.connect = connect_late
"""


@pytest.mark.slow
def test_a_result_whose_worker_dies_before_it_is_fetched_costs_no_half_minute(tmp_path: Path) -> None:
    """The scheduler is just about to connect to it when it hears of its death."""
    port, preload = free_port(), tmp_path / "late.py"
    preload.write_text(DIES_BEFORE_IT_IS_FETCHED_FROM)
    address = address_of(port)
    with ExitStack() as stack:
        stack.enter_context(started(*scheduler_command(port), "--preload", str(preload)))
        stack.enter_context(started(*workers_command(address)))
        stack.enter_context(client_of(address, workers=2))
        executor = stack.enter_context(closing(DaskExecutor(address)))
        job = counting_job("fetched", steps=STEPS, tasks=TASKS)
        runner = JobRunner(job, executor)
        runner.start()
        assert runner.wait(CONNECT_TIMEOUT_SECONDS / 2)
    assert (runner.state, runner.error) == (RunState.EXACT, None)
    assert job.folded == counted(steps=STEPS, tasks=TASKS)


OTHER_DUCKDB = """
from relaqs.executors.dask import messages

def dask_setup(worker):
    messages.DUCKDB_VERSION = "1.0.0"
"""


def test_a_worker_that_joins_late_with_another_duckdb_is_named(
    executor: DaskExecutor, cluster: str, tmp_path: Path
) -> None:
    """Its results are not mixed with the others'."""
    preload = tmp_path / "other.py"
    preload.write_text(OTHER_DUCKDB)
    with started(*lone_worker_command(cluster), "--preload", str(preload)):
        error = error_of(executor, counting_job("late", steps=100_000, tasks=TASKS, core_seconds=0.01))
    assert isinstance(error, ClusterError)
    said = r"worker at tcp://\S+ has relaqs (\S+), duckdb 1\.0\.0, the client relaqs \1, duckdb"
    assert re.search(said, str(error))
    assert str(error).endswith("install the same packages there, start it again, and run the job again")
    eventually(lambda: executor.capacity == 2)


OTHER_CLIENT = """
import sys
from relaqs.executors import open_executor
from relaqs.jobs.runner import JobRunner
from relaqs.jobs.job import JobDescription
from tests.relaqs.executors.toy_jobs import counting_job

job = counting_job("theirs", steps=100_000, tasks=8, core_seconds=0.02)
runner = JobRunner(job, open_executor(sys.argv[1]), JobDescription("theirs", name="of another process"))
runner.start()
runner.wait()
"""


def shares(executor: DaskExecutor) -> dict[str, float]:
    return {job.name: job.share_cores for job in executor.status().jobs}


@pytest.mark.slow
def test_a_client_that_is_killed_leaves_its_share_to_the_others(executor: DaskExecutor, cluster: str) -> None:
    """Both see both jobs. The survivor's answer is what it would have been."""
    mine = counting_job("mine", steps=100_000, tasks=TASKS, core_seconds=0.02)
    runner = JobRunner(mine, executor, JobDescription("mine", name="of this process"))
    with subprocess.Popen([sys.executable, "-c", OTHER_CLIENT, cluster]) as process:
        eventually(lambda: "of another process" in shares(executor))
        runner.start()
        eventually(lambda: shares(executor) == {"of this process": 1.0, "of another process": 1.0})
        process.send_signal(signal.SIGKILL)
        process.wait(LONG_SECONDS)
    eventually(lambda: shares(executor) == {"of this process": 2.0})
    runner.stop()
    assert runner.wait(LONG_SECONDS)
    assert runner.error is None
    assert mine.folded == counted(steps=len(mine.folded), tasks=TASKS)


def burn(seconds: float) -> float:
    from tests.relaqs.executors.toy_jobs import Number

    return Number(1, seconds).run("burn")


def test_tasks_of_other_programs_have_a_fair_share(executor: DaskExecutor, cluster: str) -> None:
    """They are one job more while there are any, and run as Dask runs them."""
    runner = JobRunner(counting_job("mine", steps=100_000, tasks=4, core_seconds=0.02), executor)
    runner.start()
    with client_of(cluster, workers=2) as client:
        futures = client.map(burn, [0.02] * 30, pure=False)
        eventually(lambda: shares(executor).get("tasks of other programs") == 1.0)
        assert client.gather(futures) == [1] * 30
        total = client.submit(sum, client.map(burn, [0.001] * 10, pure=False))
        assert total.result(timeout=LONG_SECONDS) == 10
    eventually(lambda: len(shares(executor)) == 1)
    runner.stop()
    assert runner.wait(LONG_SECONDS)


def refused(port: int, scheduler: Process) -> str:
    """Return the error of a session on a scheduler without workers."""
    with client_of(address_of(port), workers=0) as client:
        with pytest.raises(ClusterError) as raised:
            DaskExecutor(client)
        assert client.status == "running"
    assert scheduler.exitcode is None
    return str(raised.value)


def test_a_scheduler_without_relaqs_is_told(tmp_path: Path) -> None:
    port, preload = free_port(), tmp_path / "hide.py"
    preload.write_text(WITHOUT_RELAQS)
    with started(*scheduler_command(port), "--preload", str(preload)) as scheduler:
        said = refused(port, scheduler)
    assert said.startswith(f"the Dask scheduler at {address_of(port)} cannot run ReLAQS (ModuleNotFoundError")
    assert "install relaqs" in said


OTHER_VERSION = """
from distributed import SchedulerPlugin

class Other(SchedulerPlugin):
    name = "relaqs"

def dask_setup(scheduler):
    scheduler.add_plugin(Other())
    scheduler.handlers["relaqs_hello"] = lambda **message: {"version": "0.0.1", "colour": "blue"}
"""


@pytest.mark.slow
def test_a_plugin_of_another_version_is_refused(tmp_path: Path) -> None:
    port, preload = free_port(), tmp_path / "other.py"
    preload.write_text(OTHER_VERSION)
    with started(*scheduler_command(port), "--preload", str(preload)) as scheduler:
        said = refused(port, scheduler)
    assert "runs relaqs 0.0.1, this process relaqs" in said
    assert said.endswith("install the same where the scheduler runs, and start it again")
