"""The columns of partial results: the mergeable primitives that every supported aggregate is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """The mergeable primitives every supported aggregate is made of."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    ANY_VALUE = "any_value"
    FIRST = "first"  # of rows in an order, or of any rows; a struct of the value and what is ordered by
    LAST = "last"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    ARG_MIN = "arg_min"  # merged by the extreme it stands beside
    ARG_MAX = "arg_max"
    MEAN = "mean"  # of a variance or covariance: count, means and m2 are merged by Chan's formula
    M2 = "m2"  # the sum of products of deviations from two means, or of squares of deviations from one
    VALUES = "values"  # all of them, as a list
    # What a row adds to one column, times what it adds to another, summed over the rows. Variances in closed
    # form need it for every pair of columns, and for each column with itself.
    PRODUCT = "product"


@dataclass(frozen=True, slots=True)
class UnitSum:
    """What the rows of one sampling unit add to a sum: any k of them `middle` · k + d, −below ≤ d ≤ above.

    Attributes:
        middle: about the mean of what a row adds.
        above: the most that distances above the middle come to.
        below: the most that distances below it come to.
        squares: the most that squares of distances from it come to.
    """

    middle: float
    above: float
    below: float
    squares: float

    def times(self, factor: float) -> UnitSum:
        """Return the same of values that are so many times as large.

        >>> UnitSum(2.0, 5.0, 3.0, 10.0).times(-2.0)
        UnitSum(middle=-4.0, above=6.0, below=10.0, squares=40.0)
        """
        above, below = (self.above, self.below) if factor >= 0.0 else (self.below, self.above)
        size = abs(factor)
        return UnitSum(factor * self.middle, size * above, size * below, factor**2 * self.squares)

    def moved(self, by: float) -> UnitSum:
        """Return the same of values that are larger by a number."""
        return UnitSum(self.middle + by, self.above, self.below, self.squares)


@dataclass(frozen=True, slots=True)
class BasisColumn:
    """One column of partial aggregates.

    Where the plan reads outliers apart, `lowest` and `highest` bound a row that is no outlier. Outliers
    beyond them may then have moved a total already.

    Attributes:
        name: its name in partial results and in the state.
        kind: how it merges.
        sql: its expression in the partial query.
        type: its DuckDB type.
        row_sql: what one joined row adds to a COUNT or SUM.
        count_of: the name of a COUNT: each row that adds something here adds 1 there. A MEAN and an M2 need
            it to merge. A SUM has one where the query divides it by this count, as avg(x) does. What is never
            NULL is counted by COUNT(*), and so is its own COUNT.
        means: the names of the MEANs that an M2's deviations are from: two for a covariance, twice the same
            for a variance. A MEAN has its own name here.
        extreme_of: the extreme that an ARG_MIN or ARG_MAX stands beside.
        order: what a FIRST or LAST is ordered by, as SQL over the fields of its struct.
        lowest: a provable lower bound of one row's value, from the statistics; None where there is none.
        highest: likewise an upper bound.
        counts_units: whether it counts sampling units, as COUNT(DISTINCT key) does. Partial results of such a
            column add up only where each has all rows of its units. Those of other columns merge whatever
            rows they come from.
        unit_sums: what a unit's rows add, of each factor of an M2. Empty where the ends of a row say it all.
    """

    name: str
    kind: Basis
    sql: str
    type: str
    row_sql: str = ""
    count_of: str | None = None
    means: tuple[str, ...] = ()
    extreme_of: str | None = None
    order: tuple[str, ...] = ()
    lowest: float | None = None
    highest: float | None = None
    counts_units: bool = False
    unit_sums: tuple[UnitSum, ...] = ()

    @property
    def is_additive(self) -> bool:
        """Whether replicates can subtract it: counts, sums, and moments as sums of deviations."""
        return self.kind in (Basis.COUNT, Basis.SUM, Basis.MEAN, Basis.M2)

    @property
    def is_moment(self) -> bool:
        """Whether it is a sum of deviations from means."""
        return self.kind in (Basis.MEAN, Basis.M2)

    @property
    def is_square(self) -> bool:
        """Whether it is a sum of squares of deviations, which is never negative."""
        return self.kind is Basis.M2 and len(set(self.means)) == 1

    @property
    def additive_sql(self) -> str:
        """Return what a row of the state adds to it, as a double; of moments about grand_…, the mean."""
        away = " * ".join(f"({mean} - grand_{mean})" for mean in self.means)
        match self.kind:
            case Basis.MEAN:
                return f"CAST({self.count_of} AS DOUBLE) * {away}"
            case Basis.M2:
                return f"({self.name} + {self.count_of} * {away})"
            case _:
                return f"CAST({self.name} AS DOUBLE)"
