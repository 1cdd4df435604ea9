"""The progress of a training run: how far the loss moved, relative to its largest move."""

from __future__ import annotations

import math


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
