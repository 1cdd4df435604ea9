"""What MLF-RL knows of a candidate: columns for each job of a queue, and for each node that may get a part.

All are scaled to about 0 to 1, and none depends on how many jobs, parts, nodes or devices there are.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.load import cells_of
from relaqs.parts.parts import WAITS
from relaqs.parts.resources import DEVICES
from relaqs.placed_policies.host_distances import HostDistances
from relaqs.placed_policies.ideal import slowed_on_nodes
from relaqs.placed_policies.queue_walk import QueueWalk
from relaqs.placed_policies.work import device_seconds_left, device_shares, iterations_to_accuracy

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
