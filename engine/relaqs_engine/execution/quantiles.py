"""Intervals of quantiles: two values of the sample, by rank, between which the table's quantile lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from relaqs_bootstrap import (
    Variance,
    quantile_ranks,
    share_variance_of_blocks,
    share_variance_of_rows,
)
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_bootstrap.certify import MIN_ROWS

from relaqs_engine.arrow_arrays import arrow, doubles, integers
from relaqs_engine.duck import Cursor
from relaqs_engine.execution.interval_request import IntervalRequest
from relaqs_engine.execution.present import CellBounds, microseconds_from, numbers_of
from relaqs_engine.execution.reasons import Reason
from relaqs_engine.execution.variance import Scan
from relaqs_engine.plans.error_bars import Method
from relaqs_engine.plans.merge import MergePlan
from relaqs_engine.plans.names import BLOCK, STATE
from relaqs_engine.plans.outputs import OutputKind, QuantileOf
from relaqs_engine.plans.times import TimeScale

# A quantile takes a few numpy calls for each group. With more groups than this there are no intervals.
MOST_GROUPS = 20_000


@dataclass(frozen=True, slots=True)
class _Lists:
    """The values of each partial row, one row after another. The rows of a group follow one another.

    Attributes:
        values: all values.
        starts: where each row's values begin, shape (rows,).
        group: the group of each row.
        block: the block of each row.
        counts: how many values each row has.
    """

    values: FloatArray
    starts: IntArray
    counts: IntArray
    group: IntArray
    block: IntArray

    def count_where(self, condition: BoolArray) -> IntArray:
        """Return how many values of each row meet a condition, shape (values,)."""
        before = np.append(0, np.cumsum(condition))
        return np.asarray(before[self.starts + self.counts] - before[self.starts], dtype=np.int64)

    def at(self, ranks: IntArray, others: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the values of two ranks, counted from 1, for each group. Rank 0 gives NaN."""
        found = np.full((2, len(ranks)), np.nan)
        rows = np.searchsorted(self.group, np.arange(len(ranks) + 1))
        ends = np.append(self.starts, len(self.values))[rows]
        for group, pair in enumerate(zip(ranks, others, strict=True)):
            if wanted := sorted({int(rank) - 1 for rank in pair if rank}):
                own = np.partition(self.values[ends[group] : ends[group + 1]], wanted)
                found[:, group] = [own[rank - 1] if rank else np.nan for rank in pair]
        return found[0], found[1]


def quantile_bounds(
    plan: MergePlan, point: pa.Table, scan: Scan, cursor: Cursor, request: IntervalRequest
) -> dict[int, CellBounds]:
    """Return the ends of each quantile of the groups shown, by position. `point` has keys and basis."""
    found = {}
    listed: dict[str, _Lists] = {}  # several quantiles are of the same values
    for i, output in enumerate(plan.outputs):
        if output.quantile is not None and output.kind is OutputKind.QUANTILE:
            value = numbers_of(output, point.column(f"v{i}"))
            if plan.groups_are_final:
                known = np.where(np.isfinite(value), Reason.NONE, Reason.NO_NUMBER)
                found[i] = CellBounds(value, value, known)
            elif _is_known(plan, point, scan):
                values = output.quantile.values
                if values not in listed:
                    listed[values] = _lists(plan, values, output.time, point, cursor)
                found[i] = _between(plan, output.quantile, value, listed[values], scan, request)
            else:
                is_large = point.num_rows > MOST_GROUPS
                why = Reason.MANY_GROUPS if is_large else Reason.FEW_PARTS
                found[i] = CellBounds.unknown(point.num_rows, why)
    return found


def _is_known(plan: MergePlan, point: pa.Table, scan: Scan) -> bool:
    if plan.method is Method.NONE or not 0 < point.num_rows <= MOST_GROUPS:
        return False
    return plan.bars.rows_are_units or (plan.method is Method.REPLICATES and scan.occupied_blocks >= 2)


def _between(
    plan: MergePlan,
    quantile: QuantileOf,
    value: FloatArray,
    lists: _Lists,
    scan: Scan,
    request: IntervalRequest,
) -> CellBounds:
    """Return the ends of each group's quantile. `value` is the quantile of the sample, shape (groups,)."""
    counts = np.bincount(lists.group, lists.counts, len(value)).astype(np.int64)
    share = quantile.share
    if plan.bars.rows_are_units:
        variance = share_variance_of_rows(counts, share, scan.fraction)
    else:
        variance = _variance_of_blocks(lists, value, scan)
    low_rank, high_rank, certified = quantile_ranks(
        counts,
        share,
        variance,
        fraction=scan.fraction,
        confidence=request.confidence,
        anytime=request.anytime,
    )
    further = np.ceil(quantile.rank_error * counts).astype(np.int64)
    low_rank = np.where(low_rank > further, low_rank - further, 0)
    high_rank = np.where((high_rank > 0) & (high_rank + further <= counts), high_rank + further, 0)
    low, high = lists.at(low_rank, high_rank)
    certified &= np.isfinite(low) & np.isfinite(high)
    why = np.where(counts < MIN_ROWS, Reason.FEW_ROWS, Reason.FAR_OUT)
    return CellBounds(low, high, np.where(certified, Reason.NONE, why))


def _lists(plan: MergePlan, listed: str, time: TimeScale | None, point: pa.Table, cursor: Cursor) -> _Lists:
    """Return as doubles the values that the groups shown have in a column of the state.

    time: how the values are counted, where they are moments or intervals.
    """
    shown = point.select(list(plan.columns.keys)).append_column("g", arrow(np.arange(point.num_rows)))
    same = (
        " AND ".join(f"{STATE}.{key} IS NOT DISTINCT FROM shown.{key}" for key in plan.columns.keys) or "true"
    )
    values = f"coalesce({f'CAST({listed} AS DOUBLE[])' if time is None else listed}, [])"
    with cursor.registered(shown=shown):
        table = cursor.table(f"SELECT g, {BLOCK}, {values} FROM {STATE} JOIN shown ON {same} ORDER BY g")
    lists = table.column(2).combine_chunks()
    counts = integers(lists.value_lengths())
    return _Lists(
        values=doubles(lists.flatten()) if time is None else microseconds_from(time, lists.flatten()),
        starts=np.cumsum(counts) - counts,
        counts=counts,
        group=integers(table.column(0)),
        block=integers(table.column(1)),
    )


def _variance_of_blocks(lists: _Lists, value: FloatArray, scan: Scan) -> Variance:
    """Return how much the share of values below each group's quantile varies between blocks."""
    limit = np.repeat(value[lists.group], lists.counts)
    rows = lists.count_where(lists.values < limit), lists.count_where(lists.values <= limit), lists.counts
    blocks, has_values = len(scan.block_rows), lists.counts > 0  # a task without rows gives an empty list
    codes = (lists.group * blocks + lists.block)[has_values]
    pairs, pair = np.unique(codes, return_inverse=True)
    below, up_to, counts = (np.bincount(pair, each[has_values], len(pairs)).astype(np.int64) for each in rows)
    return share_variance_of_blocks(
        below, up_to, counts, pairs // blocks, pairs % blocks, scan.block_rows, len(value), scan.fraction
    )
