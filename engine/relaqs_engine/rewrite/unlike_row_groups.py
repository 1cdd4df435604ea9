"""Which row groups are unlike the others, as footers show, and whether those drawn can tell of the rest.

A footer gives each row group *marks*, numbers of which one can say beforehand what their mean is:

- how many of its rows are known to meet a condition,
- how many values of a column are not NULL,
- how far both ends of a column that is summed or compared lie to one side of those of the median row group,
- whether an end lies apart from the ends of all others, as 174 does among 59, 60 and 61, or both ends do
  so together.

So the draw is *rehearsed*: of each mark, the mean is estimated from many draws, with an interval as the
answer's, and the intervals that hold the true mean are counted. Where too few do, the answer's own intervals
would hold too seldom as well, if its sums are like this mark. The row groups farthest from the mean are then
read for certain, as few as it takes. Where that would be too many, nothing is certified.

*Example.* Of 200 row groups one has values from 116 to 174, and all others from 40 to 60. Nine draws of ten
miss it, and their intervals miss the mean. Without it no mark differs, so it is read for certain.

The decision: docs/decisions/0025-row-groups.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.quantiles import student_quantile

from relaqs_engine.layouts.row_groups import RowGroup, number
from relaqs_engine.plans.schedule import spread_draws
from relaqs_engine.rewrite.zone_maps import Wanted

REHEARSALS = 4000
LEAST_HELD = 0.93
"""This share of the intervals must hold the mean of a mark; 95 % would be right, and 4000 tell to 0.35 %."""

APART, APART_SPREADS = 1 / 3, 16.0
"""An end is apart if it is farther from the median one than a third of the typical row group's range, and
than so many times what three of four ends are. The largest of many normal or exponential values is not."""

SHIFTED_SPREADS = 5.0
"""A row group is apart as well if both ends are moved to one side, together by so many of these spreads. Of
200 row groups of normal, exponential or log-normal values none is."""

NULLS_OF_CHANCE = 2.0
"""Numbers of NULLs are of chance if they vary no more than so many times what they would in shuffled rows."""

_OF_THOSE_LEFT_OUT = 8  # a draw is rehearsed again for each eighth more that is left out
_SHIFT_OF_CHANCE = 0.1  # a shift counts beyond this share of a range, divided by the root of the rows


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of each row group beforehand: an amount, and what it is a share of, as NULLs of rows.

    Both have the shape (row groups,). The amount is in rows, or in the column's unit times rows.
    """

    amount: FloatArray
    of: FloatArray

    def away(self, kept: BoolArray) -> FloatArray:
        """Return how far each row group is from the mean of those kept."""
        mean = self.amount[kept].sum() / max(self.of[kept].sum(), 1.0)
        found: FloatArray = self.amount - mean * self.of
        return found


@dataclass(frozen=True, slots=True)
class Unlike:
    """What is unlike the others.

    Attributes:
        certain: the row groups to read for certain, in the order of the file.
        least_drawn: how many of the others must be drawn until they tell of all; None: more than are drawn.
    """

    certain: tuple[RowGroup, ...]
    least_drawn: int | None


def unlike(
    groups: Sequence[RowGroup],
    marks: Iterable[Mark],
    sizes: Sequence[int],
    most: int,
) -> Unlike:
    """Return which row groups must be read for certain.

    Args:
        groups: all that can match.
        marks: of each of them.
        sizes: how many are drawn up to the end of each mini-batch.
        most: how many may be read for certain.
    """
    kept = np.ones(len(groups), dtype=bool)
    varied = [mark for mark in marks if _varies(mark.away(kept))]
    for mark in varied:
        _leave_out_the_farthest(mark, kept, sizes[0], most - int((~kept).sum()))
    certain = tuple(group for group, is_kept in zip(groups, kept, strict=True) if not is_kept)
    for size in sizes:
        if all(_is_told(mark.away(kept)[kept], size) for mark in varied):
            return Unlike(certain, size)
    return Unlike(certain, None)


def _leave_out_the_farthest(mark: Mark, kept: BoolArray, size: int, most: int) -> None:
    """Leave out as few as it takes for a draw to tell of the rest; none where more would have to go."""
    left_out, rest = 0, kept.copy()
    while not _is_told(mark.away(rest)[rest], size):
        for _ in range(1 + left_out // _OF_THOSE_LEFT_OUT):
            rest[int(np.argmax(np.where(rest, np.abs(mark.away(rest)), -1.0)))] = False
            left_out += 1
        if left_out > most:
            return
    kept &= rest


def _is_told(away: FloatArray, size: int) -> bool:
    """Whether intervals from draws of so many hold the mean, 0, often enough. away: shape (row groups,)."""
    if not _varies(away) or size >= len(away):
        return True
    draws = away[_draws(len(away), size)]
    quantile = student_quantile(np.array([size - 1.0]), 0.975)
    left = 1.0 - size / len(away)
    reach = quantile * np.sqrt(left * draws.var(axis=1, ddof=1) / size)
    return bool(np.mean(np.abs(draws.mean(axis=1)) <= reach) >= LEAST_HELD)


def _draws(count: int, size: int) -> IntArray:
    return spread_draws(count, size, np.random.default_rng(0), REHEARSALS)


def _varies(away: FloatArray) -> bool:
    return bool(np.ptp(away) > 1e-9 * max(1.0, float(np.abs(away).max()))) if len(away) else False


def marks_of(
    groups: Sequence[RowGroup], wanted: Iterable[Wanted], read: Iterable[str], used: Iterable[str]
) -> Iterator[Mark]:
    """Yield the marks of row groups.

    Args:
        groups: the row groups.
        wanted: what conditions ask of columns.
        read: the columns that are read.
        used: those inside of aggregates and conditions.
    """
    rows = np.array([group.row_count for group in groups], dtype=np.float64)
    for each in wanted:
        yield Mark(rows * [each.is_all_of(group) for group in groups], rows)
    for column in read:
        filled = rows - [group.zone(column).null_count or 0 for group in groups]
        if not _is_chance(filled, rows):
            yield Mark(filled, rows)
    for column in used:
        yield from _marks_of_ends(groups, column, rows)


def _is_chance(filled: FloatArray, rows: FloatArray) -> bool:
    share = filled.sum() / rows.sum()
    return bool(
        ((filled - share * rows) ** 2).sum() <= NULLS_OF_CHANCE**2 * share * (1.0 - share) * rows.sum()
    )


def _marks_of_ends(groups: Sequence[RowGroup], column: str, rows: FloatArray) -> Iterator[Mark]:
    found = [(number(zone.low), number(zone.high)) for zone in (group.zone(column) for group in groups)]
    ends = np.array([(np.nan, np.nan) if None in each else each for each in found], dtype=np.float64)
    known = np.isfinite(ends[:, 0])
    if not known.any():
        return
    low, high = np.where(known[:, None], ends - np.median(ends[known], axis=0), 0.0).T
    width = float(np.median(ends[known, 1] - ends[known, 0]))
    same_side = np.sign(low) == np.sign(high)
    shift = np.where(same_side, np.sign(low) * np.minimum(np.abs(low), np.abs(high)), 0.0)
    of_chance = _SHIFT_OF_CHANCE * width / np.sqrt(rows.mean())
    if shift.std() > of_chance:
        yield Mark(shift * rows, rows)
    is_shifted = (np.abs(shift) > of_chance) & (
        _spreads(low, width) + _spreads(high, width) > SHIFTED_SPREADS
    )
    is_apart = _is_apart(low, width) | _is_apart(high, width)
    yield Mark((is_apart | is_shifted) * rows, rows)


def _spreads(away: FloatArray, width: float) -> FloatArray:
    """Return how many times as far away each end is as three of four ends are at most."""
    size = np.abs(away)
    found: FloatArray = size / max(float(np.quantile(size, 0.75)), 1e-9 * width, 1e-300)
    return found


def _is_apart(away: FloatArray, width: float) -> BoolArray:
    found: BoolArray = (np.abs(away) > APART * width) & (_spreads(away, width) > APART_SPREADS)
    return found
