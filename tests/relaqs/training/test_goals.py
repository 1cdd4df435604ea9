"""Accuracy, deadline, urgency and stops of a run: what they do, and what is refused before it starts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relaqs import ArgumentError, DataError, Session, connect
from relaqs.policies import Fair, LoadControl
from relaqs.progress import StopReason
from relaqs.sharing.view import Goals, Stop
from relaqs.training import (
    BoostedClassifier,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    MiniBatchKMeans,
    MiniBatchLinear,
    MiniBatchPerceptron,
    Perceptron,
    PolynomialSVM,
    TrainingJob,
)
from relaqs.training.run import AccuracyWatch
from tests.relaqs.training.conftest import PARTITIONS, Data

DIGITS = "SELECT * FROM digits"
CLASSIFIERS: list[TrainingJob] = [
    LogisticRegression(DIGITS, "y"),
    LinearSVM(DIGITS, "y"),
    PolynomialSVM(DIGITS, "y", landmarks=30),
    Perceptron(DIGITS, "y", hidden=(20,)),
    BoostedClassifier(DIGITS, "y", trees=3, depth=3),
]
TEXT = LogisticRegression("SELECT x0, x6, y FROM wine_text", "y")


@pytest.mark.parametrize("job", [*CLASSIFIERS, TEXT], ids=lambda job: f"{type(job).__name__}-{job.sql[-4:]}")
def test_the_accuracy_is_that_of_the_newest_model_on_rows_it_never_saw(db: Session, job: TrainingJob) -> None:
    run = db.train(job, held_out=2 / PARTITIONS, max_steps=6)
    model = run.result()
    reads = run._progress.job._data.reads  # type: ignore[attr-defined]
    held = [read.rows("test") for read in reads[-2:]]
    features = np.concatenate([rows.features for rows in held])
    target = np.concatenate([rows.target for rows in held])
    if isinstance(job, BoostedClassifier):
        import xgboost

        names = [f"x{i}" for i in range(features.shape[1])]
        told = model.predict(xgboost.DMatrix(features, feature_names=names)).argmax(axis=1)
    else:
        told = model.predict(pd.DataFrame(features, columns=model.feature_names_in_))
    assert run.accuracy == pytest.approx((told == target).mean(), abs=1e-12)
    assert run.accuracy == run.steps[-1].accuracy
    assert all(0 < step.accuracy <= 1 for step in run.steps)


@pytest.mark.parametrize("job", CLASSIFIERS[:2] + CLASSIFIERS[4:], ids=lambda job: type(job).__name__)
def test_it_stops_at_the_required_accuracy_and_not_a_pass_later(db: Session, job: TrainingJob) -> None:
    whole = db.train(job, held_out=0.3, max_steps=12)
    whole.result()
    accuracies = [step.accuracy for step in whole.steps]
    wanted = sorted(accuracies)[len(accuracies) // 2]
    first = next(i for i, each in enumerate(accuracies) if each >= wanted)
    run = db.train(job, held_out=0.3, max_steps=12, accuracy=wanted, stop="required")
    run.result()
    assert len(run.steps) == first + 1
    assert run.losses == whole.losses[: first + 1]  # to the last bit
    assert [step.accuracy for step in run.steps] == accuracies[: first + 1]
    assert run.stop_reason is StopReason.REQUIRED_ACCURACY
    assert run.accuracy >= wanted


def test_without_goals_all_partitions_are_trained_on(db: Session, data: dict[str, Data]) -> None:
    run = db.train(LogisticRegression(DIGITS, "y"), max_steps=2, deadline=60, urgency=3)
    run.result()
    assert math.isnan(run.accuracy)
    assert run.deadline_seconds == 60.0
    assert run._progress.job._profile.row_count == len(data["digits"].target)  # type: ignore[attr-defined]


def test_mini_batches_stop_at_the_required_accuracy(db: Session) -> None:
    job = MiniBatchPerceptron(DIGITS, "y", hidden=(20,), first_rate=0.01, held_out=0.3)
    run = db.train(job, accuracy=0.8, stop="required", max_steps=60)
    run.result()
    assert run.stop_reason is StopReason.REQUIRED_ACCURACY
    assert [step.accuracy >= 0.8 for step in run.steps] == [False] * (len(run.steps) - 1) + [True]


def test_it_stops_at_its_best(db: Session) -> None:
    job = LogisticRegression("SELECT x20, x23, y FROM cancer", "y", tolerance=1e-12)
    run = db.train(job, stop="best", max_steps=200)
    run.result(timeout=60)
    assert run.stop_reason is StopReason.BEST_ACCURACY
    assert 8 <= len(run.steps) < 200


def test_what_it_cannot_reach_is_given_up(db: Session) -> None:
    job = LogisticRegression("SELECT x20, x23, y FROM cancer", "y", tolerance=1e-12)
    run = db.train(job, accuracy=1.0, stop="best", max_steps=200)
    run.result(timeout=60)
    assert run.stop_reason is StopReason.OUT_OF_REACH
    assert run.accuracy < 1.0


def test_an_overloaded_cluster_ends_what_is_good_enough(training_warehouse: Path) -> None:
    job = Perceptron(DIGITS, "y", hidden=(20,), tolerance=1e-12)
    with connect(training_warehouse, threads=2, policy=LoadControl(Fair())) as db:
        goals: dict[str, Any] = {"accuracy": 0.5, "held_out": 0.3}
        allowed = [db.train(job, may_stop=("required",), **goals) for _ in range(2)]
        others = [db.train(job, **goals, max_steps=60) for _ in range(2)]
        for run in (*allowed, *others):
            run.result(timeout=120)
        assert [run.stop_reason for run in allowed] == [StopReason.OVERLOAD] * 2
        assert all(run.accuracy >= 0.5 for run in allowed)
        assert [len(run.steps) for run in others] == [60, 60]


def test_a_cluster_with_cores_to_spare_ends_nothing(training_warehouse: Path) -> None:
    job = Perceptron(DIGITS, "y", hidden=(20,), tolerance=1e-12)
    with connect(training_warehouse, threads=2, policy="load_control:fair") as db:
        run = db.train(job, accuracy=0.5, may_stop=("best", "required"), max_steps=30)
        run.result(timeout=60)
        assert run.stop_reason is StopReason.PASSES
        assert len(run.steps) == 30
        assert run.accuracy > 0.5


@pytest.mark.parametrize(
    ("goals", "says"),
    [
        ({"deadline": -5}, "deadline is -5; it must be a number of seconds above 0"),
        ({"accuracy": 1.5}, "accuracy is 1.5; it must be a share of rows above 0 and up to 1"),
        ({"accuracy": "95%"}, "accuracy is '95%'; it must be a share"),
        ({"urgency": 0}, "urgency is 0; it must be a number from 1, no hurry, to 10"),
        ({"urgency": 11}, "urgency is 11"),
        ({"stop": "soon"}, "stop is 'soon'; it must be 'iterations' or 'best' or 'required'"),
        ({"stop": "required"}, "stop is 'required', but no accuracy is required; give accuracy=0.95"),
        ({"may_stop": ("required",)}, r"may_stop is \('required',\), but no accuracy is required"),
        ({"may_stop": "best"}, "may_stop is 'best'; it must be some of"),
        ({"may_stop": ("iterations",)}, r"may_stop is \('iterations',\); it must be some of"),
        ({"held_out": 1.0}, "held_out is 1.0; it must be a share of the partitions"),
        ({"held_out": 0.99}, "held_out is 0.99, for which 7 of the 7 partitions would be held out"),
    ],
)
def test_what_cannot_be_meant_is_refused(db: Session, goals: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        db.train(LogisticRegression(DIGITS, "y"), **goals)
    assert db.status().jobs == ()


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (LinearRegression("SELECT * FROM diabetes", "y"), "LinearRegression tells no classes and has no"),
        (KMeans("SELECT * FROM wine", 3), "accuracy is 0.9, but KMeans tells no classes .* use target_loss"),
        (MiniBatchKMeans("SELECT * FROM wine", 3, held_out=0.3), "MiniBatchKMeans tells no classes"),
        (MiniBatchLinear(DIGITS, "y", loss="squared_error", held_out=0.3), "MiniBatchLinear tells no cl"),
        (MiniBatchLinear(DIGITS, "y"), r"holds no rows out .* give MiniBatchLinear\(…, held_out=0.05\)"),
    ],
)
def test_algorithms_without_an_accuracy_refuse_one(db: Session, job: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        db.train(job, accuracy=0.9)


def test_held_out_partitions_without_rows_are_an_error(training_warehouse: Path) -> None:
    with connect(training_warehouse, threads=2) as db:
        probe = db.train(LogisticRegression("SELECT x0, y FROM cancer", "y"), held_out=0.1, max_steps=1)
        probe.result()
        reads = probe._progress.job._data.reads  # type: ignore[attr-defined]
        held_out = reads[-1].rows("test").features[:, 0].tolist()
        sql = f"SELECT x0, y FROM cancer WHERE x0 NOT IN ({', '.join(map(repr, held_out))})"
        run = db.train(LogisticRegression(sql, "y"), held_out=0.1)
        with pytest.raises(DataError, match="the 1 partitions held out have no rows"):
            run.result()


def test_a_stop_by_the_plan_has_no_reason_where_the_user_allowed_none() -> None:
    for may_stop, is_allowed in ((frozenset[Stop](), False), (frozenset({Stop.REQUIRED}), True)):
        watch = AccuracyWatch(Goals(accuracy=0.9, may_stop=may_stop), math.inf)
        watch.take(0.95)
        assert watch.may_be_ended is is_allowed
        assert watch.reason() is None
