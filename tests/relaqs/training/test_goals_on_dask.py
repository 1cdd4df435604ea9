"""Stops on a Dask cluster of processes: the same losses, and the policy's stops reach a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster

from relaqs import connect
from relaqs.policies import Fair, LoadControl
from relaqs.progress import StopReason
from relaqs.training import BoostedClassifier, LogisticRegression, MiniBatchPerceptron, Perceptron

DIGITS = "SELECT * FROM digits"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "job",
    [LogisticRegression(DIGITS, "y"), BoostedClassifier(DIGITS, "y", trees=3, depth=3)],
    ids=lambda job: type(job).__name__,
)
def test_it_stops_at_the_required_accuracy_with_the_same_bits(
    cluster: LocalCluster, training_warehouse: Path, job: LogisticRegression | BoostedClassifier
) -> None:
    with connect(training_warehouse, threads=2) as db:
        whole = db.train(job, held_out=0.3, max_steps=8)
        whole.result()
    accuracies = [step.accuracy for step in whole.steps]
    wanted = sorted(accuracies)[4]
    first = next(i for i, each in enumerate(accuracies) if each >= wanted)
    with connect(training_warehouse, cluster=cluster.scheduler_address) as db:
        run = db.train(job, held_out=0.3, max_steps=8, accuracy=wanted, stop="required")
        run.result(timeout=60)
        assert run.losses == whole.losses[: first + 1]
        assert [step.accuracy for step in run.steps] == accuracies[: first + 1]
        assert run.stop_reason is StopReason.REQUIRED_ACCURACY


def test_mini_batches_stop_there_too(cluster: LocalCluster, training_warehouse: Path) -> None:
    job = MiniBatchPerceptron(DIGITS, "y", hidden=(20,), first_rate=0.01, held_out=0.3)
    with connect(training_warehouse, cluster=cluster.scheduler_address) as db:
        run = db.train(job, accuracy=0.8, stop="required", max_steps=60)
        run.result(timeout=60)
        assert run.stop_reason is StopReason.REQUIRED_ACCURACY
        assert [step.accuracy >= 0.8 for step in run.steps] == [False] * (len(run.steps) - 1) + [True]


def test_an_overloaded_cluster_ends_what_is_good_enough(
    cluster: LocalCluster, training_warehouse: Path
) -> None:
    job = Perceptron(DIGITS, "y", hidden=(20,), tolerance=1e-12)
    policy = LoadControl(Fair())
    with connect(training_warehouse, cluster=cluster.scheduler_address, policy=policy) as db:
        allowed = [db.train(job, accuracy=0.5, may_stop=("required",)) for _ in range(2)]
        other = db.train(job, accuracy=0.5, max_steps=40)
        for run in (*allowed, other):
            run.result(timeout=120)
        assert [run.stop_reason for run in allowed] == [StopReason.OVERLOAD] * 2
        assert all(run.accuracy >= 0.5 for run in allowed)
        assert len(other.steps) == 40
