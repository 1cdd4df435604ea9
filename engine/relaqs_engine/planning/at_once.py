"""What a query costs that is run as a whole: predicted, to tell whether estimates are worth their cost."""

from __future__ import annotations

from collections.abc import Iterator

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.cached_files import is_cached
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.layouts.reads import PlainRead, TableRead
from relaqs_engine.layouts.scan_cost import scan_core_seconds
from relaqs_engine.plans.online_plan import OnlinePlan


def whole_core_seconds(plan: OnlinePlan, catalog: Catalog) -> float:
    """Return about how long one core takes to read all rows of the columns that a query reads.

    The sizes of the tables alone decide that, so the same query over the same data gives the same number.
    """
    return sum(scan_core_seconds(*size) for size in dict(_scans(plan, catalog)).values())


def samples_the_cache_alone(plan: OnlinePlan, catalog: Catalog) -> bool:
    """Whether all layouts that a plan samples are such as the cache made of the user's files."""
    sampled = [catalog.table(stream.table) for stream in plan.streams]
    return bool(sampled) and all(is_cached(layout.directory) for layout in sampled)


def _scans(plan: OnlinePlan, catalog: Catalog) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each table that a plan reads, with its bytes and rows."""
    for stream in plan.streams:
        yield stream.table, _size(catalog.table(stream.table), stream.columns)
    by_directory = {str(layout.directory): layout for layout in catalog.layouts}
    for read in (*plan.whole_reads, *(read for hoist in plan.hoists for read in hoist.reads)):
        if isinstance(read, PlainRead):
            yield read.table, (sum(size for _, size, _ in read.files), catalog.table(read.table).row_count)
        elif isinstance(read, TableRead) and (layout := by_directory.get(read.directory)):
            yield layout.table, _size(layout, read.columns)


def _size(layout: Layout, columns: tuple[str, ...]) -> tuple[int, int]:
    return layout.bytes_of(columns), layout.row_count
