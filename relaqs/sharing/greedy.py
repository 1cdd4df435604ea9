"""The greedy allocation, for all jobs at once: the k largest entries of the matrix of marginal gains.

The plain loop gives one unit after another to the job that gains most by it. Where gains are concave, a
job's marginal gains fall, so the loop ends with the k largest of all of them, and those are found by one
selection: 4,000 jobs × 16,000 cores in about 2 ms, where a heap takes 14 (benchmarks/scheduling_time.py).

The concave envelope of a gain table: what a job gains when its cores may alternate between two numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

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


Gains = Callable[[IntArray, FloatArray], FloatArray]
"""(jobs, units) → what these jobs have of so many units, (len(jobs), len(units)); any zero point will do."""

Values = Callable[[IntArray, int], FloatArray]
"""(jobs, n) → what each of the first n units is worth to these jobs, (len(jobs), n), falling along a row."""

FEWEST_COLUMNS = 4
SMALL_TABLE = 8192  # entries: up to these, every unit of every job is looked at from the start


def allocate_greedily(gains: Gains, most: IntArray, units: int, *, far_doublings: int = 0) -> FloatArray:
    """Return the units of each job, shape (J,), that gain most in sum; units nobody gains by are not given.

    most: the units a job can use, shape (J,). Gains are replaced by their concave envelopes. far_doublings:
    how often the envelope looks twice as far, beyond all that a job is likely to get now: a gain that lies
    ahead then counts at the rate at which the job gets there, as in an index. Units whose gains are equal are
    shared, so that equal jobs get equal shares.
    """

    def marginal_gains(jobs: IntArray, columns: int) -> FloatArray:
        near = np.arange(columns + 1, dtype=np.float64)
        far = columns * 2.0 ** np.arange(1, far_doublings + 1)
        points = np.concatenate([near, far])
        return envelope_slopes(points, gains(jobs, points))[:, :columns]

    return take_most_valued(marginal_gains, most, units)


def take_most_valued(values: Values, most: IntArray, units: int) -> FloatArray:
    """Return how many of the `units` most valued units each job has, (J,), without those worth nothing.

    Where several are worth as much as the last one taken, they share what is left in proportion.
    """
    if units <= 0 or not len(most):
        return np.zeros(len(most))
    blocks, price = _enough_columns(values, most, units)
    taken, tied = np.zeros(len(most)), np.zeros(len(most))
    for jobs, worth in blocks:
        taken[jobs] = (worth > price).sum(axis=1)
        tied[jobs] = (worth == price).sum(axis=1) if price > 0 else 0.0
    left = units - taken.sum()
    return taken + tied * (min(1.0, left / tied.sum()) if tied.any() else 0.0)


Block = tuple[IntArray, FloatArray]


def _enough_columns(values: Values, most: IntArray, units: int) -> tuple[list[Block], float]:
    """Return all jobs' values, in blocks of equally many columns, and the worth of the last unit taken.

    A job whose last column is still wanted gets twice as many. The price only rises by that, so that jobs
    which were not wanting before are not later.
    """
    columns = max(FEWEST_COLUMNS, 2 * (units // len(most)), min(int(most.max()), SMALL_TABLE // len(most)))
    blocks = [_block(values, np.arange(len(most)), columns, most)]
    price = 0.0
    while True:
        price = _price([worth for _, worth in blocks], units, price)
        jobs, worth = blocks[-1]
        wanting: BoolArray = (worth[:, -1] > price) & (most[jobs] > columns)
        if not wanting.any():
            return blocks, price
        columns *= 2
        blocks[-1] = (jobs[~wanting], worth[~wanting])
        blocks.append(_block(values, jobs[wanting], columns, most))


def _block(values: Values, jobs: IntArray, columns: int, most: IntArray) -> Block:
    usable = np.arange(columns) < most[jobs][:, None]
    return jobs, np.where(usable, values(jobs, columns), 0.0)


def _price(worths: list[FloatArray], units: int, least: float) -> float:
    """Return the worth of the least valued unit among the `units` best ones, or `least` if that is more."""
    candidates = np.concatenate([worth[worth > least] for worth in worths])
    if candidates.size <= units:
        return least
    return float(np.partition(candidates, candidates.size - units)[candidates.size - units])
