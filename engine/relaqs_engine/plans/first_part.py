"""FirstPartPlan: estimates from the first part of a layout that is being made, then the query as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.layouts.first_part import FirstPart
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.online_plan import Mode, OnlinePlan
from relaqs_engine.plans.whole import WholePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPartPlan(OnlinePlan):
    """How an aggregation over plain tables is answered while the largest of them is being laid out.

    The sample ends with the partitions that are there. The query as a whole then reads the plain files.

    Attributes:
        part: what is sampled.
        sample: how the estimates are made.
        whole: how the exact answer is.
    """

    mode = Mode.MERGEABLE
    sample_may_go = True

    part: FirstPart
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
