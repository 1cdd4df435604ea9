"""SummaryPlan: SUMMARIZE, estimated from the first partitions of a table, and then run as DuckDB runs it."""

from __future__ import annotations

from dataclasses import dataclass

from relaqs_engine.layouts.first_part import FirstPart
from relaqs_engine.layouts.prefix import Prefix
from relaqs_engine.plans.estimated_whole import EstimatedWhole


@dataclass(frozen=True, slots=True)
class SummarizedColumn:
    """One column of what is summarized, and so one row of the summary.

    Attributes:
        name: its name.
        type: its DuckDB type.
        listed: the column of the sample's state with its values, "" where they are not listed. Each row of
            the state has equal values once where `lists_distinct` is true.
        lists_distinct: see `listed`.
        time_type: the type as which quantiles are written, of moments; "" for numbers. The sample has these
            quantiles in microseconds.
        null_percentage: of its rows, None where that is not known beforehand.
    """

    name: str
    type: str
    listed: str = ""
    lists_distinct: bool = False
    time_type: str = ""
    null_percentage: float | None = None

    @property
    def lists_cut_values(self) -> bool:
        """Whether the values are listed without their last digits: nanoseconds as whole microseconds."""
        return self.time_type == "TIMESTAMP_NS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPlan(EstimatedWhole):
    """How SUMMARIZE is answered.

    The sample is one wide row, with each measure of each column. Its outputs are called by the measure and
    the number of the column: `avg_3`. `rows` counts the rows.

    Attributes:
        part: what is sampled.
        columns: those that are summarized, in order.
    """

    sample_may_go = True

    part: FirstPart | Prefix
    columns: tuple[SummarizedColumn, ...]
