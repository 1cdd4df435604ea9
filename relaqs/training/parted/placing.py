"""Where the parts of runs are: a placed policy is asked, with the workers of the cluster as its machines."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_engine.errors import ClusterError

from relaqs.executors.leases import worker_of
from relaqs.parts.plan import PlacedPlan, PlacedPolicy
from relaqs.parts.view import WAITS, NodeResources, Parts, PlacedView
from relaqs.placed_policies.mlf_h import MlfH
from relaqs.placed_policies.taking_turns import TakingTurns
from relaqs.training.parted.cut import ModelCut, Part
from relaqs.training.parted.run_facts import RunFacts, placed_jobs

PARAMETER_BYTES = 12.0  # of a number of 32 bits, its gradient, and what momentum keeps of it
NODE_MEMORY_BYTES, NODE_NETWORK = 16e9, 1.25e9  # of a worker, which does not tell: 10 Gbit/s


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


@dataclass(frozen=True, slots=True)
class PartedRunView:
    """A run as a placed policy sees it.

    Attributes:
        present: where its parts are now; one that is at no slot of the cluster waits.
    """

    facts: RunFacts
    cut: ModelCut
    sizes: PartSizes
    present: Mapping[Part, str]


def placed_by(
    policy: PlacedPolicy, runs: Sequence[PartedRunView], slots: Sequence[str], now_seconds: float
) -> list[dict[Part, str]]:
    """Return the slot of each part, run by run. A run but the first may be without some.

    Parts take turns on a core, so none waits for one (`relaqs.placed_policies.taking_turns`). A policy that
    fails does not stop the runs: MLF-H places their parts meanwhile, and a warning says so.

    Args:
        runs: the first one needs its places.
        slots: those of the cluster.
        now_seconds: on the clock of the runs' facts.

    Raises:
        ClusterError: the policy has no place for a part of the first run.
    """
    if not slots:
        raise ClusterError("there is no worker for the parts of the model; start some")
    machines = _Machines(slots)
    plan = _plan_of(policy, _view(machines, runs, now_seconds))
    found, start = [], 0
    for run in runs:
        end = start + len(run.cut.parts)
        nodes, devices = plan.node[start:end].tolist(), plan.device[start:end].tolist()
        places = zip(run.cut.parts, nodes, devices, strict=True)
        found.append({part: machines.slot(node, device) for part, node, device in places if node != WAITS})
        start = end
    if len(found[0]) < len(runs[0].cut.parts):
        raise ClusterError(
            f"the placed policy {policy.name!r} has no place for the parts of the model on {len(slots)} "
            f"slots beside {len(runs) - 1} other runs; choose another by placed="
        )
    return found


def _plan_of(policy: PlacedPolicy, view: PlacedView) -> PlacedPlan:
    """Return the policy's plan. One that fails, a user's own perhaps, must not stop the runs."""
    try:
        plan = TakingTurns(policy).plan(view)
        if plan.ids != view.jobs.ids or len(plan.node) != len(view.parts):
            raise ValueError(
                f"its plan is for {len(plan.ids)} jobs and {len(plan.node)} parts of another view"
            )
        return PlacedPlan.of(view, plan.node, plan.device)
    except Exception as error:
        warnings.warn(
            f"placed policy {policy.name!r} failed ({error!r}); mlf_h places the parts meanwhile",
            RuntimeWarning,
            stacklevel=2,
        )
        return TakingTurns(MlfH()).plan(view)


class _Machines:
    """The workers of some slots as nodes. A node's devices are those slots of it that answer."""

    def __init__(self, slots: Sequence[str]) -> None:
        self._slots: dict[str, list[str]] = {}
        for slot in slots:
            self._slots.setdefault(worker_of(slot), []).append(slot)
        self._place = {
            slot: (node, device)
            for node, own in enumerate(self._slots.values())
            for device, slot in enumerate(own)
        }
        rows = [[len(own), len(own), NODE_MEMORY_BYTES, NODE_NETWORK] for own in self._slots.values()]
        capacity = np.array(rows, dtype=np.float64)
        self.nodes = NodeResources(tuple(self._slots), capacity, np.ones(len(rows), dtype=np.bool_))

    def place(self, slot: str | None) -> tuple[int, int]:
        """Return the node and the device of a slot, −1 twice for one that is not there."""
        return (WAITS, WAITS) if slot is None else self._place.get(slot, (WAITS, WAITS))

    def slot(self, node: int, device: int) -> str:
        """Return the slot that is a device of a node."""
        return self._slots[self.nodes.ids[node]][device]


def _view(machines: _Machines, runs: Sequence[PartedRunView], now_seconds: float) -> PlacedView:
    """Return what the policy sees."""
    sizes = [len(run.cut.parts) for run in runs]
    starts = np.cumsum([0, *sizes])
    stages = [np.array([part.stage for part in run.cut.parts]) for run in runs]
    shares = [run.sizes.parameters / run.sizes.parameters.sum() for run in runs]
    demand = _by_part([run.sizes.busy for run in runs], stages)
    bytes_of = _by_part([run.sizes.parameters * PARAMETER_BYTES for run in runs], stages)
    places = np.array([machines.place(run.present.get(part)) for run in runs for part in run.cut.parts])
    node, device = places[:, 0], places[:, 1]
    flows = [_flows(run.cut, run.sizes) for run in runs]
    pairs = [own + start for (own, _), start in zip(flows, starts, strict=False)]
    edges = [own[: run.cut.replicas * (run.cut.stages - 1)] for own, run in zip(pairs, runs, strict=True)]
    columns = Parts(
        job=np.repeat(np.arange(len(runs)), sizes),
        index=np.concatenate([np.arange(size) for size in sizes]),
        replica=np.array([part.replica for run in runs for part in run.cut.parts]),
        level=np.concatenate(stages),
        is_server=np.zeros(len(node), dtype=np.bool_),
        size_share=_by_part(shares, stages),
        demand=np.column_stack([demand, demand, bytes_of, np.zeros(len(node))]),
        state_bytes=bytes_of,
        alone_seconds=_by_part(
            [own * run.facts.pass_seconds for own, run in zip(shares, runs, strict=True)], stages
        ),
        node=node,
        device=device,
        queued_since_seconds=np.where(node == WAITS, now_seconds, math.nan),
        edges=np.concatenate(edges),
        flows=np.concatenate(pairs),
        flow_bytes=np.concatenate([sent for _, sent in flows]),
    )
    jobs = placed_jobs([run.facts for run in runs], now_seconds)
    return PlacedView(now_seconds, machines.nodes, jobs, columns)


def _by_part(of_stage: Sequence[FloatArray], stages: Sequence[IntArray]) -> FloatArray:
    """Return what each part's stage has, shape (P,), from what each stage has, run by run."""
    return np.concatenate([own[stage] for own, stage in zip(of_stage, stages, strict=True)])


def _flows(cut: ModelCut, sizes: PartSizes) -> tuple[IntArray, FloatArray]:
    """Return who sends whom how much in a step: first each stage the next, then back, then replicas."""
    passed = np.repeat(sizes.passed_bytes, cut.replicas)
    gradients = np.repeat(sizes.parameters * PARAMETER_BYTES / 3, cut.replicas * (cut.replicas - 1))
    return _pairs(cut), np.concatenate([passed, passed, gradients])


@lru_cache(1024)
def _pairs(cut: ModelCut) -> IntArray:
    """Return who sends whom something in a step, shape (F, 2): sender, receiver. In the order of `_flows`."""
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
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
