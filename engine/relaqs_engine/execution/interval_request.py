"""The interval that the user asked for, and the confidence of each where all of a table hold together.

    SELECT origin, avg(dep_delay), count(*) FROM flights GROUP BY origin

At 95 % each number is outside its interval in 5 of 100 samples. Of twenty that have nothing to do with each
other, all are inside theirs in 36 of 100. Where all are to hold together, each of m intervals is made at
1 − 0.05/m. Whatever depends on what, the chances that one of them fails add up to 0.05 at most (Bonferroni).

The m are counted in an estimate at the confidence asked for. Final numbers are right in any case, and count
nothing. Where estimates decide which rows the answer has, what is said of its rows counts as one more. Wider
intervals take the certificate from some cells, such as a quantile whose ends lie beyond the sample. They give
none, so m is never too small.

With "anytime" every look has to hold, and cells are certified one after another. So all cells shown count
that may be certified, whether they are yet or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaqs_engine.execution.estimate import Estimate


@dataclass(frozen=True, slots=True)
class IntervalRequest:
    """The interval that the user asked for.

    Attributes:
        confidence: of both sides together.
        anytime: whether it must hold at all looks together, not just at one moment.
        for_table: whether the intervals of all certified cells must hold together, not just each for itself.
    """

    confidence: float = 0.95
    anytime: bool = False
    for_table: bool = False

    def of_each(self, count: int) -> float:
        """Return the confidence of each of so many intervals.

        >>> round(IntervalRequest(0.95, for_table=True).of_each(20), 4), IntervalRequest(0.95).of_each(20)
        (0.9975, 0.95)
        """
        if not self.for_table or count < 2:
            return self.confidence
        return 1.0 - (1.0 - self.confidence) / count


def estimate_as_asked(
    request: IntervalRequest, estimate_at: Callable[[float], Estimate], *, rows_are_estimated: bool
) -> Estimate:
    """Return an estimate whose intervals hold as they were asked for.

    Args:
        request: how they must hold.
        estimate_at: makes an estimate with each interval at a confidence.
        rows_are_estimated: whether estimates decide which rows the answer has.
    """
    found = estimate_at(request.confidence)
    uncertain = found.certified & (found.half_widths > 0.0)
    if request.anytime:
        uncertain |= found.widths > 0.0
    count = int(uncertain.sum())
    each = request.of_each(count + rows_are_estimated if count else 0)
    return found if each == request.confidence else estimate_at(each)
