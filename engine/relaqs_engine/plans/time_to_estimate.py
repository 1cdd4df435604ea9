"""When a query is within ±5 %, in core-seconds and by prediction: what choices of layouts are compared by."""

from __future__ import annotations

from dataclasses import dataclass

_Z = 1.96  # of an interval of 95 %
_WITHIN = 0.05
_SPREAD = 1.0  # the variance of a row's value by the square of its mean, as exponential values have it
_ROWS_NEEDED = (_Z / _WITHIN) ** 2 * (1 + _SPREAD)

# Core-seconds as measured with TPC-H at scales 1 and 4 (docs/decisions/0085-predicted-time.md).
_START = 0.03  # of any query, up to its first mini-batch
_BATCH = 0.008  # of a mini-batch: tasks are sent, and the state is merged
_BATCH_AND_GROUP = 5e-6  # of the error bars of a group, in each mini-batch
_BATCH_AND_KEPT_ROW = 1.5e-8  # of a row that was read whole, which each mini-batch hashes anew


@dataclass(frozen=True, slots=True)
class TimeToEstimate:
    """What one core does until the headline error is ±5 %.

    Attributes:
        whole_seconds: to read what is read whole, before there is any estimate.
        streamed_seconds: to read all of the streams, as the exact answer does.
        share: of the streams that is read until then.
        batches: the mini-batches until then.
        kept_rows: of what is read whole, those that mini-batches join with.
        groups: that have error bars.
    """

    whole_seconds: float
    streamed_seconds: float
    share: float
    batches: int
    kept_rows: float = 0.0
    groups: int = 0

    @property
    def core_seconds(self) -> float:
        """Return all of it together.

        A million rows are read whole, and kept; a tenth of streams that take a second is read after that:

        >>> round(TimeToEstimate(0.5, 1.0, share=0.1, batches=5, kept_rows=1e6).core_seconds, 3)
        0.745
        """
        batch = _BATCH + _BATCH_AND_GROUP * self.groups + _BATCH_AND_KEPT_ROW * self.kept_rows
        return _START + self.whole_seconds + self.share * self.streamed_seconds + self.batches * batch


def share_to_read(group_rows: float, design_effect: float) -> float:
    """Return the share of the streams after which the total of a group is within ±5 %.

    n of N rows, drawn without replacement, have a relative variance of (1 + cv²) (1 − n/N) / n. Rows in
    clusters have that of `design_effect` times fewer. The share is never above 1, the exact answer.
    Source: Cochran 1977, Sampling Techniques, ch. 4; Kish 1965, Survey Sampling, ch. 8.

    Args:
        group_rows: the rows of the group.
        design_effect: how many rows of a cluster say as much as one row that is drawn by itself.

    >>> [round(share_to_read(*each), 4) for each in [(6_000_000, 1), (2_500, 1), (2_500, 5)]]
    [0.0005, 0.5514, 0.8601]
    """
    needed = _ROWS_NEEDED * design_effect
    return needed / (needed + group_rows)
