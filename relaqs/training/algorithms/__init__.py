"""The training algorithms, one file a family, and their names.

An algorithm has a place in the table below, by which the command line and `make_training_job` find it. Its
module is imported when it is used. An installed package adds one by an entry point in the group
`relaqs.training`: see `relaqs/plugins.py`.

What an algorithm returns is a fitted estimator of scikit-learn, made of numbers by its public attributes and
nothing of its inside (`fitted`).
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from relaqs.arguments import ArgumentError
from relaqs.plugins import Plugins
from relaqs.training.protocol import MiniBatchTraining, TrainingJob

ALGORITHMS: Plugins[Callable[..., TrainingJob | MiniBatchTraining]] = Plugins(
    "relaqs.training",
    "training algorithm",
    own={
        "k_means": "relaqs.training.algorithms.k_means:KMeans",
        "linear_regression": "relaqs.training.algorithms.linear:LinearRegression",
        "logistic_regression": "relaqs.training.algorithms.linear:LogisticRegression",
        "linear_svm": "relaqs.training.algorithms.linear:LinearSVM",
        "polynomial_svm": "relaqs.training.algorithms.linear:PolynomialSVM",
        "boosted_classifier": "relaqs.training.algorithms.boosted_trees:BoostedClassifier",
        "boosted_regressor": "relaqs.training.algorithms.boosted_trees:BoostedRegressor",
        "perceptron": "relaqs.training.algorithms.perceptron:Perceptron",
        "mini_batch_k_means": "relaqs.training.algorithms.k_means:MiniBatchKMeans",
        "mini_batch_perceptron": "relaqs.training.algorithms.perceptron:MiniBatchPerceptron",
        "online_topics": "relaqs.training.algorithms.topic_model:OnlineTopics",
        "softmax_regression": "relaqs.training.algorithms.proximal:SoftmaxRegression",
        "lasso": "relaqs.training.algorithms.proximal:Lasso",
        "matrix_factorisation": "relaqs.training.algorithms.matrix_factorisation:MatrixFactorisation",
        "torch_module": "relaqs.training.elastic.torch_module:TorchModule",
        "mini_batch_linear": "relaqs.training.algorithms.linear:MiniBatchLinear",
        "topic_model": "relaqs.training.algorithms.topic_model:TopicModel",
    },
)


def make_training_job(algorithm: str, sql: str, **parameters: Any) -> TrainingJob | MiniBatchTraining:
    """Return a job for `Session.train` by the algorithm of that name.

    Args:
        algorithm: a name in `ALGORITHMS`, such as "k_means".
        sql: the SELECT whose rows are trained on.
        parameters: what else the algorithm takes, such as `target` or `clusters`.

    Raises:
        ArgumentError: there is no such algorithm; it has no such parameter, or one is missing; or a value is
            not accepted.
        PluginError: the package that adds the algorithm cannot be used.
        MissingPackageError: a package that the algorithm needs is not installed.

    >>> make_training_job("linear_regression", "SELECT x, y FROM points", target="y")
    LinearRegression(sql='SELECT x, y FROM points', target='y', tolerance=1e-06)
    """
    if algorithm not in ALGORITHMS:
        near = get_close_matches(algorithm, ALGORITHMS, n=2)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise ArgumentError(
            f"there is no training algorithm {algorithm!r}; {hint}The algorithms are {', '.join(ALGORITHMS)}"
        )
    make = ALGORITHMS[algorithm]
    try:
        return make(sql, **parameters)
    except TypeError as error:
        raise ArgumentError(
            f"{algorithm} cannot be made from {parameters}; it takes {', '.join(signature(make).parameters)}"
        ) from error


ScikitEstimator = TypeVar("ScikitEstimator")


def fitted(estimator: ScikitEstimator, names: tuple[str, ...], **attributes: Any) -> ScikitEstimator:
    """Return the estimator with the attributes that fitting would have given it, each documented there.

    names: of the features, in order. scikit-learn compares them with those of a data frame it predicts for.
    """
    for name, value in attributes.items():
        setattr(estimator, name, value)
    estimator.n_features_in_ = len(names)  # type: ignore[attr-defined]
    estimator.feature_names_in_ = np.array(names, dtype=object)  # type: ignore[attr-defined]
    return estimator
