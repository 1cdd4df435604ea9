"""Who is overloaded, and which parts leave an overloaded node."""

from __future__ import annotations

import math

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.load import Load, relative_to
from relaqs.parts.resources import DEVICES, NETWORK
from relaqs.placed_policies.ideal import mover_distances
from relaqs.placed_policies.traffic import Traffic


def take_movers(
    load: Load,
    priority: FloatArray,
    traffic: Traffic,
    limit: float,
    *,
    lowest_share: float = 0.1,
    bytes_relative: bool = True,
) -> list[int]:
    """Take parts off every overloaded node until it is not, and return them in the order in which they left.

    The part that is nearest to the ideal one leaves first. While a device of the node is overloaded, only the
    parts on such devices with the lowest priorities may leave, at least one.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.3.3.

    Args:
        load: what stands where; it is changed.
        priority: of each part, shape (P,).
        limit: above which a resource or a device is overloaded.
        lowest_share: of the parts on overloaded devices, those that may leave.
        bytes_relative: as in `relaqs.placed_policies.ideal`.
    """
    left = []
    for node in np.flatnonzero(load.overloaded(limit)).tolist():
        members, alone = np.flatnonzero(load.node == node), slice(node, node + 1)
        while True:
            devices = load.overloaded_devices(limit, alone)[0]
            overloaded = load.overloaded_resources(limit, alone)[0]
            overloaded[DEVICES] = devices.any()
            if not overloaded.any():
                break
            candidates = _candidates(load, members, devices, priority, lowest_share)
            exchanged = [traffic.with_nodes(part, load.node).get(node, 0.0) for part in candidates.tolist()]
            utilisation = relative_to(load.demand[candidates], load.capacity[node])
            distance = mover_distances(
                utilisation, np.array(exchanged), overloaded, bytes_relative=bytes_relative
            )
            part = int(candidates[distance.argmin()])
            load.take(part)
            members = members[members != part]
            left.append(part)
    return left


def _candidates(
    load: Load, members: IntArray, devices: BoolArray, priority: FloatArray, lowest_share: float
) -> IntArray:
    """Return those of a node's parts that may leave it. devices: which of its devices are overloaded."""
    if not devices.any():
        return members
    there = members[(load.device[members] >= 0) & devices[load.device[members]]]
    count = max(1, math.ceil(lowest_share * len(there)))
    return np.sort(there[np.argsort(priority[there], kind="stable")[:count]])


def cluster_load(load: Load, *, normalised: bool = False) -> float:
    """Return the mean over living nodes of the length of their utilisations; 0 without such nodes.

    Four resources that are used to 45 % each have a length of 0.9.

    Source: Wang, Liu, Shen, MLFS, CoNEXT 2020, section 3.5.

    Args:
        normalised: divide by the root of the number of resources, so that 0.9 means 90 % of each.
    """
    if not load.alive.any():
        return 0.0
    lengths = np.linalg.norm(load.utilisation[load.alive], axis=1)
    return float(lengths.mean()) / (math.sqrt(NETWORK + 1) if normalised else 1.0)
