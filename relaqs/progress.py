"""How far a job's answer still moves: the thesis's result-delta metric, and normalised losses for training.

Pure accumulators: each is fed one result after another and returns a number in [0, 1]. The newest change
is divided by the largest so far, so that answers and losses of any unit become comparable:

    P_i = |X_i − X_{i−1}| / max_j |X_j − X_{j−1}|

A query has many numbers, the watched cells of its result. `Cells` has them by group, `ResultDelta` takes
the mean of P over them. A training run has one, its loss: `LossDelta`. `UserDelta` takes a user's distance
of two results in the place of |X_i − X_{i−1}|. The first result counts 1. Example: losses of 1.0, 0.6, 0.5
have the progress 1, 1, 0.25.

They know neither what a job costs nor who runs it. What progress is expected next is `relaqs.prediction`'s
to say. Sources: the ReLAQS thesis, chapter 4; SLAQ (Zhang et al., SoCC 2017) for losses.

What still moves says, too, when a job may stop: at its target, or when nobody would see a change
(`StopRules`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_engine.execution.estimate import Estimate

from relaqs.python_values import python_values

PIXEL = 1.0  # of a chart: a smaller change nobody sees
STEADY_STEPS = 3  # of a loss curve, all below a pixel: one small step may be a pause


class StopReason(StrEnum):
    """Why a job stopped, for people."""

    TARGET = "target reached"
    TIME = "time is up"
    BUDGET = "budget spent"
    NO_VISIBLE_CHANGE = "no visible change"
    REQUIRED_ACCURACY = "required accuracy reached"
    BEST_ACCURACY = "best accuracy reached"
    OUT_OF_REACH = "required accuracy out of reach"
    OVERLOAD = "good enough, and the cluster is overloaded"
    CONVERGED = "converged"
    RETURNED = "the function has returned"
    MISSED = "converged, but what was asked for was not reached"
    PASSES = "all passes made"
    LATE = "done, but after the deadline"
    STOPPED = "stopped"
    FAILED = "failed"

    def by(self, deadline_seconds: float | None, elapsed_seconds: float) -> StopReason:
        """Return what is to be said where it came after so many seconds: `LATE` of what came too late.

        >>> StopReason.TARGET.by(60.0, 75.0).value, StopReason.STOPPED.by(60.0, 75.0).value
        ('done, but after the deadline', 'stopped')
        """
        is_late = deadline_seconds is not None and elapsed_seconds > deadline_seconds
        return StopReason.LATE if is_late and self in _DONE else self


_DONE = {
    StopReason.TARGET,
    StopReason.NO_VISIBLE_CHANGE,
    StopReason.REQUIRED_ACCURACY,
    StopReason.BEST_ACCURACY,
    StopReason.CONVERGED,
    StopReason.RETURNED,
    StopReason.PASSES,
}
"""Ends with what was asked for."""


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


def curve_pixels(qualities: Sequence[float], height_pixels: float) -> float:
    """Return the largest of a curve's newest changes, in pixels; inf while it has not made STEADY_STEPS.

    qualities: a job's errors or losses, one a step; the chart shows all of them, height_pixels high.
    """
    known = np.array([quality for quality in qualities if math.isfinite(quality)])
    if len(known) <= STEADY_STEPS:
        return math.inf
    extent = known.max() - known.min()
    largest = np.abs(np.diff(known[-STEADY_STEPS - 1 :])).max()
    return float(largest / extent * height_pixels) if extent > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Cells:
    """The watched cells of one result of G groups and C columns.

    Attributes:
        keys: the groups' keys, each once.
        values: shape (G, C).
        counts: shape (G, C), False for a cell that is left out, e.g. because its group has too few rows yet;
            a value that is not finite is left out as well.
    """

    keys: tuple[Hashable, ...]
    values: FloatArray
    counts: BoolArray

    def __post_init__(self) -> None:
        if self.values.shape != self.counts.shape or len(self.keys) != len(self.values):
            raise ValueError(
                f"{len(self.keys)} keys, values {self.values.shape} and counts {self.counts.shape} "
                "do not fit; they must be G keys, (G, C) and (G, C)"
            )
        if len(set(self.keys)) != len(self.keys):
            raise ValueError("two groups have the same key; give each row of the result a key of its own")


def cells_of(estimate: Estimate, watch: tuple[str, ...] | None = None) -> Cells:
    """Return the watched cells of an estimate; without `watch`, every approximate column is watched.

    Groups are told apart by the columns that are not approximate. Cells that are not certified, because their
    group has too few rows or their replicates are far from normal, do not count. Raises ValueError naming the
    approximate columns if `watch` names another.
    """
    names = [column.name for column in estimate.approximate]
    unknown = sorted(set(watch or ()) - set(names))
    if unknown:
        raise ValueError(f"{unknown} cannot be watched; the approximate columns are {names}")
    chosen = [index for index, name in enumerate(names) if watch is None or name in watch]
    return Cells(
        keys=_row_keys(estimate),
        values=estimate.values[:, chosen],
        counts=estimate.certified[:, chosen] & np.isfinite(estimate.values[:, chosen]),
    )


def _row_keys(estimate: Estimate) -> tuple[Hashable, ...]:
    """Return each row's key: its exact columns as text, and which of the equal ones it is, from 0.

    As text, because a key may hold lists, which do not hash, or a NaN, which does not equal itself.
    """
    approximate = {column.position for column in estimate.approximate}
    exact = [
        python_values(estimate.table.column(i)) for i in range(len(estimate.columns)) if i not in approximate
    ]
    rows = [repr(row) for row in zip(*exact, strict=True)] if exact else [""] * estimate.table.num_rows
    seen: dict[str, int] = {}
    keys = []
    for row in rows:
        seen[row] = seen.get(row, -1) + 1
        keys.append((row, seen[row]))
    return tuple(keys)


class ResultDelta:
    """P_i = |X_i − X_{i−1}| / max_j |X_j − X_{j−1}|, averaged over the watched cells.

    Groups are matched by key: they may appear, move between rows and vanish from one result to the next. A
    cell seen for the first time counts 1, all of it being new; one that never moved counts 0. So P_1 = 1, and
    a result without a cell that counts has progress 0.
    Source: the ReLAQS thesis, ch. 4, the result-delta metric. Over equal mini-batches it falls like 1/i,
    while the true error falls like √(1/i − 1/N); where they grow, so does what one of them changes.
    """

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self._newest = np.empty((0, 0))
        self._largest = np.empty((0, 0))

    def update(self, cells: Cells) -> float:
        """Return the progress of the next result, in [0, 1]."""
        rows = self._rows_of(cells)
        counted = cells.counts & np.isfinite(cells.values)
        previous, largest = self._newest[rows], self._largest[rows]
        delta = np.abs(cells.values - previous)
        is_first = np.isnan(previous)
        largest = np.where(counted & ~is_first, np.fmax(largest, delta), largest)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(is_first, 1.0, np.where(largest > 0, delta / largest, 0.0))
        self._largest[rows] = largest
        self._newest[rows] = np.where(counted, cells.values, previous)
        return float(share[counted].mean()) if counted.any() else 0.0

    def _rows_of(self, cells: Cells) -> IntArray:
        """Return where each group is remembered, making room for those never seen."""
        for key in cells.keys:
            self._rows.setdefault(key, len(self._rows))
        width = cells.values.shape[1]
        self._newest = _grown(self._newest, len(self._rows), width, np.nan)
        self._largest = _grown(self._largest, len(self._rows), width, 0.0)
        return np.fromiter((self._rows[key] for key in cells.keys), dtype=np.int64, count=len(cells.keys))


def _grown(kept: FloatArray, rows: int, columns: int, fill: float) -> FloatArray:
    if len(kept) >= rows and kept.shape[1] == columns:
        return kept
    if len(kept) and kept.shape[1] != columns:
        raise ValueError(f"the result has {columns} watched columns; the ones before had {kept.shape[1]}")
    grown = np.full((max(rows, 2 * len(kept)), columns), fill)  # doubling: new groups trickle in
    if len(kept):
        grown[: len(kept)] = kept
    return grown


class LossDelta:
    """P_i = |L_i − L_{i−1}| / max_j |L_j − L_{j−1}|. Losses of any unit become comparable.

    The first loss counts 1. A loss that is not finite counts 0 and is forgotten: training that diverged makes
    no progress. Source: SLAQ (SoCC 2017), normalised change of loss.
    """

    def __init__(self) -> None:
        self._newest = math.nan
        self._largest = 0.0

    @property
    def largest_change(self) -> float:
        """The largest move so far, in the loss's own unit: what predicted losses are divided by."""
        return self._largest

    def update(self, loss: float) -> float:
        """Return the progress of the next loss, in [0, 1]."""
        if not math.isfinite(loss):
            return 0.0
        previous, self._newest = self._newest, loss
        if math.isnan(previous):
            return 1.0
        delta = abs(loss - previous)
        self._largest = max(self._largest, delta)
        return delta / self._largest if self._largest else 0.0


Result = TypeVar("Result")


class UserDelta(Generic[Result]):
    """P_i = d(X_{i−1}, X_i) / max_j d(X_{j−1}, X_j) for a user's distance d ≥ 0; the first counts 1."""

    def __init__(self, distance: Callable[[Result, Result], float]) -> None:
        self._distance = distance
        self._newest: Result | None = None
        self._largest = 0.0

    def update(self, result: Result) -> float:
        """Return the progress of the next result, in [0, 1].

        Raises ValueError if the function returns what is not a distance.
        """
        previous, self._newest = self._newest, result
        if previous is None:
            return 1.0
        delta = float(self._distance(previous, result))
        if not 0 <= delta < math.inf:
            raise ValueError(
                f"the progress function returned {delta}; it must return a finite number, 0 for no change"
            )
        self._largest = max(self._largest, delta)
        return delta / self._largest if self._largest else 0.0
