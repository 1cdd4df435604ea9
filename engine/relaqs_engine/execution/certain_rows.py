"""Which rows of an estimate are certain to be in the answer, judged by the numbers that decide it.

    SELECT user, count(*) AS n FROM views GROUP BY user HAVING count(*) > 1000 ORDER BY n DESC LIMIT 10

HAVING and LIMIT choose groups by estimates, so a row shown now may leave the answer later. A row is
*certain* if, at the confidence asked for,

1. each of its numbers stays on its side of every threshold of HAVING, and
2. fewer than LIMIT other groups may come before it. These are groups seen, groups that HAVING leaves out
   for now, and groups that were not seen yet.

**Two groups.** Group a is surely ahead of group b if their estimates are far enough apart. The errors of
two groups are nearly independent, so they add up like the short sides of a right triangle:

    a − b > hypot(lower half-width of a, upper half-width of b)

*Example.* 100 ± 10 against 80 ± 12: the distance 20 is more than hypot(10, 12) = 15.6, so a is ahead, with
4.4 to spare, or 0.44 of its half-width. That *slack* matters, because luck alone brings some groups over
the bar. At a slack of 0.44 the row's intervals are 2.3 times as wide (`relaqs_bootstrap.selection_factor`).
At one below 0.24 they would be more than four times as wide, and its cells are not certified.

**Many statements.** All statements of one estimate should hold together. What holds at 99.99 % is taken as
decided. The n groups left share what the confidence leaves: with 95 % and 40 open groups, each is judged
by its interval at 1 − 2 · 0.05/40 = 99.75 %. Only one side of an interval decides, so each is wrong with a
chance of 0.05/40. The groups that this leaves open share the confidence again, and are decided once more.

**Likely.** A row that is judged for itself, at the confidence asked for, is likely to stay. This is said of
the number of such rows, and certifies nothing.

**Few rows.** Below 30 rows a standard error is too uncertain itself. A mean of such a group may be
anything. A total that cannot fall and was seen to pass HAVING passes it for sure, whatever its error. A
total is bounded: by the most rows it can have, at one in a million, times the most that a row can add. The
same bound, with no row seen, holds for groups that were not seen: at most 138 rows if a tenth of the table
was read.

**Room.** Where keys order the groups, no estimate decides. A row has its place if LIMIT has room for those
before it that were seen, and for as many as may have been missed. In whatever order,
all rows have one where LIMIT lets more groups through than there can be. The total of a ROLLUP is first
where NULL comes first.

**Complete groups.** A group that lies in one partition is known exactly once it was seen, and one that was
not seen may come first. Only an index of heavy units bounds it (`layouts/heavy_units.py`).

What is ugly. Groups compared are the first 500 beyond LIMIT and the 500 nearest to the thresholds of
HAVING, and what lies beyond both is bounded by their last ones. One confidence is used for all open
groups, so the number of them must be known first: everything is decided two times or more.

The decisions: docs/decisions/0019-certain-rows.md, and 0044-heavy-units.md for complete groups. Why no
cell is certified by its sample alone, is in 0016-heavy-tails.md.

**Candidates.** The groups that a ranked answer may have, and the number of all groups, come from one
statement (`candidates_sql`). By the keys of ORDER BY alone, LIMIT may have room for a row whatever groups
were not seen yet (`room_of`).

**Composite queries.** Where the ranking is computed from other answers, a row stays if fewer others than
LIMIT lets through may be before it (`ranked_rows`). Another is surely behind if its whole interval is, at
STRICT_CONFIDENCE. Such intervals say so whether or not the two estimates move together, as shares of one
total do.

`words_of` says which rows are certain, which are not, and what would help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import floor, log, log10

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.certify import enough_to_be_met, most_in_all, most_unseen_groups

from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.execution.estimate import CellIntervals
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plans.aggregate import (
    BEFORE,
    BEFORE_ONCE,
    IS_FIRST,
    JUDGED_ROWS,
    RIVALS,
    ROWS,
    BasisColumn,
    Decider,
    MergePlan,
    outlier_column,
)
from relaqs_engine.plans.composite import Ranking
from relaqs_engine.plans.plan import IntervalRequest, OutputKind


@dataclass(frozen=True, slots=True)
class Room:
    """The places of rows by the keys that order them, each of shape (rows,).

    before: how many of the rows seen come before each or with it. before_once: those of them that were seen
    in one sampling unit at most. is_first: which rows no other can come before, but for one with the same
    keys in each grouping set.
    """

    before: FloatArray
    before_once: FloatArray
    is_first: BoolArray

    def fits(
        self, most: int, *, sets: int, fraction: float, confidence: float, all_are_seen: bool = False
    ) -> BoolArray:
        """Return which of the rows are surely among the first `most`, with a confidence for all together.

        sets: into how many rows one sampling unit may fall, the total of all left aside. The rows of one
        grouping set are seen independently of each other, and each set may have some that were not.

        Three rows, of which two were seen in one unit each. An eighth was scanned, so up to 53 are missing:
        """
        unseen = np.zeros(len(self.before))
        if not all_are_seen:
            tail = (1.0 - confidence) / 2.0 / max(1, sets)
            unseen = sets * most_unseen_groups(self.before_once.astype(np.int64), fraction, tail)
        fits: BoolArray = self.before + unseen <= most
        return fits | (self.is_first & (sets < most))


def room_of(point: pa.Table) -> Room | None:
    """Return the places in an estimate, None where it has none."""
    if BEFORE not in point.column_names:
        return None
    before, once, first = (doubles(point.column(name), null=0.0) for name in (BEFORE, BEFORE_ONCE, IS_FIRST))
    return Room(before, once, first > 0)


MIN_ROWS = JUDGED_ROWS
# What is decided at this confidence needs no correction for how many groups were compared. The groups that
# are still open share what the confidence asked for leaves.
STRICT_CONFIDENCE = 0.9999
# How often groups that are decided leave more of the confidence to those that are still open.
MOST_ROUNDS = 4
# How often the bound fails on the total of a group that is too small to be judged, or was not seen yet. And
# how often a group is missed that is as large as the smallest one seen, where that one is large enough.
FEW_ROWS_TAIL = 1e-6
# A group that was hardly seen may be one large sampling unit, and a join may multiply its rows. The bound
# allows for units of this many times the average rows, and for joins that multiply unseen rows so much.
UNIT_FACTOR = 10.0
# A ranking that shows more rows than this is left undecided: each group is compared with each other one.
MOST_RANKED = 2_000


# Of more rows nothing is said to be likely: nobody reads where they stand, and it takes as long once more.
MOST_LIKELY = 200


@dataclass(frozen=True, slots=True)
class Candidates:
    """Groups that the answer may have: those that pass HAVING so far, in its order, then some that do not.

    rows: the joined rows seen of each. least_rows: the fewest seen of any group. outliers: what the outlier
    index adds to each total, by its column. unseen_most: the most that the ranked total of a group not seen
    can be, where heavy groups were read. room: None where LIMIT picks none by keys.
    """

    passes: BoolArray
    rows: FloatArray
    least_rows: float
    outliers: Mapping[str, FloatArray] = field(default_factory=dict)
    unseen_most: float = np.inf
    room: Room | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Which rows shown are certain to be in the answer, and which are likely, each judged for itself.

    slack: by how many half-widths the deciding number could be lower still, inf where no number decides.
    open: of how many groups, shown or not, it is uncertain whether they are in the answer.
    """

    certain: BoolArray
    slack: FloatArray
    open: int
    likely: BoolArray

    @classmethod
    def of_rows(cls, certain: BoolArray) -> Places:
        """Return the places of rows that no number decides about."""
        return cls(certain, np.full(len(certain), np.inf), int((~certain).sum()), certain)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What each candidate's deciding number lies between, `low` and `high`, at the confidence of a decision.

    below, above: its half-widths as they are shown, at the confidence asked for.
    """

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
        self._strict = max(STRICT_CONFIDENCE, request.confidence)
        self._first = sum(output.kind is OutputKind.ESTIMATE for output in plan.outputs)
        alone = not plan.hoists and plan.bars.joins_one_stream
        usual = UNIT_FACTOR * leading.row_count / max(1, leading.unit_count)
        self._rows_of_unit = min(leading.max_unit_rows, usual) * (1.0 if alone else UNIT_FACTOR)
        # So many rows of a group may have been met at once, and another unit of such a group be missed.
        self._enough_rows = leading.max_unit_rows
        self._rules = plan.membership
        self._columns = {column.name: column for column in plan.columns.basis}

    def __call__(self, candidates: Candidates, at: IntervalsAt, fraction: float) -> Places:
        """Return the places of the rows shown: of those candidates that pass, the first."""
        rules = self._rules
        count = int(candidates.passes.sum())
        if rules.shown_rows is not None:
            count = min(count, rules.shown_rows)
        fits = self.fits(candidates, fraction)[:count]
        by_number = rules.ranking is not None and not fits.all()
        if rules.is_opaque or (by_number and count > MOST_RANKED):
            return Places.of_rows(np.zeros(count, dtype=bool))
        if rules.rows_may_leave and not rules.has_limit and not rules.deciders:
            certain = candidates.rows[:count] >= MIN_ROWS  # some of these rows surely count
            return Places.of_rows(certain)
        if not count or not (by_number or rules.margins):
            return Places.of_rows(fits)
        usual = at(self._confidence)
        found = self._decided(candidates, usual, at(self._strict), fraction, count, by_number)
        for _ in range(MOST_ROUNDS):
            level = 1.0 - 2.0 * (1.0 - self._confidence) / max(2, found.open)  # one side of each decides
            if level >= self._strict:
                break
            before, found = found, self._decided(candidates, usual, at(level), fraction, count, by_number)
            if found.open >= before.open:
                break
        if count <= MOST_LIKELY:
            each = self._decided(candidates, usual, usual, fraction, count, by_number)
            found = replace(found, likely=found.certain | each.certain)
        if by_number:
            return found
        return replace(found, certain=found.certain & fits, likely=found.likely & fits)

    def fits(self, candidates: Candidates, fraction: float) -> BoolArray:
        """Return which groups LIMIT surely lets through by the keys of ORDER BY alone, shape (groups,)."""
        rules, count = self._rules, len(candidates.rows)
        if not rules.has_limit or self._all_fit(candidates, fraction):
            return np.ones(count, dtype=bool)
        if candidates.room is None or rules.rows_may_leave or rules.most_rows is None:
            seen = rules.ranks_by_key and not rules.deciders and self._all_are_seen(candidates, fraction)
            return np.full(count, seen)
        return candidates.room.fits(
            rules.most_rows,
            sets=max(1, self._plan.groups.sets),
            fraction=fraction,
            confidence=self._confidence,
            all_are_seen=self._all_are_seen(candidates, fraction),
        )

    @np.errstate(divide="ignore", invalid="ignore")  # what is known exactly has no width
    def _decided(
        self,
        candidates: Candidates,
        usual: CellIntervals,
        found: CellIntervals,
        fraction: float,
        count: int,
        by_number: bool,
    ) -> Places:
        """Return the places by the intervals `found`. `usual` are those at the confidence asked for."""
        sure = np.ones(len(candidates.rows), dtype=bool)
        fails = np.zeros(len(candidates.rows), dtype=bool)
        slack = np.full(len(candidates.rows), np.inf)
        for i, decider in enumerate(self._rules.deciders):
            if not decider.ranks:
                ends = self._ends(i, decider, candidates, usual, found, fraction)
                over, under = ends.low - decider.threshold, decider.threshold - ends.high
                fails |= {"above": under > 0, "below": over > 0}.get(decider.side, fails)
                over = np.fmax(over, self._passed_by(decider, candidates, ends.value, fraction))
                sure &= (over > 0) | (under > 0)
                slack = np.fmin(slack, np.where(over > 0, over / ends.below, under / ends.above))
        stays, out = candidates.passes & sure & ~fails, fails | (~candidates.passes & sure)
        if by_number:
            ends = self._ranked_ends(candidates, usual, found, fraction)
            hidden = self._hidden(candidates, ends, out, fraction)
            first = np.arange(count)
            gaps = _gaps(ends, first)
            before = (gaps > 0)[stays[first]].sum(axis=0)
            distance = self._distance(ends, gaps, first, out, hidden)
            stays[:count] &= distance > 0
            slack[:count] = np.fmin(slack[:count], distance)
            out |= before >= (self._rules.shown_rows or 0)
        return Places(stays[:count], slack[:count], int((~stays & ~out).sum()), stays[:count])

    def certain_beyond(
        self, least: float, candidates: Candidates, at: IntervalsAt, fraction: float
    ) -> int | None:
        """Return how many rows would be certain if groups had to have more rows than this.

        None where too few groups have more. `least` counts rows seen.
        """
        usual, found = at(self._confidence), at(self._strict)
        stays = candidates.passes & (candidates.rows > least)
        if int(stays.sum()) < (self._rules.shown_rows or 0):
            return None
        ends = self._ranked_ends(candidates, usual, found, fraction)
        first = np.flatnonzero(stays)[: self._rules.shown_rows]
        return int((self._distance(ends, _gaps(ends, first), first, ~stays, -np.inf) > 0).sum())

    def _ranked_ends(
        self, candidates: Candidates, usual: CellIntervals, found: CellIntervals, fraction: float
    ) -> _Ends:
        """Return what the ranked number lies between, turned so that larger is nearer to the first place."""
        index = next(i for i, decider in enumerate(self._rules.deciders) if decider.ranks)
        decider = self._rules.deciders[index]
        ends = self._ends(index, decider, candidates, usual, found, fraction)
        return ends if decider.descends else ends.reversed()

    @np.errstate(divide="ignore", invalid="ignore")
    def _distance(
        self, ends: _Ends, gaps: FloatArray, first: IntArray, out: BoolArray, hidden: float
    ) -> FloatArray:
        """Return how far each of the first groups is from a place where too many others may come before it.

        The distance is in half-widths. gaps: see `_gaps`. out: the groups that surely do not pass HAVING.
        hidden: the best value that any further group may have.
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
        """Return what a decider lies between, or what can be proved of a group too small to be judged."""
        i = self._first + index
        value, unmet = found.value[:, i], self._moved_by_unmet(found, i)
        low, high = found.low[:, i] - unmet, found.high[:, i] + unmet
        judged = np.isfinite(low) & np.isfinite(high) & decider.value.certifiable
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

    def _moved_by_unmet(self, found: CellIntervals, i: int) -> FloatArray:
        """Return how far rows unlike those that were met may move a number, 0 where it is certified.

        A calm sample may be one that missed the large rows. Of −ln(tail) / fraction of them, it has none once
        in 1 / tail samples, and each moves the answer by `fraction` of what it would move the estimate.
        """
        if found.influence is None:
            return np.zeros(len(found.value))
        return np.where(found.certified[:, i], 0.0, -log(FEW_ROWS_TAIL) * found.influence[:, i])

    def _passed_by(
        self, decider: Decider, candidates: Candidates, value: FloatArray, fraction: float
    ) -> FloatArray:
        """Return how much lower totals could be and still be beyond the threshold by what was seen of them.

        It is negative where what was seen is not beyond it, and NaN where a total may fall.
        """
        if decider.side != "above" or self._bounded(decider) is None or self._rules.rows_may_leave:
            return np.full(len(value), np.nan)
        known = candidates.outliers.get(decider.value.total or "", 0.0)
        seen: FloatArray = known + (value - known) * fraction
        return (seen - decider.threshold) / fraction

    def _bounded(self, decider: Decider) -> BasisColumn | None:
        """Return the column that a decider totals, if the column's rows are known to lie in 0..highest."""
        column = self._columns.get(decider.value.total or "")
        if column is None or column.lowest is None or column.lowest < 0.0 or column.highest is None:
            return None
        return column

    def _most(self, column: BasisColumn, rows: FloatArray, fraction: float) -> FloatArray:
        """Return the most that the totals of groups may be, given how many of their rows were seen."""
        assert column.highest is not None
        return column.highest * self._rows_of_unit * most_in_all(rows, fraction, FEW_ROWS_TAIL)

    def _all_are_seen(self, candidates: Candidates, fraction: float) -> bool:
        """Whether a group that was not seen would be far smaller than any that was."""
        enough = self._enough_rows * enough_to_be_met(fraction, FEW_ROWS_TAIL)
        return not self._plan.groups_are_local and candidates.least_rows >= enough

    def _all_fit(self, candidates: Candidates, fraction: float) -> bool:
        """Whether all groups are among the rows that LIMIT lets through, in whatever order."""
        rules = self._rules
        if rules.most_rows is None or rules.rows_may_leave:
            return False
        most = self._plan.groups.most if self._plan.columns.keys else 1
        if most is not None and most <= rules.most_rows:
            return True
        few = len(candidates.rows) < rules.most_rows and not rules.has_having
        if not few or not self._plan.columns.keys or self._plan.groups_are_local:
            return False
        enough = self._enough_rows * enough_to_be_met(fraction, FEW_ROWS_TAIL)
        return bool((candidates.rows >= enough).all())

    def _hidden(self, candidates: Candidates, ends: _Ends, out: BoolArray, fraction: float) -> float:
        """Return the best value that a group beyond the candidates may have, -inf if there is none."""
        best, decider = -np.inf, self._rules.ranking
        assert decider is not None
        if not self._all_are_seen(candidates, fraction) and not self._unseen_fail(fraction):
            best = self._most_unseen(decider, candidates, fraction)
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

    def _most_unseen(self, decider: Decider, candidates: Candidates, fraction: float) -> float:
        """Return the best value of a group that was not seen, inf where nothing bounds it."""
        if self._plan.groups_are_local:
            return candidates.unseen_most if self._plan.groups_are_final else np.inf
        column = self._bounded(decider)
        if column is None:
            return np.inf
        return float(self._most(column, np.zeros(1), fraction)[0]) if decider.descends else 0.0

    def _unseen_fail(self, fraction: float) -> bool:
        """Whether HAVING asks for more than a group can have if nothing was seen of it."""
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


_PASSES = "passes_having"
_GROUPS, _SMALL, _LEAST = "crowd_groups", "crowd_small_groups", "crowd_least_rows"


@dataclass(frozen=True, slots=True)
class Crowd:
    """All groups that were seen. rows: those of the candidates. small: how many have less than MIN_ROWS."""

    rows: FloatArray
    groups: int = 0
    small: int = 0
    least_rows: float = 0.0

    @property
    def are_all_known(self) -> bool:
        return len(self.rows) == self.groups

    @property
    def most_rows(self) -> float:
        return float(self.rows.max(initial=0.0))


def candidates_sql(plan: MergePlan, merged: str) -> str:
    """Return the estimate of the groups that pass HAVING or nearly do, with the whole crowd beside it.

    `merged` is the query of merged groups, with the scale as its parameter.
    """
    small = f"count(*) FILTER ({ROWS} < {MIN_ROWS})"
    crowd = {_GROUPS: "count(*)", _SMALL: small, _LEAST: f"coalesce(min({ROWS}), 0)"}
    beside = ", ".join(f"(SELECT {value} FROM merged) AS {name}" for name, value in crowd.items())
    found = f"SELECT *, TRUE AS {_PASSES}, {beside} FROM ({plan.texts.estimate})"
    if plan.texts.near:
        found += f" UNION ALL SELECT *, FALSE AS {_PASSES}, {beside} FROM ({plan.texts.near})"
    return f"WITH merged AS MATERIALIZED ({merged}) {found}"


def crowd_of(point: pa.Table) -> Crowd:
    """Return what the columns beside the candidates say. They are the same in every row."""
    rows = doubles(point.column(ROWS), null=0.0)
    if _GROUPS not in point.column_names or not point.num_rows:
        return Crowd(rows)
    groups, small, least = (point.column(name)[0].as_py() for name in (_GROUPS, _SMALL, _LEAST))
    return Crowd(rows, groups, small, float(least))


def candidates_of(point: pa.Table) -> Candidates:
    """Return the candidates of an estimate: its groups, with those that pass HAVING first."""
    passes = np.ones(point.num_rows, dtype=bool)
    if _PASSES in point.column_names:
        passes = doubles(point.column(_PASSES)) > 0
    assert not np.any(passes[1:] & ~passes[:-1]), "a group that passes HAVING stands behind one that does not"
    crowd = crowd_of(point)
    prefix = outlier_column("")
    names = [name for name in point.column_names if name.startswith(prefix)]
    outliers = {name.removeprefix(prefix): doubles(point.column(name), null=0.0) for name in names}
    return Candidates(passes, crowd.rows, crowd.least_rows, outliers, room=room_of(point))


# A group with more rows than advised has at least this many among those read, enough to be judged.
_ROWS_TO_JUDGE = 50
# An advice is worth it if it makes this share of the rows shown certain. Otherwise the best one is given.
_WORTH_IT = 0.3

# From a number of rows seen to how many rows of the answer would be certain if all groups had to have more.
CertainBeyond = Callable[[float], int | None]


def words_of(
    plan: MergePlan, places: Places, crowd: Crowd, scale: float, beyond: CertainBeyond
) -> Iterator[str]:
    """Yield what a reader should know about the rows shown. `crowd` is about all groups that were seen."""
    shown, certain, likely = len(places.certain), int(places.certain.sum()), int(places.likely.sum())
    if certain == shown:
        return
    rows, are = "row" if shown == 1 else "rows", "is" if certain == 1 else "are"
    more = f", {likely:,} likely" if likely > certain else ""
    yield f"{certain:,} of {shown:,} {rows} {are} certain to stay{more}; no number of the others is certified"
    rules = plan.membership
    if plan.groups_are_local:
        return
    if rules.ranks_averages and crowd.small:
        groups, their = ("group comes", "its") if crowd.small == 1 else ("groups come", "their")
        yield (
            f"{crowd.small:,} {groups} last so far, and may be first: fewer than {MIN_ROWS} of {their} rows "
            "were read"
        )
    if rules.ranking is not None and not rules.ranks_totals and crowd.are_all_known:
        yield from _advice(crowd, certain, shown, scale, beyond)


def _advice(crowd: Crowd, certain: int, shown: int, scale: float, beyond: CertainBeyond) -> Iterator[str]:
    """Yield a condition on the number of rows that would make more of the answer certain."""
    best, best_rows = certain, 0
    for rows in takewhile(lambda rows: rows < crowd.most_rows * scale, _round_numbers(scale)):
        found = beyond(rows / scale)
        if found is None:
            break
        if found > best:
            best, best_rows = found, rows
        if best >= _WORTH_IT * shown:
            break
    if best_rows:
        left_out = int((crowd.rows * scale <= best_rows).sum())
        yield (
            f"HAVING count(*) > {best_rows} would leave out {left_out:,} of {crowd.groups:,} groups, whose "
            f"places too few rows tell so far; then at least {best:,} of {shown:,} rows would be certain"
        )


def _round_numbers(scale: float) -> Iterator[int]:
    """Yield 1, 2, 5, 10, … from the rows that a group needs to be judged (at a tenth of the table 500)."""
    power = 10 ** floor(log10(_ROWS_TO_JUDGE * scale))
    while True:
        yield from (step * power for step in (1, 2, 5) if step * power >= _ROWS_TO_JUDGE * scale)
        power *= 10


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The rows that LIMIT lets through so far, and which of them stay.

    slack: how far each is from a place where too many may be before it, in its own half-widths.
    """

    certain: BoolArray
    slack: FloatArray


@np.errstate(invalid="ignore", divide="ignore")
def ranked_rows(ranking: Ranking, usual: CellIntervals, strict: CellIntervals, column: int) -> RankedRows:
    """Return which of the first rows stay. column: the estimate that ranks them.

    usual: the intervals of these rows and of their rivals, best first, at the confidence asked for.
    strict: the same at STRICT_CONFIDENCE.
    """
    sign = 1.0 if ranking.descends else -1.0
    value, ends = (
        sign * strict.value[:, column],
        (sign * strict.low[:, column], sign * strict.high[:, column]),
    )
    known = strict.certified[:, column] & np.isfinite(ends[0]) & np.isfinite(ends[1])
    low = np.where(known, np.minimum(*ends), -np.inf)
    high = np.where(known, np.maximum(*ends), np.inf)
    first = np.arange(min(len(value), ranking.shown))
    gap = np.full(len(first), np.inf)
    if len(value) > ranking.shown:
        last, next_one = np.sort(high)[::-1][ranking.shown - 1 : ranking.shown + 1]
        gap = low[first] - np.where(high[first] >= last, next_one, last)  # a row is no rival of its own
    if len(value) >= ranking.shown + RIVALS:  # others are behind the last rival, by their estimates
        behind = value[-1] + np.max(high - value)
        gap = np.minimum(gap, low[first] - (np.inf if np.isnan(behind) else behind))
    half = (usual.high[first, column] - usual.low[first, column]) / 2
    certain = (gap > 0) & known[first]
    return RankedRows(certain, np.where(certain, gap / half, -np.inf))
