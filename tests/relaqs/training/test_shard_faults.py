"""Runs in shards whose workers, clients, scheduler and disks fail at moments drawn by a seed.

RELAQS_FAULT_REPEATS says how often each kind of fault is drawn. The parameters lie in files. Whatever
happens, the model has the bits of one process, and nothing is left: no shard, file, task or job.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client, Scheduler, Worker

import relaqs.executors.dask.link
import relaqs.training.launch
import relaqs.training.sharded.holder
import relaqs.training.sharded.shard_job
from relaqs import Session, connect, shuffle
from relaqs.executors.dask.peer_agent import PeerAgent
from relaqs.jobs.job import Work
from relaqs.training import SoftmaxRegression, TrainingRun
from relaqs.training.sharded.holder import AskWork, ShardHolder
from relaqs.training.sharded.shard_job import ShardJob
from tests.relaqs.executors.clusters import (
    LONG_SECONDS,
    address_of,
    eventually,
    free_port,
    running_cluster,
    scheduler_command,
    started,
    workers_command,
)

REPEATS = int(os.environ.get("RELAQS_FAULT_REPEATS", "1"))
WORKERS = 3
PASSES = 20
LATEST_SECONDS = 2.0  # of a fault, after the run was started: most take about as long
HANGS_SECONDS = 5 * LONG_SECONDS  # a cluster that is started again on a loaded machine takes long
IDLE_SECONDS = 10.0  # after which a worker that owns no shard of a run any more forgets it
NOTICED_SECONDS = 1.0  # after which a worker that is stopped counts as hung: else each takes half a minute
# As Dask has it. It blames each task that a worker had, also those that had not begun, or had left their core
# and sent what they had. Here workers die by other hands.
DEATHS = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3"}
FEATURES, CLASSES = 63, 300
JOB = SoftmaxRegression("SELECT * FROM wide", "y", strength=0.01)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose model is larger than what stays in memory in any case."""
    folder = tmp_path_factory.mktemp("shard-faults")
    features = np.random.default_rng(0).standard_normal((CLASSES * 2, FEATURES))
    columns = {f"x{i}": features[:, i] for i in range(FEATURES)}
    shuffle(pa.table({**columns, "y": np.arange(CLASSES * 2) % CLASSES}), folder / "wide", partitions=8)
    return folder


@pytest.fixture(scope="module")
def whole(warehouse: Path) -> tuple[tuple[float, ...], Any]:
    """The losses and weights of one process."""
    return in_one_process(warehouse, max_steps=PASSES)


@pytest.fixture(scope="module")
def to_a_goal(
    warehouse: Path, whole: tuple[tuple[float, ...], Any]
) -> tuple[float, tuple[tuple[float, ...], Any]]:
    """A loss to stop at, and the losses and weights of one process up to there."""
    goal = whole[0][PASSES // 2]
    return goal, in_one_process(warehouse, target_loss=goal)


def in_one_process(warehouse: Path, **options: Any) -> tuple[tuple[float, ...], Any]:
    with connect(warehouse, threads=1) as db:
        run = db.train(JOB, **options)
        return run.losses if run.wait() else (), run.result().coef_


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("shard-faults") / "log"
    with running_cluster(log, workers=WORKERS, settings=DEATHS) as address:
        yield address


@pytest.fixture
def client(cluster: str) -> Iterator[Client]:
    """With all workers there: those that a test has killed are started again."""
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(WORKERS, timeout=LONG_SECONDS)
        yield client


@pytest.fixture(autouse=True)
def in_files_and_soon_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaqs.training.launch, "KEPT_SHARE", 0.0)
    monkeypatch.setattr(relaqs.training.sharded.shard_job, "IDLE_SECONDS", IDLE_SECONDS)
    monkeypatch.setattr(relaqs.training.sharded.shard_job, "IDLE_PASSES", 0.0)


def holder_of(dask_worker: Worker) -> ShardHolder | None:
    agent = dask_worker.plugins.get(PeerAgent.name)
    service = agent.service if isinstance(agent, PeerAgent) else None
    return service if isinstance(service, ShardHolder) else None


def left_of(dask_worker: Worker) -> list[str]:
    """Return what is left of runs on a worker: shards, and files that are open or mapped."""
    gc.collect()
    holder = holder_of(dask_worker)
    found = [] if holder is None else list(holder.runs)
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if "relaqs-parameters-" in (name := os.readlink(entry)):
                found.append(name)
    return found


def tasks_of(dask_scheduler: Scheduler) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]


def assert_nothing_is_left(client: Client, db: Session) -> None:
    client.wait_for_workers(WORKERS, timeout=LONG_SECONDS)
    # A worker that was just killed may still be asked, which gives an error: then all are asked again.
    eventually(lambda: not any(client.run(left_of, on_error="return").values()))
    eventually(lambda: not client.run_on_scheduler(tasks_of))
    eventually(lambda: db.status().jobs == ())


def notice_soon(dask_worker: Worker) -> None:
    relaqs.training.sharded.holder.ANSWER_SECONDS = NOTICED_SECONDS
    relaqs.training.sharded.holder.DEMAND_SECONDS = NOTICED_SECONDS
    relaqs.training.sharded.holder.AHEAD_SECONDS = NOTICED_SECONDS


def one_worker(client: Client, draws: random.Random) -> tuple[str, int]:
    """Return the address and the process of a worker that is drawn."""
    return draws.choice(sorted(client.run(os.getpid).items()))


def kill(client: Client, draws: random.Random) -> None:
    os.kill(one_worker(client, draws)[1], signal.SIGKILL)


def stop_for_a_while(client: Client, draws: random.Random) -> None:
    """Some stops are longer than the time after which others give a worker up."""
    _, process = one_worker(client, draws)
    os.kill(process, signal.SIGSTOP)
    time.sleep(draws.uniform(0.2, 5 * NOTICED_SECONDS))
    os.kill(process, signal.SIGCONT)


def let_files_be_at_most(byte_count: int) -> None:
    """A disk that is full, to one process."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if byte_count < 0 else byte_count, hard))


def fill_disk(client: Client, draws: random.Random) -> None:
    address, _ = one_worker(client, draws)
    client.run(let_files_be_at_most, draws.randrange(100_000), workers=[address])


def tear_file(client: Client, draws: random.Random) -> None:
    address, _ = one_worker(client, draws)
    client.run(tear_one, draws.randrange(60_000), workers=[address])


def tear_one(byte_count: int, dask_worker: Worker) -> None:
    """Cut the files of what a worker has of the parameters, as a disk does that fails."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if "relaqs-parameters-" in os.readlink(entry):
                os.truncate(entry, byte_count)


FAULTS: dict[str, Callable[[Client, random.Random], None]] = {
    "worker killed": kill,
    "worker stopped": stop_for_a_while,
    "disk full": fill_disk,
    "file torn": tear_file,
}


def train(db: Session) -> TrainingRun:
    return db.train(JOB, parameters="sharded", max_steps=PASSES)


def assert_is(run: TrainingRun, whole: tuple[tuple[float, ...], Any]) -> None:
    assert run.wait(HANGS_SECONDS), f"it hangs after {len(run.losses)} passes"
    model = run.result()
    assert run.losses == whole[0]
    assert np.array_equal(model.coef_, whole[1])


@pytest.mark.parametrize("seed", range(REPEATS))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_changes_no_bit(
    client: Client, warehouse: Path, whole: tuple[tuple[float, ...], Any], fault: str, seed: int
) -> None:
    draws = random.Random(f"{fault} {seed}")
    client.run(notice_soon)
    with connect(warehouse, cluster=client) as db:
        run = train(db)
        run.wait(draws.uniform(0.0, LATEST_SECONDS))
        FAULTS[fault](client, draws)
        assert_is(run, whole)
        client.run(let_files_be_at_most, -1, on_error="ignore")  # of a worker that was just killed
        assert_nothing_is_left(client, db)


def test_a_worker_that_is_killed_before_the_last_model_is_fetched_changes_no_bit(
    client: Client,
    warehouse: Path,
    whole: tuple[tuple[float, ...], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.run(notice_soon)
    works_of = ShardJob._works
    killed: list[int] = []

    def kill_and_fetch(job: ShardJob) -> list[Work]:
        works = works_of(job)
        first = works[0]
        is_fetch = isinstance(first, AskWork) and first.ask == ShardHolder.fetch
        if is_fetch and first.arguments[1] == PASSES - 1 and not killed:
            killed.append(one_worker(client, random.Random(0))[1])
            os.kill(killed[0], signal.SIGKILL)
        return works

    monkeypatch.setattr(ShardJob, "_works", kill_and_fetch)
    with connect(warehouse, cluster=client) as db:
        assert_is(train(db), whole)
        assert_nothing_is_left(client, db)
    assert killed


def test_a_worker_that_is_stopped_when_a_goal_is_reached_changes_no_bit(
    client: Client,
    warehouse: Path,
    to_a_goal: tuple[float, tuple[tuple[float, ...], Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each worker in turn, since one of them makes the fetch, and is waited for."""
    client.run(notice_soon)
    fetch = ShardJob._fetch_last_model
    stopped: list[int] = []

    def stop_and_fetch(job: ShardJob) -> bool:
        os.kill(stopped[-1], signal.SIGSTOP)
        goes_on = threading.Timer(3 * NOTICED_SECONDS, os.kill, (stopped[-1], signal.SIGCONT))
        goes_on.start()
        came = fetch(job)
        goes_on.join()
        return came

    monkeypatch.setattr(ShardJob, "_fetch_last_model", stop_and_fetch)
    goal, up_to_there = to_a_goal
    for _, process in sorted(client.run(os.getpid).items()):
        stopped.append(process)
        with connect(warehouse, cluster=client) as db:
            assert_is(db.train(JOB, parameters="sharded", target_loss=goal), up_to_there)
            assert_nothing_is_left(client, db)
    assert len(set(stopped)) == WORKERS


@pytest.mark.parametrize("count", [1, 2])
def test_workers_that_are_killed_when_a_goal_is_reached_change_no_bit(
    client: Client,
    warehouse: Path,
    to_a_goal: tuple[float, tuple[tuple[float, ...], Any]],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Passes are made again where one of three is killed, in shards, and where two are, in the client."""
    client.run(notice_soon)
    fetch = ShardJob._fetch_last_model
    came: list[bool] = []

    def kill_and_fetch(job: ShardJob) -> bool:
        for _, process in sorted(client.run(os.getpid).items())[:count]:
            os.kill(process, signal.SIGKILL)
        came.append(fetch(job))
        return came[-1]

    monkeypatch.setattr(ShardJob, "_fetch_last_model", kill_and_fetch)
    goal, up_to_there = to_a_goal
    with connect(warehouse, cluster=client) as db:
        assert_is(db.train(JOB, parameters="sharded", target_loss=goal), up_to_there)
        assert_nothing_is_left(client, db)
    assert came == [False]


TRAIN_FOR_EVER = """
import sys
import relaqs, relaqs.training.launch
import relaqs.training.sharded.shard_job
from relaqs.training import SoftmaxRegression

relaqs.training.launch.KEPT_SHARE = 0.0
relaqs.training.sharded.shard_job.IDLE_SECONDS = 1.0
relaqs.training.sharded.shard_job.IDLE_PASSES = 0.0
db = relaqs.connect(sys.argv[1], cluster=sys.argv[2])
print("connected", flush=True)
db.train(SoftmaxRegression("SELECT * FROM wide", "y", tolerance=1e-300), parameters="sharded").wait()
"""


@pytest.mark.parametrize("seed", range(REPEATS))
def test_a_client_that_is_killed_disturbs_no_other(
    cluster: str, client: Client, warehouse: Path, whole: tuple[tuple[float, ...], Any], seed: int
) -> None:
    draws = random.Random(f"client killed {seed}")
    command = [sys.executable, "-c", TRAIN_FOR_EVER, str(warehouse), cluster]
    with connect(warehouse, cluster=client) as db:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == b"connected\n"
            run = train(db)
            run.wait(draws.uniform(0.0, LATEST_SECONDS))
            trainer.kill()
        assert_is(run, whole)
        assert_nothing_is_left(client, db)


@pytest.mark.parametrize("seed", range(REPEATS))
def test_a_scheduler_that_is_started_again_loses_nothing(
    tmp_path: Path,
    warehouse: Path,
    whole: tuple[tuple[float, ...], Any],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # New workers import all of it first, which takes long on a loaded machine.
    monkeypatch.setattr(relaqs.executors.dask.link, "ANSWER_SECONDS", LONG_SECONDS)
    draws = random.Random(f"scheduler killed {seed}")
    port = free_port()
    address = address_of(port)
    with ExitStack() as stack:
        first = stack.enter_context(started(*scheduler_command(port), settings=DEATHS))
        stack.enter_context(started(*workers_command(address, WORKERS)))
        with Client(address, timeout=LONG_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(WORKERS, timeout=LONG_SECONDS)
        db = stack.enter_context(closing(connect(warehouse, cluster=address)))
        run = train(db)
        run.wait(draws.uniform(0.0, LATEST_SECONDS))
        first.kill()
        first.join(LONG_SECONDS)
        log = tmp_path / "scheduler.log"
        stack.enter_context(started(*scheduler_command(port), settings=DEATHS, log=log))
        stack.enter_context(started(*workers_command(address, WORKERS)))
        assert_is(run, whole)
        with Client(address, timeout=LONG_SECONDS, set_as_default=False) as client:
            assert_nothing_is_left(client, db)
