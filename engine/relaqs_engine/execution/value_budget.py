"""When a state of values is not worth being estimated from to the end. Values decide it, and no clock.

COUNT(DISTINCT) and aggregates that need all values, such as MEDIAN, have such a state. DuckDB keeps the
values as well, but moves and merges them once.
"""

from __future__ import annotations

from relaqs_engine.duck import Cursor
from relaqs_engine.execution.around_budget import ALL_SECONDS, ALL_SHARE
from relaqs_engine.execution.group_count import count_groups
from relaqs_engine.plans.basis import Basis
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import STATE

# Measured: what a core takes, until the last answer is there, for each value of COUNT(DISTINCT) that a task
# returns, and for each value in a list.
DISTINCT_SECONDS = 1e-6
LISTED_SECONDS = 3e-7
# The share of the rows after which a query does not run as a whole any more: too much would be done twice.
# It is larger than that of `around_budget`, since a table of few partitions begins with much of its rows.
DECIDED_AT = 0.3


class ValueBudget:
    """What values may cost: as much as estimates around answers may. scan_seconds: of a core, for its tables.

    >>> budget = ValueBudget(scan_seconds=0.4)   # 1.1 s
    >>> budget.is_enough(distinct=1_000_000, listed=0), budget.is_enough(distinct=1_000_000, listed=1_000_000)
    (True, False)
    """

    def __init__(self, scan_seconds: float) -> None:
        self._seconds = ALL_SECONDS + ALL_SHARE * scan_seconds

    def is_enough(self, distinct: float, listed: float) -> bool:
        """Return whether it is enough for so many values of each kind, of all tasks together."""
        return distinct * DISTINCT_SECONDS + listed * LISTED_SECONDS <= self._seconds


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


def too_many_values(
    budget: ValueBudget, plan: MergePlan, cursor: Cursor, *, returned: int, fraction: float, tasks: int
) -> int | None:
    """Return about how many values an answer is computed from if they are too many, else None.

    Args:
        budget: what they may cost.
        plan: of the answer.
        cursor: sees its state.
        returned: the rows that tasks have returned so far.
        fraction: the share of the rows that was scanned.
        tasks: how many the query has.
    """
    lists = [column.name for column in plan.columns.basis if column.kind is Basis.VALUES]
    if fraction > DECIDED_AT or not (lists or plan.columns.counts_distinct):
        return None
    values, distinct, listed = 0, 0.0, 0.0
    if plan.columns.counts_distinct:
        values = count_groups(plan, cursor, fraction, by_value=True).in_all
        distinct = distinct_in_all(returned, fraction, values, tasks)
    if lists:
        lengths = " + ".join(f"coalesce(len({name}), 0)" for name in lists)
        [(count,)] = cursor.rows(f"SELECT coalesce(sum({lengths}), 0)::BIGINT FROM {STATE}")
        listed = count / fraction
    return None if budget.is_enough(distinct, listed) else values + round(listed)
