"""Intervals of the cells shown: variance by the plan's method, then the rules for totals and empty cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from relaqs_bootstrap import (
    Variance,
    closed_form_variance,
    delete_a_block_variance,
    intervals,
    leave_one_out,
    linearised_variance,
    zero_rows_bound,
)

from relaqs_engine.duck import Cursor
from relaqs_engine.estimate import BoolArray, FloatArray
from relaqs_engine.execution.cells import (
    BlockSums,
    CellEvaluator,
    ShownGroups,
    additive_columns,
    block_sums,
    estimated_outputs,
)
from relaqs_engine.layouts.manifest import Layout
from relaqs_engine.plan import Basis, Method, OnlinePlan

# Leave-one-out variants evaluated in SQL at most; beyond it cells are linearised (one variant a column).
MAX_REPLICATE_CELLS = 20_000
_STEP = 1e-6


@dataclass(frozen=True, slots=True)
class IntervalRequest:
    """What interval the user asked for. anytime: valid at every look, not at one moment only."""

    confidence: float = 0.95
    anytime: bool = False


@dataclass(frozen=True, slots=True)
class CellIntervals:
    """Estimates of the estimated outputs, each array of shape (groups, outputs). NaN where not known."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    certified: BoolArray

    @classmethod
    def unknown(cls, value: FloatArray) -> CellIntervals:
        nothing = np.full_like(value, np.nan)
        return cls(value, nothing, nothing, np.zeros(value.shape, dtype=bool))

    @classmethod
    def known(cls, value: FloatArray) -> CellIntervals:
        """Return values that are final: groups whose every row has been seen."""
        return cls(value, value, value, np.isfinite(value))


def cell_intervals(
    plan: OnlinePlan,
    leading: Layout,
    groups: ShownGroups,
    cells: FloatArray,
    block_rows: FloatArray,
    cursor: Cursor,
    request: IntervalRequest,
) -> CellIntervals:
    """Return intervals of cells of shape (groups, outputs), estimated from the blocks folded so far.

    block_rows: rows scanned of each block, shape (blocks,).
    """
    fraction = float(block_rows.sum()) / leading.row_count
    if plan.method is Method.CLOSED_FORM:
        variance = _closed_form(plan, groups, cells, block_rows.sum(), leading.row_count, cursor)
    else:
        blocks = block_sums(plan, groups, cursor)
        variance = _block_variance(plan, groups, blocks, cells, block_rows, leading.row_count, cursor)
    nonnegative, observed = _nonnegative_totals(plan, groups)
    found = intervals(
        cells,
        variance,
        fraction=fraction,
        confidence=request.confidence,
        anytime=request.anytime,
        rows_matched=groups.rows,
        nonnegative_total=nonnegative,
        observed_total=observed,
    )
    result = CellIntervals(cells, found.low, found.high, found.certified)
    result = _without_spread(plan, leading, result, variance, observed, fraction, request.confidence)
    return _known_counts(plan, leading, result)


def _closed_form(
    plan: OnlinePlan,
    groups: ShownGroups,
    cells: FloatArray,
    scanned_rows: float,
    population_rows: int,
    cursor: Cursor,
) -> Variance:
    scale = population_rows / scanned_rows
    if all(output.total for output in estimated_outputs(plan)):
        gradient = _gradient_of_totals(plan, cells.shape[0], scale)
    else:
        gradient = _numeric_gradient(CellEvaluator(plan, cursor), groups, cells, scale)
    return closed_form_variance(
        gradient / scale,
        groups.sums,
        groups.products,
        scanned_rows=scanned_rows,
        population_rows=population_rows,
        rows_matched=groups.rows,
    )


def _block_variance(
    plan: OnlinePlan,
    groups: ShownGroups,
    blocks: BlockSums,
    cells: FloatArray,
    block_rows: FloatArray,
    population_rows: int,
    cursor: Cursor,
) -> Variance:
    evaluate = CellEvaluator(plan, cursor)
    fraction = float(block_rows.sum()) / population_rows
    used = block_rows > 0
    if all(output.total for output in estimated_outputs(plan)):
        gradient = _gradient_of_totals(plan, cells.shape[0], 1.0 / fraction)
    elif used.sum() * cells.size <= MAX_REPLICATE_CELLS:
        dense = np.zeros((len(block_rows), len(groups.rows), groups.sums.shape[1]))
        dense[blocks.block, blocks.group] = blocks.sums
        rest, rest_rows = leave_one_out(dense[used], block_rows[used])
        replicates = evaluate(groups, rest, population_rows / rest_rows)
        return delete_a_block_variance(
            cells, replicates, block_rows[used], fraction=fraction, rows_matched=groups.rows
        )
    else:
        gradient = _numeric_gradient(evaluate, groups, cells, 1.0 / fraction)
    return linearised_variance(
        gradient,
        blocks.group,
        blocks.block,
        blocks.sums,
        block_rows,
        fraction=fraction,
        rows_matched=groups.rows,
    )


def _gradient_of_totals(plan: OnlinePlan, group_count: int, scale: float) -> FloatArray:
    names = [column.name for column in additive_columns(plan)]
    outputs = estimated_outputs(plan)
    gradient = np.zeros((group_count, len(outputs), len(names)))
    for i, output in enumerate(outputs):
        gradient[:, i, names.index(str(output.total))] = scale
    return gradient


def _numeric_gradient(
    evaluate: CellEvaluator, groups: ShownGroups, cells: FloatArray, scale: float
) -> FloatArray:
    """Return d cell / d sum by forward differences, shape (groups, outputs, columns)."""
    count = groups.sums.shape[1]
    typical = np.maximum(np.abs(groups.sums), np.sqrt(np.abs(groups.sums).mean(axis=1, keepdims=True)) + 1e-3)
    steps = _STEP * typical
    variants = np.repeat(groups.sums[None], count, axis=0)
    for k in range(count):
        variants[k, :, k] += steps[:, k]
    moved = evaluate(groups, variants, np.full(count, scale))
    return np.asarray(np.moveaxis((moved - cells[None]) / steps.T[:, :, None], 0, 2))


def _nonnegative_totals(plan: OnlinePlan, groups: ShownGroups) -> tuple[BoolArray, FloatArray]:
    """Return which outputs are totals that cannot fall, shape (outputs,), and what was seen of each total."""
    columns = {column.name: i for i, column in enumerate(additive_columns(plan))}
    lowest = {column.name: column.lowest for column in plan.basis}
    outputs = estimated_outputs(plan)
    observed = np.full((len(groups.rows), len(outputs)), np.nan)
    mask = np.zeros(len(outputs), dtype=bool)
    for i, output in enumerate(outputs):
        if output.total is not None:
            observed[:, i] = groups.sums[:, columns[output.total]]
            least = lowest[output.total]
            mask[i] = least is not None and least >= 0.0
    return mask, observed


def _without_spread(
    plan: OnlinePlan,
    leading: Layout,
    found: CellIntervals,
    variance: Variance,
    observed: FloatArray,
    fraction: float,
    confidence: float,
) -> CellIntervals:
    """Blocks that all agree say nothing about rows unlike those seen: only what is provable remains.

    A total that cannot fall is at least what was seen; a total of nothing seen is at most what the unseen
    sampling units that zero hits allow could add.
    """
    flat = (variance.variance <= 0.0) | ~np.isfinite(found.value)
    if not flat.any():
        return found
    low, high = np.where(flat, np.nan, found.low), np.where(flat, np.nan, found.high)
    basis = {column.name: column for column in plan.basis}
    units = zero_rows_bound(fraction, confidence)
    for i, output in enumerate(estimated_outputs(plan)):
        column = basis[output.total] if output.total else None
        if column is None or column.lowest is None or column.lowest < 0.0:
            continue
        cell = flat[:, i]
        low[cell, i] = observed[cell, i]
        empty = cell & (observed[:, i] == 0.0)
        if column.highest is not None and not plan.hoists and len(plan.streams) == 1:
            high[empty, i] = units * leading.max_unit_rows * column.highest
    return CellIntervals(found.value, low, high, found.certified & ~flat)


def _known_counts(plan: OnlinePlan, leading: Layout, found: CellIntervals) -> CellIntervals:
    """COUNT(*) of a whole table is in its manifest."""
    if not plan.counts_every_row:
        return found
    basis = {column.name: column for column in plan.basis}
    for i, output in enumerate(estimated_outputs(plan)):
        if output.total and basis[output.total].kind is Basis.COUNT and basis[output.total].sql == "COUNT(*)":
            for array in (found.value, found.low, found.high):
                array[:, i] = float(leading.row_count)
            found.certified[:, i] = True
    return found
