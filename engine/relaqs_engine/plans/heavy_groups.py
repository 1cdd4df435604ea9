"""What a plan knows of the groups that an index of heavy units has, and of all others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeavyGroups:
    """How the groups in an index of heavy units are read before their partitions are.

    Attributes:
        index: the name of the index, see `HeavyUnits.name`.
        most: what any other group's ranked total is at most, where each row meets one row of the static
            tables at most.
        fan_out_sql: how many rows of the static tables a row can meet at most, over the hoists.
    """

    index: str
    most: float
    fan_out_sql: str
