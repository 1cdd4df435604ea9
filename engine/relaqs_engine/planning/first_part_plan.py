"""Plans over the first part of a layout that is being made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relaqs_engine.layouts.first_part import FirstPart
from relaqs_engine.plans.first_part import FirstPartPlan
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.whole import WholePlan
from relaqs_engine.rewrite.draft import Draft, NotOnlineError


def first_part_plan(
    draft: Draft, part: FirstPart, whole: WholePlan, aggregated: Callable[[Draft], MergePlan]
) -> FirstPartPlan | None:
    """Return how a query over plain tables is estimated before its exact answer, None where it is not.

    Args:
        draft: of the query.
        part: the first part of the layout of one of its tables.
        whole: how the exact answer is computed.
        aggregated: plans an aggregation over sampled tables; it raises NotOnlineError.
    """
    try:
        sample = aggregated(replace(draft, catalog=draft.catalog.with_layout(part)))
    except NotOnlineError:
        return None
    return FirstPartPlan(
        sql=whole.sql,
        outputs=sample.outputs,
        reasons=(
            f"{part.table} is being laid out: estimates come from its first part, and the exact answer from "
            "the plain files",
        ),
        streams=sample.streams,
        hoists=sample.hoists,
        warnings=sample.warnings,
        measured_by=sample.measured_by,
        part=part,
        sample=sample,
        whole=replace(whole, outputs=sample.outputs, reasons=()),
    )
