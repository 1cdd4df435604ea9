"""What makes plans cheap changes no bit of them: the same formulas, written plainly, give the same plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_lab.mlf_rl import NodeFeatures

from benchmarks.placed_time import views
from relaqs.placed_policies.mlf_h import ByPriority, MlfH
from relaqs.placed_policies.queue_walk import QueueWalk, Traffic, slowed_on_nodes
from relaqs.policies.registry import make_placed_policy
from relaqs.sharing.parts import (
    CORES,
    DEVICES,
    ROUNDING,
    Load,
    NodeResources,
    PlacedPolicy,
    PlacedView,
    relative_to,
)


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


def with_nodes(traffic: Traffic, part: int, node: IntArray) -> dict[int, float]:
    """Add up a part's flows one by one."""
    exchanged: dict[int, float] = {}
    for (sender, receiver), size in zip(traffic._parts.flows, traffic._parts.flow_bytes, strict=True):
        if part in (sender, receiver):
            place = int(node[receiver if sender == part else sender])
            if place >= 0:
                exchanged[place] = exchanged.get(place, 0.0) + size
    return exchanged


def distances(walk: QueueWalk, part: int) -> FloatArray:
    """Return the distance of each node by itself."""
    under, utilisation = walk.underloaded, walk.load.utilisation
    exchanged = with_nodes(walk.traffic, part, walk.load.node)
    slowed = slowed_on_nodes(walk.view, part)
    ideal = utilisation[under].min(axis=0)
    most = max((size for node, size in exchanged.items() if under[node]), default=0.0)
    found = []
    for node in range(len(under)):
        total = 0.0
        for off in utilisation[node] - ideal:
            total = total + off**2
        lacks = (most - exchanged.get(node, 0.0)) / (most if most > 0 else 1.0)
        found.append(np.sqrt(total + lacks**2 + slowed[node] ** 2))
    return np.array(found)


def nearest_host(choices: ByPriority, part: int) -> int:
    """Compare all nodes, and then leave out those without room."""
    walk = choices._walk
    room = hosts(walk.load, part, walk.limit) & walk.underloaded
    return int(np.where(room, distances(walk, part), np.inf).argmin()) if room.any() else -1


def node_features(kept: NodeFeatures, part: int, candidates: IntArray) -> FloatArray:
    """Compute all columns anew."""
    walk = kept._walk
    view, load = walk.view, walk.load
    exchanged = with_nodes(walk.traffic, part, load.node)
    most = max(exchanged.values(), default=0.0)
    own = load.node[view.parts.job == view.parts.job[part]]
    count, server = len(candidates), bool(load.is_server[part])
    least = np.zeros(count) if server else np.minimum(load.device_used[candidates].min(axis=1), 1.0)
    empty = (load.device_parts[candidates] == 0) & np.isfinite(load.device_used[candidates])
    return np.column_stack(
        [
            np.minimum(load.utilisation[candidates], 1.5),
            least,
            least + load.demand[part, DEVICES],
            empty.sum(axis=1) / np.maximum(view.nodes.capacity[candidates, DEVICES], 1.0),
            [exchanged.get(node, 0.0) / (most if most > 0 else 1.0) for node in candidates.tolist()],
            [(own == node).sum() / len(own) for node in candidates],
            np.minimum(distances(walk, part)[candidates], 3.0),
            np.minimum(slowed_on_nodes(view, part)[candidates], 1.0),
            candidates == view.parts.node[part],
            np.full(count, float(server)),
        ]
    )


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
    monkeypatch.setattr(Load, "has_room", lambda load, part, node, limit: hosts(load, part, limit)[node])
    monkeypatch.setattr(Traffic, "with_nodes", with_nodes)
    monkeypatch.setattr(ByPriority, "node", nearest_host)
    monkeypatch.setattr(NodeFeatures, "of", node_features)
    assert sum(int((view.parts.node != plan.node).sum()) for view, plan in zip(seen, fast, strict=True)) > 50
    for view, plan in zip(seen, fast, strict=True):
        plain = policy.plan(view)
        assert plain.node.tolist() == plan.node.tolist()
        assert plain.device.tolist() == plan.device.tolist()


def test_what_a_load_keeps_follows_from_what_stands_there() -> None:
    """Whole parts of half and quarter demands, so that sums have no rounding."""
    view = next(views_of(0))
    parts, random = view.parts, np.random.default_rng(0)
    demand = np.ceil(parts.demand * 4 / parts.demand.max(axis=0)) / 4
    load = Load(replace(view, parts=replace(parts, demand=demand)))
    for part in random.integers(len(parts), size=400).tolist():
        if load.node[part] >= 0:
            load.take(part)
        else:
            node = int(random.integers(len(view.nodes)))
            load.put(part, node, -1 if parts.is_server[part] else load.least_loaded_device(node))
    for node in range(len(view.nodes)):
        there = load.node == node
        uses = [
            demand[there & (load.device == device), DEVICES].sum()
            for device in range(view.nodes.device_counts[node])
        ]
        assert load.used[node].tolist() == demand[there].sum(axis=0).tolist()
        assert load.utilisation[node].tolist() == relative_to(load.used[node], load.capacity[node]).tolist()
        assert load.least_device[node] == min(uses)
        assert load.least_loaded_device(node) == uses.index(min(uses))
    assert set(load.changed) == set(range(len(view.nodes)))
