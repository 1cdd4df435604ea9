"""The answers of parts without each block of the sample that they come from, and with a row more.

Parts that are drawn together leave out the same block together: what they miss is missed together. The
variance of an answer is then the sum over the draws, because they are independent. Both steps replace the
answer by its tangent.

    V(θ) = Σ over draws d of V_d(θ), each by the delete-a-block jackknife with the other draws held fixed

Source: Wolter 2007, Introduction to Variance Estimation, ch. 4.6 (several strata) and ch. 6 (linearisation).

How far could one row that was not read move the answer? Totals over groups have SQL for it
(`rewrite/one_row_moves.py`). For other values, each estimate of a part is moved by a small part of what such
a row could change in it, up or down. The answers that result differ by the root of the sum of the squares,
which is no less than the largest of them. The signs are the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray, IntArray

from relaqs_engine.execution.estimator import Estimator, SoFar
from relaqs_engine.execution.parts import Part, estimated_positions
from relaqs_engine.plans.around import AroundPlan, Draw

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
    """Return the variants of the parts of a draw. None where there are too few blocks or too many rows.

    Args:
        plan: of the query around the parts.
        draw: which parts vary.
        parts: the answers so far.
        rows_out: the rows of the query's answer.
    """
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
