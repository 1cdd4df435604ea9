"""When a job may stop before its end: good enough, or nothing left to see. For time, jobs set timers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray

PIXEL = 1.0  # of a chart: a smaller change nobody sees
STEADY_STEPS = 3  # of a loss curve, all below a pixel: one small step may be a pause


class StopReason(StrEnum):
    """Why a job stopped, for people."""

    TARGET = "target reached"
    TIME = "time is up"
    NO_VISIBLE_CHANGE = "no visible change"
    REQUIRED_ACCURACY = "required accuracy reached"
    BEST_ACCURACY = "best accuracy reached"
    OUT_OF_REACH = "required accuracy out of reach"
    OVERLOAD = "good enough, and the cluster is overloaded"


@dataclass(frozen=True, slots=True)
class StopRules:
    """What one job may stop at after a step; None is no rule. Raises ValueError for one that cannot be meant.

    target: the error or loss that is good enough. pixels: the change that nobody sees, e.g. 1.0. Time ends
    in the middle of a step, too, so a timer of the job's own stops it then.
    """

    target: float | None = None
    pixels: float | None = None

    def __post_init__(self) -> None:
        if self.target is not None and not math.isfinite(self.target):
            raise ValueError(f"the target is {self.target}; it must be a finite error or loss, or None")
        if self.pixels is not None and not 0 < self.pixels < math.inf:
            raise ValueError(f"pixels is {self.pixels}; it must be a finite number above 0, or None")

    def reason(self, quality: float, change_pixels: float = math.inf) -> StopReason | None:
        """Return why the job may stop now, the best news first, or None: go on.

        quality: its error or loss, smaller is better. change_pixels: how far what is drawn of it may still
        move, by `answer_pixels` or `curve_pixels`; inf if nothing is drawn.
        """
        if self.target is not None and quality <= self.target:
            return StopReason.TARGET
        if self.pixels is not None and change_pixels < self.pixels:
            return StopReason.NO_VISIBLE_CHANGE
        return None


def answer_pixels(
    values: FloatArray, half_widths: FloatArray, certified: BoolArray, height_pixels: float
) -> float:
    """Return how far a bar of the answer may still move, in pixels, at the confidence of its interval.

    values, half_widths, certified: shape (rows, columns), as in `Estimate`; each column is a chart of its
    own, height_pixels high, from 0 or its least value to 0 or its largest. inf while a cell is not certified.
    Not the change since the last result: that is small by chance now and then, and for small steps always.
    """
    if not values.size:
        return 0.0
    if not (certified & np.isfinite(values) & np.isfinite(half_widths)).all():
        return math.inf
    extent = np.maximum(values.max(axis=0), 0.0) - np.minimum(values.min(axis=0), 0.0)
    widest = half_widths.max(axis=0)
    share = np.where(widest == 0.0, 0.0, widest / np.where(extent > 0, extent, 1e-300))
    return float(share.max() * height_pixels)


def curve_pixels(qualities: Sequence[float], height_pixels: float, steps: int = STEADY_STEPS) -> float:
    """Return the largest of a curve's newest changes, in pixels; inf while it has not made so many steps.

    qualities: a job's errors or losses, one a step; the chart shows all of them, height_pixels high.
    """
    known = np.array([quality for quality in qualities if math.isfinite(quality)])
    if len(known) <= steps:
        return math.inf
    extent = known.max() - known.min()
    largest = np.abs(np.diff(known[-steps - 1 :])).max()
    return float(largest / extent * height_pixels) if extent > 0 else 0.0
