"""The same training on a Dask cluster of processes: the same losses, also when a worker dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from relaqs import UnsupportedError, connect
from relaqs.training import BoostedRegressor, KMeans, LinearRegression, PolynomialSVM, TrainingJob

JOBS: list[TrainingJob] = [
    KMeans("SELECT * EXCLUDE (y) FROM digits", clusters=10, tolerance=0),
    LinearRegression("SELECT * FROM diabetes", "y"),
    BoostedRegressor("SELECT * FROM diabetes", "y", trees=3, depth=3),
    PolynomialSVM("SELECT x0, x6, y FROM wine_text", "y", landmarks=10, tolerance=0.01),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
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


def test_a_loop_of_this_process_is_not_paced_on_a_cluster(
    cluster: LocalCluster, training_warehouse: Path
) -> None:
    with (
        connect(training_warehouse, cluster=cluster.scheduler_address) as db,
        pytest.raises(UnsupportedError, match="cannot take turns with the Dask cluster"),
        db.pace(),
    ):
        pass
