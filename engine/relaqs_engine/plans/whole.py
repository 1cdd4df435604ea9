"""WholePlan: a query that runs once, exactly, as no sound estimate of it is known."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.layouts.reads import Read, plain_tables
from relaqs_engine.plans.online_plan import Mode, OnlinePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePlan(OnlinePlan):
    """How a query is run as a whole. Its reasons say why it is not estimated.

    Attributes:
        exact_sql: the query itself, over the files of whole tables.
        exact_reads: those files.
    """

    mode = Mode.EXACT
    is_estimated = False
    may_run_whole = False

    exact_sql: str
    exact_reads: tuple[Read, ...]

    @property
    def whole_reads(self) -> tuple[Read, ...]:
        return self.exact_reads

    @property
    def plain_tables(self) -> tuple[str, ...]:
        return plain_tables(self.exact_reads)

    @property
    def why_whole(self) -> tuple[str, ...]:
        return self.reasons
