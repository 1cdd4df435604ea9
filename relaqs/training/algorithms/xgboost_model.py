"""Trees as an XGBoost booster, by way of XGBoost's documented JSON model.

XGBoost itself makes the empty model with all its parameters; only the trees are put in.
Source: https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from relaqs_engine.errors import DataError

from relaqs.training.algorithms.trees import Cuts, Tree
from relaqs.training.profile import Profile

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
