"""Gradient-boosted trees for classes and for numbers: histograms over partitions, one level a pass.

The trees are those of XGBoost's `hist` method: same gains, same leaves, one tree a class and round. A pass
sums the gradients by feature and bin for each node that may still be split; between two passes the driver
splits them. The tree that grows already counts as far as it has come, so each pass has a loss of its own.

What boosted trees reduce: squared errors of numbers, or the log loss of classes.

Regression trees over binned features: how rows find their leaves, and how a tree grows by one level.

A tree is one array with an entry a node, root first. Children are appended, so a node's place never changes.

Bins: features as small whole numbers, so that sums by value are sums by index.

Trees as an XGBoost booster, by way of XGBoost's documented JSON model.

XGBoost itself makes the empty model with all its parameters; only the trees are put in. Source:
https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_engine.errors import DataError
from scipy import sparse
from scipy.special import expit, log_expit, log_softmax, logit

from relaqs.arguments import check_not_negative, check_positive, check_whole
from relaqs.plugins import require
from relaqs.training.protocol import Iteration
from relaqs.training.rows import Profile, Rows, Sums, class_codes, known_classes, numeric_target, right_of

if TYPE_CHECKING:
    import xgboost

NO_PARENT = 2**31 - 1


def check_names(names: Sequence[str]) -> None:
    """Raise DataError for names of features that a booster cannot have."""
    wrong = [name for name in names if set(name) & set("[]<")] or [n for n in names if names.count(n) > 1]
    if wrong:
        raise DataError(
            f"XGBoost cannot name a feature {wrong[0]!r}; give it a name of its own without [, ] and <, by AS"
        )


def booster_of(
    rounds: Sequence[Sequence[Tree]], cuts: Cuts, parameters: Mapping[str, Any], profile: Profile
) -> xgboost.Booster:
    """Return the booster of the trees. parameters: of the loss, as XGBoost names them."""
    import xgboost

    names = list(profile.names)
    empty = xgboost.DMatrix(np.zeros((1, len(names))), [0], feature_names=names, nthread=1)
    booster = xgboost.train({**parameters, "nthread": 1}, empty, num_boost_round=0)
    document = json.loads(booster.save_raw("json"))
    model = document["learner"]["gradient_booster"]["model"]
    trees = [tree for trees in rounds for tree in trees]
    model["trees"] = [_entry(i, tree, cuts, len(names)) for i, tree in enumerate(trees)]
    model["tree_info"] = [output for trees in rounds for output in range(len(trees))]
    model["iteration_indptr"] = np.cumsum([0, *map(len, rounds)]).tolist()
    model["gbtree_model_param"]["num_trees"] = str(len(trees))
    booster = xgboost.Booster(model_file=bytearray(json.dumps(document), "utf-8"))
    if profile.classes is not None:
        booster.set_attr(classes=json.dumps(profile.classes.tolist()))
    return booster


def _entry(index: int, tree: Tree, cuts: Cuts, feature_count: int) -> dict[str, Any]:
    is_leaf = tree["left"] < 0
    splits = [
        node["value"] if leaf else cuts.of_feature[node["feature"]][node["cut"]]
        for node, leaf in zip(tree, is_leaf, strict=True)
    ]
    none = [0] * len(tree)
    return {
        "base_weights": tree["value"].tolist(),
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": none,
        "id": index,
        "left_children": tree["left"].tolist(),
        "loss_changes": tree["gain"].tolist(),
        "parents": np.where(tree["parent"] < 0, NO_PARENT, tree["parent"]).tolist(),
        "right_children": tree["right"].tolist(),
        "split_conditions": [float(split) for split in splits],
        "split_indices": tree["feature"].tolist(),
        "split_type": none,
        "sum_hessian": tree["hessian"].tolist(),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(feature_count),
            "num_nodes": str(len(tree)),
            "size_leaf_vector": "1",
        },
    }


NODE = np.dtype(
    [
        ("left", "i4"),  # the child for bins up to `cut`; -1 in a leaf
        ("right", "i4"),
        ("parent", "i4"),  # -1 for the root
        ("feature", "i4"),
        ("cut", "i4"),
        ("value", "f8"),  # what the tree adds to the score of a row that ends here
        ("gain", "f8"),
        ("hessian", "f8"),  # the sum over the node's rows
    ]
)
Tree: TypeAlias = NDArray[Any]
"""Entries of type NODE, shape (nodes,)."""

LEAST_GAIN = 1e-6  # below it a split is rounding

Bins: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]
"""Each row's bin in each feature, shape (rows, features)."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How trees grow.

    Attributes:
        learning_rate: what leaves are multiplied by.
        ridge: what is added to a leaf's hessian.
        least_hessian: the least hessian of either side of a split.
    """

    learning_rate: float
    ridge: float
    least_hessian: float


def root() -> Tree:
    """Return the tree that adds nothing yet."""
    tree = np.zeros(1, NODE)
    tree["left"] = tree["right"] = tree["parent"] = -1
    return tree


def leaves_of(tree: Tree, bins: Bins) -> IntArray:
    """Return the node at which each row ends, shape (rows,)."""
    rows = np.arange(len(bins))
    node = np.zeros(len(bins), dtype=np.int64)
    left, right, feature, cut = (tree[name] for name in ("left", "right", "feature", "cut"))
    while (is_inner := left[node] >= 0).any():
        goes_left = bins[rows, feature[node]] <= cut[node]
        node = np.where(is_inner, np.where(goes_left, left[node], right[node]), node)
    return node


def histograms(
    bins: Bins, node: IntArray, open_nodes: IntArray, slopes: FloatArray, width: int
) -> FloatArray:
    """Return the sums of slopes of the rows in each open node, by feature and bin.

    Args:
        node: the node of each row, shape (rows,).
        slopes: gradient and hessian of each row, shape (rows, 2).
        width: how many bins a feature has.

    The result has shape (open nodes, features, width, 2). It is a product with a sparse matrix of ones. That
    is scipy's fastest way to add to places by index, and it lets other threads run.
    """
    features = bins.shape[1]
    place = np.full(max(node.max(initial=0), open_nodes.max(initial=0)) + 1, -1)
    place[open_nodes] = np.arange(len(open_nodes))
    inside = place[node] >= 0
    bins, slopes, place = bins[inside], slopes[inside], place[node[inside]]
    firsts = np.arange(features) * width
    cells = (place[:, None] * (features * width) + firsts + bins).astype(np.int32).ravel()
    ends = np.arange(0, len(cells) + 1, features, dtype=np.int32)
    shape = (len(open_nodes) * features * width, len(bins))
    ones = sparse.csc_array((np.ones(len(cells)), cells, ends), shape=shape)
    sums: FloatArray = (ones @ slopes).reshape(len(open_nodes), features, width, 2)
    return sums


def grown(
    tree: Tree, open_nodes: IntArray, sums: FloatArray, cut_counts: IntArray, growth: Growth
) -> tuple[Tree, IntArray]:
    """Return the tree with its open nodes split where that gains most, and the new open nodes.

    Source: Chen, Guestrin 2016, XGBoost, eq. 5 to 7, level by level.

    Args:
        sums: as `histograms` gives them.
        cut_counts: how many cuts each feature has, shape (features,). It has one bin more.
    """
    if not len(open_nodes):
        return tree, open_nodes
    left = sums.cumsum(axis=2)
    total = left[:, 0, -1]
    gains = _gains(left, total, growth)
    gains[:, np.arange(left.shape[2]) >= cut_counts[:, None]] = 0.0  # beyond the last cut nothing is right
    best = gains.reshape(len(open_nodes), -1).argmax(axis=1)
    feature, cut = np.unravel_index(best, gains.shape[1:])
    each = np.arange(len(open_nodes))
    splits = gains[each, feature, cut] > LEAST_GAIN
    at = each[splits], feature[splits], cut[splits]
    if len(tree) == 1:
        tree = _node(total, growth)
    return _split(tree, open_nodes[splits], at, gains[at], (left[at], (total[splits] - left[at])), growth)


def _gains(left: FloatArray, total: FloatArray, growth: Growth) -> FloatArray:
    """Return what splitting after each bin gains, shape (nodes, features, bins); 0 where not allowed."""
    whole = total[:, None, None]
    right = whole - left
    gains: FloatArray = _score(left, growth) + _score(right, growth) - _score(whole, growth)
    allowed = np.minimum(left[..., 1], right[..., 1]) >= growth.least_hessian
    return np.where(allowed, gains, 0.0)


def _score(sums: FloatArray, growth: Growth) -> FloatArray:
    return sums[..., 0] ** 2 / (sums[..., 1] + growth.ridge)


def _node(sums: FloatArray, growth: Growth) -> Tree:
    """Return leaves with the values that follow from their sums, shape (nodes, 2)."""
    nodes = np.zeros(len(sums), NODE)
    nodes["left"] = nodes["right"] = nodes["parent"] = -1
    values = -growth.learning_rate * sums[:, 0] / (sums[:, 1] + growth.ridge)
    nodes["value"] = np.where(sums[:, 1] < growth.least_hessian, 0.0, values)  # of a root; XGBoost does so
    nodes["hessian"] = sums[:, 1]
    return nodes


def _split(
    tree: Tree,
    nodes: IntArray,
    at: tuple[IntArray, IntArray, IntArray],
    gains: FloatArray,
    sums: tuple[FloatArray, FloatArray],
    growth: Growth,
) -> tuple[Tree, IntArray]:
    """Return the tree with two leaves below each of the nodes, and those leaves.

    Args:
        at: (position, feature, cut) of each split.
        sums: of the rows left and right of each split, shape (splits, 2) each.
    """
    tree = tree.copy()
    places = len(tree) + np.arange(2 * len(nodes))
    children = _node(np.stack(sums, axis=1).reshape(-1, 2), growth)
    children["parent"] = np.repeat(nodes, 2)
    tree["left"][nodes], tree["right"][nodes] = places[::2], places[1::2]
    tree["feature"][nodes], tree["cut"][nodes], tree["gain"][nodes] = at[1], at[2], gains
    return np.concatenate([tree, children]), places


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where each feature is cut, rising, in single precision as XGBoost compares. Bin b lies below cut b."""

    of_feature: tuple[FloatArray, ...]

    @property
    def counts(self) -> IntArray:
        return np.array([len(cuts) for cuts in self.of_feature], dtype=np.int64)

    @property
    def width(self) -> int:
        """How many bins the feature with most of them has."""
        return int(self.counts.max()) + 1


def cuts_of(sample: FloatArray, bins: int) -> Cuts:
    """Return cuts into at most so many bins: between all values of the sample, or at its quantiles."""
    return Cuts(tuple(_cuts(column, bins) for column in sample.astype(np.float32).T))


def _cuts(values: FloatArray, bins: int) -> FloatArray:
    distinct = np.unique(values)
    if len(distinct) > bins:
        ranks = np.arange(1, bins) / bins
        distinct = np.unique([distinct[0], *np.quantile(values, ranks, method="higher")])
    return distinct[1:].astype(np.float32)


def binned(features: FloatArray, cuts: Cuts) -> Bins:
    """Return each value's bin, shape (rows, features)."""
    result = np.empty(features.shape, dtype=np.uint8 if cuts.width <= 256 else np.uint16)
    for feature, column in enumerate(features.astype(np.float32).T):
        result[:, feature] = np.searchsorted(cuts.of_feature[feature], column, side="right")
    return result


LEAST_HESSIAN = 1e-16  # of a row


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
        """The scores before any tree, shape (outputs,)."""
        return np.array([self.mean])

    @property
    def xgboost_parameters(self) -> dict[str, Any]:
        """The parameters by which XGBoost has the same loss and start."""
        return {"objective": "reg:squarederror", "base_score": self.mean}

    def total(self, scores: FloatArray, target: NDArray[Any]) -> float:
        """Return the rows' loss, summed. scores: shape (rows, outputs)."""
        return float(((scores[:, 0] - target) ** 2).sum())

    def slopes(self, scores: FloatArray, target: NDArray[Any]) -> FloatArray:
        """Return gradient and hessian for each score, shape (rows, outputs, 2)."""
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


BoostingLoss: TypeAlias = SquaredLoss | LogLoss


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
        check_whole("trees", self.trees)
        check_whole("depth", self.depth)
        check_whole("bins", self.bins, least=2)
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

    >>> import xgboost
    >>> from relaqs.training import BoostedClassifier
    >>> sql = "SELECT x / 100 - 5 AS x, abs(x - 500) < 200 AS inside FROM numbers"
    >>> model = db.train(BoostedClassifier(sql, target="inside", trees=5)).result()
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
        return right_of(scores, model.loss.classes, rows.target)


@dataclass(frozen=True, slots=True)
class BoostedRegressor(BoostedTrees):
    """Boosted trees that predict a number. The loss is the mean squared error.

    The arguments are those of `BoostedTrees`: sql, target, trees, depth, learning_rate, ridge, least_hessian
    and bins.

    >>> import xgboost
    >>> from relaqs.training import BoostedRegressor
    >>> sql = "SELECT x / 100 AS x, 2 * x / 100 + 1 AS y FROM numbers"
    >>> model = db.train(BoostedRegressor(sql, target="y", trees=30)).result()
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
