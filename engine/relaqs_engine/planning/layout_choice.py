"""What a choice of layouts is judged by: how much must be read whole before there is an estimate.

A table that is read whole is filtered once and kept by each worker, which for a small one is cheaper than
joining it partition by partition (docs/decisions/0004-second-layouts.md).
"""

from __future__ import annotations

READ_AT_ONCE_ROWS = 1_000_000  # read and filtered within about a tenth of a second
READ_AT_ONCE_SHARE = 0.25  # of the query's rows: no more, however small the tables are


def rows_to_wait_for(streamed_rows: int, rows: int) -> int:
    """Return the rows read whole before the first estimate, 0 where they are few. rows: of all tables."""
    whole = rows - streamed_rows
    return 0 if whole <= min(READ_AT_ONCE_ROWS, READ_AT_ONCE_SHARE * rows) else whole
