"""Where the parts of a run are: a placed policy is asked, with the workers of the cluster as its machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import FloatArray
from relaqs_engine.errors import ClusterError

from relaqs.executors.leases import slot_name, worker_of
from relaqs.parts.jobs import PlacedJobs
from relaqs.parts.parts import WAITS, Parts
from relaqs.parts.policy import PlacedPolicy
from relaqs.parts.resources import NodeResources
from relaqs.parts.view import PlacedView
from relaqs.training.parted.cut import ModelCut, Part

PARAMETER_BYTES = 12.0  # of a number of 32 bits, its gradient, and what momentum keeps of it
NODE_MEMORY_BYTES, NODE_NETWORK = 16e9, 1.25e9  # of a worker, which does not tell: 10 Gbit/s
HALVINGS = 20  # of what parts ask of a core, until all find room


@dataclass(frozen=True, slots=True)
class PartSizes:
    """What a placed policy is told of the parts of a model.

    Attributes:
        parameters: of each stage, shape (S,).
        passed_bytes: what a stage gives the next one in a step of one replica, shape (S - 1,).
        pieces: of a step, in each replica.
    """

    parameters: FloatArray
    passed_bytes: FloatArray
    pieces: int

    @property
    def busy(self) -> FloatArray:
        """The share of a step in which a part of each stage computes, shape (S,).

        A stage takes as long as its parameters are many. n pieces through S stages take (n + S - 1) times
        what the slowest stage takes for one. Source: Huang et al. 2019, GPipe (NeurIPS), section 2.3.
        """
        slowest = self.parameters / self.parameters.max()
        return np.asarray(slowest * self.pieces / (self.pieces + len(slowest) - 1))


def placed_by(
    policy: PlacedPolicy,
    cut: ModelCut,
    sizes: PartSizes,
    slots: Sequence[str],
    present: Mapping[Part, str],
    passes: tuple[int, int],
) -> dict[Part, str]:
    """Return the slot of each part.

    Where the policy leaves a part waiting, all of them are taken to use half of a core, and so on: parts of
    one run may share cores, and a policy does not know that.

    Args:
        slots: those of the cluster.
        present: where parts are now; one that is at no slot of the cluster waits.
        passes: how many are done, and how many there are at most.

    Raises:
        ClusterError: the policy has no place for a part.
    """
    if not slots:
        raise ClusterError("there is no worker for the parts of the model; start some")
    nodes = _nodes(slots)
    demand = sizes.busy
    for _ in range(HALVINGS):
        plan = policy.plan(_view(nodes, cut, sizes, demand, present, passes))
        if (plan.node != WAITS).all():
            return {
                part: slot_name(nodes.ids[node], device)
                for part, node, device in zip(
                    cut.parts, plan.node.tolist(), plan.device.tolist(), strict=True
                )
            }
        demand = demand / 2
    raise ClusterError(
        f"the placed policy {policy.name!r} has no place for the parts of the model on {len(slots)} slots; "
        "choose another by placed="
    )


def _nodes(slots: Sequence[str]) -> NodeResources:
    threads = Counter(map(worker_of, slots))
    rows = [[threads[worker], threads[worker], NODE_MEMORY_BYTES, NODE_NETWORK] for worker in sorted(threads)]
    return NodeResources(
        tuple(sorted(threads)), np.array(rows, dtype=np.float64), np.ones(len(rows), dtype=np.bool_)
    )


def _view(
    nodes: NodeResources,
    cut: ModelCut,
    sizes: PartSizes,
    demand: FloatArray,
    present: Mapping[Part, str],
    passes: tuple[int, int],
) -> PlacedView:
    parts, count = cut.parts, len(cut.parts)
    stage = np.array([part.stage for part in parts])
    bytes_of = sizes.parameters * PARAMETER_BYTES
    node, device = np.full(count, WAITS), np.full(count, WAITS)
    for at, part in enumerate(parts):
        if (slot := present.get(part)) is not None and worker_of(slot) in nodes.ids:
            node[at] = nodes.ids.index(worker_of(slot))
            device[at] = int(slot.rpartition("/")[2])
    flows, flow_bytes = _flows(cut, sizes)
    shares = sizes.parameters / sizes.parameters.sum()
    columns = Parts(
        job=np.zeros(count, dtype=np.int64),
        index=np.arange(count),
        replica=np.array([part.replica for part in parts]),
        level=stage,
        is_server=np.zeros(count, dtype=np.bool_),
        size_share=shares[stage],
        demand=np.column_stack([demand[stage], demand[stage], bytes_of[stage], np.zeros(count)]),
        state_bytes=bytes_of[stage],
        alone_seconds=shares[stage],
        node=node,
        device=device,
        queued_since_seconds=np.where(node == WAITS, 0.0, math.nan),
        edges=flows[: cut.replicas * (cut.stages - 1)],
        flows=flows,
        flow_bytes=flow_bytes,
    )
    return PlacedView(0.0, nodes, _one_job(passes), columns)


def _flows(cut: ModelCut, sizes: PartSizes) -> tuple[np.ndarray, FloatArray]:
    """Return who sends whom how much in a step: first each stage the next, then back, then replicas."""
    at = {part: place for place, part in enumerate(cut.parts)}
    down = [
        (at[part], at[Part(part.stage + 1, part.replica)])
        for part in cut.parts
        if part.stage + 1 < cut.stages
    ]
    across = [
        (at[part], at[Part(part.stage, other)])
        for part in cut.parts
        for other in range(cut.replicas)
        if other != part.replica
    ]
    pairs = [*down, *((child, parent) for parent, child in down), *across]
    passed = np.repeat(sizes.passed_bytes, cut.replicas)
    gradients = np.repeat(sizes.parameters * PARAMETER_BYTES / 3, cut.replicas * (cut.replicas - 1))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.concatenate([passed, passed, gradients])


def _one_job(passes: tuple[int, int]) -> PlacedJobs:
    def column(value: float) -> FloatArray:
        return np.array([float(value)])

    return PlacedJobs(
        ids=("run",),
        arrival_seconds=column(0),
        weight=column(1),
        urgency=column(1),
        deadline_seconds=column(math.inf),
        iterations_done=column(passes[0]),
        iterations_most=column(passes[1]),
        iteration_seconds=column(1),
        loss_fallen_last=column(math.nan),
        loss_fallen=column(math.nan),
        loss_fall_rate=column(math.nan),
        accuracy=column(math.nan),
        accuracy_gain=column(math.nan),
        accuracy_required=column(1),
        attained_device_seconds=column(0),
        may_stop=np.zeros(1, dtype=np.bool_),
    )
