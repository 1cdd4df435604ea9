"""From answers so far to the answer of a query over them. See `rewrite/levels.py` for its columns.

`parts_so_far` has the answers that another query is computed from, as the tables that it reads.

**Draws.** The answers of parts without each block of the sample that they come from, and with a row more.

Parts that are drawn together leave out the same block together: what they miss is missed together. The
variance of an answer is then the sum over the draws, because they are independent. Both steps replace the
answer by its tangent.

    V(θ) = Σ over draws d of V_d(θ), each by the delete-a-block jackknife with the other draws held fixed

Source: Wolter 2007, Introduction to Variance Estimation, ch. 4.6 (several strata) and ch. 6 (linearisation).

How far could one row that was not read move the answer? Totals over groups have SQL for it
(`rewrite/levels.py`). For other values, each estimate of a part is moved by a small part of what such a
row could change in it, up or down. The answers that result differ by the root of the sum of the squares,
which is no less than the largest of them. The signs are the same each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.certify import MAX_UNSEEN_ERRORS, MIN_ROWS_OF_SHARE, selection_factor
from relaqs_bootstrap.intervals import Level, bounded_interval, confidence_intervals
from relaqs_bootstrap.variance import Variance, jackknife_variance, sum_of_variances

from relaqs_engine.arrow_arrays import arrow, arrow_or_null, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.cells import folded, keeps_sign
from relaqs_engine.execution.certain_rows import STRICT_CONFIDENCE, ranked_rows, room_of
from relaqs_engine.execution.estimate import (
    BoundsByColumn,
    CellBounds,
    CellIntervals,
    Estimate,
    Reason,
    present_estimate,
    present_exact,
)
from relaqs_engine.execution.estimator import MIN_ROWS_TO_SCALE_RANKED, Estimator, RowsEstimator, SoFar
from relaqs_engine.execution.intervals import estimate_as_asked
from relaqs_engine.plans.aggregate import GROUP, GROUP_ROWS, moves_column
from relaqs_engine.plans.composite import AroundPlan, Draw, Ranking
from relaqs_engine.plans.plan import IntervalRequest, OnlinePlan, OutputKind
from relaqs_engine.sql.expressions import Sign

# Where a part's answer comes from: what estimates it, or the answer itself, when it is final.
PartSource: TypeAlias = Estimator | RowsEstimator | pa.Table


@dataclass(frozen=True, slots=True)
class Part:
    """One answer that another query reads.

    Attributes:
        rows: its outputs as first columns, in their own types.
        first_row: the number of its first row. The rows of all parts have different numbers.
        estimates: outputs that are numbers so far, as DOUBLE, by position.
        row_counts: the joined rows behind each row.
        estimator: what estimates the answer, None where it is final or made of (exact) rows.
        so_far: the answer before it is presented, None in the same cases.
    """

    plan: OnlinePlan
    rows: pa.Table
    first_row: int
    estimates: dict[int, FloatArray]
    row_counts: FloatArray
    estimator: Estimator | None = None
    so_far: SoFar | None = None

    def table(self) -> pa.Table:
        """Return the columns c0, c1, …, the number of each row, and the joined rows behind it."""
        columns = [
            arrow_or_null(self.estimates[i]) if i in self.estimates else self.rows.column(i)
            for i in range(len(self.plan.outputs))
        ]
        columns.append(arrow(np.arange(self.first_row, self.first_row + self.rows.num_rows)))
        columns.append(arrow(self.row_counts.astype(np.int64)))
        names = [f"c{i}" for i in range(len(self.plan.outputs))]
        return pa.Table.from_arrays(columns, names=[*names, GROUP, GROUP_ROWS])

    def variants(self, cells: FloatArray) -> pa.Table:
        """Return the table once for each variant, with the variant's number as `variant`.

        `cells` are the outputs of kind ESTIMATE in each variant, shape (variants, rows, outputs).
        """
        table = self.repeated(len(cells))
        for place, i in enumerate(estimated_positions(self.plan)):
            table = table.set_column(i, f"c{i}", arrow_or_null(cells[:, :, place].ravel()))
        return table

    def made_up(self, count: int, which: BoolArray, numbers: np.random.Generator) -> pa.Table:
        """Return so many variants in which the estimates of some rows are positive numbers of any size.

        A final answer stays as it is, and so do values so far, such as a MAX.
        """
        positions = estimated_positions(self.plan)
        if self.so_far is None or not positions:
            return self.repeated(count)
        cells = np.stack([self.estimates[i] for i in positions], axis=1)
        made_up = numbers.lognormal(0.0, 3.0, (count, *cells.shape))
        return self.variants(np.where(which[:, None], made_up, cells))

    def with_moves(self, moves: FloatArray) -> pa.Table:
        """Return the table with what one row could move each estimate, shape (rows, outputs), beside it."""
        table = self.table()
        for place, i in enumerate(estimated_positions(self.plan)):
            table = table.append_column(moves_column(i), arrow(moves[:, place]))
        return table

    def repeated(self, times: int) -> pa.Table:
        """Return the table once for each of so many variants, with the variant's number as `variant`."""
        count = self.rows.num_rows
        table = self.table().take(arrow(np.tile(np.arange(count), times)))
        return table.append_column("variant", arrow(np.repeat(np.arange(times), count)))


def estimated_positions(plan: OnlinePlan) -> list[int]:
    return [i for i, output in enumerate(plan.outputs) if output.kind is OutputKind.ESTIMATE]


def parts_so_far(
    plans: Sequence[OnlinePlan], sources: Sequence[PartSource], *, is_scaled: bool
) -> list[Part]:
    """Return the answers so far. With `is_scaled` False, totals are as they were seen."""
    found: list[Part] = []
    first_row = 0
    for plan, source in zip(plans, sources, strict=True):
        found.append(_part(plan, source, first_row, is_scaled))
        first_row += found[-1].rows.num_rows
    return found


def _part(plan: OnlinePlan, source: PartSource, first_row: int, is_scaled: bool) -> Part:
    if not isinstance(source, Estimator):
        rows = source.rows() if isinstance(source, RowsEstimator) else source
        return Part(plan, rows, first_row, {}, np.ones(rows.num_rows))
    so_far = source.so_far(is_scaled=is_scaled)
    point = so_far.point
    positions = estimated_positions(plan)
    straight = [doubles(point.column(f"v{i}")) for i in positions]
    cells = (
        folded([plan.outputs[i] for i in positions], np.stack(straight, axis=1))
        if straight
        else np.empty((0, 0))
    )
    estimates = {i: cells[:, place] for place, i in enumerate(positions)}
    for i, output in enumerate(plan.outputs):
        if output.kind is OutputKind.DISTINCT:
            estimates[i] = doubles(point.column(i))
    rows = so_far.groups.rows[: point.num_rows]
    return Part(plan, point, first_row, estimates, rows, source, so_far)


# The most rows, over all variants of the answers, on which the query around them is computed: about 50 ms.
MAX_VARIANT_ROWS = 50_000
# The most rows, over all variants, that it may give: a join may give many times more than it reads.
MAX_ROWS_OUT = 400_000
# Fewer blocks say too little of a variance.
FEWEST_BLOCKS = 16
STEP = 1e-4  # the part of a row's influence by which estimates are moved
_MOVES = 16
_SHARES = 1_000_000_000  # block shares as whole numbers


@dataclass(frozen=True, slots=True)
class DrawnVariants:
    """Variants of the parts of a draw.

    Attributes:
        tables: by part, its answer in each variant. The first are without a block, the others moved.
        block_rows: the rows of each block, on one scale for all parts, shape (blocks,).
        fraction: the share of the rows that was read.
        kurtosis: of what a row adds, which sets the weights of the blocks.
    """

    tables: dict[int, pa.Table]
    block_rows: IntArray
    fraction: float
    kurtosis: float

    @property
    def count(self) -> int:
        return len(self.block_rows) + _MOVES


@dataclass(frozen=True, slots=True)
class _Live:
    """A part whose answer is still an estimate."""

    index: int
    part: Part
    so_far: SoFar
    estimator: Estimator

    @property
    def task_blocks(self) -> int:
        return len(self.so_far.scan.block_rows) - self.estimator.block_count


def is_final(draw: Draw, parts: Sequence[Part]) -> bool:
    """Whether the answers of all parts of the draw are final, so that nothing of it varies."""
    return all(parts[i].so_far is None for i in draw.parts)


def variants_of(plan: AroundPlan, draw: Draw, parts: Sequence[Part], rows_out: int) -> DrawnVariants | None:
    """Return the variants of the parts of a draw. None where there are too few blocks or too many rows."""
    live = list(_live(draw, parts))
    rows_in = sum(parts[i].rows.num_rows for i in draw.parts)
    most = min(MAX_VARIANT_ROWS // max(rows_in, 1), MAX_ROWS_OUT // max(rows_out, 1)) - _MOVES
    together = _blocks_together(live, most)
    if together is None:
        return None
    count = 1 + max(int(blocks.max()) for blocks in together)
    shares = [
        np.bincount(blocks, each.so_far.scan.block_rows, count) / each.so_far.scan.rows
        for each, blocks in zip(live, together, strict=True)
    ]
    rows = np.rint(np.mean(shares, axis=0) * _SHARES).astype(np.int64)
    if any(np.count_nonzero(share) < 2 for share in shares):
        return None
    signs = np.random.default_rng(0)
    tables = {i: parts[i].repeated(count + _MOVES) for i in draw.parts if parts[i].so_far is None}
    for each, blocks in zip(live, together, strict=True):
        without = each.estimator.without_each_block(each.so_far, blocks, count)
        tables[each.index] = each.part.variants(np.concatenate([without, _moved(plan, each, parts, signs)]))
    largest = max(live, key=lambda each: each.so_far.scan.population_rows)
    kurtosis = max(each.estimator.kurtosis(each.so_far.scan) for each in live)
    return DrawnVariants(tables, rows, largest.so_far.scan.fraction, kurtosis)


def _live(draw: Draw, parts: Sequence[Part]) -> Sequence[_Live]:
    found = []
    for index in draw.parts:
        part = parts[index]
        if part.so_far is not None and part.estimator is not None:
            found.append(_Live(index, part, part.so_far, part.estimator))
    return found


def _blocks_together(live: Sequence[_Live], most: int) -> list[IntArray] | None:
    """Return, for each part, the number of the common block that each of its blocks is in.

    The first blocks are stored with the rows, 64 or 16 of them. The others are tasks, which parts of a draw
    have in common. There are fewer common blocks where `most` is less.
    """
    if not live or not all(each.so_far.is_scaled for each in live) or len({e.task_blocks for e in live}) > 1:
        return None
    stored = min(each.estimator.block_count for each in live)
    most = min(most, stored + live[0].task_blocks)
    if most < min(FEWEST_BLOCKS, stored):
        return None
    found = []
    for each in live:
        own = np.arange(len(each.so_far.scan.block_rows))
        tasks = own - each.estimator.block_count
        found.append(np.where(tasks < 0, own % stored, stored + tasks) % most)
    return found


def one_row_moves(plan: AroundPlan, index: int, parts: Sequence[Part]) -> FloatArray:
    """Return the most that one row that was not read could move each estimate of a part, (rows, outputs).

    It is infinite where it is not known, and 0 where the part's answer is final. A total that is NULL so far
    may have its first row yet.
    """
    part = parts[index]
    positions = estimated_positions(part.plan)
    if part.so_far is None:
        return np.zeros((part.rows.num_rows, len(positions)))
    influence = part.so_far.influence[:, : len(positions)].copy()
    for place, output in enumerate(positions):
        if part.estimator is not None and part.plan.outputs[output].certifiable:
            first = part.estimator.influence_of_unseen(part.so_far, output)
            influence[np.isnan(part.so_far.found.value[:, place]), place] = first
        for added in (each for each in plan.added if (index, output) in each):
            influence[:, place] = np.fmax(influence[:, place], _of_any_row(added, parts))
    return np.where(np.isnan(influence), np.inf, influence)


def _moved(plan: AroundPlan, live: _Live, parts: Sequence[Part], signs: np.random.Generator) -> FloatArray:
    """Return the estimates moved by part of what a row could change, shape (variants, rows, outputs).

    What is NULL so far is moved from 0, so that COALESCE of it moves as well.
    """
    influence = one_row_moves(plan, live.index, parts)
    values = np.nan_to_num(live.so_far.found.value[:, : influence.shape[1]], posinf=np.inf, neginf=-np.inf)
    sign = signs.choice([-1.0, 1.0], (_MOVES, *values.shape))
    return values + STEP * sign * influence


def _of_any_row(added: frozenset[tuple[int, int]], parts: Sequence[Part]) -> float:
    """Return the most that a row of a group without any yet can add to what the columns add up to."""
    most = 0.0
    for index, output in added:
        part = parts[index]
        if part.so_far is not None and part.estimator is not None:
            most = max(most, part.estimator.influence_of_unseen(part.so_far, output))
    return most


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
            warnings=(*dict.fromkeys(w for k in known for w in k.warnings), *self._warnings(as_seen, fits)),
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
        of_groups = self._plan.rows.whole
        whole = np.array([i < len(of_groups) and of_groups[i] for i in self._positions])
        all_are_met = all(map(_has_all_groups, parts))
        kept = self._keep_sign(found.value, parts)
        missing = whole & (self._asks_the_unsure(found.value, parts, point) if all_are_met else whole)
        usual, strict = (
            self._of_spreads(found, spreads, rows, moves, missing, kept, read, each) for each in levels
        )
        if all_are_met and not (usual.standard_error > 0.0).all():
            fixed = self._fixed(found.value, parts, point)
            usual, strict = usual.or_fixed(fixed), strict.or_fixed(fixed)
        return usual, strict

    def _keep_sign(self, values: FloatArray, parts: Sequence[Part]) -> BoolArray:
        """Return which values cannot change their sign, whatever was not read, shape (rows, outputs)."""
        outputs = self._plan.outputs
        agree = all(part.so_far.outliers_agree for part in parts if part.so_far is not None)
        signs = [outputs[i].sign if i < len(outputs) else Sign.EITHER for i in self._positions]
        return keeps_sign(values, signs) & agree

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
            which: the rows of each part whose estimates are made up.
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
        """Return the estimated outputs in each variant of a draw, shape (variants, rows, outputs)."""
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
        kept: BoolArray,
        read: float,
        confidence: float,
    ) -> CellIntervals:
        """Return the intervals of a value that varies with several independent draws.

        moves: the most that one row could move each value. Where it is infinite, the spreads say how far.
        missing: which outputs a group may change that was not met yet. kept: which values cannot change their
        sign. read: the least share that was read of a table.
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
            keeps_sign=kept,
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
        value, moved[:blocks][occupied], drawn.block_rows[occupied], rows, drawn.fraction, drawn.kurtosis
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
