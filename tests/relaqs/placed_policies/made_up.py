"""Jobs and parts for tests of placed policies: by hand, and any at all for laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from relaqs.sharing.parts import NodeResources, Parts, PlacedJobs, PlacedView

HOUR = 3600.0


def jobs_of(count: int = 1, **columns: Any) -> PlacedJobs:
    """Return jobs that differ in what is given; a number stands for all."""
    usual: dict[str, Any] = {
        "arrival_seconds": np.arange(count, dtype=np.float64),
        "weight": 1.0,
        "urgency": 5.0,
        "deadline_seconds": 6 * HOUR,
        "iterations_done": 3.0,
        "iterations_most": 100.0,
        "iteration_seconds": 10.0,
        "loss_fallen_last": 0.3,
        "loss_fallen": 1.6,
        "loss_fall_rate": 0.5,
        "accuracy": 0.5,
        "accuracy_gain": 0.1,
        "accuracy_required": 0.9,
        "attained_device_seconds": 0.0,
        "may_stop": True,
    }
    names = tuple(f"job {i:02}" for i in range(count))
    given = {
        name: np.broadcast_to(np.asarray(value), (count,)).copy() for name, value in (usual | columns).items()
    }
    return PlacedJobs(ids=names, **given)


def parts_of(
    demand: Sequence[Sequence[float]],
    edges: Sequence[tuple[int, int]] = (),
    flows: Sequence[tuple[int, int]] = (),
    flow_bytes: Sequence[float] = (),
    **columns: Any,
) -> Parts:
    """Return parts that differ in what is given. Levels follow from the edges."""
    count = len(demand)
    level = np.zeros(count, dtype=np.int64)
    for _ in range(count):
        for parent, child in edges:
            level[child] = max(level[child], level[parent] + 1)
    usual: dict[str, Any] = {
        "job": np.zeros(count, dtype=np.int64),
        "replica": np.zeros(count, dtype=np.int64),
        "is_server": np.zeros(count, dtype=np.bool_),
        "size_share": np.full(count, 1.0),
        "state_bytes": np.full(count, 1e9),
        "alone_seconds": np.full(count, 10.0),
        "node": np.full(count, -1),
        "device": np.full(count, -1),
        "queued_since_seconds": np.zeros(count),
    }
    given = {name: np.asarray(value) for name, value in (usual | columns).items()}
    job = given["job"]
    given.setdefault("index", np.array([int((job[:i] == job[i]).sum()) for i in range(count)]))
    waits = given["node"] < 0
    given["queued_since_seconds"] = np.where(waits, given["queued_since_seconds"], np.nan)
    return Parts(
        **({"level": level} | given),
        demand=np.array(demand, dtype=np.float64).reshape(count, 4),
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
        flows=np.array(flows, dtype=np.int64).reshape(-1, 2),
        flow_bytes=np.array(flow_bytes, dtype=np.float64),
    )


@st.composite
def any_placed_view(draw: st.DrawFn, whole: bool = True) -> PlacedView:
    """Up to six jobs of up to four parts on up to four nodes, some of them down, and some with too much.

    whole: no job is placed in part.
    """
    count, machines = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    devices = random.integers(1, 4, machines)
    capacity = np.column_stack(
        [devices, np.full(machines, 8.0), np.full(machines, 1e11), np.full(machines, 1e9)]
    )
    nodes = NodeResources(
        tuple(f"node {i}" for i in range(machines)), capacity, random.random(machines) < 0.8
    )
    job, replica, server, level, edges, flows = [], [], [], [], [], []
    for number in range(count):
        size, first = int(random.integers(1, 5)), len(job)
        job += [number] * size
        replica += [0] * size
        server += [False] * size
        level += list(range(size))
        edges += [(first + i, first + i + 1) for i in range(size - 1)]
        flows += edges[-(size - 1) :] if size > 1 else []
        if random.random() < 0.4:
            flows += [(first + size - 1, first + size)]
            job, replica, server, level = [*job, number], [*replica, -1], [*server, True], [*level, size]
    total = len(job)
    is_server = np.array(server, dtype=np.bool_)
    share = random.uniform(0.2, 1.0, total)
    demand = np.column_stack(
        [
            np.where(is_server, 0, share),
            random.uniform(0.5, 3, total),
            np.full(total, 2e9),
            np.full(total, 1e7),
        ]
    )
    node, device = np.full((2, total), -1)
    owner = np.array(job, dtype=np.int64)
    alive = np.flatnonzero(nodes.alive)
    for number in range(count):
        if random.random() < 0.5 and len(alive):
            members = np.flatnonzero(owner == number)
            placed = members if whole else members[random.random(len(members)) < 0.7]
            node[placed] = random.choice(alive, len(placed))
            device[placed] = np.where(is_server[placed], -1, random.integers(0, devices[node[placed]]))
    parts = parts_of(
        demand.tolist(),
        edges,
        flows,
        random.uniform(1e6, 1e8, len(flows)).tolist(),
        job=owner,
        replica=np.array(replica, dtype=np.int64),
        is_server=is_server,
        level=np.array(level, dtype=np.int64),
        node=node,
        device=device,
        queued_since_seconds=random.uniform(0, 900, total),
        size_share=random.uniform(0.1, 1, total),
    )
    unknown = random.random(count) < 0.3
    jobs = jobs_of(
        count,
        arrival_seconds=np.floor(random.uniform(0, 4, count)),
        urgency=np.floor(random.uniform(1, 11, count)),
        deadline_seconds=random.uniform(500, 9000, count),
        iterations_done=np.where(unknown, 0.0, random.uniform(2, 99, count)),
        loss_fallen_last=np.where(unknown, np.nan, random.normal(0, 1, count)),
        loss_fallen=np.where(unknown, np.nan, random.normal(1, 1, count)),
        loss_fall_rate=np.where(unknown, np.nan, random.normal(0, 1, count)),
        accuracy=np.where(unknown, np.nan, random.uniform(0.5, 1, count)),
        accuracy_gain=np.where(unknown, np.nan, random.uniform(0, 0.1, count)),
        attained_device_seconds=random.uniform(0, 40_000, count),
        may_stop=random.random(count) < 0.7,
    )
    return PlacedView(1000.0, nodes, jobs, parts)


def shuffled(view: PlacedView, random: np.random.Generator) -> tuple[PlacedView, Any, Any, Any]:
    """Return the same view with jobs, parts and nodes in another order, and the new orders."""
    jobs, nodes = random.permutation(len(view.jobs)), random.permutation(len(view.nodes))
    parts = random.permutation(len(view.parts))
    moved = view.parts.in_order(parts, np.argsort(jobs))
    there = np.argsort(nodes)
    node = np.where(moved.node >= 0, there[moved.node], -1)
    resources = NodeResources(
        tuple(view.nodes.ids[i] for i in nodes), view.nodes.capacity[nodes], view.nodes.alive[nodes]
    )
    changed = replace(view, nodes=resources, jobs=view.jobs.of_jobs(jobs), parts=replace(moved, node=node))
    return changed, jobs, parts, nodes
