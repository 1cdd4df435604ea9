"""What makes plans cheap changes no bit of them: the same formulas, written plainly, give the same plans."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from benchmarks.placed_time import views
from relaqs.parts.load import ROUNDING, Load
from relaqs.parts.policy import PlacedPolicy
from relaqs.parts.resources import CORES, DEVICES, NodeResources
from relaqs.parts.view import PlacedView
from relaqs.placed_policies import features, mlf_h, mlf_rl
from relaqs.placed_policies.mlf_h import MlfH
from relaqs.placed_policies.queue_walk import QueueWalk
from relaqs.placed_policies.registry import make_placed_policy
from relaqs.placed_policies.traffic import Traffic

node_features = features.node_features


def hosts(load: Load, part: int, limit: float) -> BoolArray:
    """Return whether each node alone has room."""
    found = []
    for node in range(len(load.alive)):
        used, has, wants = load.used[node], load.capacity[node], load.demand[part]
        fits = all(
            used[i] + wants[i] <= limit * has[i] + ROUNDING or (used[i] <= ROUNDING and wants[i] <= has[i])
            for i in range(CORES, len(wants))
        )
        least = load.device_used[node].min()
        device = load.is_server[part] or least == 0.0 or least + wants[DEVICES] <= limit + ROUNDING
        found.append(bool(load.alive[node] and fits and device))
    return np.array(found, dtype=np.bool_)


def with_nodes(traffic: Traffic, part: int, node: IntArray, count: int) -> FloatArray:
    """Add up a part's flows one by one."""
    exchanged = np.zeros(count)
    for (sender, receiver), size in zip(traffic._parts.flows, traffic._parts.flow_bytes, strict=True):
        if part in (sender, receiver):
            place = node[receiver if sender == part else sender]
            if place >= 0:
                exchanged[place] += size
    return exchanged


def host_distances(
    utilisation: FloatArray,
    exchanged: FloatArray,
    degradation: FloatArray,
    underloaded: BoolArray,
    *,
    bytes_relative: bool = True,
) -> FloatArray:
    """Return the distance of each node by itself."""
    assert bytes_relative
    ideal, most = utilisation[underloaded].min(axis=0), exchanged[underloaded].max()
    found = []
    for node in range(len(exchanged)):
        total = 0.0
        for off in utilisation[node] - ideal:
            total = total + off**2
        lacks = (most - exchanged[node]) / (most if most > 0 else 1.0)
        found.append(np.sqrt(total + lacks**2 + degradation[node] ** 2))
    return np.array(found)


def features_of_all(walk: QueueWalk, part: int, candidates: IntArray) -> FloatArray:
    """Return the features of all nodes, and then leave out who is no candidate."""
    return node_features(walk, part, np.arange(len(walk.view.nodes)))[candidates]


def views_of(seed: int) -> Iterator[PlacedView]:
    """Yield four minutes of a full cluster whose nodes have one to four devices, after jobs have come."""
    nodes = NodeResources.equal(8, 4)
    nodes.capacity[5:, DEVICES] = (1.0, 2.0, 3.0)
    return views(nodes, 40, [0.0, 600.0, 660.0, 720.0, 780.0], seed)


@pytest.mark.parametrize(
    "policy",
    [MlfH(), MlfH(gang=False), *(make_placed_policy(name) for name in ("mlf_rl", "srpt", "slack_index"))],
    ids=str,
)
def test_plain_formulas_give_the_same_plans(policy: PlacedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [view for seed in (0, 1) for view in views_of(seed)]
    fast = [policy.plan(view) for view in seen]
    monkeypatch.setattr(Load, "hosts", hosts)
    monkeypatch.setattr(Traffic, "with_nodes", with_nodes)
    for module in (mlf_h, features):
        monkeypatch.setattr(module, "host_distances", host_distances)
    monkeypatch.setattr(mlf_rl, "node_features", features_of_all)
    assert sum(int((view.parts.node != plan.node).sum()) for view, plan in zip(seen, fast, strict=True)) > 50
    for view, plan in zip(seen, fast, strict=True):
        plain = policy.plan(view)
        assert plain.node.tolist() == plan.node.tolist()
        assert plain.device.tolist() == plan.device.tolist()
