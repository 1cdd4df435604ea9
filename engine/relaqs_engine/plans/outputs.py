"""The columns of an answer, and what is known of each before the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from relaqs_engine.plans.sign import Sign
from relaqs_engine.plans.times import TimeScale


class OutputKind(StrEnum):
    """What is known about an output column before the end."""

    KEY = "key"  # a function of group keys alone: exact for every row shown
    ESTIMATE = "estimate"  # a number with an interval
    DISTINCT = "distinct"  # COUNT(DISTINCT x): between the values seen and those that may be unseen
    OF_DISTINCT = "of distinct"  # by the interval of a COUNT(DISTINCT x) that it is multiplied or divided by
    QUANTILE = "quantile"  # between two values of the sample, by their ranks
    BOUND = "bound"  # MIN or MAX: at most, at least
    OPAQUE = "opaque"  # depends on aggregates, without a sound interval


@dataclass(frozen=True, slots=True)
class QuantileOf:
    """A quantile of the values that a basis column lists.

    Attributes:
        values: the name of the basis column.
        share: the share of the values that lies below the quantile.
        rank_error: how far off that share the last answer may be, as DuckDB's approximate quantiles are.
    """

    values: str
    share: float
    rank_error: float = 0.0


@dataclass(frozen=True, slots=True)
class OfDistinct:
    """A value that is a number of distinct values, or one over it, times something estimated from sums.

    Attributes:
        factor: what is estimated from sums, an output of kind ESTIMATE: sum(paid) of
            sum(paid) / count(DISTINCT item).
        is_divided: whether it is divided by the number of values, and not multiplied.
    """

    factor: OutputColumn
    is_divided: bool


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the answer.

    Attributes:
        name: as the query calls it.
        kind: what is known of it before the end.
        type: DuckDB's own type for it, which every snapshot keeps.
        estimate_sql: the value as SQL over the group's keys, its partial aggregates b0, b1, … and `scale`,
            the factor from rows scanned to all rows. For sum(x) it is b0 · scale.
        total: the basis column, where the output is a plain SUM or COUNT. Its interval may then use that the
            total cannot be negative.
        side: for BOUND, "least" if the value so far is a lower bound of the final one (MAX), "most" if it is
            an upper bound (MIN).
        quantile: which quantile it is, for QUANTILE.
        unrounded_sql: the value before it is rounded, "" where it is not rounded.
        rounding: how far rounding moves the value at most.
        rounding_a_row: how much further it moves it for each row of the group.
        moves_in_steps: something inside of it is rounded, so nothing bounds what one row does.
        widest: how wide a certified interval may be, as half of its width relative to the value. It is finite
            for what multiplies errors, as EXP: up to there the interval of a straight line holds.
        sign: the sides of zero on which its values may lie.
        never_certified: why no interval of it is ever certified before the end, in words. "" where one may
            be. The answer's error leaves such a column out.
        measures: whether it measures its row and does not name it, where `kind` does not say so: a KEY of a
            query that runs as a whole is exact, be it a group or a sum.
        time: how an estimated moment or interval is counted as a number; its error bars are of that number.
            None where it is a number itself.
        of_distinct: for OF_DISTINCT, how its interval follows from that of COUNT(DISTINCT).
    """

    name: str
    kind: OutputKind
    type: str
    estimate_sql: str
    total: str | None = None
    side: str | None = None
    quantile: QuantileOf | None = None
    unrounded_sql: str = ""
    rounding: float = 0.0
    rounding_a_row: float = 0.0
    moves_in_steps: bool = False
    widest: float = inf
    sign: Sign = Sign.EITHER
    never_certified: str = ""
    time: TimeScale | None = None
    of_distinct: OfDistinct | None = None
    measures: bool = False

    @property
    def part(self) -> str:
        """Return what a chart does with it: "measure" for an exact number that measures, else its kind."""
        return "measure" if self.measures and self.kind is OutputKind.KEY else self.kind.value

    @property
    def certifiable(self) -> bool:
        """Whether an interval of it may be certified before the end."""
        return not self.never_certified

    @property
    def remark(self) -> str:
        """Return why its numbers are not certified, where none ever is before the end, "" for all others."""
        return "" if self.certifiable else f"not certified before the end, because {self.never_certified}"

    @property
    def smooth_sql(self) -> str:
        """Return the value that error bars are of: before it is rounded."""
        return self.unrounded_sql or self.estimate_sql
