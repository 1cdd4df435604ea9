"""Mini-batches on a Dask cluster of processes: the same bits as on threads, also when a worker dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from distributed import Client, LocalCluster
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import relaqs.training.elastic.gang_carrier as gang_carrier
import relaqs.training.elastic.step_job as step_job
from relaqs import Session, connect
from relaqs.training import MiniBatchLinear, TrainingRun, replay

JOB = MiniBatchLinear(
    "SELECT COLUMNS('x.*') / 16 AS 'x\\0', y FROM digits", "y", first_rate=0.1, start_rows=16, passes_most=3
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def embedded(training_warehouse: Path) -> list[list[float]]:
    with connect(training_warehouse, threads=1) as db:
        return db.train(JOB, batch="elastic").result().coef_.tolist()


def test_the_same_bits_as_on_threads_and_after_a_death(
    cluster: LocalCluster,
    training_warehouse: Path,
    embedded: list[list[float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gang_carrier, "LEAST_PASS_SECONDS", 1e6)  # no gang
    with Client(cluster, set_as_default=False) as client, connect(training_warehouse, cluster=client) as db:
        whole = db.train(JOB, batch="elastic")
        assert whole.result(timeout=60).coef_.tolist() == embedded
        monkeypatch.setattr(step_job, "SPLIT_SECONDS", 0.0)  # now each step is shared out
        monkeypatch.setattr(step_job, "LEAST_SECONDS", 1e-6)
        shared = db.train(JOB, batch="elastic")
        while not shared.losses:
            assert not shared.wait(0.01), shared.runner.error
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        assert shared.result(timeout=60).coef_.tolist() == embedded
        assert max(shared.journal.ranks) > 1
    with connect(training_warehouse, threads=1) as db:
        assert replay(shared.journal, JOB, db).coef_.tolist() == embedded


class OwnEstimator(SGDClassifier):
    """A class that workers are sent by value, as one of a notebook."""


@pytest.mark.slow
def test_estimators_of_users_are_fitted_alike_after_a_death(
    cluster: LocalCluster, training_warehouse: Path
) -> None:
    """Fitted by tasks, which are made again where a worker is gone: the same bits as on threads."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    model = make_pipeline(StandardScaler(), OwnEstimator(loss="log_loss", max_iter=8, tol=None))

    def begun(db: Session) -> TrainingRun:
        return db.fit(model, "SELECT * FROM digits", target="y", batch=32)

    with connect(training_warehouse, threads=1) as db:
        embedded = begun(db).result()[-1].coef_.tolist()
    with Client(cluster, set_as_default=False) as client, connect(training_warehouse, cluster=client) as db:
        run = begun(db)
        while not run.losses:
            assert not run.wait(0.01), run.runner.error
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        assert run.result(timeout=120)[-1].coef_.tolist() == embedded
        assert run.stop_reason == "all passes made"
