"""What more core-seconds are worth to jobs with a curve, and to new ones that have none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs.sharing.division import Contest
from relaqs.sharing.outlook import Outlook, is_predictable

NEW_CORE_SECONDS = 0.05  # one ordinary task; no first result is expected from less
FIRST_RESULT_WORTH = 0.1  # where the fall of an error to zero is worth 1; the gain comes after the result

Worth = Callable[[IntArray, FloatArray], FloatArray]
"""(rows of the outlook, errors) → what these errors are worth, both of shape (len(rows), K)."""


class Hopes:
    """What each job of a contest gains by more core-seconds. Known jobs have curves for that.

    We do not know what a new job's first result costs. After x core-seconds without one, we assume a
    probability of 1 / x for each further core-second. So a new job starts before all others, and drops back
    if it is slow. Example: a training run reads all its data twice before its first loss, and drops behind
    queries that end in that time.

    Attributes:
        outlook: of the known jobs, None where there are none.
    """

    def __init__(self, contest: Contest, *, normalised: bool = True) -> None:
        self._is_new = ~is_predictable(contest.jobs)
        self._used = contest.jobs.attained_core_seconds + NEW_CORE_SECONDS
        self._row = np.cumsum(~self._is_new) - 1  # of each known job in the outlook
        known = contest.view.of_jobs(~self._is_new)
        self.outlook = Outlook.of(known, normalised=normalised) if len(known.jobs) else None

    def made(self, chosen: IntArray, core_seconds: FloatArray, worth: Worth) -> FloatArray:
        """Return the gains of some jobs, from any zero point, shape (len(chosen), K).

        Args:
            chosen: the jobs' positions in the contest.
            core_seconds: what they use, shape (len(chosen), K).
            worth: of the errors that known jobs will have then.
        """
        gains = np.empty(core_seconds.shape)
        new = self._is_new[chosen]
        used = self._used[chosen[new]][:, None]
        gains[new] = FIRST_RESULT_WORTH * np.log1p(core_seconds[new] / used)
        if self.outlook is not None:
            rows = self._row[chosen[~new]]
            gains[~new] = worth(rows, self.outlook.errors(rows, core_seconds[~new]))
        return gains
