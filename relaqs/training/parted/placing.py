"""How a model is cut into parts, and on which workers these are.

**The cut.** Neighbouring layers make a stage, and each stage has replicas that share the rows
(`ModelCut`).

**The places.** A placed policy says where parts are. It sees the workers of the cluster as its machines,
and the parts of all runs of the session. A plan is made when a part has no place, and when a run has
ended or a worker has come, since then there is room. It may move parts of other runs, too, if these have
the same policy. Each run carries its own moves out, between two turns.

`placed_jobs` is what a policy is told of a run beside its parts: what its user wants, and how far it is.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import accumulate, product
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_engine.errors import ClusterError

from relaqs.arguments import ArgumentError, check_whole
from relaqs.executors.slot_desk import worker_of
from relaqs.jobs.job import JobDescription, StepReport
from relaqs.placed_policies.mlf_h import MlfH
from relaqs.sharing.parts import (
    CORES,
    DEVICES,
    WAITS,
    NodeResources,
    Parts,
    PlacedJobs,
    PlacedPlan,
    PlacedPolicy,
    PlacedView,
)
from relaqs.sharing.view import Stop
from relaqs.training.elastic.driver import GangExecutor

HALVINGS = 20  # of what parts ask for, until all find room


@dataclass(frozen=True, slots=True)
class TakingTurns:
    """A policy on machines where parts take turns on a device, as they do on the workers of a cluster.

    Placed policies let a part wait where devices are full. Here all parts are then taken to use half of what
    they ask of devices and cores, and so on, until all have a place. So the policy still says who stands
    beside whom. It is not asked about parts that would use more than all devices together.

    Args:
        inner: says where parts are.
    """

    inner: PlacedPolicy

    @property
    def name(self) -> str:
        return f"{self.inner.name}, by turns"

    def plan(self, view: PlacedView) -> PlacedPlan:
        wanted, there = view.parts.demand[:, DEVICES].sum(), view.nodes.device_counts[view.nodes.alive].sum()
        plan: PlacedPlan | None = None
        for halved in range(HALVINGS):
            share = 0.5**halved
            if share * wanted <= there:
                plan = self.inner.plan(_asking_for(view, share) if halved else view)
                if (plan.node != WAITS).all():
                    return plan
        return self.inner.plan(view) if plan is None else plan


def _asking_for(view: PlacedView, share: float) -> PlacedView:
    """Return a view whose parts ask for so much less of devices and cores."""
    demand = view.parts.demand.copy()
    demand[:, np.array([DEVICES, CORES])] *= share
    return replace(view, parts=replace(view.parts, demand=demand))


class Part(NamedTuple):
    """One copy of one stage of a model. Both numbers begin at 0."""

    stage: int
    replica: int


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Into which parts a model is cut, and who says where they are.

    Args:
        stages: how many; they get about the same number of parameters. Or the layers at which all stages but
            the first begin: (2, 5) makes three stages of the layers 0 and 1, 2 to 4, and 5 on.
        replicas: how many copies of each stage share the rows of a step.
        placed: the name of a placed policy, or one of your own. Or the address of a worker for each part, by
            its stage and replica.

    >>> ModelParts(stages=2, replicas=2, placed="fair").replicas
    2
    """

    stages: int | Sequence[int] = 2
    replicas: int = 1
    placed: str | PlacedPolicy | Mapping[tuple[int, int], str] = "mlf_h"

    def __post_init__(self) -> None:
        check_whole("replicas", self.replicas)
        if not isinstance(self.placed, str | Mapping | PlacedPolicy):
            raise ArgumentError(
                f"placed is {self.placed!r}; give the name of a placed policy, an object with a name and "
                "plan(view), or the address of a worker for each part"
            )
        if isinstance(self.stages, Sequence) and not isinstance(self.stages, str):
            starts = tuple(check_whole("stages", layer) for layer in self.stages)
            if list(starts) != sorted({*starts}):
                raise ArgumentError(f"stages is {self.stages!r}; give layers that rise, such as (2, 5)")
            object.__setattr__(self, "stages", starts)
        else:
            check_whole("stages", self.stages)


@dataclass(frozen=True, slots=True)
class ModelCut:
    """A model of L layers, cut.

    Attributes:
        starts: the first layer of each stage, shape (S,). The first one is 0.
        layers: how many layers there are.
        replicas: of each stage.

    >>> cut = ModelCut(starts=(0, 2), layers=5, replicas=2)
    >>> cut.layers_of(1), cut.parts
    (range(2, 5), (Part(stage=0, replica=0), Part(stage=0, replica=1), Part(stage=1, replica=0), \
Part(stage=1, replica=1)))
    """

    starts: tuple[int, ...]
    layers: int
    replicas: int

    @property
    def stages(self) -> int:
        return len(self.starts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """All of them, by stage and then by replica."""
        return _parts_of(self.stages, self.replicas)

    def layers_of(self, stage: int) -> range:
        """Return the layers of a stage."""
        return range(self.starts[stage], (*self.starts, self.layers)[stage + 1])


@cache  # plans ask for them all the time
def _parts_of(stages: int, replicas: int) -> tuple[Part, ...]:
    return tuple(Part(*each) for each in product(range(stages), range(replicas)))


def cut_of(parts: ModelParts, sizes: Sequence[int], model: str) -> ModelCut:
    """Return how a model is cut.

    Args:
        sizes: the parameters of each layer, shape (L,).
        model: its name, for errors.

    Raises:
        ArgumentError: there are not so many stages to be had, or one would have no parameters.
    """
    most = sum(size > 0 for size in sizes)
    if isinstance(parts.stages, int):
        if parts.stages > most:
            raise ArgumentError(
                f"stages is {parts.stages}, but {model} has {most} layers with parameters; a stage needs one "
                "at least, so give fewer"
            )
        return ModelCut(even_starts(sizes, parts.stages), len(sizes), parts.replicas)
    cut = ModelCut((0, *parts.stages), len(sizes), parts.replicas)
    for stage in range(cut.stages):
        layers = cut.layers_of(stage)
        if layers.stop > len(sizes) or not sum(sizes[layers.start : layers.stop]):
            raise ArgumentError(
                f"stages is {parts.stages}, so stage {stage} has the layers from {layers.start} to before "
                f"{layers.stop} of {model}; there are {len(sizes)} layers, and each stage must have one with "
                "parameters"
            )
    return cut


def even_starts(sizes: Sequence[int], stages: int) -> tuple[int, ...]:
    """Return the first layer of each stage, so that the largest stage has as few parameters as can be.

    A layer without parameters is in the stage of the one before it.

    >>> even_starts([10, 0, 10, 0, 30], 2), even_starts([4, 4, 4, 4, 4], 3)
    ((0, 4), (0, 1, 3))
    """
    heads = [layer for layer, size in enumerate(sizes) if size]
    sums = [0, *accumulate(sizes[layer] for layer in heads)]
    best: list[tuple[int, tuple[int, ...]]] = [(total, (0,)) for total in sums]  # of the first heads
    for used in range(1, stages):
        best = [
            min((max(best[at][0], sums[end] - sums[at]), (*best[at][1], at)) for at in range(used, end))
            if end > used
            else (sums[-1] + 1, ())
            for end in range(len(sums))
        ]
    return (0, *(heads[start] for start in best[-1][1][1:]))


def check_workers(placed: Mapping[tuple[int, int], str], cut: ModelCut, workers: Collection[str]) -> None:
    """Raise ArgumentError unless each part has a worker that is there, and nothing else is named."""
    for own in cut.parts:
        if own not in placed:
            raise ArgumentError(f"placed has no worker for {tuple(own)}; name one for each part")
    for part, worker in placed.items():
        if part not in cut.parts:
            raise ArgumentError(
                f"placed has a worker for {part!r}, which is no part; these are stages 0 to {cut.stages - 1} "
                f"with replicas 0 to {cut.replicas - 1}"
            )
        if worker not in workers:
            there = ", ".join(sorted(workers)) or "none"
            raise ArgumentError(f"placed has part {part} on {worker!r}; the workers are {there}")


NO_DEADLINE_SECONDS = 24 * 3600.0  # ahead, of a run without one: MLFS draws none that is later (section 4.1)
FALL_PASSES = 5  # over which the mean fall of the loss is told
GAIN_SHARE = 0.1  # of all passes, over which the gain of accuracy is told


class RunHistory:
    """What is known of a run. What it keeps only grows, so any thread may read it.

    Seconds are those of the monotonic clock. An iteration is a pass.

    Attributes:
        passes: how many are done, and how many there are at most.
        device_seconds: the slots that it has held in turns, over time.
        losses: after each pass.
        accuracies: of the best model so far, after each pass; NaN where it is not measured.
    """

    def __init__(self, description: JobDescription, arrival_seconds: float) -> None:
        self.description = description
        self.arrival_seconds = arrival_seconds
        self.weight = description.weight
        self.passes = 0.0, 1.0
        self.device_seconds = self._seconds = 0.0
        self.losses: list[float] = []
        self.accuracies: list[float] = []

    def begin_turn(self, passes: tuple[int, int]) -> None:
        """Note how many passes are done before a turn, and how many the job makes at most."""
        self.passes = float(passes[0]), min(float(passes[1]), self.description.work_total)

    def turned(self, slots: int, seconds: float) -> None:
        """Note a turn on so many slots."""
        self._seconds += seconds
        self.device_seconds += slots * seconds

    def reported(self, report: StepReport) -> None:
        """Note the end of a pass. Only that has a loss."""
        if not math.isfinite(report.quality):
            return
        newest = math.nan if report.accuracy is None else report.accuracy.newest
        self.accuracies.append(float(np.fmax(newest, self.accuracies[-1] if self.accuracies else newest)))
        self.losses.append(report.quality)

    @property
    def pass_seconds(self) -> float:
        """How long turns last for one pass; 1.0 before the first has ended."""
        return self._seconds / len(self.losses) if self.losses and self._seconds else 1.0

    def deadline_seconds(self, now_seconds: float) -> float:
        """Return when it should have ended. One without a deadline always has a day left."""
        if math.isinf(self.description.deadline_seconds):
            return now_seconds + NO_DEADLINE_SECONDS
        return self.arrival_seconds + self.description.deadline_seconds

    @property
    def loss_falls(self) -> tuple[float, float, float]:
        """By how much the loss fell in the last pass, in all, and in the mean of the last few."""
        if len(self.losses) < 2:
            return math.nan, math.nan, math.nan
        last = self.losses[-1]
        past = min(len(self.losses) - 1, FALL_PASSES)
        return self.losses[-2] - last, self.losses[0] - last, (self.losses[-1 - past] - last) / past

    @property
    def accuracy_gain(self) -> float:
        """The gain of accuracy, 0 at first, in the last tenth of all passes; NaN before so many are over."""
        window = math.ceil(GAIN_SHARE * self.passes[1])
        if len(self.accuracies) < window:
            return math.nan
        return self.accuracies[-1] - [0.0, *self.accuracies][-1 - window]


def placed_jobs(runs: Sequence[RunHistory], now_seconds: float) -> PlacedJobs:
    """Return the runs as a placed policy sees them."""

    def column(values: Sequence[float]) -> FloatArray:
        return np.array(values, dtype=np.float64)

    falls = column([each for run in runs for each in run.loss_falls]).reshape(-1, 3)
    goals = [run.description.goals for run in runs]
    return PlacedJobs(
        ids=tuple(run.description.id for run in runs),
        arrival_seconds=column([run.arrival_seconds for run in runs]),
        weight=column([run.weight for run in runs]),
        urgency=column([each.urgency for each in goals]),
        deadline_seconds=column([run.deadline_seconds(now_seconds) for run in runs]),
        iterations_done=column([run.passes[0] for run in runs]),
        iterations_most=column([run.passes[1] for run in runs]),
        iteration_seconds=column([run.pass_seconds for run in runs]),
        loss_fallen_last=falls[:, 0],
        loss_fallen=falls[:, 1],
        loss_fall_rate=falls[:, 2],
        accuracy=column([run.accuracies[-1] if run.accuracies else math.nan for run in runs]),
        accuracy_gain=column([run.accuracy_gain for run in runs]),
        accuracy_required=column([1.0 if math.isnan(each.accuracy) else each.accuracy for each in goals]),
        attained_device_seconds=column([run.device_seconds for run in runs]),
        may_stop=np.array([each.may_end(Stop.REQUIRED) for each in goals], dtype=np.bool_),
    )


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


@dataclass(slots=True, eq=False)
class RunInParts:
    """A run, for those that plan, as a placed policy sees it.

    Attributes:
        policy: of this run; it also moves parts of runs that have an equal one.
        history: what it has told so far.
        cut, sizes: its parts.
        fixed: the parts that the user has placed, which no policy moves.
        present: where its parts are to be; one that is at no slot of the cluster waits.
        is_due: whether a new plan may be better, since another run has ended.
    """

    policy: PlacedPolicy
    history: RunHistory
    cut: ModelCut
    sizes: PartSizes
    fixed: frozenset[Part] = frozenset()
    present: Mapping[Part, str] = field(default_factory=dict)
    is_due: bool = False

    def settle(self, slots: Sequence[str], given: Mapping[Part, str]) -> None:
        """Let parts wait whose slot is gone, and be where the user wants them.

        Args:
            given: the workers of parts that the user has placed.
        """
        present = {part: slot for part, slot in self.present.items() if slot in slots}
        for part, worker in sorted(given.items()):
            own = [slot for slot in slots if worker_of(slot) == worker]
            if own and present.get(part) not in own:
                used = [*present.values()]
                present[part] = min(own, key=lambda slot: (used.count(slot), slot))
        self.present, self.fixed = present, frozenset(given) & present.keys()

    def take(self, places: Mapping[Part, str]) -> None:
        """Be where a plan says, but for fixed parts."""
        moved = {part: slot for part, slot in places.items() if part not in self.fixed}
        self.present = {**self.present, **moved}
        self.is_due = False


def placed_by(
    policy: PlacedPolicy, runs: Sequence[RunInParts], slots: Sequence[str], now_seconds: float
) -> list[dict[Part, str]]:
    """Return the slot of each part, run by run. A run but the first may be without some.

    Parts take turns on a core, so none waits for one (`relaqs.training.parted.placing`). A policy that
    fails does not stop the runs: MLF-H places their parts meanwhile, and a warning says so.

    Args:
        runs: the first one needs its places.
        slots: those of the cluster.
        now_seconds: on the clock of the runs' histories.

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


def _view(machines: _Machines, runs: Sequence[RunInParts], now_seconds: float) -> PlacedView:
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
            [own * run.history.pass_seconds for own, run in zip(shares, runs, strict=True)], stages
        ),
        node=node,
        device=device,
        queued_since_seconds=np.where(node == WAITS, now_seconds, math.nan),
        edges=np.concatenate(edges),
        flows=np.concatenate(pairs),
        flow_bytes=np.concatenate([sent for _, sent in flows]),
    )
    jobs = placed_jobs([run.history for run in runs], now_seconds)
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


class PlacedRuns:
    """The runs in parts of one session on a cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[RunInParts] = []

    def placed(
        self, run: RunInParts, slots: Sequence[str], given: Mapping[Part, str], has_new_slots: bool
    ) -> dict[Part, str]:
        """Return the slot of each part of a run: where it is, where the user wants it, or what a plan says.

        A plan is made where a part waits, the cluster has new slots, or another run has ended. It may move
        parts of other runs, which then go on there after their turn.

        Raises:
            ClusterError: the policy has no place for a part.
        """
        with self._lock:
            if run not in self._runs:
                self._runs.append(run)
            run.settle(slots, given)
            if len(run.present) < len(run.cut.parts) or run.is_due or has_new_slots:
                runs = [run, *(each for each in self._runs if each is not run)]
                places = placed_by(run.policy, runs, slots, time.monotonic())
                for each, own in zip(runs, places, strict=True):
                    if each.policy == run.policy:
                        each.take(own)
            return dict(sorted(run.present.items()))

    def leave(self, run: RunInParts) -> None:
        """Note that a run is over. The others may have its room."""
        with self._lock:
            if run in self._runs:
                self._runs.remove(run)
                for each in self._runs:
                    each.is_due = True


_OF_CLUSTER: WeakKeyDictionary[GangExecutor, PlacedRuns] = WeakKeyDictionary()
_LOCK = threading.Lock()


def placed_runs_of(cluster: GangExecutor) -> PlacedRuns:
    """Return the runs in parts of a session, by its connection to the cluster."""
    with _LOCK:
        return _OF_CLUSTER.setdefault(cluster, PlacedRuns())
