"""The concave envelope of a gain table: what a job gains when its cores may alternate between two numbers."""

from __future__ import annotations

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

ROUNDING = 1e-14  # relative to a row's largest gain: what a difference of two gains may be off


def envelope_slopes(units: FloatArray, gains: FloatArray) -> FloatArray:
    """Return the slopes of the least concave function above each row of gains, shape (J, P−1), falling.

    units: shape (P,), rising. gains: shape (J, P). Rows that are concave keep their own slopes.

    Gains are not concave where waves of tasks, whole steps, gangs or targets make them jump, nor where a
    query ends: √(1/x − 1) falls ever faster beyond x = 3/4. A greedy step sees nothing before a jump: alone
    it reaches 55 (waves), 35 (steps) and 19 % (gangs) of the optimum, on the envelope 99 to 100 %. A share
    between two corners of the envelope is no fiction: so much time at the one and so much at the other yields
    just that.

    Source: gift wrapping (Jarvis 1973), for all rows at once.
    """
    run = np.diff(units)
    slopes: FloatArray = np.diff(gains, axis=1) / run
    rounding = ROUNDING * np.abs(gains).max(axis=1, keepdims=True, initial=0.0) / run[1:]
    bends: BoolArray = slopes[:, 1:] > slopes[:, :-1] + rounding
    bent = np.flatnonzero(bends.any(axis=1))
    slopes[bent] = _wrapped(units, gains[bent], slopes[bent], bends[bent])
    return slopes


def _wrapped(units: FloatArray, gains: FloatArray, slopes: FloatArray, bends: BoolArray) -> FloatArray:
    """Return the slopes of the envelopes of rows that bend upward, found edge by edge from the right.

    The edge before a corner is the least steep line to it from an earlier point. A row is done when nothing
    before its corner bends: from the right, since what bends is mostly near the end of a job.
    """
    columns = np.arange(len(units))
    corner = np.full(len(gains), len(units) - 1)
    rows = np.arange(len(gains))
    while len(rows):
        at = corner[rows]
        is_before = columns < at[:, None]
        rise = gains[rows, at][:, None] - gains[rows]
        to_corner = np.where(is_before, rise / np.where(is_before, units[at][:, None] - units, 1.0), np.inf)
        start = to_corner.argmin(axis=1)
        on_edge = is_before & (columns >= start[:, None])
        slopes[rows] = np.where(on_edge[:, :-1], to_corner.min(axis=1)[:, None], slopes[rows])
        corner[rows] = start
        bends_before = bends[rows] & (columns[2:] <= start[:, None])
        rows = rows[bends_before.any(axis=1)]
    return slopes
