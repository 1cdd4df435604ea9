"""What plans share that estimate a query from a part of its rows, and then run it as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.online_plan import Mode, OnlinePlan
from relaqs_engine.plans.whole import WholePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedWhole(OnlinePlan):
    """How a query is estimated from a part of its rows, of which the exact answer takes nothing over.

    Attributes:
        sample: how the estimates are made.
        whole: how the exact answer is.
    """

    mode = Mode.MERGEABLE

    sample: MergePlan
    whole: WholePlan

    @property
    def plain_tables(self) -> tuple[str, ...]:
        return self.whole.plain_tables

    @property
    def method(self) -> Method:
        return self.sample.method

    @property
    def expected_groups(self) -> int:
        return self.sample.expected_groups

    @property
    def shows_every_group(self) -> bool:
        return self.sample.shows_every_group
