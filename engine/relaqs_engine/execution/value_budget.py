"""When COUNT(DISTINCT) is not worth estimating to the end. It is counted in rows: no clock decides it."""

from __future__ import annotations

from relaqs_engine.execution.around_budget import ALL_SECONDS, ALL_SHARE

# Measured: what a core takes for each value that a task returns, until the last answer is there.
VALUE_SECONDS = 1e-6
# The share of the rows after which a query does not run as a whole any more: too much would be done twice.
DECIDED_AT = 0.3


def most_values(scan_seconds: float) -> float:
    """Return how many values all tasks together may return. Beyond it the query better runs as a whole.

    scan_seconds: what reading its tables takes of a core.

    >>> most_values(scan_seconds=0.4)
    1100000.0
    """
    return (ALL_SECONDS + ALL_SHARE * scan_seconds) / VALUE_SECONDS


def returned_values(returned: int, fraction: float, values_in_all: int, tasks: int) -> float:
    """Return about how many values all tasks return. Each returns a value of a group once.

    Args:
        returned: how many they have returned so far.
        fraction: the share of the rows that was scanned.
        values_in_all: how many there are, of all groups.
        tasks: how many the query has.

    >>> returned_values(2_500, 0.01, values_in_all=2_500, tasks=14)  # dates
    35000.0
    >>> returned_values(12_000, 0.01, values_in_all=1_200_000, tasks=10)  # hardly one comes twice
    1200000.0
    """
    return min(returned / fraction, float(values_in_all * tasks))
