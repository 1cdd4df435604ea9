"""Whether the one error of a whole answer is what it says, at each look and where a target is reached.

An answer announces that groups with 95 % of the rows are within an error, in every column. That is a
statement at 95 %: the true error is above the announced one in 3 to 7 % of the snapshots. Numbers of distinct
values have intervals that hold at 95 % or more, so the true error of those stopped at a target is within the
announced one in 93 % of the stops or more. Both are judged by how a table is read, with two standard errors
for chance. Answers that announce no error at all are known, and do not count. Snapshots of one order of one
query go together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.execution.estimate import Estimate, Judge
from relaqs_engine.plans.plan import IntervalRequest
from rich.table import Table as ShownTable

from benchmarks.replay import Replay, RowGroupReplay, Truth
from benchmarks.tally import ROUNDING, FloatArray

if TYPE_CHECKING:
    from benchmarks.gate_queries import Asks

TARGETS = (0.20, 0.05)
LEAST_ABOVE, NOMINAL_ABOVE, MOST_ABOVE = 0.03, 0.05, 0.07
WANTED = {"headline": 5_000, "stops": 200}
_AS_IT_IS = Judge(
    together=True
)  # of true errors nothing is drawn: it is the one that 95 % of the rows are within
CAPTION = (
    "In percent. above: snapshots whose true error is above the announced one, ± two standard errors; wanted "
    f"of headlines: {LEAST_ABOVE:.0%} to {MOST_ABOVE:.0%}, of stops: {MOST_ABOVE:.0%} at most."
)


def errors_of(truth: Truth, estimate: Estimate) -> tuple[float, float]:
    """Return the error that an estimate announces, and the true one, each of the same cells."""
    announced = estimate.relative_error()
    if not 0.0 < announced < np.inf:
        return np.nan, np.nan
    _, look = truth.look(estimate)
    places = [column.name in truth.columns for column in estimate.approximate]
    value = np.stack([doubles(estimate.table.column(name)) for name in truth.columns], axis=1)
    off = np.full(estimate.values.shape, np.nan)
    off[:, places] = np.abs(value - look.truth)
    judged = _AS_IT_IS.judges(estimate.widths) & np.array(places)
    seen = replace(
        estimate,
        half_widths=off,
        doubts=np.zeros(off.shape, dtype=np.int64),
        never=tuple("" if each else "it is not judged" for each in judged),
    )
    return announced, seen.relative_error(judge=_AS_IT_IS)


def errors_at_looks(
    replay: Replay | RowGroupReplay, truth: Truth, seeds: Sequence[int], shares: Sequence[float]
) -> FloatArray:
    """Return the announced and the true errors at shares of the table, shape (orders, shares, 2)."""
    found = np.full((len(seeds), len(shares), 2), np.nan)
    for order, seed in enumerate(seeds):
        for share, estimate in replay.looks(seed, shares, IntervalRequest()):
            found[order, list(shares).index(share)] = errors_of(truth, estimate)
    return found


def errors_at_stops(replay: Replay, truth: Truth, seeds: Sequence[int]) -> FloatArray:
    """Return the errors where a query stops that has each of the TARGETS, shape (orders, targets, 2)."""
    return np.array([list(_stops(replay, truth, seed)) for seed in seeds])


def _stops(replay: Replay, truth: Truth, seed: int) -> Iterator[tuple[float, float]]:
    """Yield the errors at the first snapshot that announces each target; NaN where none before the end."""
    looks = [errors_of(truth, each) for _, each in replay.estimates(seed, IntervalRequest())]
    for target in TARGETS:
        yield next((each for each in looks if each[0] <= target), (np.nan, np.nan))


@dataclass(frozen=True, slots=True)
class HeadlineLine:
    """What the one error of answers comes to. path: how the table is read. above: share of the snapshots."""

    path: str
    asks: Asks
    snapshots: int
    above: float
    standard_error: float

    @property
    def failed(self) -> bool:
        """Whether the share is outside what is wanted by more than two standard errors."""
        slack = 2.0 * self.standard_error
        is_low = self.asks == "headline" and self.above + slack < LEAST_ABOVE
        return bool(is_low or self.above - slack > MOST_ABOVE)


def headline_line(path: str, asks: Asks, errors: Iterable[FloatArray]) -> HeadlineLine:
    """Return what the errors of several runs come to, each of shape (orders, snapshots, 2)."""
    by_order = [
        (
            np.isfinite(each).all(axis=2).sum(axis=1),
            (each[..., 1] > each[..., 0] * (1.0 + ROUNDING)).sum(axis=1),
        )
        for each in errors
    ]
    shown, above = (np.concatenate(each).astype(float) for each in zip(*by_order, strict=True))
    total = shown.sum()
    if not total:
        return HeadlineLine(path, asks, 0, float("nan"), float("nan"))
    share = float(above.sum() / total)
    variance = float(((above - share * shown) ** 2).sum()) / total**2
    # No surer than that many independent snapshots would be.
    variance = max(variance, NOMINAL_ABOVE * (1.0 - NOMINAL_ABOVE) / total)
    return HeadlineLine(path, asks, int(total), share, sqrt(variance))


def table_of_headlines(lines: Sequence[HeadlineLine]) -> ShownTable:
    """Return one row for each path, of headlines and of numbers of values that were stopped."""
    table = ShownTable(title="The one error of an answer", caption=CAPTION)
    table.add_column("path")
    table.add_column("judged")
    for name in ("snapshots", "wanted", "above", "±"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in headline_rows(lines)[1:]:
        table.add_row(*row)
    return table


def headline_rows(lines: Sequence[HeadlineLine]) -> list[list[str]]:
    """Return the same as rows of text, the head first."""
    rows = [["path", "judged", "snapshots", "wanted", "above", "±", ""]]
    for line in lines:
        numbers = [
            f"{100 * share:.1f}" if line.snapshots else "–" for share in (line.above, 2 * line.standard_error)
        ]
        counts = [f"{line.snapshots:,}", f"{WANTED[line.asks]:,}"]
        verdict = "fails" if line.failed else "too few" if line.snapshots < WANTED[line.asks] else ""
        rows.append([line.path, line.asks, *counts, *numbers, verdict])
    return rows
