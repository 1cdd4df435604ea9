"""When the next estimate from a large state is due. Rows decide it, and no clock.

An estimate merges all partial rows. With 200,000 groups, one after each mini-batch took twice as long as
reading the table did.
"""

from __future__ import annotations

# Measured: what a core takes for each partial row that an estimate is made from.
ROW_SECONDS = 3e-7
# From so few rows an estimate is always made: it takes about 15 ms.
FEW_ROWS = 50_000
# An estimate may take this share of what was read since the last one.
READ_SHARE = 0.5
# One that takes more is made once this many times as much was read as at the last one. That is nearly twice:
# where mini-batches double the partitions, 1.99 times as many rows may be read.
GROWTH = 1.95


class DueEstimates:
    """Says after which mini-batches a query makes an estimate.

    scan_seconds: what reading its tables takes of a core.

    >>> due = DueEstimates(scan_seconds=0.2)
    >>> [due.now(rows=2_000_000, fraction=fraction) for fraction in (0.01, 0.015, 0.0199, 0.03, 0.05)]
    [True, False, True, False, True]
    >>> [due.now(rows=10_000, fraction=fraction) for fraction in (0.06, 0.07)]
    [True, True]
    """

    def __init__(self, scan_seconds: float) -> None:
        self._scan_seconds = scan_seconds
        self._last = 0.0

    def now(self, rows: int, fraction: float) -> bool:
        """Return whether an estimate is due. If so, it counts as made.

        Args:
            rows: the partial rows that it would be made from.
            fraction: the share of the table that was read, above 0.
        """
        read_seconds = self._scan_seconds * (fraction - self._last)
        is_cheap = rows <= FEW_ROWS or rows * ROW_SECONDS <= READ_SHARE * read_seconds
        if not is_cheap and fraction < GROWTH * self._last:
            return False
        self._last = fraction
        return True
