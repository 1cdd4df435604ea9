"""What the accuracies of runs promise: whether more passes are worth it, and when the required one comes.

Source: Domhan, Springenberg, Hutter 2015, section 4: a run ends early if it is at most 5 % likely to become
better than what is wanted; Wang, Liu, Shen 2020, section 3.5, for the stop at the best accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.prediction.extrapolation import FEWEST, foresee

CONFIDENCE = 0.95  # that nothing better comes
MARGIN = 0.002  # an accuracy that is better by less than this is no better
FEWEST_PASSES = max(FEWEST, 8)  # before which nothing is said of a run
FAR = 10.0  # where no last pass is known: so many times the passes so far
POSITIONS = 40  # at which the way to the end is looked at


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyAhead:
    """What lies ahead of J runs.

    Attributes:
        is_best: no better accuracy is to be expected; where one is required and not reached yet, not that
            one. Shape (J,).
        passes_needed: after which the required accuracy is expected, shape (J,); inf: not before the end,
            NaN: none is required, or nothing can be said.
    """

    is_best: BoolArray
    passes_needed: FloatArray


def accuracy_ahead(accuracies: FloatArray, required: FloatArray, passes_most: FloatArray) -> AccuracyAhead:
    """Return what lies ahead of runs after their passes so far.

    Args:
        accuracies: after each pass, shape (J, W), NaN behind the last one.
        required: shape (J,), NaN where none is.
        passes_most: at the end of each run, shape (J,); inf where that is unknown.

    >>> flat, rising = np.full(90, 0.8), 0.9 - 0.4 / np.arange(1.0, 91.0) ** 0.3
    >>> ahead = accuracy_ahead(np.array([flat, rising]), np.array([np.nan, 0.81]), np.array([100.0, 200.0]))
    >>> ahead.is_best.tolist(), np.isfinite(ahead.passes_needed).tolist()
    ([True, False], [False, True])
    """
    known = np.isfinite(accuracies)
    counts = known.sum(axis=1)
    newest = accuracies[np.arange(len(counts)), np.maximum(counts - 1, 0)]
    has_required = newest >= required
    is_best = np.zeros(len(counts), dtype=bool)
    needed = np.where(has_required, counts, np.nan)
    rows = np.flatnonzero(counts >= FEWEST_PASSES)
    if not len(rows):
        return AccuracyAhead(is_best, needed)
    so_far = counts[rows].astype(np.float64)
    end = np.where(np.isfinite(passes_most[rows]), passes_most[rows], FAR * so_far)
    ahead = np.linspace(so_far + 1.0, np.maximum(end, so_far + 1.0), POSITIONS, axis=1)
    passes = np.where(known[rows], np.arange(1.0, accuracies.shape[1] + 1), np.nan)
    forecast = foresee(passes, accuracies[rows], ahead)
    better = np.nanmax(accuracies[rows], axis=1) + MARGIN
    wanted = np.where(has_required[rows], better, np.fmax(better, required[rows]))
    is_best[rows] = forecast.below(wanted[:, None]).min(axis=1) >= CONFIDENCE
    reaches = forecast.mean >= required[rows, None]
    first = np.where(reaches.any(axis=1), ahead[np.arange(len(rows)), reaches.argmax(axis=1)], np.inf)
    waits = ~has_required[rows] & np.isfinite(required[rows])
    needed[rows] = np.where(waits, first, needed[rows])
    return AccuracyAhead(is_best, needed)
