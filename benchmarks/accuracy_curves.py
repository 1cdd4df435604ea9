"""Accuracies of our own runs after each pass: six algorithms on four tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, make_classification

from relaqs import Session, connect, shuffle
from relaqs.training import (
    BoostedClassifier,
    LinearSVM,
    LogisticRegression,
    MiniBatchLinear,
    MiniBatchPerceptron,
    MiniBatchTraining,
    Perceptron,
    TrainingJob,
)

PASSES = 60
HELD_OUT = 0.25
PARTITIONS = 16
ROWS = 4000


@dataclass(frozen=True, slots=True)
class AccuracyCurve:
    """One run. accuracies: after each pass, shape (passes,)."""

    name: str
    accuracies: NDArray[np.float64]


def accuracy_curves(seeds: range) -> Iterator[AccuracyCurve]:
    """Yield the runs of every algorithm on every table, seed by seed."""
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            names = _lay_out(Path(folder), seed)
            with connect(folder) as db:
                for table in names:
                    for job in _jobs(table, seed):
                        yield _curve(db, f"{type(job).__name__} on {table}", job)


def _lay_out(folder: Path, seed: int) -> list[str]:
    """Write tables of classes that are easier or harder to tell, and return their names."""
    random = np.random.default_rng(seed)
    tables = {"digits": load_digits(return_X_y=True), "cancer": load_breast_cancer(return_X_y=True)}
    for classes in (2, 5):
        tables[f"made_up_{classes}"] = make_classification(
            ROWS,
            n_features=20,
            n_informative=10,
            n_classes=classes,
            n_clusters_per_class=2,
            class_sep=float(random.uniform(0.5, 1.5)),
            flip_y=float(random.uniform(0.0, 0.2)),
            random_state=seed,
        )
    for name, (features, target) in tables.items():
        scaled = (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-9)
        columns = {f"x{i}": column for i, column in enumerate(scaled.T)}
        shuffle(pa.table({**columns, "y": target}), folder / name, partitions=PARTITIONS, seed=seed)
    return list(tables)


def _jobs(table: str, seed: int) -> list[TrainingJob | MiniBatchTraining]:
    sql = f"SELECT * FROM {table}"
    few: dict[str, Any] = {
        "held_out": HELD_OUT,
        "tolerance": 0.0,
        "patience_passes": PASSES,
        "seed": seed,
        "start_rows": 256,
    }
    return [
        LogisticRegression(sql, "y", tolerance=1e-12),
        LinearSVM(sql, "y", tolerance=1e-12),
        Perceptron(sql, "y", hidden=(30,), tolerance=1e-12, seed=seed),
        BoostedClassifier(sql, "y", trees=PASSES // 3, depth=3),
        MiniBatchLinear(sql, "y", first_rate=0.003, **few),
        MiniBatchPerceptron(sql, "y", hidden=(30,), first_rate=3e-4, **few),
    ]


def _curve(db: Session, name: str, job: TrainingJob | MiniBatchTraining) -> AccuracyCurve:
    held_out = None if isinstance(job, MiniBatchTraining) else HELD_OUT
    run = db.train(job, max_steps=PASSES, held_out=held_out)
    run.result()
    return AccuracyCurve(name, np.array([step.accuracy for step in run.steps]))
