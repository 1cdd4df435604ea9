"""Parameters in shards on the processes of a Dask cluster: the same bits, with deaths and delays too."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster, Worker, WorkerPlugin

import relaqs.training.launch
import relaqs.training.sharded.shard_job
from relaqs import ArgumentError, connect, shuffle
from relaqs.executors.dask.peer_agent import PeerAgent
from relaqs.training import KMeans, Lasso, MatrixFactorisation, SoftmaxRegression, TopicModel, TrainingRun
from relaqs.training.sharded.holder import ShardHolder
from relaqs.training.sharded.shard_job import ShardWorth
from tests.relaqs.executors.clusters import LONG_SECONDS, eventually, running_cluster

STEPS = 25
HELD_VERSION = 5  # of the parameters
TURNS = 8  # of each of three jobs
FEATURES, CLASSES = 63, 300  # a model of 154 KB, whose rows two workers share evenly
DIGITS = SoftmaxRegression("SELECT * FROM digits", "y", strength=0.01)
WIDE = SoftmaxRegression("SELECT * FROM wide", "y", strength=0.01)
DIABETES = Lasso("SELECT * FROM diabetes", "y", alpha=0.1)
PIXELS = "SELECT * EXCLUDE (y) FROM digits"
OTHERS = (
    MatrixFactorisation(PIXELS, components=6, tolerance=0),
    KMeans(PIXELS, clusters=30, tolerance=0),
    TopicModel(PIXELS, topics=4, tolerance=0),
)


@pytest.fixture(scope="module")
def warehouse(training_warehouse: Path) -> Path:
    """The tables of training, and `wide`, whose model is large beside what else is sent."""
    draws = np.random.default_rng(0)
    features = draws.standard_normal((CLASSES * 2, FEATURES))
    columns = {f"x{i}": features[:, i] for i in range(FEATURES)}
    table = pa.table({**columns, "y": np.arange(CLASSES * 2) % CLASSES})
    shuffle(table, training_warehouse / "wide", partitions=8, force=True)
    return training_warehouse


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=LONG_SECONDS)
        yield client


@pytest.fixture(scope="module")
def whole(warehouse: Path) -> tuple[tuple[float, ...], Any]:
    """The losses and weights of client mode, in one process."""
    with connect(warehouse, threads=2) as db:
        run = db.train(DIGITS, max_steps=STEPS)
        return run.losses if run.wait() else (), run.result().coef_


def runs_of(dask_worker: Worker) -> tuple[str, ...]:
    """Return the runs of which a worker has shards."""
    agent = dask_worker.plugins.get(PeerAgent.name)
    assert isinstance(agent, PeerAgent)
    return agent.service.runs if isinstance(agent.service, ShardHolder) else ()


def kept_of(dask_worker: Worker) -> tuple[int, int]:
    """Return the bytes that a worker keeps of parameters, in memory and in files."""
    agent: Any = dask_worker.plugins.get(PeerAgent.name)
    return agent.service.kept.memory_bytes, agent.service.kept.disk_bytes


def kept_of_after_collection(dask_worker: Worker) -> tuple[int, int]:
    gc.collect()
    return kept_of(dask_worker)


def sent_of(dask_worker: Worker) -> tuple[int, int]:
    """Return the bytes that a worker has sent to others, and those of arrays among them."""
    agent = dask_worker.plugins.get(PeerAgent.name)
    return (agent.sent_bytes, agent.array_bytes) if isinstance(agent, PeerAgent) else (0, 0)


class Beginnings(WorkerPlugin):
    """Notes which tasks a worker has begun, in their order."""

    name = "beginnings"

    def setup(self, worker: Worker) -> None:
        self.keys: list[Any] = []

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if finish == "executing":
            self.keys.append(key)


def begun_of(dask_worker: Worker) -> list[Any]:
    beginnings: Any = dask_worker.plugins[Beginnings.name]
    return list(beginnings.keys)


def assert_nothing_is_left(client: Client) -> None:
    eventually(lambda: not any(client.run(runs_of).values()))


def after_passes(run: TrainingRun, passes: int) -> None:
    while len(run.losses) < passes:
        assert not run.wait(0.01), run.runner.error


@pytest.mark.slow
def test_shards_give_the_bits_of_client_mode(
    client: Client, warehouse: Path, whole: tuple[tuple[float, ...], Any]
) -> None:
    with connect(warehouse, cluster=client) as db:
        run = db.train(DIGITS, parameters="sharded", max_steps=STEPS)
        model = run.result(timeout=LONG_SECONDS)
        assert run.explain() == "parameters: in shards on 2 workers\nwhy: the caller asks for it"
        assert run.losses == whole[0]
        assert np.array_equal(model.coef_, whole[1])
        subtasks = run.subtask_seconds
        assert subtasks is not None
        assert min(subtasks.comp, subtasks.pull, subtasks.push) > 0
        assert subtasks.alone == pytest.approx(subtasks.comp + subtasks.comm + subtasks.rest)
        assert_nothing_is_left(client)


def test_workers_compute_for_jobs_in_one_order(client: Client, warehouse: Path) -> None:
    """Each worker has one of the last two tasks of each step, and all steps come in one order."""
    client.register_plugin(Beginnings())
    with connect(warehouse, cluster=client) as db:
        runs = [db.train(WIDE, parameters="sharded", max_steps=TURNS) for _ in range(3)]
        assert all(run.wait(LONG_SECONDS) for run in runs)
    begun = [[key for key in keys if isinstance(key, tuple)] for keys in client.run(begun_of).values()]
    counts = Counter(key[:2] for keys in begun for key in keys)
    orders = [
        [key[:2] for key in keys if counts[key[:2]] in (2, 3) and counts[key[:2]] - key[2] <= 2]
        for keys in begun
    ]
    assert orders[0] == orders[1]
    assert len(orders[0]) >= TURNS * len(runs)


def test_a_step_that_waits_for_its_parameters_leaves_its_core_to_queries(
    client: Client, warehouse: Path, whole: tuple[tuple[float, ...], Any]
) -> None:
    """While every PULL is held back, both cores are for a query. The wait is charged to nobody."""
    with connect(warehouse, cluster=client) as db:
        db.train(DIABETES, parameters="sharded", max_steps=1).result(timeout=LONG_SECONDS)  # agents are there
        client.run(hold_pulls)
        try:
            run = db.train(DIGITS, parameters="sharded", max_steps=STEPS)
            eventually(lambda: all(client.run(waits_for_pull).values()))
            began = time.monotonic()
            query = db.online_sql("SELECT sum(x10 * y) AS total FROM digits WHERE x20 > 3")
            assert query.wait(LONG_SECONDS / 4)  # else the cores wait
            assert len(run.losses) == HELD_VERSION
            assert all(client.run(waits_for_pull).values())
            waited_seconds = time.monotonic() - began
        finally:
            client.run(let_pulls_go)
        model = run.result(timeout=LONG_SECONDS)
        assert max(step.core_seconds for step in run.steps[HELD_VERSION:]) < waited_seconds
        assert run.losses == whole[0]
        assert np.array_equal(model.coef_, whole[1])


def hold_pulls(dask_worker: Worker) -> None:
    """Let a worker ask nobody for one version of the parameters until `let_pulls_go`."""
    import asyncio

    agent: Any = dask_worker.plugins[PeerAgent.name]
    ask = agent.ask
    agent.may_pull, agent.held_pulls = asyncio.Event(), 0

    async def ask_later(address: str, letter: Any, *rest: Any) -> Any:
        if letter.subject == "values" and letter.said[2] == HELD_VERSION:
            agent.held_pulls += 1
            await agent.may_pull.wait()
        return await ask(address, letter, *rest)

    agent.ask = ask_later


def waits_for_pull(dask_worker: Worker) -> bool:
    """Return whether a task of this worker has begun, and cannot go on without parameters."""
    agent: Any = dask_worker.plugins[PeerAgent.name]
    return agent.held_pulls > 0 and bool(dask_worker.state.all_running_tasks)


def let_pulls_go(dask_worker: Worker) -> None:
    agent: Any = dask_worker.plugins[PeerAgent.name]
    dask_worker.loop.add_callback(agent.may_pull.set)
    del agent.ask


@pytest.mark.slow
def test_a_run_that_converges_gives_the_model_of_its_last_pass(client: Client, warehouse: Path) -> None:
    with connect(warehouse, threads=2) as db:
        oracle = db.train(DIABETES)
        weights = oracle.result().coef_
    with connect(warehouse, cluster=client) as db:
        run = db.train(DIABETES, parameters="sharded")
        model = run.result(timeout=LONG_SECONDS)
        assert run.state == "converged"
        assert run.losses == oracle.losses
        assert np.array_equal(model.coef_, weights)
        assert_nothing_is_left(client)


def test_what_goes_over_the_wire_is_what_must(
    client: Client, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parameters go to each worker once a step, and the sums of each task go back. Half of both stays."""
    monkeypatch.setattr(relaqs.training.sharded.shard_job, "KEEP_SECONDS", 1e9)
    with connect(warehouse, cluster=client) as db:
        db.train(DIABETES, parameters="sharded", max_steps=1).result(timeout=LONG_SECONDS)  # agents are there
        before = client.run(sent_of)
        run = db.train(WIDE, parameters="sharded", max_steps=STEPS)
        run.result(timeout=LONG_SECONDS)
        after = client.run(sent_of)
    wire, arrays = (sum(after[w][i] - before[w][i] for w in after) for i in (0, 1))
    model = 8 * (FEATURES + 1) * CLASSES
    assert arrays <= wire <= 1.02 * arrays
    fetched = 3 * model  # two arrays of state to keep after the first pass, and again at the end
    assert STEPS * model <= arrays <= 2 * STEPS * model + fetched


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing(
    client: Client, warehouse: Path, whole: tuple[tuple[float, ...], Any]
) -> None:
    with connect(warehouse, cluster=client) as db:
        run = db.train(DIGITS, parameters="sharded", max_steps=STEPS)
        after_passes(run, 5)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        model = run.result(timeout=2 * LONG_SECONDS)
        assert len(run.losses) == STEPS
        assert run.losses == whole[0]
        assert np.array_equal(model.coef_, whole[1])
        client.wait_for_workers(2, timeout=LONG_SECONDS)
        assert_nothing_is_left(client)


@pytest.mark.slow
def test_runs_of_other_algorithms_lose_nothing_either(client: Client, warehouse: Path) -> None:
    passes = 12
    with connect(warehouse, threads=2) as db:
        oracles = [db.train(job, max_steps=passes) for job in OTHERS]
        expected = [model_of(oracle.result()) for oracle in oracles]
    with connect(warehouse, cluster=client) as db:
        runs = [db.train(job, parameters="sharded", max_steps=passes) for job in OTHERS]
        for run in runs:
            after_passes(run, 3)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        models = [model_of(run.result(timeout=2 * LONG_SECONDS)) for run in runs]
        assert [run.losses for run in runs] == [oracle.losses for oracle in oracles]
        assert all(np.array_equal(one, other) for one, other in zip(models, expected, strict=True))
        client.wait_for_workers(2, timeout=LONG_SECONDS)
        assert_nothing_is_left(client)


def model_of(estimator: Any) -> Any:
    return getattr(estimator, "components_", getattr(estimator, "cluster_centers_", None))


@pytest.mark.slow
def test_a_worker_that_comes_gets_a_shard(
    cluster: LocalCluster,
    client: Client,
    warehouse: Path,
    whole: tuple[tuple[float, ...], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relaqs.training.sharded.shard_job, "MOVE_SECONDS", 0.0)
    monkeypatch.setattr(relaqs.training.sharded.shard_job, "MOVE_SHARE", 1.0)
    with connect(warehouse, cluster=client) as db:
        run = db.train(DIGITS, parameters="sharded", max_steps=STEPS)
        after_passes(run, 3)
        run.pause()
        assert run.explain().startswith("parameters: in shards on 2 workers")
        cluster.scale(3)
        try:
            client.wait_for_workers(3, timeout=LONG_SECONDS)
            run.resume()
            model = run.result(timeout=2 * LONG_SECONDS)
            assert run.explain().startswith("parameters: in shards on 3 workers")
            assert run.losses == whole[0]
            assert np.array_equal(model.coef_, whole[1])
            assert_nothing_is_left(client)
        finally:
            cluster.scale(2)
            eventually(lambda: len(client.ncores()) == 2)


@pytest.mark.slow
def test_with_one_worker_left_it_goes_on_in_client_mode(
    tmp_path: Path, warehouse: Path, whole: tuple[tuple[float, ...], Any]
) -> None:
    with (
        running_cluster(tmp_path / "scheduler.log", nannies=False) as address,
        Client(address, set_as_default=False) as client,
        connect(warehouse, cluster=client) as db,
    ):
        run = db.train(DIGITS, parameters="sharded", max_steps=STEPS)
        after_passes(run, 5)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        model = run.result(timeout=2 * LONG_SECONDS)
        assert run.explain() == (
            "parameters: whole, in the client\nwhy: shards need two workers, and there are 1"
        )
        assert run.losses == whole[0]
        assert np.array_equal(model.coef_, whole[1])


@pytest.mark.slow
def test_a_run_that_workers_forgot_goes_on_from_what_is_kept(
    client: Client,
    warehouse: Path,
    whole: tuple[tuple[float, ...], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relaqs.training.sharded.shard_job, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr(relaqs.training.sharded.shard_job, "IDLE_PASSES", 0.0)
    with connect(warehouse, cluster=client) as db:
        run = db.train(DIGITS, parameters="sharded", max_steps=STEPS)
        after_passes(run, 3)
        run.pause()
        assert run.state == "paused"
        assert_nothing_is_left(client)
        run.resume()
        model = run.result(timeout=2 * LONG_SECONDS)
        assert run.losses == whole[0]
        assert np.array_equal(model.coef_, whole[1])


@pytest.mark.slow
def test_parameters_beyond_the_budget_lie_in_files(
    client: Client, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(warehouse, threads=2) as db:
        oracle = db.train(WIDE, max_steps=6)
        expected = oracle.result().coef_
    monkeypatch.setattr(relaqs.training.launch, "KEPT_SHARE", 0.0)
    with connect(warehouse, cluster=client) as db:
        run = db.train(WIDE, parameters="sharded", max_steps=6)
        after_passes(run, 3)
        assert all(on_disk > 0 for _, on_disk in client.run(kept_of).values())
        model = run.result(timeout=2 * LONG_SECONDS)
        assert run.losses == oracle.losses
        assert np.array_equal(model.coef_, expected)
        assert_nothing_is_left(client)
        eventually(lambda: set(client.run(kept_of_after_collection).values()) == {(0, 0)})


@pytest.mark.slow
def test_two_jobs_and_late_messages_change_no_bit(
    client: Client, warehouse: Path, whole: tuple[tuple[float, ...], Any]
) -> None:
    client.run(delay_letters)
    try:
        with connect(warehouse, cluster=client) as db:
            runs = [db.train(DIGITS, parameters="sharded", max_steps=STEPS) for _ in range(2)]
            for run in runs:
                assert np.array_equal(run.result(timeout=2 * LONG_SECONDS).coef_, whole[1])
                assert run.losses == whole[0]
    finally:
        client.run(deliver_at_once)


def delay_letters(dask_worker: Worker) -> None:
    """Let each letter that a worker sends come late, by a seed."""
    import asyncio
    import random

    agent: Any = dask_worker.plugins[PeerAgent.name]
    draws = random.Random(dask_worker.address)
    ask = agent.ask

    async def ask_late(*letter: Any) -> Any:
        await asyncio.sleep(draws.uniform(0, 0.01))
        return await ask(*letter)

    agent.ask = ask_late


def deliver_at_once(dask_worker: Worker) -> None:
    agent: Any = dask_worker.plugins[PeerAgent.name]
    del agent.ask


@pytest.mark.slow
def test_auto_opens_shards_once_they_pay(
    client: Client,
    warehouse: Path,
    whole: tuple[tuple[float, ...], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connect(warehouse, cluster=client) as db:
        run = db.train(DIGITS, max_steps=3)
        run.result(timeout=LONG_SECONDS)
        assert run.explain() == (
            "parameters: whole, in the client\nwhy: all workers are on one host, where sending is computing"
        )
        monkeypatch.setattr(
            relaqs.training.sharded.shard_job, "worth_of", lambda *facts: ShardWorth(True, "they pay")
        )
        run = db.train(DIGITS, max_steps=STEPS)
        model = run.result(timeout=LONG_SECONDS)
        assert run.explain() == "parameters: in shards on 2 workers\nwhy: they pay"
        assert run.losses == whole[0]
        assert np.array_equal(model.coef_, whole[1])


@pytest.mark.slow
def test_accuracy_is_refused_before_a_worker_starts(client: Client, warehouse: Path) -> None:
    with connect(warehouse, cluster=client) as db:
        with pytest.raises(ArgumentError, match="accuracy is measured with whole parameters only"):
            db.train(DIGITS, parameters="sharded", accuracy=0.9)
        assert db.status().jobs == ()


TRAIN_FOR_EVER = """
import sys
import relaqs
import relaqs.training.sharded.shard_job
from relaqs.training import SoftmaxRegression

relaqs.training.sharded.shard_job.IDLE_SECONDS = 1.0
relaqs.training.sharded.shard_job.IDLE_PASSES = 0.0
db = relaqs.connect(sys.argv[1], cluster=sys.argv[2])
job = SoftmaxRegression("SELECT * FROM digits", "y", tolerance=1e-300)
for step in db.train(job, parameters="sharded"):
    print("a pass", flush=True)
"""


@pytest.mark.slow
def test_a_client_that_dies_leaves_nothing(cluster: LocalCluster, client: Client, warehouse: Path) -> None:
    command = [sys.executable, "-c", TRAIN_FOR_EVER, str(warehouse), cluster.scheduler_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"a pass\n"
        assert any(client.run(runs_of).values())
        trainer.kill()
    assert_nothing_is_left(client)
    with connect(warehouse, cluster=client) as db:
        eventually(lambda: db.status().jobs == ())
