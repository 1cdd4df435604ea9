"""What a user wants of a training run beside its loss: an accuracy, how urgent it is, and when it may stop.

Source: Wang, Liu, Shen 2020, Job Scheduling for Large-Scale Machine Learning Clusters (CoNEXT), section 3.5:
a run makes all its iterations, or stops at its best accuracy, or at the required one. Users also say which of
the later two an overloaded cluster may choose for them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

LEAST_URGENCY, MOST_URGENCY = 1.0, 10.0  # the paper's range


class Stop(IntEnum):
    """When a training run stops. Later ones stop sooner.

    >>> Stop["BEST"] < Stop.REQUIRED, Stop.REQUIRED.word
    (True, 'required')
    """

    ITERATIONS = 0  # after all its passes, or once it has converged
    BEST = 1  # when no better accuracy is to be expected
    REQUIRED = 2  # at the accuracy that is required

    @property
    def word(self) -> str:
        """The word by which users say it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Goals:
    """What is wanted of one job. Raises ValueError for what cannot be meant.

    Attributes:
        accuracy: the share of held-out rows that the model must tell rightly; NaN where none is required.
        urgency: from 1 to 10. How much a deadline that is met counts beside those of others.
        stop: when the run stops by itself.
        may_stop: which further stops an overloaded cluster may choose for it.

    >>> Goals(accuracy=0.95, stop=Stop.BEST, may_stop=frozenset({Stop.REQUIRED})).may_end(Stop.REQUIRED)
    True
    """

    accuracy: float = math.nan
    urgency: float = LEAST_URGENCY
    stop: Stop = Stop.ITERATIONS
    may_stop: Collection[Stop] = frozenset()

    def __post_init__(self) -> None:
        if not (math.isnan(self.accuracy) or 0 < self.accuracy <= 1):
            raise ValueError(f"accuracy is {self.accuracy}; it must be a share above 0 and up to 1")
        if not LEAST_URGENCY <= self.urgency <= MOST_URGENCY:
            raise ValueError(
                f"urgency is {self.urgency}; it must be from {LEAST_URGENCY:g} to {MOST_URGENCY:g}"
            )

    def may_end(self, stop: Stop) -> bool:
        """Return whether the job stops so by itself, or may be stopped so when the cluster is overloaded."""
        return stop is self.stop or stop in self.may_stop


NO_GOALS = Goals()


@dataclass(frozen=True, slots=True)
class AccuracySoFar:
    """How far a run is with its accuracy, as the run itself tells.

    Attributes:
        newest: after its last pass, a share of the rows held out.
        is_best: it expects no better accuracy, or never the required one (`accuracy_ahead`).
        work_needed: the passes, counted from its start, after which it expects the required accuracy; inf if
            it does not expect it, NaN where it cannot say yet or none is required.
    """

    newest: float
    is_best: bool = False
    work_needed: float = math.nan
