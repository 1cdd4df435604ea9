"""From answers so far to the answer of a query over them. See `rewrite/levels.py` for its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from relaqs_bootstrap import Variance, confidence_intervals, jackknife_variance
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.arrow_arrays import arrow, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.estimate import Estimate
from relaqs_engine.execution.estimator import MIN_ROWS_TO_SCALE_RANKED, SoFar
from relaqs_engine.execution.interval import CellIntervals
from relaqs_engine.execution.interval_request import IntervalRequest
from relaqs_engine.execution.parts import Part, PartSource, estimated_positions, parts_so_far
from relaqs_engine.execution.present import BoundsByColumn, CellBounds, present_estimate, present_exact
from relaqs_engine.plans.around import AroundPlan
from relaqs_engine.plans.names import GROUP, GROUP_ROWS
from relaqs_engine.plans.outputs import OutputKind

# The most rows, over all variants of an answer, on which the query around it is computed: about 50 ms.
MAX_VARIANT_ROWS = 50_000
# With fewer rows, a share of a total is too skewed for a Student interval. For flights by carrier, intervals
# over 10 rows held 92 % of the time.
MIN_ROWS = 30
# Groups with this share of the rows must be certified before anything computed from all groups is.
MOST_ROWS_CERTIFIED = 0.95
_ROUNDING = 1e-9


class AroundEstimator:
    """Turns the answers of a plan's parts into its own."""

    def __init__(self, plan: AroundPlan, cursor: Cursor, request: IntervalRequest) -> None:
        self._plan = plan
        self._cursor = cursor
        self._request = request
        self._positions = estimated_positions(plan)

    def exact(self, answers: Sequence[pa.Table]) -> Estimate:
        """Return the answer from the parts' final ones."""
        tables = {
            f"part_{i}": answer.rename_columns([f"c{j}" for j in range(answer.num_columns)])
            for i, answer in enumerate(answers)
        }
        with self._cursor.registered(**tables):
            return present_exact(self._plan, self._cursor.table(self._plan.texts.final))

    def estimate(self, sources: Sequence[PartSource], fraction: float) -> Estimate:
        """Return the answer so far. `fraction` is the share of the streamed rows that the sources saw."""
        plan = self._plan
        parts, as_seen = self._parts_so_far(sources)
        with self._cursor.registered(**{f"part_{i}": part.table() for i, part in enumerate(parts)}):
            point = self._cursor.table(plan.texts.estimate)
        found = self._intervals(parts, point)
        settled = plan.rows.are_certain and not as_seen
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
            certain_rows=self._certain(parts, point) & settled,
            rows_are_settled=settled and len(known) == len(parts) and all(k.rows_are_settled for k in known),
            warnings=(*dict.fromkeys(w for k in known for w in k.warnings), *self._warnings(as_seen)),
            group_rows=doubles(point.column(GROUP_ROWS), null=0.0) if plan.rows.have_identity else None,
        )

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

    def _certain(self, parts: Sequence[Part], point: pa.Table) -> BoolArray:
        """Return for each row whether it is in the answer as long as the groups are that it is made of."""
        unsure = [part for part in parts if part.so_far is not None and not part.so_far.certain.all()]
        certain = np.full(point.num_rows, not unsure)
        if unsure and self._plan.rows.keep_groups and self._plan.rows.have_identity:
            for part in parts:
                rows, own = _rows_of(part, integers(point.column(GROUP)))
                certain[rows] = True if part.so_far is None else part.so_far.certain[own]
        return certain

    def _warnings(self, as_seen: bool) -> tuple[str, ...]:
        found = []
        if as_seen:
            found.append("some groups have few rows yet, so totals are as seen, not scaled")
        elif not self._plan.rows.are_certain:
            found.append("rows may still enter or leave the answer, and none is certified")
        opaque = [output.name for output in self._plan.outputs if output.kind is OutputKind.OPAQUE]
        if opaque:
            found.append(f"no interval is known for {', '.join(opaque)}: computed from the groups so far")
        if any(self._plan.whole):
            names = [o.name for o, whole in zip(self._plan.outputs, self._plan.whole, strict=True) if whole]
            found.append(f"{', '.join(names)}: not certified, groups not yet seen could change it")
        return tuple(found)

    def _intervals(self, parts: Sequence[Part], point: pa.Table) -> CellIntervals:
        """Return the intervals of the estimated outputs, by leaving blocks out or from an answer."""
        values = [doubles(point.column(f"v{i}")) for i in self._positions]
        found = CellIntervals.unknown(np.stack(values, axis=1) if values else np.empty((point.num_rows, 0)))
        if not self._plan.rows.have_identity or not point.num_rows or not values:
            return found
        if self._plan.texts.replicate:
            found = self._by_blocks(parts[self._plan.varied], point, found)
        for place, i in enumerate(self._positions):
            for part, output in self._plan.sources[i]:
                _take_over(parts[part], output, integers(point.column(GROUP)), found, place)
        return found

    def _bounds(self, parts: Sequence[Part], point: pa.Table) -> BoundsByColumn:
        """Return the ends of each COUNT(DISTINCT) and quantile that is taken over from an answer."""
        found: dict[int, CellBounds] = {}
        for i, output in enumerate(self._plan.outputs):
            if output.kind in (OutputKind.DISTINCT, OutputKind.QUANTILE):
                sides = CellBounds.unknown(point.num_rows)
                for part, position in self._plan.sources[i]:
                    rows, own = _rows_of(parts[part], integers(point.column(GROUP)))
                    if (so_far := parts[part].so_far) is not None:
                        known = so_far.bounds[position]
                        sides.low[rows], sides.high[rows] = known.low[own], known.high[own]
                        sides.certified[rows] = known.certified[own]
                found[i] = sides
        return found

    def _by_blocks(self, part: Part, point: pa.Table, found: CellIntervals) -> CellIntervals:
        """Return the intervals by the delete-a-block jackknife through the whole query."""
        so_far, estimator = part.so_far, part.estimator
        if so_far is None or estimator is None or not so_far.is_scaled:
            return found
        scan = so_far.scan
        if scan.occupied_blocks < 2 or scan.occupied_blocks * part.rows.num_rows > MAX_VARIANT_ROWS:
            return found
        moved = self._variants(part, estimator.without_each_block(so_far), point)
        rows = integers(point.column(GROUP_ROWS))
        blocks = scan.block_rows[scan.block_rows > 0]
        variance = jackknife_variance(found.value, moved, blocks, rows, scan.fraction)
        result = self._of_variance(found, variance, rows, scan.fraction)
        sure: BoolArray = np.logical_and.reduce(so_far.found.certified, axis=1)
        supported = np.full(point.num_rows, _holds_most_rows(so_far, sure))
        if self._plan.rows.keep_groups:
            supported &= sure[integers(point.column(GROUP)) - part.first_row]
        return replace(result, certified=result.certified & supported[:, None])

    def _variants(self, part: Part, cells: FloatArray, point: pa.Table) -> FloatArray:
        """Return the estimated outputs in each variant of a part, shape (variants, rows, outputs).

        `cells` are the part's own estimates in each variant, shape (variants, groups, outputs).
        """
        shown = point.select([GROUP]).append_column("place", arrow(np.arange(point.num_rows)))
        tables = {f"part_{self._plan.varied}": part.variants(cells), "shown": shown}
        with self._cursor.registered(**tables):
            table = self._cursor.table(self._plan.texts.replicate)
        moved = np.full((len(cells), point.num_rows, len(self._positions)), np.nan)
        index = integers(table.column("variant")), integers(table.column("place"))
        for place, i in enumerate(self._positions):
            moved[(*index, place)] = doubles(table.column(f"v{i}"))
        return moved

    def _of_variance(
        self, found: CellIntervals, variance: Variance, rows: np.ndarray, fraction: float
    ) -> CellIntervals:
        nothing = np.full(found.value.shape, np.nan)
        intervals = confidence_intervals(
            found.value,
            variance,
            fraction=fraction,
            confidence=self._request.confidence,
            anytime=self._request.anytime,
            rows_matched=rows,
            nonnegative_total=np.zeros(found.value.shape[1], dtype=bool),
            observed_total=nothing,
            unit_ceiling=np.full(found.value.shape[1], np.nan),
            possible_influence=np.zeros(found.value.shape),  # was checked in the answer that it comes from
        )
        varies = variance.variance > (_ROUNDING * found.value) ** 2
        whole = np.array([self._plan.whole[i] for i in self._positions])
        return CellIntervals(
            found.value,
            np.where(varies, intervals.low, np.nan),
            np.where(varies, intervals.high, np.nan),
            intervals.certified & varies & ~whole & (rows >= MIN_ROWS)[:, None],
            np.sqrt(variance.variance),
        )


def _holds_most_rows(so_far: SoFar, sure: BoolArray) -> bool:
    """Whether the certain groups have so many rows that what is computed from all groups is certain."""
    rows = so_far.groups.rows[: len(sure)]
    return float(rows[sure].sum()) >= MOST_ROWS_CERTIFIED * float(rows.sum())


def _has_tiny_groups(parts: Sequence[Part]) -> bool:
    """Whether scaling would make the totals of some group far too high."""
    return any(
        part.so_far is not None and bool((part.row_counts < MIN_ROWS_TO_SCALE_RANKED).any()) for part in parts
    )


def _rows_of(part: Part, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of the answer come from the part, and their numbers within the part."""
    own = group - part.first_row
    rows = np.flatnonzero((own >= 0) & (own < part.rows.num_rows))
    return rows, own[rows]


def _take_over(part: Part, output: int, group: np.ndarray, found: CellIntervals, place: int) -> None:
    """Copy the intervals of a part's output into the answer's rows that come from the part."""
    if part.so_far is None:
        return
    rows, own = _rows_of(part, group)
    column = estimated_positions(part.plan).index(output)
    theirs = part.so_far.found
    for to, from_ in (
        (found.low, theirs.low),
        (found.high, theirs.high),
        (found.certified, theirs.certified),
        (found.standard_error, theirs.standard_error),
    ):
        to[rows, place] = from_[own, column]
