"""How long a step of a gang takes: the model of Pollux, seven numbers a job, for many jobs at once.

A step computes and then adds up gradients, and the two overlap in part. Computing takes
`compute_start + compute_row · rows` on each slot. Adding up takes nothing on one slot. On several slots it
takes `start + more · (slots − 2)`, with one pair of numbers on one node and another across nodes. A step
takes `(computeᵞ + syncᵞ)^(1/γ)`: their sum for γ = 1, the larger one for large γ.

Where a slot's rows do not fit at once, they are computed in pieces, and only the last piece adds up.

Source: Qiao et al., Pollux, OSDI 2021, section 3.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from relaqs_bootstrap.arrays import FloatArray

SPEED_NAMES = (
    "compute_start_seconds",
    "compute_row_seconds",
    "node_start_seconds",  # adding up within one node
    "node_more_seconds",
    "across_start_seconds",  # adding up across nodes
    "across_more_seconds",
    "overlap",  # γ, from 1 on
)
SPEED_NUMBERS = len(SPEED_NAMES)


def compute_seconds(speed: FloatArray, slot_rows: ArrayLike) -> FloatArray:
    """Return the seconds that a slot needs to compute so many rows. speed: shape (…, 7)."""
    return np.asarray(speed[..., 0] + speed[..., 1] * np.asarray(slot_rows))


def sync_seconds(speed: FloatArray, slots: ArrayLike, nodes: ArrayLike) -> FloatArray:
    """Return the seconds in which so many slots on so many nodes add their gradients up."""
    slots, nodes = np.asarray(slots), np.asarray(nodes)
    more = np.maximum(slots - 2, 0)
    here = speed[..., 2] + speed[..., 3] * more
    across = speed[..., 4] + speed[..., 5] * more
    return np.where(slots <= 1, 0.0, np.where(nodes > 1, across, here))


def step_seconds(
    speed: FloatArray, slots: ArrayLike, nodes: ArrayLike, slot_rows: ArrayLike, pieces: ArrayLike = 1
) -> FloatArray:
    """Return the seconds of one step. All arguments broadcast against the leading shape of `speed`.

    Args:
        speed: the seven numbers, shape (…, 7), as in SPEED_NAMES.
        slots: how many the job holds.
        nodes: how many machines these are on.
        slot_rows: the rows that a slot computes at once.
        pieces: how many times a slot does so in one step.

    >>> speed = np.array([0.1, 0.001, 0.05, 0.0, 0.2, 0.01, 1.0])
    >>> step_seconds(speed, slots=[1, 2, 4], nodes=[1, 1, 2], slot_rows=[100, 50, 25]).round(3).tolist()
    [0.2, 0.2, 0.345]
    """
    compute = compute_seconds(speed, slot_rows)
    sync, overlap = sync_seconds(speed, slots, nodes), speed[..., 6]
    larger, smaller = np.maximum(compute, sync), np.minimum(compute, sync)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(larger > 0, smaller / larger, 0.0)
    last = larger * (1.0 + ratio**overlap) ** (1.0 / overlap)
    return np.asarray(last + (np.asarray(pieces) - 1) * compute)


def rows_per_second(
    speed: FloatArray, slots: ArrayLike, nodes: ArrayLike, slot_rows: ArrayLike, pieces: ArrayLike = 1
) -> FloatArray:
    """Return the rows that a job processes a second, 0 without slots. Arguments as in `step_seconds`.

    >>> speed = np.array([0.1, 0.001, 0.05, 0.0, 0.2, 0.01, 1.0])
    >>> rows_per_second(speed, slots=2, nodes=1, slot_rows=50).round(6).tolist()
    500.0
    """
    rows = np.asarray(slots) * np.asarray(slot_rows) * np.asarray(pieces)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = rows / step_seconds(speed, slots, nodes, slot_rows, pieces)
    return np.where(rows > 0, rate, 0.0)
