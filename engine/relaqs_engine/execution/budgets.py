"""When an estimate is made, and when no more: counted in rows and values, and by no clock.

- `DueEstimates`: when the next estimate from a large state is due. An estimate merges all partial rows.
  With 200,000 groups, one after each mini-batch took twice as long as reading the table did.
- `AroundBudget`: how often the SQL around answers is computed.
- `ValueBudget`: after which mini-batch a query with a state of values runs as a whole. COUNT(DISTINCT) and
  aggregates that need all values, such as MEDIAN, have such a state. DuckDB keeps the values as well, but
  moves and merges them once. Any prefix of the mini-batches is a sample: its values give estimates, and the
  others are not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.state import count_groups
from relaqs_engine.plans.aggregate import MergePlan

# Measured: what a core takes for each partial row that an estimate is made from.
ESTIMATED_ROW_SECONDS = 3e-7
# From so few rows an estimate is always made: it takes about 15 ms.
FEW_STATE_ROWS = 50_000
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
        is_cheap = rows <= FEW_STATE_ROWS or rows * ESTIMATED_ROW_SECONDS <= READ_SHARE * read_seconds
        if not is_cheap and fraction < GROWTH * self._last:
            return False
        self._last = fraction
        return True


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


# Measured: what a core takes, until the last answer is there, for each value of COUNT(DISTINCT) that a task
# returns, and for each value in a list; and what a query as a whole takes for each value in a list.
DISTINCT_SECONDS = 1e-6
LISTED_SECONDS = 3e-7
WHOLE_LISTED_SECONDS = 3e-8
# What an estimate takes, of however few values.
ESTIMATE_SECONDS = 0.015
# What estimates from listed values may take, of what the whole query does.
LISTED_SHARE = 0.25
# The share of the rows after which a query does not run as a whole any more: too much would be done twice.
# It is larger than that of `AroundBudget`, since a table of few partitions begins with much of its rows.
VALUES_DECIDED_AT = 0.3


@dataclass(frozen=True, slots=True)
class Values:
    """The values that an answer is computed from, at the end, about.

    Attributes:
        count: all of them.
        distinct: those that tasks return for COUNT(DISTINCT).
        listed: those in lists.
    """

    count: int
    distinct: float = 0.0
    listed: float = 0.0


class ValueBudget:
    """What values may cost: those of COUNT(DISTINCT) as much as estimates around answers may.

    scan_seconds: what reading the tables takes of a core.

    >>> budget = ValueBudget(scan_seconds=0.4)   # 1.1 s for distinct values
    >>> budget.is_enough(distinct=1_000_000), budget.is_enough(distinct=1_200_000)
    (True, False)
    """

    def __init__(self, scan_seconds: float) -> None:
        self._scan_seconds = scan_seconds

    def is_enough(self, distinct: float) -> bool:
        """Return whether it is enough for so many values of COUNT(DISTINCT), of all tasks together."""
        return distinct * DISTINCT_SECONDS <= ALL_SECONDS + ALL_SHARE * self._scan_seconds

    def last_batch(self, fractions: Sequence[float], listed: float) -> int:
        """Return the last mini-batch to estimate from, before the query runs as a whole.

        It is the last of all where all values cost no more than the estimates before a whole query may.

        Args:
            fractions: the share of the rows that was scanned after each mini-batch.
            listed: the values in lists at the end, about.

        >>> budget, fractions = ValueBudget(scan_seconds=1.5), (0.01, 0.02, 0.04, 0.08, 0.16, 1.0)
        >>> [budget.last_batch(fractions, listed) for listed in (100_000, 6_000_000, 60_000_000)]
        [5, 3, 1]
        """
        whole = self._scan_seconds + listed * WHOLE_LISTED_SECONDS
        most = LISTED_SHARE * whole
        if listed * LISTED_SECONDS <= most:
            return len(fractions) - 1
        each = self._scan_seconds + listed * LISTED_SECONDS
        costs = [share * each + (i + 1) * ESTIMATE_SECONDS for i, share in enumerate(fractions)]
        return max(0, sum(cost <= most for cost in costs) - 1)


def distinct_in_all(returned: int, fraction: float, values: int, tasks: int) -> float:
    """Return about how many values of COUNT(DISTINCT) all tasks return. Each returns a value of a group once.

    Args:
        returned: how many they have returned so far.
        fraction: the share of the rows that was scanned.
        values: how many there are, of all groups.
        tasks: how many the query has.

    >>> distinct_in_all(2_500, 0.01, values=2_500, tasks=14)  # dates
    35000.0
    >>> distinct_in_all(12_000, 0.01, values=1_200_000, tasks=10)  # hardly one comes twice
    1200000.0
    """
    return min(returned / fraction, float(values * tasks))


def values_in_all(
    plan: MergePlan, cursor: Cursor, *, returned: int, listed: int, fraction: float, tasks: int
) -> Values:
    """Return about how many values an answer is computed from.

    Args:
        plan: of the answer.
        cursor: sees its state.
        returned: the rows that tasks have returned so far.
        listed: the values in lists that they have returned.
        fraction: the share of the rows that was scanned.
        tasks: how many the query has.
    """
    in_lists = listed / fraction
    if not plan.columns.counts_distinct:
        return Values(round(in_lists), listed=in_lists)
    values = count_groups(plan, cursor, fraction, by_value=True).in_all
    distinct = distinct_in_all(returned, fraction, values, tasks)
    return Values(values + round(in_lists), distinct, in_lists)
