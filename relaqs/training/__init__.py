"""Training models over the partitions of tables, step by step, beside queries.

`protocol.py` says what an algorithm must compute. `algorithms` has one file for each, `registry.py` has their
names. The other files read partitions on workers, keep them there between passes, and make a job of it all.
There is no scheduling here, and `import relaqs` loads nothing of this. scikit-learn and XGBoost are imported
where an estimator is made.
"""

from importlib.util import find_spec

from relaqs.plugins import needed as _needed

if find_spec("scipy") is None:
    raise _needed("scipy", "training", "train")

from relaqs.training.algorithms.boosted_trees import BoostedClassifier, BoostedRegressor
from relaqs.training.algorithms.k_means import KMeans, MiniBatchKMeans
from relaqs.training.algorithms.lasso import Lasso
from relaqs.training.algorithms.linear import LinearRegression, LinearSVM, LogisticRegression
from relaqs.training.algorithms.matrix_factorisation import MatrixFactorisation
from relaqs.training.algorithms.mini_batch_linear import MiniBatchLinear
from relaqs.training.algorithms.perceptron import MiniBatchPerceptron, Perceptron
from relaqs.training.algorithms.polynomial_svm import PolynomialSVM
from relaqs.training.algorithms.softmax_regression import SoftmaxRegression
from relaqs.training.algorithms.topic_model import OnlineTopics, TopicModel
from relaqs.training.elastic.journal import Change, Journal, replay
from relaqs.training.elastic.protocol import MiniBatches, MiniBatchTraining
from relaqs.training.elastic.torch_module import TorchModule
from relaqs.training.elastic.turns import Rescale
from relaqs.training.listener import TrainingStep
from relaqs.training.parted.cut import ModelParts, PlacedPart
from relaqs.training.profile import Profile
from relaqs.training.protocol import Fold, Iteration, SizedPieces, TellsClasses, Training, TrainingJob
from relaqs.training.registry import ALGORITHMS, make_training_job
from relaqs.training.rows import Rows, Sums
from relaqs.training.run import TrainingRun
from relaqs.training.sharded.protocol import (
    ShardCourse,
    ShardedDescent,
    ShardedTraining,
    SharesSums,
    WholeParameters,
)
from relaqs.training.sharded.subtask_seconds import SubtaskSeconds

__all__ = [
    "ALGORITHMS",
    "BoostedClassifier",
    "BoostedRegressor",
    "Change",
    "Fold",
    "Iteration",
    "Journal",
    "KMeans",
    "Lasso",
    "LinearRegression",
    "LinearSVM",
    "LogisticRegression",
    "MatrixFactorisation",
    "MiniBatchKMeans",
    "MiniBatchLinear",
    "MiniBatchPerceptron",
    "MiniBatchTraining",
    "MiniBatches",
    "ModelParts",
    "OnlineTopics",
    "Perceptron",
    "PlacedPart",
    "PolynomialSVM",
    "Profile",
    "Rescale",
    "Rows",
    "ShardCourse",
    "ShardedDescent",
    "ShardedTraining",
    "SharesSums",
    "SizedPieces",
    "SoftmaxRegression",
    "SubtaskSeconds",
    "Sums",
    "TellsClasses",
    "TopicModel",
    "TorchModule",
    "Training",
    "TrainingJob",
    "TrainingRun",
    "TrainingStep",
    "WholeParameters",
    "make_training_job",
    "replay",
]
