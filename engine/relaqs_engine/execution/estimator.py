"""From state to an Estimate: the point estimate by the plan's SQL, then intervals for the groups shown.

A query that returns rows has those found so far, and at the end all of them (`RowsEstimator`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.certify import (
    counted_interval,
    distinct_interval,
    enough_to_be_met,
    selection_factor,
    unseen_groups,
)

from relaqs_engine.arrow_arrays import arrow, arrow_booleans, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.cells import (
    CellEvaluator,
    ShownGroups,
    additive_columns,
    estimated_outputs,
    folded,
    in_columns,
    known_values,
    outliers_agree,
    shown_groups,
)
from relaqs_engine.execution.certain_rows import (
    FEW_ROWS_TAIL,
    Membership,
    Places,
    candidates_of,
    candidates_sql,
    crowd_of,
    words_of,
)
from relaqs_engine.execution.estimate import (
    BoundsByColumn,
    CellBounds,
    CellIntervals,
    Estimate,
    Reason,
    present_estimate,
    present_exact,
)
from relaqs_engine.execution.intervals import (
    IntervalEstimator,
    VarianceOfCells,
    estimate_as_asked,
    quantile_bounds,
)
from relaqs_engine.execution.state import GroupCount, GroupState, PartialRows, count_groups
from relaqs_engine.execution.variance import Scan, VarianceEstimator
from relaqs_engine.layouts.assignment import hash_probe
from relaqs_engine.layouts.manifest import DistinctCount, Layout
from relaqs_engine.plans.aggregate import (
    DISTINCT_ESTIMATE,
    DISTINCT_ONCE,
    DISTINCT_SEEN,
    DISTINCT_TWICE,
    ROWS,
    SCALE,
    SCALE_PARAMETER,
    STATE,
    UNIT_SCALE_PARAMETER,
    MergePlan,
    RowsPlan,
)
from relaqs_engine.plans.plan import IntervalRequest, Method, OfDistinct, OutputKind, ValuesByGroup

# A ranking over groups with fewer rows than this shows values so far. Scaled, they would be far too high: by
# 85 times was measured after half a percent of the rows.
MIN_ROWS_TO_SCALE_RANKED = 30
# Before the end, no more groups than this are shown. People do not read more, and their error bars would take
# gigabytes and minutes at each mini-batch.
MOST_GROUPS_SHOWN = 100_000
_ROUNDING = 1e-9
_NO_PLACES: IntArray = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SoFar:
    """One answer so far, of the groups shown, before it is presented.

    Attributes:
        groups: the groups shown, with their sums.
        bounds: the ends of COUNT(DISTINCT) and quantiles, by position of the output.
        is_scaled: False where totals are as seen.
        unseen_groups: an estimate of the groups not seen, None where that is unknown.
        certain: whether each row is certain to be in the answer.
        rows_are_settled: whether unread rows can no longer change which rows the answer has.
        outliers_agree: whether no outlier has another sign than the bounds of all other rows say.
    """

    point: pa.Table
    groups: ShownGroups
    found: CellIntervals
    bounds: BoundsByColumn
    scan: Scan
    is_scaled: bool
    unseen_groups: int | None
    certain: BoolArray
    rows_are_settled: bool
    outliers_agree: bool
    warnings: tuple[str, ...]

    @property
    def influence(self) -> FloatArray:
        """Return the most that what was not read can move each cell, NaN where that is not known."""
        known = self.found.influence
        return np.full(self.found.value.shape, np.nan) if known is None else known


class Estimator:
    """Turns the state of a mergeable plan into estimates, and at the end into the exact answer."""

    def __init__(
        self,
        plan: MergePlan,
        leading: Layout,
        state: PartialRows,
        cursor: Cursor,
        request: IntervalRequest,
        variance: VarianceOfCells | None = None,
    ) -> None:
        self._plan = plan
        self._leading = leading
        self._state = state
        self._cursor = cursor
        self._request = request
        self._places: dict[tuple[str, tuple[int, ...]], tuple[pa.ChunkedArray, IntArray]] = {}
        self._were_tiny = False
        self._variance = _variance_estimator(plan, leading, state, cursor)
        self._variance_of: VarianceOfCells = variance or self._variance
        self._membership = Membership(plan, leading, request)
        by = plan.bars.distinct_by
        self._values_by_group = by if by is not None and by.hash_probe == hash_probe(cursor) else None
        ends = plan.bars.ends_by_group
        probe = hash_probe(cursor) if ends else ""
        self._ends_by_group = tuple(each for each in ends if each.hash_probe == probe)

    @property
    def is_complete(self) -> bool:
        """Whether the answer is final before the last mini-batch. Never: any row may still change a sum."""
        return False

    @property
    def block_count(self) -> int:
        """Return how many blocks of its state are stored in the data. The others are tasks."""
        return self._plan.block_count

    @property
    def rows_of_unit(self) -> float:
        """Return the most joined rows that one sampling unit may have."""
        return float(self._leading.max_unit_rows)

    def has_met_every_group(self, row_counts: FloatArray, fraction: float) -> bool:
        """Whether no group is missing that is as large as any of those met, of which all are given.

        Where the manifest has how many values the keys have, a smaller one is not missing either.

        Args:
            row_counts: the joined rows seen of each group, shape (groups,).
            fraction: the share of the rows that was read.
        """
        groups = self._plan.groups
        if groups.are_local or len(row_counts) < groups.fewest:
            return False
        if groups.most is not None and len(row_counts) >= groups.most:
            return True
        least, known_are_met = self._least_rows(float(np.min(row_counts, initial=np.inf)))
        return known_are_met and least >= self.rows_of_unit * enough_to_be_met(fraction, FEW_ROWS_TAIL)

    def _least_rows(self, least: float) -> tuple[float, bool]:
        """Return the least rows of a group that nothing is known of, and whether all known keys were met.

        The first and the last month may have few rows. They are known, and say nothing of how large others
        are.

        Args:
            least: the least rows of any group.
        """
        known, keys = self._plan.groups.keys, self._plan.columns.keys
        if not known:
            return least, True
        is_known = [f"({key} IS NOT DISTINCT FROM ({value}))" for key, value in known]
        met = ", ".join(f"coalesce(bool_or({each}), false)" for each in is_known)
        groups = f"SELECT {', '.join(keys)}, sum({ROWS}) AS n FROM {STATE} GROUP BY {', '.join(keys)}"
        [(others, *are_met)] = self._cursor.rows(
            f"SELECT min(n) FILTER (NOT ({' OR '.join(is_known)})), {met} FROM ({groups})"
        )
        return least if others is None or len(keys) > 1 else float(others), all(are_met)

    def kurtosis(self, scan: Scan) -> float:
        """Return the kurtosis of what a row adds to a group."""
        return scan.kurtosis(self._plan.bars)

    @property
    def scanned_fraction(self) -> float:
        return Scan.of(self._state, self._leading).row_fraction

    def group_count(self) -> GroupCount:
        """Return how many groups were seen, and about how many there will be."""
        return count_groups(self._plan, self._cursor, Scan.of(self._state, self._leading).fraction)

    def exact(self) -> Estimate:
        """Return the answer after the last mini-batch, in DuckDB's own types and arithmetic."""
        plan = self._plan
        answer = self._cursor.table(f"WITH merged AS ({plan.texts.merge}) {plan.texts.final}")
        return present_exact(plan, answer)

    def at(self, request: IntervalRequest) -> Estimator:
        """Return an estimator of the same state whose intervals are others."""
        other = copy(self)
        other._request = request
        other._membership = Membership(self._plan, self._leading, request)
        return other

    def estimate(self) -> Estimate:
        """Return the answer so far, after at least one mini-batch and before the last."""
        if self._request.for_table:
            estimated = self._plan.membership.picks_groups
            return estimate_as_asked(
                self._request, lambda each: self.at(each).estimate(), rows_are_estimated=estimated
            )
        so_far = self.so_far(most_groups=MOST_GROUPS_SHOWN)
        return present_estimate(
            self._plan,
            so_far.point,
            so_far.found,
            so_far.bounds,
            fraction=so_far.scan.row_fraction,
            unseen_groups=so_far.unseen_groups,
            certain_rows=so_far.certain,
            rows_are_settled=so_far.rows_are_settled,
            warnings=so_far.warnings,
            group_rows=so_far.groups.rows[: so_far.point.num_rows],
        )

    @np.errstate(invalid="ignore", over="ignore")  # sums may be NaN or infinite, and nothing is known then
    def so_far(self, *, is_scaled: bool = True, most_groups: int | None = None) -> SoFar:
        """Return what an answer is presented from.

        Args:
            is_scaled: False for the values as they were seen.
            most_groups: how many groups to return at most, in the answer's order.
        """
        plan, scan = self._plan, Scan.of(self._state, self._leading)
        rules = plan.membership
        most = None if rules.has_limit else most_groups
        scale = 1.0 if plan.groups_are_local or not is_scaled else scan.scale
        point, so_far = self._scaled_or_as_seen(scale, scan.fraction, is_scaled, most)
        are_all = most is None or point.num_rows < most
        candidates, crowd = candidates_of(point), crowd_of(point)
        candidates = replace(candidates, unseen_most=self._state.unseen_most)
        groups = shown_groups(plan, point)
        at = self._intervals_at(point, groups, scan, so_far)
        found = at(self._request.confidence)
        places = self._membership(candidates, at, scan.fraction)

        def beyond(rows: float) -> int | None:
            return self._membership.certain_beyond(rows, candidates, at, scan.fraction)

        shown = _with_known_values(plan, point.slice(0, len(places.certain)), found)
        bounds = self._bounds(
            shown, groups.first(shown.num_rows), scan, places.certain, is_scaled=is_scaled and not so_far
        )
        if is_scaled:
            shown = _with_values_within(plan, shown, bounds)
        settled = are_all and bool(places.certain.all())
        settled &= not (so_far or rules.has_having)
        settled &= not plan.groups_are_local or self._is_ranking_known(places)
        return SoFar(
            point=shown,
            groups=groups.first(shown.num_rows),
            found=self._as_shown(found, groups, places, scan),
            bounds=bounds,
            scan=scan,
            is_scaled=not so_far,
            unseen_groups=self._unseen(groups, scan.fraction) if are_all else None,
            certain=places.certain,
            rows_are_settled=settled,
            outliers_agree=bool(outliers_agree(additive_columns(plan), groups).all()),
            warnings=(
                *_warnings(plan, so_far and is_scaled, self._state.unseen_most),
                *(words_of(plan, places, crowd, scan.scale, beyond) if is_scaled else ()),
                *(() if are_all else (f"only {point.num_rows:,} of the groups are shown before the end",)),
            ),
        )

    def _scaled_or_as_seen(
        self, scale: float, fraction: float, is_scaled: bool, most: int | None
    ) -> tuple[pa.Table, bool]:
        """Return the candidates, and whether their totals are as seen: scaled ones would mislead.

        Where those of the last estimate were as seen, these are asked for as seen first. Asking twice would
        take twice as long. With HAVING other groups pass as seen, so scaled ones come first.

        Args:
            scale: population rows / scanned rows.
            fraction: the share of the rows that was scanned.
            is_scaled: False for totals as seen, whatever they are.
            most: how many groups to return at most, None for all.
        """
        if self._plan.groups_are_local or not is_scaled:
            return self._candidates(scale, most), not self._plan.groups_are_local
        if self._were_tiny and not self._plan.membership.has_having:
            point = self._candidates(1.0, most)
            if self._are_tiny(point, fraction):
                return point, True
        point = self._candidates(scale, most)
        self._were_tiny = self._are_tiny(point, fraction)
        return (self._candidates(1.0, most), True) if self._were_tiny else (point, False)

    def _is_ranking_known(self, places: Places) -> bool:
        """Whether heavy groups fill the answer, so that no group in another partition has a place in it."""
        return (
            np.isfinite(self._state.unseen_most) and len(places.certain) == self._plan.membership.shown_rows
        )

    def _are_tiny(self, point: pa.Table, fraction: float) -> bool:
        """Whether scaled totals put groups of a few rows first, and others behind LIMIT."""
        if not (rules := self._plan.membership).ranks_totals:
            return False
        candidates = candidates_of(point)
        tiny = (candidates.rows[: rules.shown_rows] < MIN_ROWS_TO_SCALE_RANKED).any()
        return bool(tiny) and not self._membership.fits(candidates, fraction).all()

    def without_each_block(self, so_far: SoFar, blocks: IntArray, count: int) -> FloatArray:
        """Return the estimated outputs without each of so many blocks, shape (count, groups, outputs).

        `blocks` is the number of the block that each block of the state is in, so that several may be one.
        """
        shown = [output for output in self._plan.outputs if output.kind is OutputKind.ESTIMATE]
        cells = self._variance.without_each_block(so_far.groups, so_far.scan, blocks, count)
        return folded(shown, cells[:, :, : len(shown)])

    def influence_of_unseen(self, so_far: SoFar, output: int) -> float:
        """Return the most that one unit of a group not seen yet adds to a total, infinity if not known."""
        total = self._plan.outputs[output].total
        column = next((each for each in self._plan.columns.basis if each.name == total), None)
        if column is None or column.lowest is None or column.highest is None:
            return np.inf
        largest = float(self._leading.max_unit_rows)
        if so_far.groups.rows.any():
            largest = self._variance.rows_of_largest_unit(so_far.groups, so_far.scan, self._leading).max()
        return float(so_far.scan.scale * max(abs(column.lowest), abs(column.highest)) * largest)

    def point(self, scale: float, most_groups: int | None = None) -> pa.Table:
        """Return the values so far, with keys and merged state."""
        limit = "" if most_groups is None else f" LIMIT {most_groups}"
        merged = _merged_sql(self._plan, self._values_by_group)
        sql = f"WITH merged AS ({merged}) {self._plan.texts.estimate}{limit}"
        return self._executed(sql, scale).slice(0, self._plan.membership.shown_rows)

    def _candidates(self, scale: float, most_groups: int | None) -> pa.Table:
        """Return the point estimate. Where LIMIT picks groups, it has their rivals and the crowd as well."""
        if self._plan.membership.ranking is None and not self._plan.membership.ranks_by_key:
            return self.point(scale, most_groups)
        merge = "" if np.isinf(self._state.unseen_most) else self._plan.texts.early_merge
        merged = _merged_sql(self._plan, self._values_by_group, merge)
        return self._executed(candidates_sql(self._plan, merged), scale)

    def _executed(self, sql: str, scale: float) -> pa.Table:
        """Return the table of a statement. Where totals are as seen, so are numbers of values."""
        given = [scale]
        if self._plan.columns.counts_distinct:
            given += [1.0 if scale == 1.0 else 1.0 / Scan.of(self._state, self._leading).least_fraction]
        return self._cursor.table(sql, given)

    def _intervals_at(
        self, point: pa.Table, groups: ShownGroups, scan: Scan, so_far: bool
    ) -> Callable[[float], CellIntervals]:
        """Return a function from a confidence to the groups' intervals. Their variance is computed once."""
        variance = cache(lambda: self._variance_of(groups, _cells(self._plan, point), scan))
        ends = cache(lambda: self._ends_in(groups))

        def at(confidence: float) -> CellIntervals:
            request = replace(self._request, confidence=confidence)
            unit_rows = self._variance.rows_of_largest_unit
            fixed = self._variance_of is self._variance
            given = IntervalEstimator(
                self._plan,
                self._leading,
                request,
                lambda *_: variance(),
                unit_rows,
                lambda _: ends(),
                rows_are_fixed=fixed,
            )
            return self._intervals(given, point, groups, scan, so_far)

        return cache(at)

    def _as_shown(
        self, found: CellIntervals, groups: ShownGroups, places: Places, scan: Scan
    ) -> CellIntervals:
        """Return the intervals of the rows shown, widened where luck may have helped a row to pass a bar."""
        plan, count = self._plan, len(places.certain)
        shown = found.of_rows(places.certain, selection_factor(places.slack, self._request.confidence))
        columns = [column.name for column in additive_columns(plan)]
        seen = groups.sums[:count] + groups.outliers[:count] * (1.0 - 1.0 / scan.scale)
        for i, output in enumerate(estimated_outputs(plan)):
            column = next((c for c in plan.columns.basis if c.name == output.total), None)
            if column is None or column.lowest is None or column.lowest < 0.0:
                continue
            least = seen[:, columns.index(column.name)]
            most = np.full(count, np.inf)
            for margin in (each for each in plan.membership.deciders if each.value.total == output.total):
                if margin.side == "above":
                    least = np.where(places.certain, np.maximum(least, margin.threshold), least)
                elif margin.side == "below":
                    most = np.where(places.certain, np.minimum(most, margin.threshold), most)
            shown.within(i, least, most)
        return shown

    def _intervals(
        self, intervals_of: IntervalEstimator, point: pa.Table, groups: ShownGroups, scan: Scan, so_far: bool
    ) -> CellIntervals:
        plan, straight = self._plan, _cells(self._plan, point)
        cells = folded(estimated_outputs(plan), straight)
        if plan.groups_are_local and not plan.columns.shared:
            return CellIntervals.known(cells) if plan.groups_are_final else CellIntervals.unknown(cells)
        if so_far and cells.size:
            return intervals_of.at_least(groups, cells)
        if not cells.size or (plan.method is Method.NONE and not plan.groups_are_final):
            return CellIntervals.unknown(cells)
        found = intervals_of(groups, straight, scan)
        if not plan.groups_are_final:
            return found
        # The groups are complete. What varies is the inner stage that they are compared with.
        return found.or_known(found.standard_error <= _ROUNDING * np.abs(cells))

    def _bounds(
        self, point: pa.Table, groups: ShownGroups, scan: Scan, decided: BoolArray, *, is_scaled: bool
    ) -> BoundsByColumn:
        """Return the ends of each COUNT(DISTINCT) and quantile, for each row of the answer.

        is_scaled: False where totals are as seen.
        """
        found = quantile_bounds(self._plan, point, scan, self._cursor, self._request)
        found = {i: each.doubt_where(~decided, Reason.MAY_LEAVE) for i, each in found.items()}
        found |= {
            i: self._bounds_of_known(point, i, known, decided) for i, known in self._plan.bars.known_outputs
        }
        if not self._plan.columns.counts_distinct:
            return found
        sides = self._bounds_of_distinct(point, groups.rows, scan, decided)
        outputs = [(i, output) for i, output in enumerate(self._plan.outputs) if i not in found]
        found |= {i: sides for i, output in outputs if output.kind is OutputKind.DISTINCT}
        return found | (self._bounds_with_distinct(point, groups, scan, decided) if is_scaled else {})

    def _bounds_with_distinct(
        self, point: pa.Table, groups: ShownGroups, scan: Scan, decided: BoolArray
    ) -> dict[int, CellBounds]:
        """Return the ends of what is multiplied or divided by COUNT(DISTINCT), for each row of the answer.

        Both are judged at a confidence that leaves each half of the doubt: together they hold as asked for.
        """
        made = {i: output.of_distinct for i, output in enumerate(self._plan.outputs) if output.of_distinct}
        if not made or self._plan.method is Method.NONE:
            return {}
        if (
            self._variance_of is not self._variance
        ):  # stages decide which rows count, or are part of the factor
            return dict.fromkeys(made, CellBounds.unknown(point.num_rows))
        sure = replace(self._request, confidence=(1.0 + self._request.confidence) / 2.0)
        distinct = self.at(sure)._bounds_of_distinct(point, groups.rows, scan, decided)
        factors = replace(
            self._plan,
            outputs=tuple(each.factor for each in made.values()),
            membership=replace(self._plan.membership, deciders=()),
        )
        variance = VarianceEstimator(factors, self._state, self._cursor)
        cells = CellEvaluator(factors, self._cursor)(groups, groups.sums[None], np.array([scan.scale]))[0]
        intervals = IntervalEstimator(
            factors,
            self._leading,
            sure,
            variance,
            variance.rows_of_largest_unit,
            self._ends_in,
            rows_are_fixed=True,
        )(groups, cells, scan)
        found: dict[int, CellBounds] = {}
        for place, (i, of_distinct) in enumerate(made.items()):
            low, high, doubt = intervals.low, intervals.high, intervals.doubt
            factor = CellBounds(low[:, place], high[:, place], doubt[:, place])
            found[i] = _multiplied(factor, distinct, self._plan.outputs[i].rounding, of_distinct)
        return found

    def _bounds_of_known(
        self, point: pa.Table, i: int, known: DistinctCount, decided: BoolArray
    ) -> CellBounds:
        """Return the ends of a further COUNT(DISTINCT) of a whole table, by the manifest."""
        seen = doubles(point.column(i))
        least, most = self._ends_of(known, point.num_rows)
        doubt = np.where(decided, Reason.NONE, Reason.MAY_LEAVE)
        found = CellBounds(np.maximum(seen, least), np.where(seen <= most, most, np.nan), doubt)
        return found.doubt_where(seen > most, Reason.SO_FAR)

    def _bounds_of_distinct(
        self, point: pa.Table, rows: FloatArray, scan: Scan, decided: BoolArray
    ) -> CellBounds:
        """Return the ends of COUNT(DISTINCT), by what was seen and by what the manifest has.

        Values that one unit alone has may come all at once. So what was seen is trusted once there are more
        rows than a unit may have. Where what was seen and the manifest do not agree, one of the two was
        unlucky. The first one is right in more samples than it says.
        """
        seen, once = doubles(point.column(DISTINCT_SEEN)), doubles(point.column(DISTINCT_ONCE))
        low, high = distinct_interval(seen, once, scan.least_fraction, self._request.confidence)
        one_at_most = self._leading.max_unit_rows
        is_trusted = (rows >= one_at_most) | (one_at_most == 1)
        doubt = np.where(decided, Reason.NONE, Reason.MAY_LEAVE)
        if self._plan.bars.distinct is None:
            return CellBounds(low, high, doubt).doubt_where(~is_trusted, Reason.FEW_UNITS)
        least, most = self._known_ends(point)
        agrees = (low <= most) & ((least <= high) | ~is_trusted)
        low = np.where(agrees, np.maximum(low, least), low)
        high = np.where(agrees, np.minimum(np.where(is_trusted, high, np.inf), most), high)
        return CellBounds(low, high, doubt).doubt_where(~is_trusted & ~agrees, Reason.FEW_UNITS)

    def _known_ends(self, point: pa.Table) -> tuple[FloatArray, FloatArray]:
        """Return the ends of COUNT(DISTINCT) of each row, by what the manifest has."""
        known, confidence = self._plan.bars.distinct, self._request.confidence
        assert known is not None
        least, most = self._ends_of(known, point.num_rows)
        if (by := self._values_by_group) is None:
            return least, most
        place = self._places_of(point, by)
        numbers = np.array([np.nan if each is None else each for each in by.numbers] + [np.nan])[place]
        errors = np.array([*by.relative_errors, np.nan])[place]
        group_least, group_most = counted_interval(numbers, numbers, errors, confidence)
        return np.fmax(least, group_least if by.are_all else 0.0), np.fmin(most, group_most)

    def _ends_of(self, known: DistinctCount, count: int) -> tuple[FloatArray, FloatArray]:
        """Return the ends of a number that the manifest has, for so many rows."""
        numbers = (known.least, known.most, known.relative_error)
        least, most, error = (np.full(count, each) for each in numbers)
        return counted_interval(least, most, error, self._request.confidence)

    def _places_of(self, point: pa.Table, by: ValuesByGroup) -> IntArray:
        """Return where each row's group is among the numbers: NULL last, and behind it all others."""
        (key,) = self._plan.columns.keys
        return self._places_among(point.select([key]), by.hashes)

    def _places_among(self, keys: pa.Table, hashes: Sequence[int]) -> IntArray:
        """Return where each value of a key is among those with these hashes, as `_places_of` does.

        Groups are mostly those of the last estimate. Only values that were not looked up yet are hashed.
        """
        (key,) = keys.column_names
        memo = key, tuple(hashes)
        known, places = self._places.get(memo, (pa.chunked_array([], keys.column(key).type), _NO_PLACES))
        place = integers(pc.index_in(keys.column(key), value_set=known), null=-1)
        if (place < 0).any():
            fresh = keys.filter(arrow_booleans(place < 0))
            known = pa.chunked_array([*known.chunks, *fresh.column(key).chunks], known.type)
            places = np.append(places, self._hashed_places(fresh, hashes))
            self._places[memo] = known, places
            place[place < 0] = np.arange(len(places) - len(fresh), len(places))
        return places[place]

    def _hashed_places(self, keys: pa.Table, hashes: Sequence[int]) -> IntArray:
        (key,) = keys.column_names
        with self._cursor.registered(keys_shown=keys):
            found = self._cursor.table(
                f"SELECT CASE WHEN {key} IS NOT NULL THEN hash({key}) END FROM keys_shown"
            )
        places = {hashed: place for place, hashed in enumerate((*hashes, None))}
        found_hashes = found.column(0).to_pylist()
        return np.array([places.get(each, len(places)) for each in found_hashes], dtype=np.int64)

    def _ends_in(self, groups: ShownGroups) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return the ends of a row's value in each group, of the columns of which the manifest has them."""
        found: dict[str, tuple[FloatArray, FloatArray]] = {}
        places: dict[int, IntArray] = {}
        for each in self._ends_by_group:
            if each.key not in places:
                name = self._plan.columns.keys[each.key]
                places[each.key] = self._places_among(groups.keys.select([name]), each.hashes)
            low, high = (
                np.array([np.nan if end is None else end for end in (*ends, None)])[places[each.key]]
                for ends in (each.lowest, each.highest)
            )
            before = found.get(each.column, (low, high))
            found[each.column] = np.fmax(before[0], low), np.fmin(before[1], high)
        return found

    def _unseen(self, groups: ShownGroups, fraction: float) -> int | None:
        plan = self._plan
        if not plan.columns.keys:
            return 0
        if plan.membership.picks_groups or plan.groups.are_local or plan.groups.sets:
            return None
        if plan.bars.least_row_groups:  # a group may lie in a few row groups only
            return None
        once, twice = int((groups.rows == 1).sum()), int((groups.rows == 2).sum())
        return round(unseen_groups(once, twice, int(groups.rows.sum()), fraction))


def _with_known_values(plan: MergePlan, point: pa.Table, found: CellIntervals) -> pa.Table:
    """Return the point estimate with what the manifest has, where its intervals say that it is known."""
    known = known_values(plan)
    estimated = (i for i, output in enumerate(plan.outputs) if output.kind is OutputKind.ESTIMATE)
    for place, i in enumerate(estimated if known else ()):
        if place in known and (found.low[:, place] == found.high[:, place]).all():
            value = arrow(found.value[:, place]).cast(point.column(i).type)
            point = point.set_column(i, point.column_names[i], value)
    return point


def _with_values_within(plan: MergePlan, point: pa.Table, bounds: BoundsByColumn) -> pa.Table:
    """Return the point estimate with each COUNT(DISTINCT) between its ends."""
    known = {i: each.least for i, each in plan.bars.known_outputs}
    for i, output in enumerate(plan.outputs):
        if output.kind is OutputKind.DISTINCT and (plan.bars.distinct is not None or i in known):
            value = np.maximum(doubles(point.column(i)), known.get(i, 0.0))
            low, high = bounds[i].low, np.where(np.isnan(bounds[i].high), np.inf, bounds[i].high)
            whole = np.rint(np.clip(value, low, high))
            whole = np.where(whole < low, np.ceil(low), np.where(whole > high, np.floor(high), whole))
            point = point.set_column(i, point.column_names[i], arrow(whole).cast(point.column(i).type))
    return point


def _multiplied(factor: CellBounds, distinct: CellBounds, rounding: float, how: OfDistinct) -> CellBounds:
    """Return the ends of a factor times a number of distinct values, or divided by it, and then rounded."""
    ends = [
        np.divide(of_factor, number) if how.is_divided else of_factor * number
        for of_factor in (factor.low, factor.high)
        for number in (distinct.low, distinct.high)
    ]
    doubt = np.where(factor.doubt == Reason.NONE, distinct.doubt, factor.doubt)
    found = CellBounds(np.min(ends, axis=0) - rounding, np.max(ends, axis=0) + rounding, doubt)
    return found.doubt_where(~(np.isfinite(found.low) & np.isfinite(found.high)), Reason.NO_NUMBER)


def _variance_estimator(
    plan: MergePlan, leading: Layout, state: PartialRows, cursor: Cursor
) -> VarianceEstimator:
    if not plan.bars.least_row_groups:
        return VarianceEstimator(plan, state, cursor)
    from relaqs_engine.execution.row_group_estimates import (
        RowGroupVariance,  # plain files alone have row groups
    )

    return RowGroupVariance(plan, leading, state, cursor)


def _merged_sql(plan: MergePlan, by: ValuesByGroup | None, merge: str = "") -> str:
    """Return the SQL of merged groups over the state, with the scale as its parameter.

    Args:
        by: what is known of COUNT(DISTINCT) of each group.
        merge: how the groups are merged, "" for the plan's usual way.
    """
    scale, merge_sql = SCALE_PARAMETER, merge or plan.texts.weighted_merge or plan.texts.merge
    number = "" if by is None else _number_sql(by, plan.columns.keys[0])
    counted = (
        f", {_distinct_sql(UNIT_SCALE_PARAMETER, plan.bars.distinct, by, number)} AS {DISTINCT_ESTIMATE}"
    )
    distinct = counted if plan.columns.counts_distinct else ""
    return f"SELECT *, {scale} AS {SCALE}{distinct} FROM ({merge_sql})"


def _number_sql(by: ValuesByGroup, key: str) -> str:
    """Return the SQL of a group's known number of values, NULL where it is not known."""
    *numbers, of_null = ("NULL" if each is None else repr(each) for each in by.numbers)
    hashes = f"[{', '.join(map(str, by.hashes))}]::UBIGINT[]"
    of_value = f"([{', '.join(numbers)}]::DOUBLE[])[list_position({hashes}, hash({key}))]"
    return f"CASE WHEN {key} IS NULL THEN {of_null} ELSE {of_value} END"


def _distinct_sql(unit_scale: str, known: DistinctCount | None, by: ValuesByGroup | None, number: str) -> str:
    """Return an estimate of the number of distinct values, d + f₁² / (2·f₂ + f₁·f/(1 − f)).

    f₁ and f₂ are the values met in one and in two sampling units, f is the scanned share of the units. It is
    never more than the upper end of `distinct_interval`, which it reaches where no value was met twice. What
    is known of the number beforehand holds it, unless values are asked for as seen: then f is 1.
    Source: Chao and Lin 2012, Nonparametric lower bounds for species richness and shared species richness
    under sampling without replacement, Biometrics 68.
    """
    once, left = f"{DISTINCT_ONCE}::DOUBLE", f"({unit_scale} - 1)"
    unseen = f"coalesce({once} * {once} * {left} / nullif(2 * {DISTINCT_TWICE} * {left} + {once}, 0), 0)"
    if known is None:
        return f"{DISTINCT_SEEN} + {unseen}"
    within = f"least(greatest({DISTINCT_SEEN} + {unseen}, {known.least!r}::DOUBLE), {known.most!r}::DOUBLE)"
    if by is not None:
        known_of_group = number if by.are_all else f"least({within}, {number})"
        within = f"coalesce({known_of_group}, {within})"
    return f"CASE WHEN {left} > 0 THEN greatest({DISTINCT_SEEN}, {within}) ELSE {DISTINCT_SEEN} END"


def _cells(plan: MergePlan, point: pa.Table) -> FloatArray:
    names = [f"v{i}" for i, output in enumerate(plan.outputs) if output.kind is OutputKind.ESTIMATE]
    names += [f"d{i}" for i in range(len(plan.membership.deciders))]
    return in_columns(point.num_rows, [doubles(point.column(name)) for name in names])


def _warnings(plan: MergePlan, so_far: bool, unseen_most: float) -> tuple[str, ...]:
    found = []
    if so_far:
        found.append("top rows so far: their groups have few rows yet, so totals are as seen, not scaled")
    if plan.groups_are_local and np.isfinite(unseen_most):
        found.append(
            "each group shown is complete, and the heaviest were read first; "
            f"those in partitions not yet read total at most {unseen_most:,.6g}"
        )
    elif plan.groups_are_local:
        found.append("each group shown is complete; groups in partitions not yet read are missing")
    if plan.membership.has_having:
        found.append("rows near the HAVING condition may still enter or leave the answer")
    return tuple(found)


class RowsEstimator:
    """Turns the rows found so far into Estimates. Rows are never estimated, only their number is."""

    def __init__(self, plan: RowsPlan, leading: Layout, state: GroupState, cursor: Cursor) -> None:
        self._plan = plan
        self._leading = leading
        self._state = state
        self._cursor = cursor

    @property
    def is_complete(self) -> bool:
        """Whether no more rows are needed. LIMIT without ORDER BY takes any rows."""
        limit = self._plan.limit_rows
        return limit is not None and self._state.row_count >= limit

    @property
    def scanned_fraction(self) -> float:
        return Scan.of(self._state, self._leading).row_fraction

    def rows(self) -> pa.Table:
        """Return those of the rows found so far that the answer would have."""
        return self._cursor.table(self._plan.final_sql)

    def exact(self) -> Estimate:
        return present_exact(self._plan, self.rows())

    def estimate(self) -> Estimate:
        rows = self.rows()
        scan = Scan.of(self._state, self._leading)
        found = self._state.row_count
        expected = None if self._plan.has_limit else round(found * scan.scale)
        total = "the first of them" if expected is None else f"about {expected:,} in all"
        return present_estimate(
            self._plan,
            rows,
            CellIntervals.unknown(np.empty((rows.num_rows, 0))),
            {},
            fraction=scan.row_fraction,
            unseen_groups=None if expected is None else expected - found,
            certain_rows=np.full(rows.num_rows, not self._plan.has_limit or self.is_complete),
            rows_are_settled=False,
            warnings=(f"rows so far: {rows.num_rows:,}, {total}",),
        )
