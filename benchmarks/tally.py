"""How often intervals held the truth: counts per run and column, and the coverage they add up to.

The band. Certified cells are promised to be covered 93 to 97 % of the time. What is measured scatters around
the real coverage for two reasons; a figure is called outside only if it is by more than two standard errors:

- Runs differ. Cells of one run share its rows, so a run is the unit: with covered cᵢ and certified nᵢ cells,
  the coverage c = Σcᵢ/Σnᵢ has the variance R/(R−1)·Σ(cᵢ − c·nᵢ)²/(Σnᵢ)² of a ratio (Cochran 1977, §6.4). For
  one cell and 200 runs that is (1.5 points)².
- Layouts differ. All orders of one layout draw from the same N partitions, whose spread is off from that of a
  new layout by a relative √(1/2(N−1)): 7 % at N = 100, 18 % at N = 16. A true 95 % becomes 95 % ∓
  2·1.96·φ(1.96)·7 % = 1.6 points, and 4.2 points at N = 16: there one layout in ten holds less than 90 % of
  the time, and says nothing of the intervals. A single cell's runs have the variance 0.0475/R and its layouts
  0.016²/L, so R runs over L layouts have √(1 + (R/L)/179) times the standard error of R independent ones;
  cells that go together leave that factor as it is. 179 is what `layout_luck` says of N = 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

NOMINAL, LOWEST, HIGHEST = 0.95, 0.93, 0.97
LOST_BY_SPREAD = 0.229  # of the coverage, when the spread is off by a factor: 2·1.96·φ(1.96)
ROUNDING = 1e-9  # relative: what a float sum in another order may differ by

# What is counted of the cells of one run, by column.
FIELDS = ("cells", "certified", "held", "half_width", "size", "bounded", "bounded_held")


@dataclass(frozen=True, slots=True)
class Look:
    """What one snapshot said of the cells it showed, each array of shape (groups, columns).

    truth: NaN where there is none (an average over nothing), which makes it no cell.
    """

    truth: FloatArray
    low: FloatArray
    high: FloatArray
    certified: BoolArray

    @property
    def bounded(self) -> BoolArray:
        """Whether the interval has two finite ends."""
        finite: BoolArray = np.isfinite(self.low) & np.isfinite(self.high)
        return finite

    @property
    def held(self) -> BoolArray:
        """Whether the truth lies in the interval; an end that is missing excludes nothing."""
        slack = ROUNDING * np.abs(self.truth)
        missed: BoolArray = (self.truth < self.low - slack) | (self.truth > self.high + slack)
        return ~missed

    @property
    def held_at_end(self) -> BoolArray:
        """Whether the truth is an end of the interval."""
        slack = ROUNDING * np.abs(self.truth)
        at_end: BoolArray = (np.abs(self.truth - self.low) <= slack) | (
            np.abs(self.truth - self.high) <= slack
        )
        return at_end


def counts_of(look: Look) -> FloatArray:
    """Return the counts of one look, shape (columns, FIELDS); half-widths and sizes of certified cells."""
    return _counted(look.truth, look.certified, look.bounded, look.held, (look.high - look.low) / 2.0)


def all_held(counts: FloatArray) -> FloatArray:
    """Return the counts of one look as of a single cell, which holds if all certified ones do.

    The shape is (1, FIELDS). It is certified if one is.
    """
    certified, held = (counts[:, FIELDS.index(name)].sum() for name in ("certified", "held"))
    known = dict.fromkeys(FIELDS, 0.0)
    known |= {"cells": 1.0, "certified": float(certified > 0), "held": float(0 < certified == held)}
    return np.array([[known[name] for name in FIELDS]])


def _counted(
    truth: FloatArray, certified: BoolArray, bounded: BoolArray, held: BoolArray, half_width: FloatArray
) -> FloatArray:
    cell = np.isfinite(truth)
    certified, bounded = certified & cell, bounded & cell
    size = np.where(certified, np.abs(truth), 0.0)
    half_width = np.where(certified, half_width, 0.0)
    counted = (cell, certified, certified & held, half_width, size, bounded, bounded & held)
    return np.stack([array.sum(axis=0, dtype=np.float64) for array in counted], axis=1)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a number of runs come to. half_width: mean over certified cells, relative to their mean size.

    coverage, half_width: NaN where nothing was certified. standard_error: of the coverage.
    """

    cells: int
    certified_share: float
    coverage: float
    standard_error: float
    half_width: float
    bounded_share: float
    bounded_coverage: float

    @property
    def verdict(self) -> str:
        """Return "low" or "high" if the coverage is outside the band by more than chance, else ""."""
        if self.coverage + 2.0 * self.standard_error < LOWEST:
            return "low"
        return "high" if self.coverage - 2.0 * self.standard_error > HIGHEST else ""


def layout_luck(partitions: int) -> float:
    """Return how many runs of one layout weigh as much as the layout itself.

    >>> round(layout_luck(100)), round(layout_luck(16))
    (179, 27)
    """
    return NOMINAL * (1.0 - NOMINAL) * 2.0 * (partitions - 1) / LOST_BY_SPREAD**2


def coverage_of(runs: FloatArray, layouts: int, partitions: int = 100) -> Coverage:
    """Return the coverage over runs of counts, shape (runs, columns, FIELDS).

    layouts: how many there are. partitions: of each.
    """
    by_run = {name: runs[:, :, i].sum(axis=1) for i, name in enumerate(FIELDS)}
    total = {name: float(values.sum()) for name, values in by_run.items()}
    coverage = _share(total["held"], total["certified"])
    residual = by_run["held"] - coverage * by_run["certified"]
    count = len(runs)
    variance = count / max(count - 1, 1) * float((residual**2).sum()) / max(total["certified"], 1.0) ** 2
    # Where too few missed to tell, no surer than that many independent cells of nominal coverage would be.
    variance = max(variance, NOMINAL * (1.0 - NOMINAL) / max(total["certified"], 1.0))
    return Coverage(
        cells=round(total["cells"]),
        certified_share=_share(total["certified"], total["cells"]),
        coverage=coverage,
        standard_error=sqrt(variance * (1.0 + count / layouts / layout_luck(partitions))),
        half_width=_mean_relative(runs),
        bounded_share=_share(total["bounded"], total["cells"]),
        bounded_coverage=_share(total["bounded_held"], total["bounded"]),
    )


def _mean_relative(runs: FloatArray) -> float:
    """Return half-width over size by column, averaged over columns: no cell near zero rules it."""
    sums = runs.sum(axis=0)
    half_width, size = sums[:, FIELDS.index("half_width")], sums[:, FIELDS.index("size")]
    relative = half_width[size > 0.0] / size[size > 0.0]
    return float(relative.mean()) if relative.size else float("nan")


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


class EveryLook:
    """Whether each cell's interval held at every look at which it was certified, over one run."""

    def __init__(self, truth: FloatArray) -> None:
        """Start a run. truth: of all groups of the exact answer, shape (groups, columns)."""
        self._truth = truth
        self._certified = np.zeros(truth.shape, dtype=bool)
        self._missed = np.zeros(truth.shape, dtype=bool)

    def add(self, groups: NDArray[np.int64], look: Look) -> None:
        """Add a look. groups: which groups of the exact answer it shows."""
        self._certified[groups] |= look.certified
        self._missed[groups] |= look.certified & ~look.held

    def counts(self) -> FloatArray:
        """Return the counts of the run, shape (columns, FIELDS): each cell once, without a width."""
        held, width = ~self._missed, np.zeros_like(self._truth)
        return _counted(self._truth, self._certified, self._certified, held, width)
