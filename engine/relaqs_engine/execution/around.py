"""From answers so far to the answer of a query over them. See `rewrite/levels.py` for its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from relaqs_bootstrap import Level, Variance, confidence_intervals, jackknife_variance, sum_of_variances
from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_bootstrap.certify import MAX_UNSEEN_ERRORS, MIN_ROWS_OF_SHARE
from relaqs_bootstrap.intervals import bounded_interval
from relaqs_bootstrap.selection import selection_factor

from relaqs_engine.arrow_arrays import arrow, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.draws import STEP, DrawnVariants, is_final, one_row_moves, variants_of
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import MIN_ROWS_TO_SCALE_RANKED, Estimator
from relaqs_engine.execution.interval import CellIntervals
from relaqs_engine.execution.interval_request import IntervalRequest, estimate_as_asked
from relaqs_engine.execution.membership import STRICT_CONFIDENCE
from relaqs_engine.execution.parts import Part, PartSource, estimated_positions, parts_so_far
from relaqs_engine.execution.present import BoundsByColumn, CellBounds, present_estimate, present_exact
from relaqs_engine.execution.ranked_rows import ranked_rows
from relaqs_engine.execution.reasons import Reason
from relaqs_engine.execution.room import room_of
from relaqs_engine.plans.around import AroundPlan, Draw, Ranking
from relaqs_engine.plans.names import GROUP, GROUP_ROWS
from relaqs_engine.plans.outputs import OutputKind

_ROUNDING = 1e-9
_MADE_UP = 4  # so many answers of made-up estimates: a value that is the same in all depends on none


@dataclass(frozen=True, slots=True)
class _Spread:
    """How an answer varies with one draw, and how far one row of it that was not read could move it."""

    variance: Variance
    fraction: float
    influence: FloatArray


class AroundEstimator:
    """Turns the answers of a plan's parts into its own."""

    def __init__(self, plan: AroundPlan, cursor: Cursor, request: IntervalRequest) -> None:
        self._plan = plan
        self._cursor = cursor
        self._request = request
        self._shown = estimated_positions(plan)
        self._positions = [*self._shown, *(len(plan.outputs) + i for i in range(len(plan.rows.margins)))]
        self._totals = np.array(
            [i < len(plan.rows.totals) and plan.rows.totals[i] for i in self._positions], dtype=bool
        )

    def exact(self, answers: Sequence[pa.Table]) -> Estimate:
        """Return the answer from the parts' final ones."""
        tables = {
            f"part_{i}": answer.rename_columns([f"c{j}" for j in range(answer.num_columns)])
            for i, answer in enumerate(answers)
        }
        with self._cursor.registered(**tables):
            return present_exact(self._plan, self._cursor.table(self._plan.texts.final))

    @np.errstate(invalid="ignore", over="ignore")  # ratios may be infinite, and nothing is known then
    def estimate(self, sources: Sequence[PartSource], fraction: float) -> Estimate:
        """Return the answer so far. `fraction` is the share of the streamed rows that the sources saw."""
        plan = self._plan
        if self._request.for_table:

            def at(request: IntervalRequest) -> Estimate:
                own = [each.at(request) if isinstance(each, Estimator) else each for each in sources]
                return self._at(request).estimate(own, fraction)

            estimated = plan.rows.most is not None or bool(plan.rows.margins)
            estimated |= not all(part.shows_every_group for part in plan.parts)
            return estimate_as_asked(self._request, at, rows_are_estimated=estimated)
        parts, as_seen = self._parts_so_far(sources)
        with self._cursor.registered(**{f"part_{i}": part.table() for i, part in enumerate(parts)}):
            point = self._cursor.table(plan.texts.estimate)
        found, strict, decided, chosen = self._intervals(parts, point)
        fits = self._fits(parts, point) & (plan.rows.are_certain | (plan.rows.have_margins & decided))
        if plan.rows.ranking is not None:
            point = point.slice(0, plan.rows.ranking.shown)
            found, fits = self._ranked(plan.rows.ranking, found, strict, fits, parts)
            chosen = {i: each[: point.num_rows] for i, each in chosen.items()}
        settled = not as_seen and plan.rows.are_certain and bool(fits.all())
        known = [part.so_far for part in parts if part.so_far is not None]
        return present_estimate(
            self._plan,
            point,
            found,
            self._bounds(parts, point),
            fraction=fraction,
            unseen_groups=known[0].unseen_groups
            if plan.rows.keep_groups and len(parts) == 1 and known
            else None,
            certain_rows=self._certain(parts, point) & fits & (not as_seen),
            rows_are_settled=settled and len(known) == len(parts) and all(k.rows_are_settled for k in known),
            warnings=(
                *dict.fromkeys(w for k in known for w in k.warnings),
                *self._warnings(as_seen, fits),
            ),
            group_rows=doubles(point.column(GROUP_ROWS), null=0.0) if plan.rows.have_identity else None,
            chosen=chosen,
        )

    def _at(self, request: IntervalRequest) -> AroundEstimator:
        """Return the same with other intervals."""
        other = copy(self)
        other._request = request
        return other

    def _parts_so_far(self, sources: Sequence[PartSource]) -> tuple[list[Part], bool]:
        """Return the answers of the parts, and whether their totals are as seen, since some groups are tiny.

        What is as seen has no intervals, and costs little. So it is looked at first. HAVING lets other groups
        through where totals are scaled, so these are looked at, too.
        """
        plans = self._plan.parts
        if not self._plan.rows.so_far:
            return parts_so_far(plans, sources, is_scaled=True), False
        seen = parts_so_far(plans, sources, is_scaled=False)
        if _has_tiny_groups(seen):
            return seen, True
        scaled = parts_so_far(plans, sources, is_scaled=True)
        return (seen, True) if _has_tiny_groups(scaled) else (scaled, False)

    def _fits(self, parts: Sequence[Part], point: pa.Table) -> BoolArray:
        """Return which rows LIMIT surely leaves in, shape (rows,)."""
        most, sets, room = self._plan.rows.most, self._plan.rows.sets, room_of(point)
        all_are_seen = all(map(_has_all_groups, parts))
        if most is None or (point.num_rows < most and all_are_seen):
            return np.ones(point.num_rows, dtype=bool)
        if room is None or not most:
            return np.zeros(point.num_rows, dtype=bool)
        fractions = [part.so_far.scan.fraction for part in parts if part.so_far is not None]
        return room.fits(
            most,
            sets=sets,
            fraction=min(fractions, default=1.0),
            confidence=self._request.confidence,
            all_are_seen=all_are_seen,
        )

    def _certain(self, parts: Sequence[Part], point: pa.Table) -> BoolArray:
        """Return for each row whether it is in the answer as long as the groups are that it is made of."""
        unsure = [part for part in parts if part.so_far is not None and not part.so_far.certain.all()]
        certain = np.full(point.num_rows, not unsure)
        if unsure and self._plan.rows.keep_groups and self._plan.rows.have_identity:
            for part in parts:
                rows, own = self._rows_of(part, point)
                certain[rows] = True if part.so_far is None else part.so_far.certain[own]
        return certain

    def _warnings(self, as_seen: bool, fits: BoolArray) -> tuple[str, ...]:
        found = []
        if as_seen:
            found.append("some groups have few rows yet, so totals are as seen, not scaled")
        elif not fits.any():
            found.append("rows may still enter or leave the answer, and none is certified")
        elif not fits.all():
            found.append(f"{fits.sum():,} of {len(fits):,} rows are certain to stay; no other is certified")
        return tuple(found)

    def _ranked(
        self,
        ranking: Ranking,
        found: CellIntervals,
        strict: CellIntervals,
        fits: BoolArray,
        parts: Sequence[Part],
    ) -> tuple[CellIntervals, BoolArray]:
        """Return the cells of the rows that LIMIT lets through, and which of these rows stay.

        Args:
            ranking: the estimate that ranks them.
            found: the intervals of these rows, and of those that may take their places.
            strict: the same at STRICT_CONFIDENCE.
            fits: the rows that stay by keys alone.
            parts: the answers that they come from.
        """
        places = ranked_rows(ranking, found, strict, self._shown.index(ranking.output))
        fits = fits[: ranking.shown]
        seen = all(map(_has_all_groups, parts))
        stays = fits | (places.certain & seen)
        factor = selection_factor(places.slack, self._request.confidence)
        return found.of_rows(stays, np.where(fits, 1.0, factor)), stays

    def _intervals(
        self, parts: Sequence[Part], point: pa.Table
    ) -> tuple[CellIntervals, CellIntervals, BoolArray, dict[int, BoolArray]]:
        """Return the intervals of the estimated outputs, and what the margins leave as it is.

        They come from leaving blocks out, or from an answer. The second ones are at STRICT_CONFIDENCE, and
        come from leaving blocks out. Margins leave rows as they are, and values that comparisons choose, by
        the position of the output.
        """
        values = [doubles(point.column(f"v{i}")) for i in self._positions]
        found = CellIntervals.unknown(np.stack(values, axis=1) if values else np.empty((point.num_rows, 0)))
        if not self._plan.rows.have_identity or not point.num_rows or not values:
            shown = found.of_columns(len(self._shown))
            nothing = np.zeros(point.num_rows, dtype=bool)
            return shown, shown, nothing | (not self._plan.rows.margins), self._chosen(nothing)
        strict = found
        if self._plan.draws:
            found, strict = self._by_draws(parts, point, found)
        decided, chosen = self._decided(found, strict)
        found = found.of_columns(len(self._shown))
        for place, i in enumerate(self._shown):
            for part, output in self._plan.sources[i]:
                _take_over(parts[part], output, self._rows_of(parts[part], point), found, place)
        rounding = np.array([self._plan.outputs[i].rounding for i in self._shown])
        strict = strict.of_columns(len(self._shown))
        return replace(found, low=found.low - rounding, high=found.high + rounding), strict, decided, chosen

    def _chosen(self, decided: BoolArray) -> dict[int, BoolArray]:
        """Return the outputs that comparisons choose, each decided in the same rows."""
        return {i: decided.copy() for i, is_chosen in enumerate(self._plan.rows.chosen) if is_chosen}

    def _decided(self, found: CellIntervals, strict: CellIntervals) -> tuple[BoolArray, dict[int, BoolArray]]:
        """Return the rows that no comparison may change, and the same of each output that one chooses.

        Cells that a comparison may change are not certified. A comparison is decided if its margin's interval
        at STRICT_CONFIDENCE does not have zero in it.
        """
        rows = np.ones(len(found.value), dtype=bool)
        chosen = self._chosen(rows)
        first = len(self._shown)
        apart = (strict.low > 0.0) | (strict.high < 0.0)
        for i, margin in enumerate(self._plan.rows.margins, start=first):
            stays = strict.certified[:, i] & (apart[:, i] | (not margin.is_compared))
            if margin.output is None:
                rows &= stays
            elif margin.output in chosen:
                chosen[margin.output] &= stays
            elif margin.output in self._shown:
                doubt = found.doubt[:, self._shown.index(margin.output)]
                doubt[(doubt == Reason.NONE) & ~stays] = Reason.UNDECIDED
        return rows, chosen

    def _bounds(self, parts: Sequence[Part], point: pa.Table) -> BoundsByColumn:
        """Return the ends of each COUNT(DISTINCT) and quantile that is taken over from an answer."""
        found: dict[int, CellBounds] = {}
        for i, output in enumerate(self._plan.outputs):
            if output.kind in (OutputKind.DISTINCT, OutputKind.OF_DISTINCT, OutputKind.QUANTILE):
                sides = CellBounds.unknown(point.num_rows)
                for part, position in self._plan.sources[i]:
                    rows, own = self._rows_of(parts[part], point)
                    so_far = parts[part].so_far
                    if so_far is not None and (known := so_far.bounds.get(position)) is not None:
                        sides.low[rows], sides.high[rows] = known.low[own], known.high[own]
                        sides.doubt[rows] = known.doubt[own]
                found[i] = sides
        return found

    def _rows_of(self, part: Part, point: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows of the answer come from the part, and their numbers within the part.

        Where rows are joined, all of them take over from the one row of the part.
        """
        if not self._plan.rows.keep_groups:
            return np.arange(point.num_rows), np.zeros(point.num_rows, dtype=np.int64)
        own = integers(point.column(GROUP)) - part.first_row
        rows = np.flatnonzero((own >= 0) & (own < part.rows.num_rows))
        return rows, own[rows]

    def _by_draws(
        self, parts: Sequence[Part], point: pa.Table, found: CellIntervals
    ) -> tuple[CellIntervals, CellIntervals]:
        """Return the intervals by the delete-a-block jackknife through the whole query, draw by draw.

        The second ones are at STRICT_CONFIDENCE.
        """
        rows = integers(point.column(GROUP_ROWS))
        spreads = []
        for draw in (draw for draw in self._plan.draws if not is_final(draw, parts)):
            drawn = variants_of(self._plan, draw, parts, point.num_rows)
            if drawn is None:
                return found, found
            tables = {i: part.table() for i, part in enumerate(parts)} | drawn.tables
            moved = self._moved(draw, tables, drawn.count, point)
            spreads.append(_spread(found.value, moved, drawn, rows))
        if not spreads:
            return found, found
        moves = self._one_row_moves(parts, point)
        read = min(part.so_far.scan.fraction for part in parts if part.so_far is not None)
        asked = self._request.confidence
        levels = (asked, max(asked, STRICT_CONFIDENCE))
        whole = np.array([i < len(self._plan.whole) and self._plan.whole[i] for i in self._positions])
        all_are_met = all(map(_has_all_groups, parts))
        missing = whole & (self._asks_the_unsure(found.value, parts, point) if all_are_met else whole)
        usual, strict = (
            self._of_spreads(found, spreads, rows, moves, missing, read, each) for each in levels
        )
        if all_are_met and not (usual.standard_error > 0.0).all():
            fixed = self._fixed(found.value, parts, point)
            usual, strict = usual.or_fixed(fixed), strict.or_fixed(fixed)
        return usual, strict

    def _asks_the_unsure(self, values: FloatArray, parts: Sequence[Part], point: pa.Table) -> BoolArray:
        """Return which values depend on a group of few rows, or on an estimate that is NULL so far.

        An average over groups leaves out what is NULL, and a group of few rows counts as much as another.
        """
        unsure = [_unsure(part) for part in parts]
        if not any(each.any() for each in unsure):
            return np.zeros(values.shape, dtype=bool)
        return ~self._stays(values, parts, unsure, point)

    def _fixed(self, values: FloatArray, parts: Sequence[Part], point: pa.Table) -> BoolArray:
        """Return which values depend on no estimate, such as the growth of the first month, which is NULL.

        Values that choose by a comparison are none: it may come out alike for all made-up estimates.
        """
        chosen = [margin.output for margin in self._plan.rows.margins]
        outputs = self._plan.outputs
        judged = [i < len(outputs) and outputs[i].certifiable and i not in chosen for i in self._positions]
        fixed = np.array(judged, dtype=bool)
        everything = [np.ones(part.rows.num_rows, dtype=bool) for part in parts]
        return np.asarray(fixed & self._stays(values, parts, everything, point))

    def _stays(
        self, values: FloatArray, parts: Sequence[Part], which: Sequence[BoolArray], point: pa.Table
    ) -> BoolArray:
        """Return which values are the same whatever the estimates in some rows of the parts are.

        Args:
            values: of all outputs, shape (rows, outputs).
            parts: the answers so far.
            which: the rows of each part whose estimates are made up.
            point: the answer.
        """
        draw = next(each for each in self._plan.draws if not is_final(each, parts))
        numbers = np.random.default_rng(0)
        tables = {
            i: part.made_up(_MADE_UP if i in draw.parts else 1, rows, numbers)
            for i, (part, rows) in enumerate(zip(parts, which, strict=True))
        }
        others = self._moved(draw, tables, _MADE_UP, point)
        same = (others == values) | (np.isnan(others) & np.isnan(values))
        return np.asarray(same.all(axis=0))

    def _moved(self, draw: Draw, tables: Mapping[int, pa.Table], count: int, point: pa.Table) -> FloatArray:
        """Return the estimated outputs in each variant of a draw, shape (variants, rows, outputs).

        Args:
            draw: which parts vary.
            tables: the answers of all parts, those of the draw in so many variants.
            count: of variants.
            point: the answer.
        """
        named = {f"part_{i}": table for i, table in tables.items()}
        with self._cursor.registered(shown=_shown(point), **named):
            table = self._cursor.table(draw.replicate)
        moved = np.full((count, point.num_rows, len(self._positions)), np.nan)
        index = integers(table.column("variant")), integers(table.column("place"))
        for place, i in enumerate(self._positions):
            moved[(*index, place)] = doubles(table.column(f"v{i}"))
        return moved

    def _one_row_moves(self, parts: Sequence[Part], point: pa.Table) -> FloatArray:
        """Return the most that one row could move each estimated output, infinity where SQL does not say."""
        moves = np.full((point.num_rows, len(self._positions)), np.inf)
        if not self._plan.texts.moves or any(p.so_far is not None and not p.rows.num_rows for p in parts):
            return moves
        tables = {f"part_{i}": p.with_moves(one_row_moves(self._plan, i, parts)) for i, p in enumerate(parts)}
        with self._cursor.registered(shown=_shown(point), **tables):
            table = self._cursor.table(self._plan.texts.moves)
        rows = integers(table.column("place"))
        for place, i in enumerate(self._positions):
            moves[rows, place] = doubles(table.column(f"v{i}"), null=np.inf)
        return moves

    def _of_spreads(
        self,
        found: CellIntervals,
        spreads: Sequence[_Spread],
        rows: np.ndarray,
        moves: FloatArray,
        missing: BoolArray,
        read: float,
        confidence: float,
    ) -> CellIntervals:
        """Return the intervals of a value that varies with several independent draws.

        Args:
            found: the values.
            spreads: of each draw.
            rows: the joined rows behind each row.
            moves: the most that one row could move each value. Where it is infinite, the spreads say how far.
            missing: which outputs a group may change that was not met yet.
            read: the least share that was read of a table.
            confidence: of both sides of an interval.
        """
        variance = sum_of_variances([each.variance for each in spreads])
        fraction = min(each.fraction for each in spreads)
        nothing = np.full(found.value.shape, np.nan)
        intervals = confidence_intervals(
            found.value,
            variance,
            fraction=fraction,
            confidence=confidence,
            anytime=self._request.anytime,
            rows_matched=rows,
            nonnegative_total=np.zeros(found.value.shape[1], dtype=bool),
            observed_total=nothing,
            unit_ceiling=np.full(found.value.shape[1], np.nan),
            possible_influence=np.zeros(found.value.shape),  # is compared below, draw by draw
        )
        error = np.sqrt(sum(each.variance.variance / (1.0 - each.fraction) for each in spreads))
        influence = np.sqrt(sum(each.influence**2 for each in spreads))
        most = np.where(np.isfinite(moves), moves, influence) * self._request.row_weight
        bounded = most <= MAX_UNSEEN_ERRORS * error
        varies = variance.variance > (_ROUNDING * found.value) ** 2
        outputs = self._plan.outputs
        never = np.array([i < len(outputs) and not outputs[i].certifiable for i in self._positions])
        doubt = intervals.doubt
        for unsure, why in (
            (~varies, Reason.ALIKE),
            (~bounded, Reason.LARGE_ROW),
            ((rows < MIN_ROWS_OF_SHARE)[:, None], Reason.FEW_ROWS_OF_SHARE),
            (~np.isfinite(found.value), Reason.NO_NUMBER),
            (missing, Reason.GROUPS_MISSING),
            (never, Reason.NEVER),
        ):
            doubt = np.where(unsure, why, doubt)
        # A total of few rows. Its tables had at least the share `read` of it.
        low, high = bounded_interval(
            found.value,
            error**2,
            moves * self._plan.rows.tables_together,
            found.value * (read * (1.0 - _ROUNDING)),
            rows[:, None],
            Level.of(confidence, anytime=self._request.anytime, fraction=fraction),
        )
        wide = self._totals & varies & (doubt != Reason.NONE) & np.isfinite(high)
        return CellIntervals(
            found.value,
            np.where(wide, low, np.where(varies, intervals.low, np.nan)),
            np.where(wide, high, np.where(varies, intervals.high, np.nan)),
            np.where(wide, Reason.NONE, doubt),
            np.sqrt(variance.variance),
        )


def _spread(value: FloatArray, moved: FloatArray, drawn: DrawnVariants, rows: np.ndarray) -> _Spread:
    """Return how the values vary with one draw, from their values in its variants."""
    blocks = len(drawn.block_rows)
    occupied = drawn.block_rows > 0
    variance = jackknife_variance(
        *(value, moved[:blocks][occupied], drawn.block_rows[occupied], rows, drawn.fraction),
        drawn.kurtosis,
    )
    steps = (moved[blocks:] - value) / STEP
    return _Spread(variance, drawn.fraction, np.sqrt((steps**2).mean(axis=0)))


def _shown(point: pa.Table) -> pa.Table:
    """Return the identity of each row of the answer, and its place."""
    return point.select([GROUP]).append_column("place", arrow(np.arange(point.num_rows)))


def _has_all_groups(part: Part) -> bool:
    """Whether every group of the part was met, or one that was not would be far smaller than any that was."""
    if not part.plan.is_estimated or part.plan.has_one_row:
        return True
    if part.so_far is None or part.estimator is None or not part.plan.shows_every_group:
        return False
    return part.estimator.has_met_every_group(part.row_counts, part.so_far.scan.fraction)


def _unsure(part: Part) -> BoolArray:
    """Return which rows of a part have few rows behind them, or an estimate that is NULL so far."""
    if part.so_far is None:
        return np.zeros(part.rows.num_rows, dtype=bool)
    few = np.asarray(part.row_counts < MIN_ROWS_OF_SHARE) & (not part.plan.has_one_row)
    values = part.so_far.found.value[:, : len(estimated_positions(part.plan))]
    return few | np.isnan(values).any(axis=1)


def _has_tiny_groups(parts: Sequence[Part]) -> bool:
    """Whether scaling would make the totals of some group far too high."""
    return any(
        part.so_far is not None and bool((part.row_counts < MIN_ROWS_TO_SCALE_RANKED).any()) for part in parts
    )


def _take_over(
    part: Part, output: int, rows_of: tuple[np.ndarray, np.ndarray], found: CellIntervals, place: int
) -> None:
    """Copy the intervals of a part's output into the answer's rows that come from the part."""
    if part.so_far is None:
        return
    rows, own = rows_of
    column = estimated_positions(part.plan).index(output)
    theirs = part.so_far.found
    for to, from_ in (
        (found.low, theirs.low),
        (found.high, theirs.high),
        (found.standard_error, theirs.standard_error),
    ):
        to[rows, place] = from_[own, column]
    found.doubt[rows, place] = theirs.doubt[own, column]
