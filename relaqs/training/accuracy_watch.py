"""Which stop option a run has met: the required accuracy, or the best that is to be expected."""

from __future__ import annotations

import math

import numpy as np

from relaqs.jobs.stopping import StopReason
from relaqs.prediction.accuracy_ahead import accuracy_ahead
from relaqs.sharing.goals import AccuracySoFar, Goals, Stop


class AccuracyWatch:
    """Keeps the accuracies of one run after its passes, and what they promise.

    Args:
        goals: of the run.
        passes_most: the passes at the end of the run; inf where none is known.

    >>> watch = AccuracyWatch(Goals(accuracy=0.8, stop=Stop.REQUIRED), passes_most=math.inf)
    >>> for accuracy in (0.6, 0.7, 0.85):
    ...     watch.take(accuracy)
    >>> watch.reason().value, watch.so_far.newest
    ('required accuracy reached', 0.85)
    """

    def __init__(self, goals: Goals, passes_most: float) -> None:
        self._goals = goals
        self._passes_most = passes_most
        self._accuracies: list[float] = []
        self.so_far: AccuracySoFar | None = None
        """What the scheduler is told; None where no accuracy was measured."""
        self.may_be_ended = False
        """Whether a cluster with too few cores may have ended the run, at some pass so far."""

    def take(self, accuracy: float) -> None:
        """Note the accuracy after one more pass. NaN: it is not measured."""
        if math.isnan(accuracy):
            return
        self._accuracies.append(accuracy)
        required, most = np.array([self._goals.accuracy]), np.array([self._passes_most])
        ahead = accuracy_ahead(np.array([self._accuracies]), required, most)
        self.so_far = AccuracySoFar(accuracy, bool(ahead.is_best[0]), float(ahead.passes_needed[0]))
        at_required = self._has_required and self._goals.may_end(Stop.REQUIRED)
        self.may_be_ended |= at_required or (self.so_far.is_best and self._goals.may_end(Stop.BEST))

    def reason(self) -> StopReason | None:
        """Return why the run may stop by its own stop option, or None: go on."""
        if self.so_far is None or self._goals.stop is Stop.ITERATIONS:
            return None
        if self._goals.stop is Stop.REQUIRED:
            return StopReason.REQUIRED_ACCURACY if self._has_required else None
        if not self.so_far.is_best:
            return None
        is_in_reach = max(self._accuracies) >= self._goals.accuracy or math.isnan(self._goals.accuracy)
        return StopReason.BEST_ACCURACY if is_in_reach else StopReason.OUT_OF_REACH

    @property
    def _has_required(self) -> bool:
        return self.so_far is not None and self.so_far.newest >= self._goals.accuracy
