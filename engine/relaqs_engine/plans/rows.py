"""RowsPlan: a query without aggregates. Its state is the rows themselves, and each row found is final."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.plans.folded import FoldedPlan, ResultShape


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPlan(FoldedPlan):
    """How the rows of a query are found.

    Attributes:
        keys: the columns of the state, k0, k1, …: the outputs, then what the rows are ordered by.
        final_sql: the state to the answer, in DuckDB's own types.
        expected_rows: how many rows there are at most.
        has_limit: whether the query has a LIMIT.
        limit_rows: this many rows, any of them, are the whole answer; None where all are needed.
    """

    # The rows that are kept are the answer itself, so running as a whole would need as much memory.
    may_run_whole = False

    keys: tuple[str, ...]
    final_sql: str
    expected_rows: int
    has_limit: bool = False
    limit_rows: int | None = None

    @property
    def block_count(self) -> int:
        return 1

    @property
    def expected_groups(self) -> int:
        return self.expected_rows

    @property
    def shows_every_group(self) -> bool:
        return not self.has_limit

    @property
    def _unfiltered_shape(self) -> ResultShape:
        return ResultShape(columns=len(self.keys) + 1)

    @property
    def state_columns(self) -> tuple[str, ...]:
        return self.keys

    @property
    def compact_sql(self) -> str:
        return ""
