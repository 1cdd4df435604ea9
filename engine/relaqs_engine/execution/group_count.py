"""How many groups a state has, and about how many there will be at the end."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_bootstrap import unseen_groups

from relaqs_engine.duck import Cursor
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import ROWS, STATE, VALUE


@dataclass(frozen=True, slots=True)
class GroupCount:
    """The groups of one answer. seen: so far. in_all: at the end, about; too few rather than too many."""

    seen: int
    in_all: int


def count_groups(plan: MergePlan, cursor: Cursor, fraction: float, *, by_value: bool = False) -> GroupCount:
    """Return how many groups there are before HAVING and LIMIT.

    Args:
        plan: of the aggregation.
        cursor: sees its state.
        fraction: the share of the sampling units that was scanned.
        by_value: count each value of a group that COUNT(DISTINCT) counts.
    """
    keys = (*plan.columns.keys, VALUE) if by_value else plan.columns.keys
    if not keys:
        return GroupCount(1, 1)
    groups = f"SELECT sum({ROWS}) AS n FROM {STATE} GROUP BY {', '.join(keys)}"
    [(seen, once, twice, rows)] = cursor.rows(
        "SELECT count(*), count(*) FILTER (n = 1), count(*) FILTER (n = 2), coalesce(sum(n), 0)::BIGINT "
        f"FROM ({groups})"
    )
    is_local = plan.groups_are_local and not by_value
    in_all = seen / fraction if is_local else seen + unseen_groups(once, twice, rows, fraction)
    return GroupCount(seen, round(in_all))
