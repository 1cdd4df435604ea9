"""Which queries are estimated from a first part. It is asked before anything of the rewriter is loaded."""

from __future__ import annotations

from collections.abc import Iterable

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.first_part import FirstPart
from relaqs_engine.layouts.plain import PlainTable

MOST_PREPARED = 0.1
"""Of the sampled table's rows, in all other tables together: those are read before the first estimate."""


def part_to_sample(tables: Iterable[str], catalog: Catalog) -> FirstPart | None:
    """Return the first part of the largest of the tables, None if it has none or the others are not small."""
    ordered = sorted(map(catalog.table, tables), key=lambda table: table.row_count, reverse=True)
    largest = next(iter(ordered), None)
    if not isinstance(largest, PlainTable) or largest.first_part is None:
        return None
    prepared = sum(table.row_count for table in ordered[1:])
    return largest.first_part if prepared <= MOST_PREPARED * largest.row_count else None
