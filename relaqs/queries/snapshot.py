"""Snapshot: one answer so far. Immutable, backed by Arrow, at home in a terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_engine.execution.arrays import arrow_booleans
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate

from relaqs.arguments import relative_error
from relaqs.prediction.arrival import REACHED, Course, Expected, expected

if TYPE_CHECKING:
    import pandas
    import polars
    from rich.console import Console, ConsoleOptions, RenderResult

Interval = Literal["pointwise", "anytime"]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Snapshot:
    """One answer so far, and how sure it is.

    table: the query's columns in order, then `x_low`, `x_high`, `x_certified` of every approximate column
    `x`; low or high is null where nothing bounds the value. columns: the approximate columns and the names
    their intervals have in `table` (not as above where the query itself has a column called `x_low`).
    fraction: share of the streamed rows folded, in (0, 1]. error: groups with 95 % of the rows are within
    it, relative to their numbers (`Session.online_sql` says which, and what else may be chosen); 0.0 when
    exact, inf while too little is certified. batch: mini-batches folded so far; batches: of so many.
    elapsed_seconds: since the query was submitted. unseen_groups: None where their number is unknown.
    certain_rows: for each row whether it is in the final answer for sure, at this confidence: of `… ORDER BY
    n DESC LIMIT 10` the rows that stay among the ten. A row that may still leave has no certified number.
    `snapshot.table.filter(snapshot.certain_rows)` are those that stay. target: the error it is to stop at, if
    one is given. widths: the error of each number in the watched columns, shape (rows, columns): inf where
    it is not certified, NaN where there is none. course: what `expected` goes by, None where that is nothing.
    """

    table: pa.Table
    columns: tuple[ApproximateColumn, ...]
    fraction: float
    error: float
    confidence: float
    interval: Interval
    batch: int
    batches: int
    elapsed_seconds: float
    is_exact: bool
    mode: str
    unseen_groups: int | None = None
    warnings: tuple[str, ...] = ()
    certain_rows: pa.BooleanArray | None = None
    target: float | None = None
    widths: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    course: Course | None = None

    def within(self, error: float | str) -> tuple[int, int]:
        """Return how many of the answer's numbers are within this relative error, and how many there are.

        (195, 229) for 0.05 or "5%" means: of 229 numbers in the watched columns 195 are certified to be
        within 5 % of those of the whole answer. Groups that have not been seen yet do not count.
        """
        most = relative_error(error, "error")
        assert most is not None, "only None stands for no error"
        return int((self.widths <= most).sum()), int((~np.isnan(self.widths)).sum())

    def expected(self, target: float | str) -> Expected:
        """Return the seconds still needed until the error is the target, and where they lie: low, high.

        In nine of ten cases it takes from low to high, at the pace so far; a pause does not count. 0 where
        the target is reached. At the exact end it always is: there the error is 0.
        """
        wanted = relative_error(target)
        assert wanted is not None, "only None stands for no error"
        return REACHED if self.course is None else expected(self.course, wanted)

    @property
    def estimate(self) -> pa.Table:
        """The query's own columns, in its order."""
        return self.table.select(list(range(self.table.num_columns - 3 * len(self.columns))))

    def to_arrow(self) -> pa.Table:
        """Return the table with its intervals, as pyarrow has it."""
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table with its intervals, as pandas has it. Needs pandas."""
        return self.table.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return the table with its intervals, as polars has it. Needs polars."""
        import polars

        return polars.DataFrame(self.table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.table.schema.__arrow_c_schema__()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __bool__(self) -> bool:
        return True  # an answer without rows is still an answer

    def __repr__(self) -> str:
        from relaqs.rendering.view import heading

        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        return f"<Snapshot #{self.batch}: {rows} · {heading(self)}>"

    def __str__(self) -> str:
        from relaqs.rendering.terminal import plain_text

        return plain_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from relaqs.rendering.terminal import render

        yield from render(self, options)

    def _repr_html_(self) -> str:
        from relaqs.rendering.html import render

        return render(self)


def _certain(estimate: Estimate) -> BoolArray:
    known = estimate.certain_rows
    return np.ones(estimate.table.num_rows, dtype=bool) if known is None else known


def snapshot_of(estimate: Estimate, **circumstances: Any) -> Snapshot:
    """Return the estimate as a snapshot; `circumstances` are the attributes an estimate does not know."""
    return Snapshot(
        table=estimate.table,
        columns=estimate.approximate,
        fraction=estimate.fraction,
        is_exact=estimate.is_exact,
        unseen_groups=estimate.unseen_groups,
        certain_rows=arrow_booleans(_certain(estimate)),
        **circumstances,
    )
