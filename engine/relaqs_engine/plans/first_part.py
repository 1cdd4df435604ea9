"""FirstPartPlan: estimates from the first part of a layout that is being made, then the query as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.layouts.first_part import FirstPart
from relaqs_engine.plans.estimated_whole import EstimatedWhole


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPartPlan(EstimatedWhole):
    """How an aggregation over plain tables is answered while the largest of them is being laid out.

    The sample ends with the partitions that are there. The query as a whole then reads the plain files.

    Attributes:
        part: what is sampled.
    """

    sample_may_go = True

    part: FirstPart
