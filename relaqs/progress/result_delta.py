"""The thesis's progress of a query: how far the newest result moved, relative to its largest move."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.progress.cells import Cells


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
