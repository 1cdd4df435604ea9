"""The SQL of one task: a plan's partial query over some partitions."""

from __future__ import annotations

from relaqs_engine.catalog import Catalog
from relaqs_engine.duck import list_literal
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plan import OnlinePlan


def partial_sql(plan: OnlinePlan, catalog: Catalog, partitions: tuple[int, ...], *, by_block: bool) -> str:
    """Return the partial query over the given partitions of every stream."""
    text = plan.partial_by_block_sql if by_block and plan.partial_by_block_sql else plan.partial_sql
    for stream in plan.streams:
        paths = catalog.table(stream.table).paths
        files = list_literal([str(paths[i]) for i in partitions])
        text = text.replace(stream.token, f"read_parquet({files})")
    return text


def leading_stream(plan: OnlinePlan, catalog: Catalog) -> Layout:
    """Return the layout whose rows measure what was scanned."""
    return catalog.table(plan.leading)


def used_bytes_per_partition(plan: OnlinePlan, catalog: Catalog) -> float:
    """Return about how many compressed bytes the partial query reads in one partition of its streams."""
    total = 0.0
    for table in {stream.table for stream in plan.streams}:
        layout = catalog.table(table)
        # A column is read if the partial query names it; names are quoted by the rewriter.
        used = [column for column in layout.columns if f'"{column.name.lower()}"' in plan.partial_sql.lower()]
        total += sum(column.byte_count for column in used) / len(layout.partitions)
    return total
