"""SLAQ's nine training algorithms on tables of TPC-H, in a unit each that makes their features comparable."""

from __future__ import annotations

from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaqs.training import MiniBatchTraining, TrainingJob

FEATURES = """\
l_quantity / 50 AS quantity, l_extendedprice / 100000 AS price, l_discount * 10 AS discount,
l_tax * 10 AS tax,
(l_commitdate - DATE '1995-06-17') / 1000.0 AS due, (l_receiptdate - l_shipdate) / 30.0 AS days"""
ROWS = "FROM lineitem WHERE l_orderkey % 16 = 0"
OPEN_LINES = f"SELECT {FEATURES}, l_linestatus = 'O' AS is_open {ROWS}"
PRICED = f"SELECT {FEATURES}, l_extendedprice * (1 - l_discount) / 100000 AS net {ROWS}"
COUNTS = """\
SELECT l_quantity AS pieces, l_linenumber AS line, l_discount * 100 AS discount, l_tax * 100 AS tax,
l_receiptdate - l_shipdate AS days, month(l_shipdate) AS month FROM lineitem WHERE l_orderkey % 256 = 0"""
MOST_STEPS = 40  # passes over the data: losses are flat before

# By the name in records: the algorithm's name in `relaqs.training`, the rows, and the parameters.
_JOBS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "K-Means": ("k_means", f"SELECT {FEATURES} {ROWS}", {"clusters": 12}),
    "logistic regression": ("logistic_regression", OPEN_LINES, {"target": "is_open"}),
    "linear SVM": ("linear_svm", OPEN_LINES, {"target": "is_open"}),
    "polynomial SVM": ("polynomial_svm", OPEN_LINES, {"target": "is_open", "landmarks": 30}),
    "boosted trees, classes": (
        "boosted_classifier",
        OPEN_LINES,
        {"target": "is_open", "trees": 12, "depth": 4},
    ),
    "boosted trees, regression": ("boosted_regressor", PRICED, {"target": "net", "trees": 12, "depth": 4}),
    "perceptron": ("perceptron", OPEN_LINES, {"target": "is_open", "hidden": (8,)}),
    "LDA": ("topic_model", COUNTS, {"topics": 5}),
    "linear regression": ("linear_regression", PRICED, {"target": "net"}),
}
ALGORITHMS = tuple(_JOBS)


def can_train() -> bool:
    """Whether the packages of the extra `train` are installed."""
    return all(find_spec(name) is not None for name in ("scipy", "sklearn", "threadpoolctl", "xgboost"))


def training_job(algorithm: str, seed: int = 0) -> TrainingJob | MiniBatchTraining:
    """Return one of ALGORITHMS, on a part of lineitem. Raises KeyError for another name."""
    from relaqs import training

    name, sql, parameters = _JOBS[algorithm]
    if "seed" in signature(training.ALGORITHMS[name]).parameters:
        parameters = {**parameters, "seed": seed}
    return training.make_training_job(name, sql, **parameters)
