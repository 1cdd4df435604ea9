"""The nine training algorithms of SLAQ on three kinds of data: TPC-H lineitem, flights, bundled sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from relaqs_engine.layouts import shuffle
from relaqs_tpch import generate

from benchmarks.live import LiveJob
from benchmarks.record import DATA
from relaqs.cli import data as flights
from relaqs.session import Session
from relaqs.sharing.view import Kind
from relaqs.training import (
    BoostedClassifier,
    BoostedRegressor,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    MiniBatchTraining,
    Perceptron,
    PolynomialSVM,
    TopicModel,
    TrainingJob,
)
from relaqs.training.run import TrainingRun

MOST_STEPS = 60  # passes over the data: SLAQ's curves are flat before

LINEITEM = """\
l_quantity / 50 AS quantity, l_extendedprice / 100000 AS price, l_discount * 10 AS discount,
l_tax * 10 AS tax, (l_shipdate - l_commitdate) / 60.0 AS delay, (l_receiptdate - l_shipdate) / 30.0 AS days"""
FLIGHTS = "month / 12 AS month, hour / 24 AS hour, distance / 2500 AS distance, dep_delay / 60 AS dep_delay"
FLOWN = "FROM flights WHERE arr_delay IS NOT NULL AND dep_delay IS NOT NULL AND air_time IS NOT NULL"
COUNTS = """\
SELECT l_quantity AS pieces, l_linenumber AS line, l_discount * 100 AS discount, l_tax * 100 AS tax,
l_receiptdate - l_shipdate AS days, month(l_shipdate) AS month FROM lineitem WHERE l_orderkey % 32 = 0"""


def warehouse(scale: float) -> Path:
    """Return a folder with lineitem at this scale, the flights and scikit-learn's sets, made on first use."""
    folder = DATA / f"training-{scale:g}"
    print(f"training data at TPC-H scale {scale:g} in {folder} …", flush=True)
    generate(scale, folder, partitions=40)
    if not (folder / flights.SAMPLED).exists():
        flights.lay_out(folder)
    lay_out_bundled(folder)
    return folder


def lay_out_bundled(folder: Path) -> None:
    """Lay out scikit-learn's sets in a folder, where they are not there yet."""
    for name, table in _bundled().items():
        if not (folder / name).exists():
            shuffle(table, folder / name, partitions=8)


def lay_out_digits(folder: Path, copies: int) -> str:
    """Lay out the digits in a folder, each so many times, and return the table's name."""
    name = f"digits_{copies}"
    if not (folder / name).exists():
        shuffle(pa.concat_tables([_bundled()["digits"]] * copies), folder / name, partitions=8)
    return name


def _bundled() -> dict[str, pa.Table]:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

    tables = {}
    for name, load in (("cancer", load_breast_cancer), ("diabetes", load_diabetes), ("digits", load_digits)):
        features, target = load(return_X_y=True)
        columns = {f"x{index}": column for index, column in enumerate(np.ascontiguousarray(features.T))}
        tables[name] = pa.table({**columns, "y": target})
    return tables


def training_jobs(seed: int = 0, most_steps: int = MOST_STEPS) -> list[LiveJob]:
    """Return 25 runs: seven algorithms on each kind of data, and those that suit only one or two of them."""
    classes = {
        "lineitem": (f"SELECT {LINEITEM}, l_returnflag = 'R' AS y FROM lineitem", "y"),
        "flights": (f"SELECT {FLIGHTS}, arr_delay > 15 AS y {FLOWN}", "y"),
        "cancer": ("SELECT * FROM cancer", "y"),
    }
    numbers = {
        "lineitem": (
            f"SELECT {LINEITEM}, l_extendedprice * (1 - l_discount) / 100000 AS y FROM lineitem",
            "y",
        ),
        "flights": (f"SELECT {FLIGHTS}, arr_delay / 60 AS y {FLOWN}", "y"),
        "diabetes": ("SELECT * FROM diabetes", "y"),
    }
    points = {
        "lineitem": f"SELECT {LINEITEM} FROM lineitem",
        "flights": f"SELECT {FLIGHTS} {FLOWN}",
        "digits": "SELECT * EXCLUDE (y) FROM digits",
    }
    jobs: dict[str, TrainingJob] = {"LDA on lineitem": TopicModel(COUNTS, topics=5, seed=seed)}
    for data, sql in points.items():
        jobs[f"K-Means on {data}"] = KMeans(sql, clusters=12, seed=seed)
    for data, (sql, y) in classes.items():
        jobs[f"logistic regression on {data}"] = LogisticRegression(sql, target=y)
        jobs[f"linear SVM on {data}"] = LinearSVM(sql, target=y)
        jobs[f"polynomial SVM on {data}"] = PolynomialSVM(sql, target=y, landmarks=30, seed=seed)
        jobs[f"boosted trees, classes, on {data}"] = BoostedClassifier(sql, target=y, trees=12, depth=4)
        jobs[f"perceptron on {data}"] = Perceptron(sql, target=y, hidden=(8,), seed=seed)
    for data, (sql, y) in numbers.items():
        jobs[f"boosted trees, numbers, on {data}"] = BoostedRegressor(sql, target=y, trees=12, depth=4)
        jobs[f"linear regression on {data}"] = LinearRegression(sql, target=y)
    return [live_job(name, job, most_steps) for name, job in jobs.items()]


def live_job(name: str, job: TrainingJob | MiniBatchTraining, most_steps: int) -> LiveJob:
    def start(session: Session) -> TrainingRun:
        return session.train(job, max_steps=most_steps)

    return LiveJob(name, Kind.TRAINING, start)
