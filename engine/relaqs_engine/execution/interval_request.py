"""The interval that the user asked for, and the confidence of each where all of a table hold together.

    SELECT origin, avg(dep_delay), count(*) FROM flights GROUP BY origin

At 95 % each number is outside its interval in 5 of 100 samples. Of twenty that have nothing to do with each
other, all are inside theirs in 36 of 100. Where all are to hold together, each of m intervals is made at
1 − 0.05/m. Whatever depends on what, the chances that one of them fails add up to 0.05 at most (Bonferroni).

The m are counted in an estimate at the confidence asked for. Final numbers are right in any case, and count
nothing. Where estimates decide which rows the answer has, what is said of its rows counts as one more. Wider
intervals take the certificate from some cells, such as a quantile whose ends lie beyond the sample. They give
none, so m is never too small.

**Skewed values far out.** The farther out, the less normal a tail is: of 250 average delays, all were inside
in 70 to 85 of 100 samples. Where an estimate is skewed by γ, the end of its t interval is off by γ(2z² + 1)/6
standard errors (Hall 1992, The Bootstrap and Edgeworth Expansion), and γ is at most what one row moves the
estimate by, in standard errors. A cell is certified where no unread row can move it by more than two. For a
table that limit shrinks by 1/z²: for 30 cells it is 0.78.

With "anytime" every look has to hold, and cells are certified one after another. So all cells shown count
that may be certified, whether they are yet or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from relaqs_bootstrap.quantiles import normal_quantile

from relaqs_engine.execution.estimate import Estimate


@dataclass(frozen=True, slots=True)
class IntervalRequest:
    """The interval that the user asked for.

    Attributes:
        confidence: of both sides together.
        anytime: whether it must hold at all looks together, not just at one moment.
        for_table: whether the intervals of all certified cells must hold together, not just each for itself.
        row_weight: how many times what an unread row may add counts, when a cell is certified.
    """

    confidence: float = 0.95
    anytime: bool = False
    for_table: bool = False
    row_weight: float = 1.0

    def of_each(self, count: int) -> IntervalRequest:
        """Return what is asked of each of so many intervals by itself.

        >>> IntervalRequest(0.95).of_each(20).confidence
        0.95
        >>> each = IntervalRequest(0.95, for_table=True).of_each(20)
        >>> round(each.confidence, 4), each.for_table, round(each.row_weight, 2)
        (0.9975, False, 2.38)
        """
        if not self.for_table or count < 2:
            return replace(self, for_table=False)
        confidence = 1.0 - (1.0 - self.confidence) / count
        usual, far = (normal_quantile((1.0 + each) / 2.0) for each in (self.confidence, confidence))
        return replace(self, confidence=confidence, for_table=False, row_weight=(far / usual) ** 2)


def estimate_as_asked(
    request: IntervalRequest, estimate_at: Callable[[IntervalRequest], Estimate], *, rows_are_estimated: bool
) -> Estimate:
    """Return an estimate whose intervals hold as they were asked for.

    Args:
        request: how they must hold.
        estimate_at: makes an estimate whose intervals hold each for itself.
        rows_are_estimated: whether estimates decide which rows the answer has.
    """
    found = estimate_at(request.of_each(1))
    uncertain = found.certified & (found.half_widths > 0.0)
    if request.anytime:
        uncertain |= found.widths > 0.0
    count = int(uncertain.sum())
    count += bool(count) and rows_are_estimated
    return estimate_at(request.of_each(count)) if request.for_table and count > 1 else found
