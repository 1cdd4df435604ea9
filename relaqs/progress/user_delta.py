"""Progress by a function of the user's own: how different two consecutive results are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

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
