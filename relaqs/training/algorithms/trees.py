"""Regression trees over binned features: how rows find their leaves, and how a tree grows by one level.

A tree is one array with an entry a node, root first. Children are appended, so a node's place never
changes.

Bins: features as small whole numbers, so that sums by value are sums by index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from relaqs_bootstrap.arrays import FloatArray, IntArray
from scipy import sparse

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
