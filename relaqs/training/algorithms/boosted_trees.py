"""Gradient-boosted trees for classes and for numbers: histograms over partitions, one level a pass.

The trees are those of XGBoost's `hist` method: same gains, same leaves, one tree a class and round. A pass
sums the gradients by feature and bin for each node that may still be split; between two passes the driver
splits them. The tree that grows already counts as far as it has come, so each pass has a loss of its own.

What boosted trees reduce: squared errors of numbers, or the log loss of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray, IntArray
from scipy.special import expit, log_expit, log_softmax, logit

from relaqs.training.algorithms.trees import (
    Bins,
    Cuts,
    Growth,
    Tree,
    binned,
    cuts_of,
    grown,
    histograms,
    leaves_of,
    root,
)
from relaqs.training.algorithms.xgboost_model import booster_of, check_names
from relaqs.training.arguments import check_count, check_not_negative, check_positive, require
from relaqs.training.profile import Profile, class_codes, known_classes, numeric_target, told_classes
from relaqs.training.protocol import Iteration
from relaqs.training.rows import Rows, Sums

if TYPE_CHECKING:
    import xgboost

LEAST_HESSIAN = 1e-16  # of a row


class BoostingLoss(Protocol):
    """A loss of scores, one a row and output. start: the scores before any tree, shape (outputs,)."""

    @property
    def start(self) -> FloatArray: ...

    @property
    def xgboost_parameters(self) -> dict[str, Any]:
        """The parameters by which XGBoost has the same loss and start."""
        ...

    def total(self, scores: FloatArray, target: NDArray[Any]) -> float:
        """Return the rows' loss, summed. scores: shape (rows, outputs)."""
        ...

    def slopes(self, scores: FloatArray, target: NDArray[Any]) -> FloatArray:
        """Return gradient and hessian for each score, shape (rows, outputs, 2)."""
        ...


@dataclass(frozen=True, slots=True)
class SquaredLoss:
    """The squared error of one score. As in XGBoost its gradient is taken of half of it."""

    mean: float

    @classmethod
    def of(cls, profile: Profile, target: str) -> SquaredLoss:
        mean, _ = numeric_target(profile, target)
        return cls(mean)

    @property
    def start(self) -> FloatArray:
        return np.array([self.mean])

    @property
    def xgboost_parameters(self) -> dict[str, Any]:
        return {"objective": "reg:squarederror", "base_score": self.mean}

    def total(self, scores: FloatArray, target: NDArray[Any]) -> float:
        return float(((scores[:, 0] - target) ** 2).sum())

    def slopes(self, scores: FloatArray, target: NDArray[Any]) -> FloatArray:
        error = scores - target[:, None]
        return np.stack([error, np.ones_like(error)], axis=2)


@dataclass(frozen=True, slots=True)
class LogLoss:
    """The log loss of classes: two have one score, more have one each. share: of the second of two."""

    classes: NDArray[Any]
    share: float

    @classmethod
    def of(cls, profile: Profile, target: str) -> LogLoss:
        classes = known_classes(profile, target)
        assert profile.class_rows is not None
        return cls(classes, float(profile.class_rows[1] / profile.row_count))

    @property
    def start(self) -> FloatArray:
        return np.array([logit(self.share)]) if len(self.classes) == 2 else np.zeros(len(self.classes))

    @property
    def xgboost_parameters(self) -> dict[str, Any]:
        if len(self.classes) == 2:
            return {"objective": "binary:logistic", "base_score": self.share}
        return {"objective": "multi:softprob", "base_score": 0.0, "num_class": len(self.classes)}

    def total(self, scores: FloatArray, target: NDArray[Any]) -> float:
        codes = class_codes(target, self.classes)
        if scores.shape[1] == 1:
            return -float(log_expit(np.where(codes == 1, 1.0, -1.0) * scores[:, 0]).sum())
        return -float(log_softmax(scores, axis=1)[np.arange(len(codes)), codes].sum())

    def slopes(self, scores: FloatArray, target: NDArray[Any]) -> FloatArray:
        codes = class_codes(target, self.classes)
        if scores.shape[1] == 1:
            shares, is_class, factor = expit(scores), codes[:, None] == 1, 1.0
        else:
            shares, is_class = (
                np.exp(log_softmax(scores, axis=1)),
                codes[:, None] == np.arange(len(self.classes)),
            )
            factor = 2.0  # XGBoost's bound of the whole hessian by its diagonal
        hessians = np.maximum(factor * shares * (1 - shares), LEAST_HESSIAN)
        return np.stack([shares - is_class, hessians], axis=2)


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees so far. A round has a tree for each score; the newest may still be growing.

    Attributes:
        rounds: the complete ones.
        growing: a tree for each output, or none once all rounds are complete.
        open_nodes: the leaves of each growing tree that may be split.
        level: their depth.
    """

    loss: BoostingLoss
    cuts: Cuts
    rounds: tuple[tuple[Tree, ...], ...] = ()
    growing: tuple[Tree, ...] = ()
    open_nodes: tuple[IntArray, ...] = ()
    level: int = 0

    def with_roots(self) -> Forest:
        """Return the forest with a new round, still without effect."""
        outputs = range(len(self.loss.start))
        return replace(
            self,
            growing=tuple(root() for _ in outputs),
            open_nodes=tuple(np.zeros(1, dtype=np.int64) for _ in outputs),
            level=0,
        )

    def completed(self) -> Forest:
        """Return the forest with its growing round complete."""
        return replace(self, rounds=(*self.rounds, self.growing), growing=(), open_nodes=(), level=0)


@dataclass(frozen=True, slots=True)
class BoostedTrees:
    """Hyperparameters of boosted trees. One of the two classes below says what the trees predict.

    Args:
        sql: the SELECT of the rows. Every column but the target is a feature.
        target: the column to predict.
        trees: rounds of boosting.
        depth: of a tree.
        learning_rate: as XGBoost has it.
        ridge: XGBoost's reg_lambda.
        least_hessian: XGBoost's min_child_weight.
        bins: how many bins a feature has at most. Cuts between bins are quantiles of a sample, or lie
            between all its values where these are no more than bins.
    """

    sql: str
    target: str
    trees: int = 100
    depth: int = 6
    learning_rate: float = 0.3
    ridge: float = 1.0
    least_hessian: float = 1.0
    bins: int = 256

    def __post_init__(self) -> None:
        require("xgboost")
        check_count("trees", self.trees)
        check_count("depth", self.depth)
        check_count("bins", self.bins, least=2)
        check_positive("learning_rate", self.learning_rate)
        check_positive("ridge", self.ridge)
        check_not_negative("least_hessian", self.least_hessian)

    def partial(self, model: Forest, rows: Rows) -> Sums:
        """Return the loss, and for each growing tree the sums of its open nodes' rows by feature and bin."""
        assert rows.target is not None
        bins, scores = _prepared(model, rows)
        leaves = [leaves_of(tree, bins) for tree in model.growing]
        now = scores + _values(model.growing, leaves) if leaves else scores
        loss = np.asarray(model.loss.total(now, rows.target))
        if not leaves:
            return (loss,)
        slopes = model.loss.slopes(scores, rows.target)
        return loss, *(
            histograms(bins, leaf, open_nodes, slopes[:, output], model.cuts.width)
            for output, (leaf, open_nodes) in enumerate(zip(leaves, model.open_nodes, strict=True))
        )

    def estimator(self, profile: Profile, model: Forest) -> xgboost.Booster:
        """Return the trees as a booster. It predicts classes by their position in its attribute "classes"."""
        rounds = [*model.rounds, *([model.growing] if model.level else [])]
        return booster_of(rounds, model.cuts, model.loss.xgboost_parameters, profile)

    def _boost(self, profile: Profile, loss: BoostingLoss) -> Iteration:
        check_names(profile.names)
        growth = Growth(self.learning_rate, self.ridge, self.least_hessian)

        def update(forest: Forest, sums: Sums) -> tuple[float, Forest, bool]:
            total, *histograms = sums
            is_final = not forest.growing
            following = forest if is_final else self._grown(forest, histograms, growth)
            return float(total) / profile.row_count, following, is_final

        return Iteration(Forest(loss, cuts_of(profile.sample, self.bins)).with_roots(), update)

    def _grown(self, forest: Forest, sums: Sequence[FloatArray], growth: Growth) -> Forest:
        """Return the forest one level deeper; after the last level of the last round, without new roots."""
        levels = [
            grown(tree, nodes, each, forest.cuts.counts, growth)
            for tree, nodes, each in zip(forest.growing, forest.open_nodes, sums, strict=True)
        ]
        forest = replace(
            forest,
            growing=tuple(tree for tree, _ in levels),
            open_nodes=tuple(nodes for _, nodes in levels),
            level=forest.level + 1,
        )
        if forest.level < self.depth and any(len(nodes) for nodes in forest.open_nodes):
            return forest
        forest = forest.completed()
        return forest if len(forest.rounds) == self.trees else forest.with_roots()


@dataclass(frozen=True, slots=True)
class BoostedClassifier(BoostedTrees):
    """Boosted trees that tell classes apart, numbers or text. The loss is the mean log loss.

    The arguments are those of `BoostedTrees`: sql, target, trees, depth, learning_rate, ridge, least_hessian
    and bins.

    >>> import duckdb, relaqs, xgboost
    >>> from relaqs.training import BoostedClassifier
    >>> rows = duckdb.sql("SELECT i / 100 - 5 AS x, abs(i - 500) < 200 AS inside FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(BoostedClassifier("SELECT * FROM points", target="inside", trees=5)).result()
    >>> probabilities = model.predict(xgboost.DMatrix([[-4.0], [0.0], [4.0]], feature_names=["x"]))
    >>> (probabilities > 0.5).tolist()
    [False, True, False]
    """

    def begin(self, profile: Profile) -> Iteration:
        return self._boost(profile, LogLoss.of(profile, self.target))

    def right(self, model: Forest, rows: Rows) -> int:
        assert isinstance(model.loss, LogLoss)
        bins, scores = _prepared(model, rows)
        if model.growing:
            scores = scores + _values(model.growing, [leaves_of(tree, bins) for tree in model.growing])
        return int((told_classes(scores, model.loss.classes) == rows.target).sum())


@dataclass(frozen=True, slots=True)
class BoostedRegressor(BoostedTrees):
    """Boosted trees that predict a number. The loss is the mean squared error.

    The arguments are those of `BoostedTrees`: sql, target, trees, depth, learning_rate, ridge, least_hessian
    and bins.

    >>> import duckdb, relaqs, xgboost
    >>> from relaqs.training import BoostedRegressor
    >>> rows = duckdb.sql("SELECT i / 100 AS x, 2 * i / 100 + 1 AS y FROM range(1000) AS t(i)")
    >>> layout = relaqs.shuffle(rows, "warehouse/points", partitions=10, force=True)
    >>> with relaqs.connect("warehouse", threads=2) as db:
    ...     model = db.train(BoostedRegressor("SELECT x, y FROM points", target="y", trees=30)).result()
    >>> values = model.predict(xgboost.DMatrix([[2.0], [5.0]], feature_names=["x"]))
    >>> [round(float(y)) for y in values]
    [5, 11]
    """

    def begin(self, profile: Profile) -> Iteration:
        return self._boost(profile, SquaredLoss.of(profile, self.target))


def _prepared(model: Forest, rows: Rows) -> tuple[Bins, FloatArray]:
    """Return the rows' bins, and their scores by all complete rounds; what is kept need not be made again."""
    if "bins" not in rows.kept:
        rows.kept["bins"] = (0, binned(rows.features, model.cuts))
    _, bins = rows.kept["bins"]
    start = np.broadcast_to(model.loss.start, (len(rows), len(model.loss.start)))
    done, scores = rows.kept.get("scores", (0, start))
    if done > len(model.rounds):  # a task of an earlier pass, run again
        done, scores = 0, start
    for trees in model.rounds[done:]:
        scores = scores + _values(trees, [leaves_of(tree, bins) for tree in trees])
    rows.kept["scores"] = (len(model.rounds), scores)
    return bins, scores


def _values(trees: Sequence[Tree], leaves: Sequence[IntArray]) -> FloatArray:
    """Return what the trees add to each row's scores, shape (rows, outputs)."""
    return np.column_stack([tree["value"][leaf] for tree, leaf in zip(trees, leaves, strict=True)])
