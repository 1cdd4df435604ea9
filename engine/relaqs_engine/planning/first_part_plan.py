"""Plans over the first part of a layout that is being made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.plain import PlainTable
from relaqs_engine.plans.first_part import FirstPartPlan
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.whole import WholePlan
from relaqs_engine.rewrite.draft import Draft, NotOnlineError

MOST_PREPARED = 0.1
"""Of the sampled table's rows, in all other tables together: those are read before the first estimate."""


def first_part_plan(
    draft: Draft, tables: Iterable[str], whole: WholePlan, aggregated: Callable[[Draft], MergePlan]
) -> FirstPartPlan | None:
    """Return how a query over plain tables is estimated before its exact answer, None where it is not.

    Args:
        draft: of the query.
        tables: the names of the tables that it reads.
        whole: how the exact answer is computed.
        aggregated: plans an aggregation over sampled tables; it raises NotOnlineError.
    """
    table = largest_begun(tables, draft.catalog)
    if table is None or table.first_part is None:
        return None
    try:
        sample = aggregated(replace(draft, catalog=draft.catalog.with_layout(table.first_part)))
    except NotOnlineError:
        return None
    return FirstPartPlan(
        sql=whole.sql,
        outputs=sample.outputs,
        reasons=(
            f"{table.table} is being laid out: estimates come from its first part, and the exact answer from "
            "the plain files",
        ),
        streams=sample.streams,
        hoists=sample.hoists,
        warnings=sample.warnings,
        leading=sample.leading,
        part=table.first_part,
        sample=sample,
        whole=replace(whole, outputs=sample.outputs, reasons=()),
    )


def largest_begun(tables: Iterable[str], catalog: Catalog) -> PlainTable | None:
    """Return the largest of the tables if there is a first part of its layout, and the others are small."""
    largest, *others = sorted(map(catalog.table, tables), key=lambda table: table.row_count, reverse=True)
    if not isinstance(largest, PlainTable) or largest.first_part is None:
        return None
    prepared = sum(table.row_count for table in others)
    return largest if prepared <= MOST_PREPARED * largest.row_count else None
