"""How fast a job would be with other slots and batches: seven numbers, fitted to the steps it has made.

The model is that of `relaqs.sharing.gangs`. Computing is measured by itself, so its line is fitted first. For
each overlap γ, the rest of every step is then the time of adding up, and its lines are fitted by weighted
least squares. γ is searched. So the fit needs no start values, and takes well below a millisecond.

What was never measured is assumed to cost little, as Pollux does: a job that never ran on two slots is taken
to grow freely, so that it is tried there.

Source: Qiao et al., Pollux, OSDI 2021, section 4.1, for the model and what is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from relaqs_bootstrap.arrays import FloatArray

TINY = 1e-8  # seconds: what stands for "costs nothing"
LARGEST_OVERLAP = 10.0
TRIED_AT_ONCE = 19
ROUNDS = 3  # of the search for γ, each nine times finer
PREFERS_SMALL = 1e-5  # for each unit of γ squared: where it makes no difference, the smaller one
WEIGHT_LEAST = 1e-6
ACROSS_AT_LEAST = 1.1  # of what adding up takes within a node


@dataclass(slots=True)
class Measured:
    """The steps that a job has made: the first one for each number of nodes, slots and rows of a slot."""

    seconds: dict[tuple[int, int, float], tuple[float, float]] = field(default_factory=dict)

    def add(self, nodes: int, slots: int, slot_rows: float, compute: float, step: float) -> None:
        """Note a step: the seconds that a slot computed its rows, and those of the step with adding up."""
        self.seconds.setdefault((nodes, slots, slot_rows), (compute, step))

    def __len__(self) -> int:
        return len(self.seconds)


def fit_speed(measured: Measured) -> FloatArray:
    """Return the seven numbers that fit what was measured, shape (7,), NaN if nothing was."""
    if not len(measured):
        return np.full(7, np.nan)
    nodes, slots, rows = np.array(list(measured.seconds), dtype=np.float64).T
    compute, step = np.array(list(measured.seconds.values()), dtype=np.float64).T
    start, a_row = _compute_line(rows, compute)
    computed = np.maximum(start + a_row * rows, TINY)
    several = slots > 1
    if not several.any():
        return np.array([start, a_row, TINY, TINY, TINY, TINY, 1.0])
    low, high = 1.0, LARGEST_OVERLAP
    for _ in range(ROUNDS):
        overlap = np.linspace(low, high, TRIED_AT_ONCE)[:, None]
        lines = _sync_lines(overlap, computed, step, slots, nodes)
        error = _error(lines, overlap, computed, step, slots, nodes)
        best = int(np.argmin(error))
        width = (high - low) / (TRIED_AT_ONCE - 1)
        low, high = max(overlap[best, 0] - width, 1.0), min(overlap[best, 0] + width, LARGEST_OVERLAP)
    return np.array([start, a_row, *lines[best], overlap[best, 0]])


def _compute_line(rows: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    if len(np.unique(rows)) == 1:  # half and half: one point says nothing about the slope
        return float(seconds.mean() / 2), float((seconds / rows).mean() / 2)
    line = _lines(rows, seconds[None, :], (1.0 / seconds)[None, :])[0]
    return float(line[0]), float(line[1])


def _lines(x: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Return start and slope of the best line of each row, shape (R, 2), neither below 0.

    x: shape (n,). y: shape (R, n). weight: of each point's error, shape (R, n).
    """
    weight = weight**2 / (weight**2).sum(axis=1, keepdims=True)
    mean_x, mean_y = (weight * x).sum(axis=1), (weight * y).sum(axis=1)
    off = x - mean_x[:, None]
    spread = (weight * off**2).sum(axis=1)
    varies = spread > 1e-12
    slope = np.where(varies, (weight * off * (y - mean_y[:, None])).sum(axis=1), 0.0)
    slope = slope / np.where(varies, spread, 1.0)
    start = mean_y - slope * mean_x
    through_zero = (weight * x * y).sum(axis=1) / np.maximum((weight * x * x).sum(axis=1), TINY**2)
    slope = np.where(start < 0, through_zero, slope)
    start = np.where(slope < 0, mean_y, start)
    return np.asarray(np.maximum(np.column_stack([start, slope]), TINY))


def _sync_lines(
    overlap: FloatArray, computed: FloatArray, step: FloatArray, slots: FloatArray, nodes: FloatArray
) -> FloatArray:
    """Return start and slope within a node and across nodes for each overlap, shape (R, 4)."""
    rest = np.maximum(step**overlap - computed**overlap, 0.0) ** (1.0 / overlap)
    sync = np.maximum(rest, TINY)
    weight = np.maximum((sync / step) ** (overlap - 1.0), WEIGHT_LEAST) / step  # of the step's relative error
    inside, across = (nodes == 1) & (slots > 1), nodes > 1
    nothing = np.full((len(overlap), 2), TINY)
    here = _lines(slots[inside] - 2.0, sync[:, inside], weight[:, inside]) if inside.any() else nothing
    if not across.any():
        return np.column_stack([here, here * ACROSS_AT_LEAST])
    return np.column_stack([here, _lines(slots[across] - 2.0, sync[:, across], weight[:, across])])


def _error(
    lines: FloatArray,
    overlap: FloatArray,
    computed: FloatArray,
    step: FloatArray,
    slots: FloatArray,
    nodes: FloatArray,
) -> FloatArray:
    """Return how far off the steps are for each overlap, shape (R,), in logarithms."""
    start = np.where(nodes > 1, lines[:, 2:3], lines[:, 0:1])
    more = np.where(nodes > 1, lines[:, 3:4], lines[:, 1:2])
    sync = np.where(slots > 1, start + more * np.maximum(slots - 2.0, 0.0), 0.0)
    larger, smaller = np.maximum(computed, sync), np.minimum(computed, sync)
    predicted = larger * (1.0 + (smaller / larger) ** overlap) ** (1.0 / overlap)
    off = np.log(predicted / step)
    return np.asarray(np.sqrt((off**2).mean(axis=1)) + PREFERS_SMALL * (overlap[:, 0] - 1.0) ** 2)
