"""How long a step of a gang takes: the model of Pollux, seven numbers a job, for many jobs at once.

A step computes and then adds up gradients, and the two overlap in part. Computing takes `compute_start +
compute_row · rows` on each slot. Adding up takes nothing on one slot. On several slots it takes `start +
more · (slots − 2)`, with one pair of numbers on one node and another across nodes. A step takes `(computeᵞ
+ syncᵞ)^(1/γ)`: their sum for γ = 1, the larger one for large γ.

Where a slot's rows do not fit at once, they are computed in pieces, and only the last piece adds up.

Source: Qiao et al., Pollux, OSDI 2021, section 3.2.

How a batch is divided among slots, and what one more row in it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

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


_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A batch as the slots compute it. All have the shape of the arguments.

    Attributes:
        slot_rows: the rows that a slot computes at once, a whole number.
        pieces: how many times a slot does so in one step.
        batch_rows: the rows of the whole step. This is the batch asked for, rounded up to equal slots.
    """

    slot_rows: FloatArray
    pieces: FloatArray
    batch_rows: FloatArray


def split_batch(
    batch_rows: ArrayLike,
    slots: ArrayLike,
    slot_rows_most: ArrayLike,
    rows_most: ArrayLike = np.inf,
    pieces_least: ArrayLike = 1,
) -> Split:
    """Return how each slot computes its equal share of a batch. Without slots all is 0.

    Args:
        batch_rows: the batch asked for.
        slots: how many slots compute it.
        slot_rows_most: what fits a slot at once. More is computed in pieces of equal size.
        rows_most: rounding up never leads beyond these.
        pieces_least: a share is cut into so many pieces at least.

    >>> split = split_batch(batch_rows=[100, 100], slots=[3, 1], slot_rows_most=[64, 64])
    >>> split.slot_rows.tolist(), split.pieces.tolist(), split.batch_rows.tolist()
    ([34.0, 50.0], [1.0, 2.0], [102.0, 100.0])
    """
    slots, most = np.asarray(slots, dtype=np.float64), np.asarray(slot_rows_most, dtype=np.float64)
    places = np.maximum(slots, 1.0)
    share = np.ceil(np.asarray(batch_rows) / places - _ROUNDING)
    pieces = np.maximum(np.ceil(share / most - _ROUNDING), np.maximum(np.asarray(pieces_least), 1.0))
    rows = np.ceil(share / pieces - _ROUNDING)
    rows = np.maximum(np.minimum(rows, np.floor(np.asarray(rows_most) / (places * pieces))), 1.0)
    has = (slots > 0) & (share > 0)
    rows, pieces = np.where(has, rows, 0.0), np.where(has, pieces, 0.0)
    return Split(rows, pieces, slots * rows * pieces)


def fewest_pieces(batch_rows: ArrayLike, slots: ArrayLike, start_rows: ArrayLike) -> FloatArray:
    """Return into how many pieces a slot's share is cut at least.

    The noise of gradients is measured between pieces. So a single slot computes a batch that has grown in
    two.

    >>> fewest_pieces(batch_rows=[32, 64, 64], slots=[1, 1, 2], start_rows=32).tolist()
    [1.0, 2.0, 1.0]
    """
    alone = (np.asarray(slots) == 1) & (np.asarray(batch_rows) > np.asarray(start_rows) + _ROUNDING)
    return np.where(alone, 2.0, 1.0)


def efficiency(batch_rows: ArrayLike, start_rows: ArrayLike, noise_rows: ArrayLike) -> FloatArray:
    """Return what a row is worth in a batch, relative to one in a batch of start_rows.

    (φ + B₀)/(φ + B), with the noise scale φ in rows. Without noise, a batch is worth no more than the first
    one. With much noise, all rows count alike: φ is infinite where gradients are nothing but noise.

    Source: Qiao et al., Pollux, OSDI 2021, section 3.1; McCandlish et al. 2018.

    >>> efficiency(batch_rows=[32, 64, 128], start_rows=32, noise_rows=96).round(3).tolist()
    [1.0, 0.8, 0.571]
    >>> efficiency(batch_rows=128, start_rows=32, noise_rows=float("inf")).tolist()
    1.0
    """
    noise = np.asarray(noise_rows, dtype=np.float64)
    finite = np.where(np.isinf(noise), 0.0, noise)
    worth = (finite + np.asarray(start_rows)) / (finite + np.asarray(batch_rows))
    return np.where(np.isinf(noise), 1.0, worth)
