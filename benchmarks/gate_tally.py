"""What the gate counts of each group and column over many orders, and when it says that error bars failed.

Beside how often cells held the truth: how wide they are, compared with an oracle that knows how much the
estimate really varies. That is the spread of the estimate itself over the orders, 1.96 of its standard
deviations either way. Layouts may differ, and so each counts by how many of its cells are certified: the
intervals of a calm layout are not compared with how the estimates of another one vary.

A line fails ("low") if it is below 90 %, or below 91 % of at least 200 certified cells, or below 93 % by more
than two standard errors where at least 500 are certified. Of less than 100 certified cells a share below 90 %
must be so by two standard errors as well, and by more than chance: of 20 cells that are right 19 times in 20,
three are wrong once in 13 lines, and one cell alone is wrong in one of 20. A line between 90 and 91 % that is
within three standard errors of 95 % is in doubt ("unsure"), and more orders tell: where all cells of an order
go together, many cells say no more than one. By chance, one in 700 lines is farther away.

A line above 98 % is said ("high"), and one of 200 cells above 99.5 % has a reason: intervals of no width
where the layout knows the number, intervals that end at the truth itself, as those of medians do where many
rows have one value, or intervals wider than the oracle's.

One group that is always wrong hides among a hundred that are right. Its misses are beyond chance if a cell
that holds 90 % of the time had so many once in a million groups. Where one row is a million times larger,
such a group is a failure ("group").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.execution.estimate import Estimate
from scipy.stats import binom

from benchmarks.replay import Truth
from benchmarks.tally import NOMINAL, ROUNDING, Coverage, FloatArray, counts_of, coverage_of

LOWEST, LOWEST_OF_SOME, LOWEST_OF_MANY, HIGHEST, NEARLY_ALL = 0.90, 0.91, 0.93, 0.98, 0.995
MANY, SOME, FEW = 500, 200, 100
WIDE = 1.15  # times an oracle's interval: a true 95 % becomes 97.6
ONCE_IN_A_MILLION = 1e-6
TWO_STANDARD_ERRORS = 0.0228  # the chance that a normal value lies farther above its mean
NORMAL_95 = 1.96

# What is added up over the orders, for each group and column: of the cells shown, then of those certified.
# known: certified, and its interval has no width. at_end: it has, and one of its ends is the truth.
SUMS = ("shown", "error", "square", "certified", "held", "half_width", "known", "at_end")


@dataclass(slots=True)
class Spread:
    """Sums over orders, of each group and column: shape (len(SUMS), groups, columns)."""

    sums: FloatArray

    @classmethod
    def of(cls, truth: Truth) -> Spread:
        return cls(np.zeros((len(SUMS), *truth.values.shape)))

    def add(self, truth: Truth, estimate: Estimate) -> FloatArray:
        """Add what one snapshot shows, and return its counts as `counts_of` does."""
        groups, look = truth.look(estimate)
        value = np.stack([doubles(estimate.table.column(name)) for name in truth.columns], axis=1)
        shown = np.isfinite(value) & np.isfinite(look.truth)
        certified = look.certified & np.isfinite(look.truth)
        error = np.where(shown, value - look.truth, 0.0)
        error[np.abs(error) <= ROUNDING * np.abs(look.truth)] = 0.0
        half_width = np.where(certified & look.bounded, (look.high - look.low) / 2.0, 0.0)
        known = certified & look.bounded & (half_width <= ROUNDING * np.abs(look.truth))
        at_end = certified & look.bounded & ~known & look.held_at_end
        held = certified & look.held
        self.sums[:, groups] += (shown, error, error**2, certified, held, half_width, known, at_end)
        return counts_of(look)

    def column(self, i: int) -> dict[str, FloatArray]:
        """Return the sums of one column by name, each of shape (groups,)."""
        return dict(zip(SUMS, self.sums[:, :, i], strict=True))


@dataclass(frozen=True, slots=True)
class Judged:
    """What one expression comes to at one fraction.

    certified: the number of cells. width: half-width of certified cells ÷ the oracle's, the mean over orders
    and groups, the root mean square over layouts; NaN where none is certified or nothing varies. worst:
    coverage of the group with the misses that are least by chance, and how often chance alone has them.
    known: certified cells with intervals of no width. at_end: others that end at the truth.
    """

    coverage: Coverage
    certified: int
    width: float
    worst: float
    worst_chance: float
    has_spike: bool
    known: int = 0
    at_end: int = 0

    @property
    def verdict(self) -> str:
        """Return "low", "group", "unsure", "high" or ""; see the module."""
        found, error = self.coverage.coverage, 2.0 * self.coverage.standard_error
        if found < LOWEST and (self.certified >= FEW or self._few_are_low):
            return "low"
        if self.certified >= MANY and found + error < LOWEST_OF_MANY:
            return "low"
        if self.has_spike and self.worst_chance < ONCE_IN_A_MILLION:
            return "group"
        if LOWEST <= found < LOWEST_OF_SOME and self.certified >= SOME:
            return "low" if found + 1.5 * error < NOMINAL else "unsure"
        return "high" if found - error > HIGHEST else ""

    @property
    def _few_are_low(self) -> bool:
        """Whether a few cells hold below 90 % by two standard errors, and cells of 95 % would hardly."""
        found, error = self.coverage.coverage, 2.0 * self.coverage.standard_error
        missed = round(self.certified * (1.0 - found))
        chance = float(binom.sf(missed - 1, self.certified, 1.0 - NOMINAL))
        return found + error < LOWEST and chance < TWO_STANDARD_ERRORS

    @property
    def why_nearly_all(self) -> str:
        """Return why nearly all cells hold, "" where not nearly all of enough cells do."""
        if self.certified < SOME or self.coverage.coverage <= NEARLY_ALL:
            return ""
        if self.known >= self.certified / 2:
            return f"{self.known / self.certified:.0%} of the cells are known beforehand"
        if self.coverage.coverage - self.at_end / self.certified <= NEARLY_ALL - (1.0 - NOMINAL):
            return (
                f"{self.at_end / self.certified:.0%} of the intervals end at the truth, a value of many rows"
            )
        if np.isnan(self.width):
            return "estimates do not vary"
        return f"{self.width:.1f} times an oracle's width" if self.width > WIDE else "not explained"

    @property
    def failed(self) -> bool:
        return self.verdict in ("low", "group")


def judged(
    counts: FloatArray,
    spreads: Iterable[dict[str, FloatArray]],
    layouts: int,
    *,
    has_spike: bool,
    partitions: int = 100,
) -> Judged:
    """Return the judgement of one column.

    counts: shape (orders, 1, FIELDS). spreads: one of each layout. partitions: of each layout.
    """
    pieces = list(spreads)
    total = {name: np.sum([piece[name] for piece in pieces], axis=0) for name in SUMS}
    certified, held = total["certified"], total["held"]
    chance = binom.sf(certified - held - 1, certified, 1.0 - LOWEST)
    worst = int(np.argmin(chance))
    return Judged(
        coverage=coverage_of(counts, layouts, partitions),
        certified=int(certified.sum()),
        width=_width({name: np.stack([piece[name] for piece in pieces]) for name in SUMS}),
        worst=float(held[worst] / certified[worst]) if certified[worst] else float("nan"),
        worst_chance=float(chance[worst]),
        has_spike=has_spike,
        known=int(total["known"].sum()),
        at_end=int(total["at_end"].sum()),
    )


def _width(sums: dict[str, FloatArray]) -> float:
    """Return half-width of certified cells ÷ the oracle's: the mean over groups, weighted by certified cells.

    Of each group the half-widths of a layout's orders have their mean, and those means the root mean square
    over layouts, as the oracle's is of estimates by the same weights. sums: by name, each of shape (layouts,
    groups).
    """
    certified, shown = sums["certified"], np.maximum(sums["shown"], 1.0)
    count = certified.sum(axis=0)
    weight = certified / np.maximum(count, 1.0)
    half_width = np.sqrt((weight * (sums["half_width"] / np.maximum(certified, 1.0)) ** 2).sum(axis=0))
    error, square = ((weight * sums[name] / shown).sum(axis=0) for name in ("error", "square"))
    orders = (shown * (certified > 0.0)).sum(axis=0)
    variance = np.maximum(square - error**2, 0.0) * orders / np.maximum(orders - 1.0, 1.0)
    oracle = NORMAL_95 * np.sqrt(variance)
    # What differs by rounding alone does not vary: a mean of groups beside it would be that one's, 10⁸.
    varies = (oracle > ROUNDING * half_width) & (count > 0.0) & np.isfinite(half_width)
    if not varies.any():
        return float("nan")
    return float((count * half_width / np.maximum(oracle, 1e-300))[varies].sum() / count[varies].sum())
