"""The shape of every answer: the query's columns, then low, high and certified of each approximate one.

Column x gets x_low, x_high and x_certified. Where the query has a column of such a name already, underscores
are added until the name is free, so a user's own x_low is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs_engine.arrow_arrays import arrow_booleans, arrow_moments, arrow_or_null, doubles, microseconds
from relaqs_engine.execution.estimate import ApproximateColumn, Estimate
from relaqs_engine.execution.reasons import Reason
from relaqs_engine.plans.online_plan import OnlinePlan
from relaqs_engine.plans.outputs import OutputColumn, OutputKind
from relaqs_engine.plans.sign import Sign
from relaqs_engine.plans.times import TimeScale

if TYPE_CHECKING:
    from relaqs_engine.execution.interval import CellIntervals

_NUMBERS = (OutputKind.ESTIMATE, OutputKind.DISTINCT, OutputKind.OF_DISTINCT, OutputKind.QUANTILE)


@dataclass(frozen=True, slots=True)
class CellBounds:
    """The ends of one column's cells where they do not come from a variance, each of shape (groups,).

    `doubt` is why a cell is not certified, a `Reason`.
    """

    low: FloatArray
    high: FloatArray
    doubt: IntArray

    @classmethod
    def unknown(cls, count: int, why: Reason = Reason.SO_FAR) -> CellBounds:
        return cls(np.full(count, np.nan), np.full(count, np.nan), np.full(count, int(why)))

    def doubt_where(self, unsure: BoolArray, why: Reason) -> CellBounds:
        """Return the same without a certificate where a cell has one and should not."""
        return replace(self, doubt=np.where((self.doubt == Reason.NONE) & unsure, why, self.doubt))


# Of outputs that are COUNT(DISTINCT) or quantiles, by position.
BoundsByColumn = Mapping[int, CellBounds]


def approximate_columns(names: Sequence[str], positions: Sequence[int]) -> tuple[ApproximateColumn, ...]:
    """Return the names of the interval columns, without clashes. `positions` are the approximate columns'."""
    taken = {name.lower() for name in names}

    def free(name: str) -> str:
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        return name

    return tuple(
        ApproximateColumn(
            names[i], free(f"{names[i]}_low"), free(f"{names[i]}_high"), free(f"{names[i]}_certified"), i
        )
        for i in positions
    )


def present_exact(plan: OnlinePlan, answer: pa.Table) -> Estimate:
    """Return the final Estimate. `answer` has the query's columns in order, under any names."""
    outputs = _approximate(plan)
    columns = [answer.column(i) for i, _ in outputs]
    true = arrow_booleans(np.ones(answer.num_rows, dtype=bool))
    ends = [_as_side(output, column) for (_, output), column in zip(outputs, columns, strict=True)]
    sides = [(end, end, true) for end in ends]
    shape = (answer.num_rows, len(outputs))
    return _assemble(
        plan,
        answer,
        sides,
        fraction=1.0,
        is_exact=True,
        values=_stack(
            [numbers_of(output, column) for (_, output), column in zip(outputs, columns, strict=True)], shape
        ),
        half_widths=np.broadcast_to(0.0, shape),
        doubts=np.zeros(shape, dtype=np.int64),
        certain_rows=np.ones(answer.num_rows, dtype=bool),
        unseen_groups=0,
    )


def present_estimate(
    plan: OnlinePlan,
    point: pa.Table,
    found: CellIntervals,
    bounds: BoundsByColumn,
    *,
    fraction: float,
    unseen_groups: int | None,
    certain_rows: BoolArray,
    rows_are_settled: bool,
    warnings: tuple[str, ...],
    group_rows: FloatArray | None = None,
    chosen: Mapping[int, BoolArray] | None = None,
) -> Estimate:
    """Return an Estimate. Whatever was found, no cell of an uncertain row is certified.

    Args:
        plan: the query's plan.
        point: the result of the plan's estimate query.
        found: the intervals, one column for each ESTIMATE output.
        bounds: the ends of each row's COUNT(DISTINCT) and quantiles, by the output's position.
        fraction: the scanned share of the table.
        unseen_groups: an estimate of the groups not seen yet, None where it is unknown.
        certain_rows: whether each row is certain to be in the answer.
        rows_are_settled: whether unread rows can no longer change which rows the answer has.
        warnings: sentences for the reader.
        group_rows: the joined rows seen behind each row of the answer, None where they are not known.
        chosen: where comparisons of estimates are decided, of outputs that they choose, by position.
    """
    chosen = chosen or {}
    sides, values, halves, doubts = [], [], [], []
    estimated = 0
    for i, output in _approximate(plan):
        if output.kind is OutputKind.ESTIMATE:
            low, high = found.low[:, estimated], found.high[:, estimated]
            value, doubt = found.value[:, estimated], found.doubt[:, estimated]
            estimated += 1
        elif i in bounds:
            value = numbers_of(output, point.column(i))
            low, high, doubt = bounds[i].low, bounds[i].high, bounds[i].doubt
        else:
            values.append(np.full(point.num_rows, np.nan))
            halves.append(np.full(point.num_rows, np.nan))
            if i in chosen:
                sure = arrow_booleans(chosen[i] & certain_rows)
                import pyarrow.compute as pc  # a question that runs as a whole needs none of it

                end = pc.if_else(sure, point.column(i), pa.scalar(None, point.column(i).type))
                sides.append((end, end, sure))
                doubt = np.where(chosen[i], Reason.MAY_LEAVE, Reason.UNDECIDED)
                doubts.append(np.where(chosen[i] & certain_rows, Reason.NONE, doubt))
                continue
            ends = _bound_sides(output, point.column(i), complete=plan.groups_are_final)
            sides.append((*ends, arrow_booleans(certain_rows & plan.groups_are_final)))
            so_far = Reason.SO_FAR if output.certifiable else Reason.NEVER
            doubts.append(np.full(point.num_rows, int(Reason.BOUND if output.side else so_far)))
            continue
        doubt = np.where((doubt == Reason.NONE) & ~certain_rows, Reason.MAY_LEAVE, doubt)
        doubt[(doubt != Reason.NONE) & (not output.certifiable)] = Reason.NEVER
        kind, sure = point.column(i).type, arrow_booleans(doubt == Reason.NONE)
        sides.append((_end(output, low, kind), _end(output, high, kind), sure))
        values.append(value)
        with np.errstate(invalid="ignore"):  # between infinities
            halves.append(np.maximum(high - value, value - low))
        doubts.append(doubt)
    shape = (point.num_rows, len(sides))
    return _assemble(
        plan,
        point,
        sides,
        fraction=fraction,
        is_exact=False,
        values=_stack(values, shape),
        half_widths=_stack(halves, shape),
        doubts=np.stack(doubts, axis=1) if doubts else np.empty(shape, dtype=np.int64),
        certain_rows=certain_rows,
        unseen_groups=unseen_groups,
        rows_are_settled=rows_are_settled,
        warnings=warnings,
        group_rows=group_rows,
    )


def _assemble(
    plan: OnlinePlan,
    answer: pa.Table,
    sides: Sequence[tuple[pa.Array, pa.Array, pa.Array]],
    *,
    fraction: float,
    is_exact: bool,
    values: FloatArray,
    half_widths: FloatArray,
    doubts: IntArray,
    certain_rows: BoolArray,
    unseen_groups: int | None,
    rows_are_settled: bool = True,
    warnings: tuple[str, ...] = (),
    group_rows: FloatArray | None = None,
) -> Estimate:
    names = [output.name for output in plan.outputs]
    outputs = _approximate(plan)
    approximate = approximate_columns(names, [i for i, _ in outputs])
    arrays = [answer.column(i) for i in range(len(names))]
    for column, triple in zip(approximate, sides, strict=True):
        names += [column.low, column.high, column.certified]
        arrays += list(triple)
    return Estimate(
        table=pa.Table.from_arrays(arrays, names=names),
        columns=tuple(output.name for output in plan.outputs),
        approximate=approximate,
        fraction=fraction,
        is_exact=is_exact,
        values=values,
        half_widths=half_widths,
        certified=doubts == Reason.NONE,
        doubts=doubts,
        certain_rows=certain_rows,
        unseen_groups=unseen_groups,
        warnings=plan.warnings + warnings + (() if is_exact else remarks_of(outputs)),
        rows_are_settled=rows_are_settled,
        group_rows=np.ones(answer.num_rows) if group_rows is None else group_rows,
        either_sign=tuple(output.sign is Sign.EITHER for _, output in outputs),
        certifiable=tuple(output.certifiable for _, output in outputs),
        never=tuple(output.remark for _, output in outputs),
        sizes=_sizes([output for _, output in outputs], answer.num_rows),
    )


def remarks_of(outputs: Sequence[tuple[int, OutputColumn]]) -> tuple[str, ...]:
    """Return what every answer before the end says of columns that can never be certified."""
    names: dict[str, list[str]] = {}
    for _, output in outputs:
        if output.remark:
            names.setdefault(output.remark, []).append(output.name)
    return tuple(f"{', '.join(named)}: {remark}" for remark, named in names.items())


def _approximate(plan: OnlinePlan) -> list[tuple[int, OutputColumn]]:
    return [(i, output) for i, output in enumerate(plan.outputs) if output.kind is not OutputKind.KEY]


def _sizes(outputs: Sequence[OutputColumn], count: int) -> FloatArray | None:
    """Return what the errors of moments are relative to, NaN in all other columns; None without moments."""
    if all(output.time is None for output in outputs):
        return None
    spans = [np.nan if output.time is None else output.time.span_microseconds for output in outputs]
    return np.tile(spans, (count, 1))


def _end(output: OutputColumn, ends: FloatArray, kind: pa.DataType) -> pa.Array:
    """Return the ends of intervals, moments as moments of that kind."""
    if output.time is None:
        return arrow_or_null(ends)
    return arrow_moments(ends, output.time.origin_microseconds, kind)


def _as_side(output: OutputColumn, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if output.kind not in _NUMBERS or not _is_number(column.type):
        return column
    if pa.types.is_decimal(column.type):  # Arrow's own cast divides, and may miss the nearest double
        column = column.cast(pa.string())
    return column.cast(pa.float64(), safe=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _bound_sides(
    output: OutputColumn, column: pa.ChunkedArray, *, complete: bool
) -> tuple[pa.Array, pa.Array]:
    """Return the ends of a bound: MAX so far is "at least", MIN "at most".

    Nothing is known of an opaque value, unless its group is complete.
    """
    unknown = pa.nulls(len(column), column.type)
    low = column if complete or output.side == "least" else unknown
    high = column if complete or output.side == "most" else unknown
    return low, high


def numbers_of(output: OutputColumn, column: pa.ChunkedArray) -> FloatArray:
    """Return a column's values as numbers, NaN where the output has no interval."""
    if output.kind not in _NUMBERS or pa.types.is_string(column.type):
        return np.full(len(column), np.nan)
    if output.time is not None:
        return microseconds_from(output.time, column)
    return doubles(column)


def microseconds_from(time: TimeScale, column: pa.ChunkedArray | pa.Array) -> FloatArray:
    """Return moments or intervals as microseconds from the scale's origin."""
    return microseconds(column) - time.origin_microseconds


def _stack(columns: Sequence[FloatArray], shape: tuple[int, int]) -> FloatArray:
    return np.stack(columns, axis=1) if columns else np.empty(shape)
