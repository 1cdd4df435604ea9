"""Which plain tables are sampled by row groups. It is asked before anything of the rewriter is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relaqs_engine.catalog import Catalog
from relaqs_engine.layouts.plain import ESTIMATED_ABOVE_SECONDS, PlainTable


@dataclass(frozen=True, slots=True)
class RowGroupRules:
    """Which plain tables are sampled by row groups.

    Attributes:
        cores: that read a table whole.
        least_seconds: what reading it whole must take, as predicted.
        fewest: how many row groups there must be to draw from.
        share: the share of them that is drawn at most.
    """

    cores: int = 1
    least_seconds: float = ESTIMATED_ABOVE_SECONDS
    fewest: int = 64
    share: float = 0.05

    def large(self, catalog: Catalog, tables: Iterable[str]) -> list[PlainTable]:
        """Return those of the tables that take long to be read whole."""
        plain = [table for name in tables if isinstance(table := catalog.table(name), PlainTable)]
        return [each for each in plain if each.scan_core_seconds / self.cores > self.least_seconds]
