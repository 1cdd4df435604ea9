"""Training models over the partitions of tables, step by step, beside queries.

`protocol.py` says what an algorithm must compute; `algorithms` has one file a family, and their names.
`start.py` makes a run of a job, `run.py` is what the user holds. `passes.py` trains by passes over all rows,
`elastic` by mini-batches, `parted` a model in parts, and `sharded` with the parameters in shards.
`rows.py` reads partitions on workers, and `row_cache.py` keeps them between passes.
There is no scheduling here, and `import relaqs` loads nothing of this. A name below is loaded when it is
first used. scikit-learn and XGBoost are imported where an estimator is made.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from relaqs_bootstrap import on_first_use

from relaqs.plugins import needed as _needed

if find_spec("scipy") is None:
    raise _needed("scipy", "training", "train")

if TYPE_CHECKING:
    from relaqs.training.algorithms import ALGORITHMS, make_training_job
    from relaqs.training.algorithms.boosted_trees import BoostedClassifier, BoostedRegressor
    from relaqs.training.algorithms.k_means import KMeans, MiniBatchKMeans
    from relaqs.training.algorithms.linear import (
        LinearRegression,
        LinearSVM,
        LogisticRegression,
        MiniBatchLinear,
        PolynomialSVM,
    )
    from relaqs.training.algorithms.matrix_factorisation import MatrixFactorisation
    from relaqs.training.algorithms.perceptron import MiniBatchPerceptron, Perceptron
    from relaqs.training.algorithms.proximal import Lasso, SoftmaxRegression
    from relaqs.training.algorithms.topic_model import OnlineTopics, TopicModel
    from relaqs.training.elastic.course import Change, Journal, Rescale, replay
    from relaqs.training.elastic.torch_module import TorchModule
    from relaqs.training.parted.placing import ModelParts
    from relaqs.training.passes import PlacedPart, SubtaskSeconds
    from relaqs.training.protocol import (
        Fold,
        Iteration,
        MiniBatches,
        MiniBatchTraining,
        ShardCourse,
        ShardedDescent,
        ShardedTraining,
        SharesSums,
        SizedPieces,
        TellsClasses,
        Training,
        TrainingJob,
        WholeParameters,
    )
    from relaqs.training.rows import Profile, Rows, Sums
    from relaqs.training.run import TrainingRun, TrainingStep


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

__getattr__, __dir__ = on_first_use(__name__)
