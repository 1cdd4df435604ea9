"""What MLF-RL knows of a candidate: columns for each job of a queue, and for each node that may get a part.

All are scaled to about 0 to 1, and none depends on how many jobs, parts, nodes or devices there are.
"""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.parts.parts import WAITS
from relaqs.parts.resources import DEVICES
from relaqs.placed_policies.ideal import host_distances, slowed_on_nodes
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


def node_features(walk: QueueWalk, part: int, candidates: IntArray) -> FloatArray:
    """Return the features of some nodes for one part, shape (n, 13), columns as in NODE_FEATURES."""
    view, load = walk.view, walk.load
    count = len(view.nodes)
    exchanged = walk.traffic.with_nodes(part, load.node, count)
    slowed = slowed_on_nodes(view, part)
    most = exchanged.max(initial=0.0)
    first, end = np.searchsorted(view.parts.job, [view.parts.job[part], view.parts.job[part] + 1])
    own = load.node[first:end]
    server = bool(load.is_server[part])
    least = np.zeros(len(candidates)) if server else np.minimum(load.least_device[candidates], 1.0)
    devices = np.maximum(view.nodes.capacity[candidates, DEVICES], 1.0)
    empty = (load.device_parts[candidates] == 0) & np.isfinite(load.device_used[candidates])
    distances = host_distances(load.utilisation, exchanged, slowed, walk.underloaded)
    return np.column_stack(
        [
            np.minimum(load.utilisation[candidates], 1.5),
            least,
            least + load.demand[part, DEVICES],
            empty.sum(axis=1) / devices,
            exchanged[candidates] / (most if most > 0 else 1.0),
            np.bincount(own[own != WAITS], minlength=count)[candidates] / len(own),
            np.minimum(distances[candidates], 3.0),
            np.minimum(slowed[candidates], 1.0),
            candidates == view.parts.node[part],
            np.full(len(candidates), float(server)),
        ]
    )


def _logarithm(seconds: FloatArray) -> FloatArray:
    return np.log1p(np.maximum(seconds, 0.0) / _SECONDS) / _LOGARITHMS
