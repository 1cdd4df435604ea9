"""How often the SQL around answers is computed. What that costs is counted in rows: no clock decides it."""

from __future__ import annotations

# Measured: what an estimate takes of a core for each row of the answers that it is computed from.
ROW_SECONDS = 1e-5
# What all estimates of a query may take together: so long, and this share of what its scan takes.
ALL_SECONDS, ALL_SHARE = 1.0, 0.25
# A row that is known exactly costs less: it is joined, and nothing is estimated for it.
KNOWN_ROWS_PER_ROW = 5
# With so few rows it is computed at each mini-batch: about 20 ms.
FEW_ROWS = 2_000
# With more rows the query runs as a whole, unless its scan takes so long that one estimate is little of it.
MOST_ROWS = 100_000
# The share of the rows after which it does not run as a whole any more: too much would be done twice.
DECIDED_AT = 0.1


class AroundBudget:
    """Says when a query around answers is computed. scan_seconds: what reading its tables takes of a core.

    >>> budget = AroundBudget(scan_seconds=0.4)   # 1.1 s for estimates
    >>> [budget.allows(rows) for rows in (60_000, 60_000, 1_000)]
    [True, False, True]
    >>> budget.is_hopeless(400_000, fraction=0.01)
    True
    """

    def __init__(self, scan_seconds: float) -> None:
        self._seconds_left = ALL_SECONDS + ALL_SHARE * scan_seconds
        self._most_rows = max(MOST_ROWS, round(ALL_SHARE * scan_seconds / ROW_SECONDS))
        self._is_first = True

    def allows(self, rows: int) -> bool:
        """Return whether an estimate from so many rows is worth it. If so, it counts as made."""
        cost = rows * ROW_SECONDS
        if rows > FEW_ROWS and cost > self._seconds_left and not self._is_first:
            return False
        self._seconds_left -= cost
        self._is_first = False
        return True

    def is_hopeless(self, rows_in_all: int, fraction: float = 0.0) -> bool:
        """Return whether the query is better run as a whole, since its answers will have so many rows."""
        is_early = self._is_first or fraction <= DECIDED_AT
        return is_early and rows_in_all > self._most_rows
