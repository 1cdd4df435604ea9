"""Why a plan reads the layouts that it reads, in words."""

from __future__ import annotations

from collections.abc import Iterator

from relaqs_engine.catalog import LAYOUT_MARK
from relaqs_engine.rewrite.draft import Draft
from relaqs_engine.rewrite.scans import streams_of


def layout_reasons(draft: Draft) -> Iterator[str]:
    """Yield what is special about the layouts that a draft samples."""
    for stream in streams_of(draft):
        if LAYOUT_MARK in stream.table:
            key = ", ".join(draft.catalog.table(stream.table).cluster_key)
            yield f"the layout {stream.table} holds the rows of one {key} in one partition"
    if draft.outlier_columns:
        named = ", ".join(draft.outlier_columns)
        yield f"rows with values far out in {named} are read first, and counted exactly"
