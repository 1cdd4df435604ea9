"""MLF-RL and MLFS: the queue and nodes of MLF-H, with an order and a choice that were learned.

A candidate is a job of the queue, or a node that may get a part. What MLF-RL knows of it is a few columns,
all scaled to about 0 to 1; none depends on how many jobs, parts, nodes or devices there are. Candidates
are scored one by one by a small network. Its weights are in a file beside this one.

MLF-C is the rest of MLFS: while the cluster has too much to do, jobs end as soon as they have the accuracy
that they need.
"""

from __future__ import annotations

import importlib.resources
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import BinaryIO, ClassVar
from zipfile import BadZipFile

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.placed_policies.queue_walk import HostDistances, QueueWalk, cluster_load, slowed_on_nodes
from relaqs.sharing.parts import (
    DEVICES,
    WAITS,
    Load,
    PlacedPlan,
    PlacedPolicy,
    PlacedView,
    cells_of,
    planned_in_order,
)

JOB_FEATURES = (
    "work_left",  # device-seconds; this and all other times as logarithms
    "time_left",
    "work_to_accuracy",  # device-seconds until it has the accuracy that is required, as its gains suggest
    "devices",  # logarithm of how many parts are on devices
    "device_share",  # of one device, the largest of a part
    "depth",  # logarithm of the levels of parts
    "server",
    "waited",
    "to_deadline",
    "late",  # 1 if it cannot be in time any more
    "slack",  # what is left to the deadline, relative to the time that is left
    "urgency",
    "done",  # share of its iterations
    "early",  # 1 / (the iteration in hand)
    "fall",  # of the loss in the last iteration, relative to all its fall
    "lacks",  # of the accuracy that is required
    "gain",  # of accuracy, in the last tenth of its iterations
    "attained",  # device-seconds that it has held
    "room",  # devices that it wants, relative to those that nobody uses
)
NODE_FEATURES = (
    "devices",  # this and the next three: utilisations of the node
    "cores",
    "memory",
    "network",
    "least_device",  # the use of the device that the part would get
    "device_after",  # the same with the part
    "empty_devices",  # share of the node's devices
    "bytes",  # that the part exchanges with the node, relative to the most of all nodes
    "own_parts",  # share of the job's parts that are there
    "distance",  # from MLF-H's ideal host
    "slowed",  # by moving there
    "stays",  # 1 where the part is now
    "server",
)
_LEAST_DEVICE, _DEVICE_AFTER, _EMPTY_DEVICES, _BYTES, _OWN_PARTS, _DISTANCE, _SLOWED, _STAYS, _SERVER = range(
    4, len(NODE_FEATURES)
)
_SECONDS, _LOGARITHMS = 60.0, 10.0
_GAIN_MOST = 0.3


def device_shares(view: PlacedView) -> FloatArray:
    """Return the devices that each job uses while it runs, counted by shares; shape (J,), above 0."""
    used = np.bincount(view.parts.job, weights=view.parts.demand[:, DEVICES], minlength=len(view.jobs))
    return np.maximum(used, 1e-9)


def device_seconds_left(view: PlacedView) -> FloatArray:
    """Return what each job still needs of devices, alone, in seconds of whole devices; shape (J,)."""
    return device_shares(view) * view.jobs.iterations_left * view.jobs.iteration_seconds


def iterations_to_accuracy(view: PlacedView) -> FloatArray:
    """Return how many iterations each job is expected to make until it has its accuracy or ends, shape (J,).

    Accuracy is taken to approach its end as a/(n + a) does: a gain g in the last n₀ iterations, after n, is
    one of about g·(n/n₀)·m/(n + m) in the next m. A job that may not stop makes all iterations.
    """
    jobs = view.jobs
    left, done = jobs.iterations_left, jobs.iterations_done
    lacks = np.maximum(jobs.accuracy_required - jobs.accuracy, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = jobs.accuracy_gain * done / (0.1 * jobs.iterations_most)
        needed = np.where(lacks < most, done * lacks / (most - lacks), left)
    known = jobs.may_stop & ~np.isnan(jobs.accuracy_gain)
    return np.where(known, np.minimum(needed, left), left)


def job_features(walk: QueueWalk) -> FloatArray:
    """Return the features of all jobs of a view, shape (J, 19), columns as in JOB_FEATURES."""
    view, load = walk.view, walk.load
    jobs, parts = view.jobs, view.parts
    count = len(jobs)
    on_device = ~parts.is_server
    devices = np.bincount(parts.job[on_device], minlength=count)
    share, depth, waited = np.zeros((3, count))
    np.maximum.at(share, parts.job, parts.demand[:, DEVICES])
    np.maximum.at(depth, parts.job, parts.level + 1.0)
    np.maximum.at(waited, parts.job, np.nan_to_num(view.time_seconds - parts.queued_since_seconds))
    seconds = jobs.iterations_left * jobs.iteration_seconds
    to_deadline = jobs.deadline_seconds - view.time_seconds
    to_accuracy = iterations_to_accuracy(view) * jobs.iteration_seconds * device_shares(view)
    with np.errstate(divide="ignore", invalid="ignore"):
        fall = np.where(jobs.loss_fallen > 0, jobs.loss_fallen_last / jobs.loss_fallen, 0.0)
    unused = int(((load.device_parts == 0) & np.isfinite(load.device_used))[load.alive].sum())
    return np.column_stack(
        [
            _logarithm(device_seconds_left(view)),
            _logarithm(seconds),
            _logarithm(to_accuracy),
            np.log2(1.0 + devices) / 5.0,
            share,
            np.log2(1.0 + depth) / 5.0,
            np.bincount(parts.job[parts.is_server], minlength=count) > 0,
            _logarithm(waited),
            _logarithm(to_deadline),
            to_deadline < seconds,
            np.clip((to_deadline - seconds) / np.maximum(seconds, _SECONDS), -1.0, 10.0) / 10.0,
            jobs.urgency / 10.0,
            jobs.iterations_done / jobs.iterations_most,
            1.0 / (np.floor(jobs.iterations_done) + 1.0),
            np.where(np.isnan(jobs.loss_fallen_last), 1.0, np.clip(fall, 0.0, 1.0)),
            np.clip(jobs.accuracy_required - np.nan_to_num(jobs.accuracy), 0.0, 1.0),
            np.where(np.isnan(jobs.accuracy_gain), 1.0, jobs.accuracy_gain / _GAIN_MOST).clip(0.0, 1.0),
            _logarithm(jobs.attained_device_seconds),
            np.minimum(devices / max(unused, 1), 4.0) / 4.0,
        ]
    )


class NodeFeatures:
    """The features of nodes for one part after another of a walk.

    What does not depend on the part is kept for all nodes, and computed again for those that have changed.
    """

    def __init__(self, walk: QueueWalk) -> None:
        """Start with what stands where now, and at least one node that may get parts."""
        view, load = walk.view, walk.load
        self._walk, self._distances = walk, HostDistances(walk)
        self._seen = len(load.changed)
        self._first_parts = np.searchsorted(view.parts.job, np.arange(len(view.jobs) + 1)).tolist()
        self._devices = view.nodes.device_counts.tolist()
        self._kept = np.zeros((len(view.nodes), len(NODE_FEATURES)))
        self._cells = cells_of(self._kept)
        for node in range(len(view.nodes)):
            self._note(node)

    def of(self, part: int, candidates: IntArray) -> FloatArray:
        """Return the features of some nodes for a part, shape (n, 13), columns as in NODE_FEATURES."""
        walk, cells, width = self._walk, self._cells, len(NODE_FEATURES)
        load, origin = walk.load, int(walk.view.parts.node[part])
        for node in load.changed[self._seen :]:
            self._note(node)
        self._seen = len(load.changed)
        exchanged, beside = walk.traffic.with_nodes(part, load.node), self._own_shares(part)
        most = max(exchanged.values(), default=0.0)
        for node, size in exchanged.items():
            cells[width * node + _BYTES] = size / (most if most > 0 else 1.0)
        for node, share in beside.items():
            cells[width * node + _OWN_PARTS] = share
        features = self._kept[candidates]
        for node in exchanged:
            cells[width * node + _BYTES] = 0.0
        for node in beside:
            cells[width * node + _OWN_PARTS] = 0.0
        if load.is_server[part]:
            features[:, _LEAST_DEVICE] = 0.0
            features[:, _SERVER] = 1.0
        features[:, _DEVICE_AFTER] = features[:, _LEAST_DEVICE] + load.demand[part, DEVICES]
        features[:, _DISTANCE] = np.minimum(self._distances.to(part, exchanged)[candidates], 3.0)
        if origin != WAITS:
            features[:, _SLOWED] = np.minimum(slowed_on_nodes(walk.view, part)[candidates], 1.0)
            features[:, _STAYS] = candidates == origin
        return np.asarray(features)

    def _own_shares(self, part: int) -> dict[int, float]:
        """Return the share of a job's parts on each node that has some."""
        job = int(self._walk.view.parts.job[part])
        own = self._walk.load.node[self._first_parts[job] : self._first_parts[job + 1]].tolist()
        return {node: count / len(own) for node, count in Counter(own).items() if node != WAITS}

    def _note(self, node: int) -> None:
        load, first = self._walk.load, len(NODE_FEATURES) * node
        for at, share in enumerate(load.utilisation[node].tolist()):
            self._cells[first + at] = min(share, 1.5)
        self._cells[first + _LEAST_DEVICE] = min(float(load.least_device[node]), 1.0)
        devices = self._devices[node]
        empty = load.device_parts[node].tolist()[:devices].count(0)
        self._cells[first + _EMPTY_DEVICES] = empty / max(devices, 1)


def _logarithm(seconds: FloatArray) -> FloatArray:
    return np.log1p(np.maximum(seconds, 0.0) / _SECONDS) / _LOGARITHMS


SHIPPED = "mlf_rl.npz"
HIDDEN = 32  # units of the one hidden layer


@dataclass(frozen=True, slots=True, eq=False)
class ScoringNetwork:
    """Scores of candidates from their features x: direct·x + out·tanh(inward·x + shift).

    Each candidate is scored by itself, with the same weights. So there may be any number of them.

    Attributes:
        direct: shape (F,).
        inward: shape (F, H).
        shift, out: shape (H,).

    Raises:
        ValueError: a shape is wrong, or a weight is not finite.

    >>> network = ScoringNetwork(np.array([2.0]), np.zeros((1, 1)), np.zeros(1), np.zeros(1))
    >>> network.scores(np.array([[1.0], [3.0]])).tolist()
    [2.0, 6.0]
    """

    direct: FloatArray
    inward: FloatArray
    shift: FloatArray
    out: FloatArray

    def __post_init__(self) -> None:
        features, hidden = len(self.direct), len(self.shift)
        wanted = {"direct": (features,), "inward": (features, hidden), "shift": (hidden,), "out": (hidden,)}
        for name, shape in wanted.items():
            weights = getattr(self, name)
            if weights.shape != shape or not np.isfinite(weights).all():
                raise ValueError(
                    f"{name} has shape {weights.shape}, or a weight of it is not finite; it must be {shape}"
                )

    def scores(self, features: FloatArray) -> FloatArray:
        """Return the score of each candidate, shape (n,). features: shape (n, F)."""
        hidden = np.tanh(features @ self.inward + self.shift)
        return np.asarray(features @ self.direct + hidden @ self.out)


@dataclass(frozen=True, slots=True, eq=False)
class ScoringNetworks:
    """One network for jobs, and one for a part's nodes (`relaqs_lab.mlf_rl`)."""

    jobs: ScoringNetwork
    nodes: ScoringNetwork

    def save(self, file: BinaryIO) -> None:
        """Write all weights into a file, in half precision."""
        arrays = {
            f"{network}_{each.name}": getattr(getattr(self, network), each.name).astype(np.float16)
            for network in ("jobs", "nodes")
            for each in fields(ScoringNetwork)
        }
        np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, FloatArray]) -> ScoringNetworks:
        """Return the networks that were saved.

        Raises:
            ValueError: an array is missing, or its shape is not that of this version's features.
        """
        made = {}
        for name, features in (("jobs", JOB_FEATURES), ("nodes", NODE_FEATURES)):
            keys = {each.name: f"{name}_{each.name}" for each in fields(ScoringNetwork)}
            missing = [key for key in keys.values() if key not in arrays]
            if missing:
                raise ValueError(f"{', '.join(missing)} is missing")
            made[name] = ScoringNetwork(
                **{field: np.asarray(arrays[key], dtype=np.float64) for field, key in keys.items()}
            )
            if len(made[name].direct) != len(features):
                raise ValueError(
                    f"the network of {name} has {len(made[name].direct)} features, and this version has "
                    f"{len(features)}"
                )
        return cls(**made)


def read_networks(path: str | None = None) -> ScoringNetworks:
    """Return the networks in a file, or those that come with the package.

    Raises:
        ValueError: the file cannot be read, or holds no such networks.
    """
    shipped = importlib.resources.files("relaqs_lab") / SHIPPED
    try:
        with (
            shipped.open("rb") if path is None else open(path, "rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            return ScoringNetworks.of_arrays(dict(arrays))
    except (OSError, ValueError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path or SHIPPED} holds no weights of mlf_rl ({error}); make them with "
            "`relaqs learn --out FILE`, and name that file"
        ) from error


@dataclass(frozen=True, slots=True)
class MlfRl:
    """Jobs by a learned score, each part on the node with the highest learned score that has room.

    All else is as in MLF-H: which parts leave overloaded nodes, that jobs are placed whole, and the limit.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.4: a network that first does as MLF-H does, and then
    learns by policy gradient. The paper says neither what network nor how it meets other numbers of parts.
    Here it scores one candidate at a time. `relaqs learn` makes the weights.

    Args:
        weights: a file of weights, None for those of the package.
        limit, lowest_share: as in MLF-H.

    Raises:
        ValueError: the file cannot be read or holds no such weights.
    """

    weights: str | None = None
    limit: float = 0.9
    lowest_share: float = 0.1
    networks: ScoringNetworks = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "mlf_rl"

    def __post_init__(self) -> None:
        for name in ("limit", "lowest_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above 0, at most 1")
        object.__setattr__(self, "networks", read_networks(self.weights))

    def plan(self, view: PlacedView) -> PlacedPlan:
        return planned_in_order(view, self._planned)

    def _planned(self, view: PlacedView) -> PlacedPlan:
        walk = QueueWalk(view, self.limit)
        return walk.plan(ByScores(self.networks, walk), lowest_share=self.lowest_share)


class ByScores:
    """What the networks choose: the highest scores of jobs, and of the nodes that have room.

    Attributes:
        features: of all jobs when the walk began, shape (J, F).
        scores: of all jobs, shape (J,).
    """

    def __init__(self, networks: ScoringNetworks, walk: QueueWalk) -> None:
        self.networks, self.walk = networks, walk
        self.features, self.scores = np.empty((0, 0)), np.empty(0)

    def priorities(self) -> FloatArray:
        """Return the score of each part's job; infinite for servers, which MLF-H puts first."""
        self.features = job_features(self.walk)
        self.scores = self.networks.jobs.scores(self.features)
        parts = self.walk.view.parts
        return np.where(parts.is_server, np.inf, self.scores[parts.job])

    def ranks(self, queue: IntArray) -> FloatArray:
        return self.scores

    def node(self, part: int) -> int:
        candidates = self.walk.hosts(part).nonzero()[0]
        if len(candidates) < 2:
            return int(candidates[0]) if len(candidates) else WAITS
        return int(candidates[self.chosen(self._nodes.of(part, candidates))])

    @cached_property
    def _nodes(self) -> NodeFeatures:
        """Made when the first part is placed, since then the walk knows which nodes may get parts."""
        return NodeFeatures(self.walk)

    def chosen(self, features: FloatArray) -> int:
        """Return which candidate has the highest score, the first of several. features: shape (n, F)."""
        return int(self.networks.nodes.scores(features).argmax())


@dataclass(frozen=True, slots=True)
class PlacedLoadControl:
    """A policy whose jobs may end early, once they have the accuracy that their users need.

    While the cluster is overloaded, they end then. It is so if a part waits after the plan, or if the mean
    length of the nodes' utilisations is above `limit`. Otherwise a job ends once its accuracy has stopped
    rising as well: by less than `gain_least` in the last tenth of its iterations.

    A job says whether it may end early (`PlacedJobs.may_stop`).

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.5. Its OptStop extrapolates the accuracy to the last
    iteration (Domhan et al. 2015). Here a job that has stopped rising stands in for that.

    Args:
        inner: says where parts are.
        limit: of the mean length; with four resources, 0.9 is 45 % of each.
        normalised: divide the length by the root of the number of resources.
        gain_least: of accuracy; 0 lets only the overload end jobs.
    """

    inner: PlacedPolicy
    limit: float = 0.9
    normalised: bool = False
    gain_least: float = 0.005

    @property
    def name(self) -> str:
        return f"{self.inner.name}, stops"

    def plan(self, view: PlacedView) -> PlacedPlan:
        plan = self.inner.plan(view)
        return replace(plan, stops=plan.stops | self._stops(view, plan))

    def _stops(self, view: PlacedView, plan: PlacedPlan) -> BoolArray:
        jobs = view.jobs
        enough = jobs.may_stop & (jobs.accuracy >= jobs.accuracy_required)
        if not enough.any():
            return np.asarray(enough)
        if self._is_overloaded(view, plan):
            return np.asarray(enough)
        return np.asarray(enough & (jobs.accuracy_gain < self.gain_least))

    def _is_overloaded(self, view: PlacedView, plan: PlacedPlan) -> bool:
        if (plan.node == WAITS).any():
            return True
        parts = replace(
            view.parts,
            node=plan.node,
            device=plan.device,
            queued_since_seconds=np.full(len(plan.node), np.nan),
        )
        load = Load(replace(view, parts=parts))
        return cluster_load(load, normalised=self.normalised) > self.limit + 1e-9


@dataclass(frozen=True, slots=True)
class Mlfs:
    """MLF-RL with MLF-C: all of MLFS, once MLF-RL has learned from MLF-H.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.

    Args:
        weights: as in MLF-RL.

    Raises:
        ValueError: as MLF-RL does.
    """

    weights: str | None = None
    control_limit: float = 0.9
    inner: MlfRl = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "mlfs"

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", MlfRl(self.weights))

    def plan(self, view: PlacedView) -> PlacedPlan:
        return PlacedLoadControl(self.inner, self.control_limit).plan(view)
