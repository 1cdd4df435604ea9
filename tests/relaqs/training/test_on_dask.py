"""The same training on a Dask cluster of processes: the same losses, also when a worker dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from dask.task_spec import Task as GraphTask
from dask.typing import Key
from distributed import Client, LocalCluster, Worker

import relaqs.executors.dask.client
import relaqs.training.launch
from relaqs import UnsupportedError, connect
from relaqs.executors.dask.task import Parcel, graph_of
from relaqs.training import (
    BoostedRegressor,
    KMeans,
    LinearRegression,
    Perceptron,
    PolynomialSVM,
    TrainingJob,
)

JOBS: list[TrainingJob] = [
    KMeans("SELECT * EXCLUDE (y) FROM digits", clusters=10, tolerance=0),
    LinearRegression("SELECT * FROM diabetes", "y"),
    BoostedRegressor("SELECT * FROM diabetes", "y", trees=3, depth=3),
    PolynomialSVM("SELECT x0, x6, y FROM wine_text", "y", landmarks=10, tolerance=0.01),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def embedded(training_warehouse: Path) -> list[tuple[float, ...]]:
    """The losses of each job on threads of this process."""
    found = []
    with connect(training_warehouse, threads=2) as db:
        for job in JOBS:
            run = db.train(job)
            run.result()
            found.append(run.losses)
    return found


@pytest.mark.slow
def test_losses_are_those_of_an_embedded_run(
    cluster: LocalCluster, training_warehouse: Path, embedded: list[tuple[float, ...]]
) -> None:
    with connect(training_warehouse, cluster=cluster.scheduler_address) as db:
        runs = [db.train(job) for job in JOBS]  # all at once
        models = [run.result(timeout=60) for run in runs]
        assert [run.state for run in runs] == ["converged"] * len(JOBS)
        assert [run.losses for run in runs] == embedded
        assert models[0].cluster_centers_.shape == (10, 64)


def test_a_worker_that_dies_changes_nothing(
    cluster: LocalCluster, training_warehouse: Path, embedded: list[tuple[float, ...]]
) -> None:
    with Client(cluster, set_as_default=False) as client, connect(training_warehouse, cluster=client) as db:
        run = db.train(JOBS[2])
        while not run.losses:
            assert not run.wait(0.01), run.runner.error
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        run.result(timeout=60)
        assert run.state == "converged"
        assert run.losses == embedded[2]


@pytest.mark.slow
def test_a_large_model_is_sent_once_a_pass_and_survives_a_worker(
    cluster: LocalCluster, training_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Perceptron("SELECT * FROM digits", "y", hidden=(1000,), tolerance=0.01)
    with connect(training_warehouse, threads=2) as db:
        embedded = db.train(job)
        embedded.result()
    sent: list[list[Parcel]] = []

    def noted(name: str, parcels: Sequence[Parcel], versions: str) -> dict[Key, GraphTask]:
        sent.append(list(parcels))
        return graph_of(name, parcels, versions)

    monkeypatch.setattr(relaqs.executors.dask.client, "graph_of", noted)
    with Client(cluster, set_as_default=False) as client, connect(training_warehouse, cluster=client) as db:
        run = db.train(job)
        while len(run.losses) < 2:
            assert not run.wait(0.01), run.runner.error
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        run.result(timeout=120)
        assert run.losses == embedded.losses
    passes = [parcels for parcels in sent if parcels[0].key.step > 0]
    assert len(passes) >= len(embedded.losses)
    several = [parcels for parcels in passes if len(parcels) > 1]
    assert several  # on a fast machine later passes are one task, which carries the model itself
    for parcels in passes:
        models = {parcel.common or parcel.pickled for parcel in parcels}
        assert [len(model) > 500_000 for model in models] == [True]
    for parcels in several:
        assert len({id(parcel.common) for parcel in parcels}) == 1
        assert parcels[0].common is not None
        assert max(len(parcel.pickled) for parcel in parcels) < 50_000


def test_a_loop_of_this_process_is_not_paced_on_a_cluster(
    cluster: LocalCluster, training_warehouse: Path
) -> None:
    with (
        connect(training_warehouse, cluster=cluster.scheduler_address) as db,
        pytest.raises(UnsupportedError, match="cannot take turns with the Dask cluster"),
        db.pace(),
    ):
        pass


def spilled(dask_worker: Worker) -> tuple[int, bool]:
    """How much a worker has spilled, and whether that goes to its own folder."""
    from relaqs.executors.files import local_folder
    from relaqs.training.row_cache import SPILL

    return SPILL.byte_count, local_folder() == Path(dask_worker.local_directory)


@pytest.mark.slow
def test_workers_spill_what_they_cannot_keep_and_die_with_it(
    cluster: LocalCluster, training_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = BoostedRegressor("SELECT x0, x2, x4, y FROM diabetes", "y", trees=3, depth=3)
    with connect(training_warehouse, threads=1) as db:
        in_memory = db.train(job)
        in_memory.result()
    monkeypatch.setattr(relaqs.training.launch, "KEPT_SHARE", 0.0)
    with Client(cluster, set_as_default=False) as client, connect(training_warehouse, cluster=client) as db:
        run = db.train(job)
        while len(run.losses) < 2:
            assert not run.wait(0.01), run.runner.error
        found = client.run(spilled)
        assert sum(byte_count for byte_count, _ in found.values()) > 0
        assert all(is_own for _, is_own in found.values())
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        run.result(timeout=60)
        assert run.losses == in_memory.losses
