"""Training jobs: what an algorithm computes over partitions, and the adapter that makes a Job of it.

Here live the protocol (`protocol.py`), one file per algorithm, the reading and keeping of partitions on
workers, and the handle; `*_hook.py` and `*_callback.py` report from others' loops. No scheduling, and nothing
that `import relaqs` loads; scikit-learn and XGBoost are imported where an estimator is made.
"""

from relaqs.training.algorithms.boosted_trees import BoostedClassifier, BoostedRegressor
from relaqs.training.algorithms.k_means import KMeans
from relaqs.training.algorithms.linear_regression import LinearRegression
from relaqs.training.algorithms.linear_svm import LinearSVM
from relaqs.training.algorithms.logistic_regression import LogisticRegression
from relaqs.training.algorithms.perceptron import Perceptron
from relaqs.training.algorithms.polynomial_svm import PolynomialSVM
from relaqs.training.algorithms.topic_model import TopicModel
from relaqs.training.profile import Profile
from relaqs.training.protocol import Fold, Iteration, Rows, SizedPieces, Sums, Training, TrainingJob
from relaqs.training.run import TrainingRun, TrainingStep

__all__ = [
    "BoostedClassifier",
    "BoostedRegressor",
    "Fold",
    "Iteration",
    "KMeans",
    "LinearRegression",
    "LinearSVM",
    "LogisticRegression",
    "Perceptron",
    "PolynomialSVM",
    "Profile",
    "Rows",
    "SizedPieces",
    "Sums",
    "TopicModel",
    "Training",
    "TrainingJob",
    "TrainingRun",
    "TrainingStep",
]
