"""Why a plan reads the layouts that it reads, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.manifest import LAYOUT_MARK
from relaqs_engine.layouts.plain import NOTABLE_SECONDS, PlainTable

if TYPE_CHECKING:
    from relaqs_engine.rewrite.draft import Draft


def layout_reasons(draft: Draft) -> Iterator[str]:
    """Yield what is special about the layouts that a draft samples, and what it reads whole before."""
    from relaqs_engine.rewrite.read_whole import names_read_whole, share_read_whole
    from relaqs_engine.rewrite.scans import streams_of

    for stream in streams_of(draft):
        if LAYOUT_MARK in stream.table:
            key = ", ".join(draft.catalog.table(stream.table).cluster_key)
            yield f"the layout {stream.table} holds the rows of one {key} in one partition"
    if names := names_read_whole(draft):
        yield (
            f"it reads {names} whole before the first mini-batch, which is about "
            f"{share_read_whole(draft):.0%} of the work"
        )
    if draft.outlier_columns:
        named = ", ".join(draft.outlier_columns)
        yield f"rows with values far out in {named} are read first, and counted exactly"
    if draft.bars.leaves_units_out:
        yield "the values of the cluster key with most rows are read first, and counted exactly"


def why_as_it_lies(tables: Iterable[str], catalog: Catalog) -> str:
    """Return why a query is answered at the end only, "" unless it reads plain files and nothing sampled.

    >>> from relaqs_engine.planning.example import CATALOG
    >>> why_as_it_lies(["trips", "zones"], CATALOG)
    ''
    """
    read = {name: catalog.table(name) for name in sorted(tables)}
    plain = {name: table for name, table in read.items() if isinstance(table, PlainTable)}
    if not plain or any(map(catalog.is_sampled, read)):
        return ""
    *others, last = plain
    why = f"{', '.join(others)} and {last} are read" if others else f"{last} is read"
    why += " whole, as they lie" if others else " whole, as it lies"
    large = [name for name, table in plain.items() if table.scan_core_seconds > NOTABLE_SECONDS]
    if large:
        why += f": lay {', '.join(large)} out (`relaqs shuffle`) for estimates before the end"
    return why
