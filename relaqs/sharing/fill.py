"""Cores handed out without looking ahead: evenly up to a common level, or in order."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray


def fill_evenly(
    cores: float, weight: FloatArray, most: FloatArray, start: FloatArray | None = None
) -> FloatArray:
    """Return each job's cores such that start + cores reaches one level a weight: weighted max-min fairness.

    The result has shape (J,), and its sum is the smaller of `cores` and the sum of `most`. A job above the
    level gets nothing, and one that reaches `most` gets no more. The level is found exactly, by sorting the
    points where a job begins to be filled and where it is full.
    Source: Bertsekas, Gallager 1992, Data Networks, ch. 6, max-min flow control.

    Args:
        cores: what is handed out.
        weight: of each job, shape (J,).
        most: what each job can use of these cores, shape (J,).
        start: what counts as handed out before, shape (J,). None: nothing.

    The first job can use one core alone, and the others share the rest by their weights:

    >>> fill_evenly(10.0, np.array([1.0, 1.0, 2.0]), np.array([1.0, 10.0, 10.0])).tolist()
    [1.0, 3.0, 6.0]
    """
    most = np.minimum(most, max(cores, 0.0))
    if most.sum() <= cores:
        return most
    begun = np.zeros_like(most) if start is None else start
    points = np.concatenate([begun / weight, (begun + most) / weight])
    order = np.argsort(points, kind="stable")
    points, rate = points[order], np.cumsum(np.concatenate([weight, -weight])[order])
    filled = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(points))])
    at = int(np.searchsorted(filled, cores, side="right")) - 1
    level = points[at] + (cores - filled[at]) / max(rate[at], 1e-300)
    return _within(np.clip(weight * level - begun, 0.0, most), cores)


def fill_in_order(cores: float, order: IntArray, most: FloatArray) -> FloatArray:
    """Return each job's cores when they are served one after another, each up to `most`, shape (J,).

    Args:
        cores: what is handed out.
        order: the jobs' positions, first served first.
        most: what each job can use of these cores, shape (J,).

    Job 1 is served first, then job 0:

    >>> fill_in_order(8.0, np.array([1, 0]), np.array([8.0, 6.0])).tolist()
    [2.0, 6.0]
    """
    most = np.minimum(most, max(cores, 0.0))
    taken_before = np.concatenate([[0.0], np.cumsum(most[order])[:-1]])[: len(order)]
    shares = np.zeros_like(most)
    shares[order] = np.clip(cores - taken_before, 0.0, most[order])
    return _within(shares, cores)


def _within(shares: FloatArray, cores: float) -> FloatArray:
    """Return the shares without what rounding has put on top of the cores."""
    total = shares.sum()
    return shares * (cores / total) if total > cores else shares
