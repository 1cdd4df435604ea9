"""How long an iteration of each running job takes, when parts share devices, cores and networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs.parts.resources import CORES, DEVICES, NETWORK, NodeResources
from relaqs_lab.simulation.placed.part_table import PartTable, rows_of


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """What running jobs do in an iteration, shape (n,).

    Attributes:
        seconds: that it takes.
        sent_bytes: between nodes.
    """

    seconds: FloatArray
    sent_bytes: FloatArray


def pace_of(
    table: PartTable,
    jobs: IntArray,
    works: BoolArray,
    node: IntArray,
    device: IntArray,
    demand: FloatArray,
    nodes: NodeResources,
) -> Pace:
    """Return the pace of the running jobs.

    A part is slower than alone by what is asked of its device, or of its node's cores, beyond what there is.
    The parts of a level start when those of the level above have sent all that they send. What goes between
    nodes takes its bytes over the network of the busier end, which is slower by what all jobs ask of it. A
    job of copies of which only some are whole makes an iteration in as many times the time.

    Args:
        jobs: the running jobs' positions, shape (n,).
        works: which parts of the table compute, shape (P,).
        node, device: of each part of the table, shape (P,).
        demand: of each part of the table now, shape (P, 4).
    """
    rows, owner = rows_of(table.starts, jobs)
    active = works[rows]
    working = _working_copies(table, rows[active], owner[active], len(jobs))
    compute = _compute_seconds(table, rows[active], node, device, demand, nodes)
    stages = int(table.stages[jobs].max(initial=1))
    longest = np.zeros((len(jobs), stages))
    np.maximum.at(longest, (owner[active], table.level[rows[active]]), compute)
    alone = np.zeros((len(jobs), stages))
    np.maximum.at(alone, (owner[active], table.level[rows[active]]), table.alone_seconds[rows[active]])
    sending, sent = _sending_seconds(table, jobs, works, node, nodes, alone.sum(axis=1), stages)
    seconds = (longest.sum(axis=1) + sending) * table.copies(jobs) / np.maximum(working, 1)
    return Pace(seconds, sent)


def _working_copies(table: PartTable, rows: IntArray, owner: IntArray, count: int) -> IntArray:
    copy = table.replica[rows]
    first = np.unique(copy[copy >= 0], return_index=True)[1]
    return np.bincount(owner[copy >= 0][first], minlength=count)


def _compute_seconds(
    table: PartTable,
    rows: IntArray,
    node: IntArray,
    device: IntArray,
    demand: FloatArray,
    nodes: NodeResources,
) -> FloatArray:
    most = int(nodes.device_counts.max(initial=1))
    place = node[rows]
    cores = np.bincount(place, weights=demand[rows, CORES], minlength=len(nodes))
    on_device = device[rows] >= 0
    spot = place * most + np.maximum(device[rows], 0)
    shares = np.bincount(
        spot, weights=np.where(on_device, demand[rows, DEVICES], 0.0), minlength=len(nodes) * most
    )
    slower = np.maximum(cores / np.maximum(nodes.capacity[:, CORES], 1e-9), 1.0)[place]
    slower = np.where(on_device, np.maximum(slower, shares[spot]), slower)
    return np.asarray(table.alone_seconds[rows] * slower)


def _sending_seconds(
    table: PartTable,
    jobs: IntArray,
    works: BoolArray,
    node: IntArray,
    nodes: NodeResources,
    alone_seconds: FloatArray,
    stages: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds in which each job sends in an iteration, and the bytes between nodes."""
    flows, owner = rows_of(table.flow_starts, jobs)
    ends = table.flows[flows]
    crosses = works[ends[:, 0]] & works[ends[:, 1]] & (node[ends[:, 0]] != node[ends[:, 1]])
    if not crosses.any():
        return np.zeros(len(jobs)), np.zeros(len(jobs))
    owner, sizes = owner[crosses], table.flow_bytes[flows[crosses]]
    stage, ends = table.flow_stage[flows[crosses]], node[ends[crosses]]
    count, bandwidth = len(nodes), nodes.capacity[:, NETWORK]
    step = owner * stages + stage
    cells, cell = np.unique(np.concatenate([step * count + side for side in ends.T]), return_inverse=True)
    busiest, asked = np.zeros(len(cells)), np.zeros(count)
    for side, at in zip(ends.T, np.split(cell, 2), strict=True):  # what a node sends, and what it receives
        busiest = np.maximum(busiest, np.bincount(at, weights=sizes, minlength=len(cells)))
        each = np.bincount(side, weights=sizes / alone_seconds[owner], minlength=count)
        asked = np.maximum(asked, each)
    rate = np.maximum(bandwidth, 1e-9) / np.maximum(asked / np.maximum(bandwidth, 1e-9), 1.0)
    longest = np.zeros(len(jobs) * stages)
    np.maximum.at(longest, cells // count, busiest / rate[cells % count])
    seconds = longest.reshape(len(jobs), stages).sum(axis=1)
    return seconds, np.bincount(owner, weights=sizes, minlength=len(jobs)).astype(np.float64)
