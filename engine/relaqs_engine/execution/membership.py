"""Which rows of an estimate are certain to be in the answer, by the numbers that decide it.

A row is certain when, at the confidence asked for, its numbers stay on their side of every threshold of
HAVING, and fewer than LIMIT groups may come before it: groups seen, groups that HAVING leaves out for now,
and groups not seen yet. The statements of one estimate hold together, so each of them is surer by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from relaqs_bootstrap import most_in_all
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs_engine.execution.interval import CellIntervals, IntervalRequest
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.basis import BasisColumn
from relaqs_engine.plans.deciders import Decider
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import RIVALS
from relaqs_engine.plans.outputs import OutputKind

# A group with fewer rows is too small to be judged: its standard error is itself too uncertain.
MIN_ROWS = 30
# What is decided at this confidence needs no correction for how many groups were compared; those that are
# not share what the confidence asked for leaves.
STRICT_CONFIDENCE = 0.9999
# How often the total of a group too small to be judged, or of one not seen yet, is above its bound.
FEW_ROWS_TAIL = 1e-6
# Where there is no bound: a group of the size of the smallest one seen is missed once in a million, if that
# one has so many rows.
UNSEEN_ROWS = 14
# A group that was hardly seen may be one large sampling unit, and a join may multiply its rows. Allowed for
# are so many times the rows that units have on average, and so many times the rows that were not seen.
UNIT_FACTOR = 10.0
# A ranking that shows more rows than this is not decided: each group is compared with each other one.
MOST_RANKED = 2_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """Groups that the answer may have: those that pass HAVING so far, in its order, then some that do not.

    passes: which they are. rows: joined rows seen of each. Both of shape (groups,). least_rows: of any group.
    outliers: what the outlier index adds to each total, by its column, shape (groups,).
    """

    passes: BoolArray
    rows: FloatArray
    least_rows: float
    outliers: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Places:
    """Of the rows shown, shape (rows,): whether each is certain to be in the answer, and how easily.

    slack: by how many half-widths the number that decides could be lower still, inf where none does.
    open: groups of which it is not certain whether they are in the answer, shown or not.
    """

    certain: BoolArray
    slack: FloatArray
    open: int

    @classmethod
    def alike(cls, count: int, *, certain: bool) -> Places:
        return cls(np.full(count, certain), np.full(count, np.inf), 0 if certain else count)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What each candidate's deciding number lies between. below, above: its half-widths as they are shown."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    below: FloatArray
    above: FloatArray

    def reversed(self) -> _Ends:
        """Return the ends of the negative numbers."""
        return _Ends(-self.value, -self.high, -self.low, self.above, self.below)


# The intervals of all candidates at a confidence, the deciders' last.
IntervalsAt = Callable[[float], CellIntervals]


class Membership:
    """Decides which rows of one plan's estimates are certain."""

    def __init__(self, plan: MergePlan, leading: Layout, request: IntervalRequest) -> None:
        self._plan = plan
        self._confidence = request.confidence
        self._first = sum(output.kind is OutputKind.ESTIMATE for output in plan.outputs)
        alone = not plan.hoists and len(plan.streams) == 1
        usual = UNIT_FACTOR * leading.row_count / max(1, leading.unit_count)
        self._rows_of_unit = min(leading.max_unit_rows, usual) * (1.0 if alone else UNIT_FACTOR)
        self._rules = plan.membership
        self._columns = {column.name: column for column in plan.columns.basis}

    def __call__(self, candidates: Candidates, at: IntervalsAt, fraction: float) -> Places:
        """Return the places of the rows shown: of the candidates that pass, the first."""
        rules = self._rules
        count = int(candidates.passes.sum())
        if rules.shown_rows is not None:
            count = min(count, rules.shown_rows)
        if rules.is_opaque or (rules.ranking and count > MOST_RANKED):
            return Places.alike(count, certain=False)
        if rules.rows_may_leave and not rules.has_limit and not rules.deciders:
            certain = candidates.rows[:count] >= MIN_ROWS  # of which some surely count
            return Places(certain, np.full(count, np.inf), int((~certain).sum()))
        if rules.ranks_by_key:
            return Places.alike(count, certain=self._all_are_seen(candidates) and not rules.deciders)
        if not rules.deciders or not count:
            return Places.alike(count, certain=True)
        usual = at(self._confidence)
        strict = self._decided(candidates, usual, at(STRICT_CONFIDENCE), fraction, count)
        level = 1.0 - 2.0 * (1.0 - self._confidence) / max(2, strict.open)  # one side of each decides
        if level >= STRICT_CONFIDENCE:
            return strict
        return self._decided(candidates, usual, at(level), fraction, count)

    @np.errstate(divide="ignore", invalid="ignore")  # what is known exactly has no width
    def _decided(
        self, candidates: Candidates, usual: CellIntervals, found: CellIntervals, fraction: float, count: int
    ) -> Places:
        """Return the places by intervals `found`. usual: those at the confidence asked for."""
        sure = np.ones(len(candidates.rows), dtype=bool)
        fails = np.zeros(len(candidates.rows), dtype=bool)
        slack = np.full(len(candidates.rows), np.inf)
        for i, decider in enumerate(self._rules.deciders):
            if not decider.ranks:
                ends = self._ends(i, decider, candidates, usual, found, fraction)
                over, under = ends.low - decider.threshold, decider.threshold - ends.high
                fails |= {"above": under > 0, "below": over > 0}.get(decider.side, fails)
                sure &= (over > 0) | (under > 0)
                slack = np.fmin(slack, np.where(over > 0, over / ends.below, under / ends.above))
        stays, out = candidates.passes & sure & ~fails, fails | (~candidates.passes & sure)
        if self._rules.ranking is not None:
            ends = self._ranked_ends(candidates, usual, found, fraction)
            hidden = self._hidden(candidates, ends, out, fraction)
            first = np.arange(count)
            gaps = _gaps(ends, first)
            before = (gaps > 0)[stays[first]].sum(axis=0)
            distance = self._distance(ends, gaps, first, out, hidden)
            stays[:count] &= distance > 0
            slack[:count] = np.fmin(slack[:count], distance)
            out |= before >= (self._rules.shown_rows or 0)
        return Places(stays[:count], slack[:count], int((~stays & ~out).sum()))

    def certain_beyond(
        self, least: float, candidates: Candidates, at: IntervalsAt, fraction: float
    ) -> int | None:
        """Return how many rows would be certain if groups had to have more rows than this; None: too few do.

        least: rows seen.
        """
        usual, found = at(self._confidence), at(STRICT_CONFIDENCE)
        stays = candidates.passes & (candidates.rows > least)
        if int(stays.sum()) < (self._rules.shown_rows or 0):
            return None
        ends = self._ranked_ends(candidates, usual, found, fraction)
        first = np.flatnonzero(stays)[: self._rules.shown_rows]
        return int((self._distance(ends, _gaps(ends, first), first, ~stays, -np.inf) > 0).sum())

    def _ranked_ends(
        self, candidates: Candidates, usual: CellIntervals, found: CellIntervals, fraction: float
    ) -> _Ends:
        """Return what the ranked number lies between, larger nearer to the first place."""
        index = next(i for i, decider in enumerate(self._rules.deciders) if decider.ranks)
        decider = self._rules.deciders[index]
        ends = self._ends(index, decider, candidates, usual, found, fraction)
        return ends if decider.descends else ends.reversed()

    @np.errstate(divide="ignore", invalid="ignore")
    def _distance(
        self, ends: _Ends, gaps: FloatArray, first: IntArray, out: BoolArray, hidden: float
    ) -> FloatArray:
        """Return how far each of the first groups is from where too many others may come before it.

        In half-widths. gaps: see `_gaps`. out: groups that surely do not pass HAVING. hidden: the best place
        of any group besides.
        """
        shown = self._rules.shown_rows or 0
        gaps = np.where(out, np.inf, gaps)
        gaps[np.arange(len(first)), first] = np.inf
        distance = np.full(len(first), np.inf)
        if gaps.shape[1] > shown:
            distance = np.partition(gaps, shown - 1, axis=1)[:, shown - 1]
        distance = np.fmin(distance, ends.low[first] - hidden)
        return np.where(distance > 0, distance / ends.below[first], -np.inf)

    def _ends(
        self,
        index: int,
        decider: Decider,
        candidates: Candidates,
        usual: CellIntervals,
        found: CellIntervals,
        fraction: float,
    ) -> _Ends:
        """Return what a decider lies between; of a group too small to be judged, what is provable."""
        i = self._first + index
        value, low, high = found.value[:, i], found.low[:, i], found.high[:, i]
        judged = np.isfinite(low) & np.isfinite(high)
        judged &= (candidates.rows >= MIN_ROWS) | self._plan.groups_are_final
        column = self._bounded(decider)
        known = candidates.outliers.get(decider.value.total or "", 0.0)
        least = known if column else -np.inf
        most = known + self._most(column, candidates.rows, fraction) if column else np.inf
        return _Ends(
            value,
            np.where(judged, low, np.where(np.isnan(value), -np.inf, least)),
            np.where(judged, high, np.where(np.isnan(value), np.inf, most)),
            value - usual.low[:, i],
            usual.high[:, i] - value,
        )

    def _bounded(self, decider: Decider) -> BasisColumn | None:
        """Return the column that a decider is the total of, if its rows are known to lie in 0..highest."""
        column = self._columns.get(decider.value.total or "")
        if column is None or column.lowest is None or column.lowest < 0.0 or column.highest is None:
            return None
        return column

    def _most(self, column: BasisColumn, rows: FloatArray, fraction: float) -> FloatArray:
        """Return the most that the totals of groups may be of which so many rows were seen."""
        assert column.highest is not None
        return column.highest * self._rows_of_unit * most_in_all(rows, fraction, FEW_ROWS_TAIL)

    def _all_are_seen(self, candidates: Candidates) -> bool:
        """Whether a group that was not seen would be far smaller than any that was."""
        return not self._plan.groups_are_local and candidates.least_rows >= UNSEEN_ROWS

    def _hidden(self, candidates: Candidates, ends: _Ends, out: BoolArray, fraction: float) -> float:
        """Return the best place that a group may have which is not among the candidates, -inf for none."""
        best, decider = -np.inf, self._rules.ranking
        assert decider is not None
        if not self._all_are_seen(candidates) and not self._unseen_fail(fraction):
            column = self._bounded(decider)
            if column is None or self._plan.groups_are_local:
                return np.inf
            best = float(self._most(column, np.zeros(1), fraction)[0]) if decider.descends else 0.0
        comparable = decider.value.total is not None or candidates.least_rows >= MIN_ROWS
        passing = int(candidates.passes.sum())
        if passing == (self._rules.shown_rows or 0) + RIVALS:
            above = float(np.max(ends.high - ends.value))
            best = max(best, float(ends.value[passing - 1]) + above) if comparable else np.inf
        margins = self._rules.margins
        comparable = candidates.least_rows >= MIN_ROWS or all(each.value.total for each in margins)
        if len(out) - passing == RIVALS and not (comparable and out[-1]):
            return np.inf
        return best

    def _unseen_fail(self, fraction: float) -> bool:
        """Whether HAVING asks for more than a group can have of which nothing was seen."""
        if self._plan.groups_are_local:
            return False
        for margin in self._rules.margins:
            column = self._bounded(margin) if margin.side == "above" else None
            if column is not None and self._most(column, np.zeros(1), fraction)[0] < margin.threshold:
                return True
        return False


@np.errstate(invalid="ignore")
def _gaps(ends: _Ends, first: IntArray) -> FloatArray:
    """Return by how much each of the first groups is surely ahead of each group, shape (first, groups)."""
    below, above = (ends.value - ends.low)[first, None], ends.high - ends.value
    gaps = ends.value[first, None] - ends.value - np.hypot(below, above)
    return np.where(np.isnan(gaps), -np.inf, gaps)
