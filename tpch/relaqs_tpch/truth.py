"""How far a snapshot really was from the exact answer, and whether its intervals held: known at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray
from relaqs_engine.arrow_arrays import doubles
from relaqs_engine.plans.plan import OnlinePlan, OutputKind

from relaqs.queries.snapshot import Snapshot

WORST = 1.0  # error of a cell: what is not shown yet, or off by more than itself
ROUNDING = 1e-9  # relative: what a float sum in another order may differ by

_MEASURED = (OutputKind.ESTIMATE, OutputKind.DISTINCT, OutputKind.QUANTILE, OutputKind.BOUND)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One snapshot against the truth.

    Attributes:
        error: the mean over all cells of the exact answer of |shown − exact| / |exact|, at most 1 each, and 1
            for a cell that is not shown.
        half_width: the mean relative half-width of the certified cells, NaN without any.
        cells: how many cells the exact answer has.
        certified: how many of the shown cells are certified.
        held: how many of the certified cells have the exact value in their interval.
    """

    error: float
    half_width: float
    cells: int
    certified: int
    held: int


class Truth:
    """The exact answer of a query. A cell is a number of it that was estimated; rows are told apart by keys.

    Where a query estimates no number, as when it lists rows, each row is a cell: shown or not.
    """

    def __init__(self, plan: OnlinePlan, exact: pa.Table) -> None:
        self._keys = _positions(plan, (OutputKind.KEY,))
        self._measured = [
            position
            for position in _positions(plan, _MEASURED)
            if _is_number(exact.schema.field(position).type)
        ]
        if not self._measured:
            self._keys = list(range(exact.num_columns))
        self._rows = {key: row for row, key in enumerate(_keys_of(exact, self._keys))}
        self._values = _matrix([exact.column(position) for position in self._measured], exact.num_rows)

    def verdict(self, snapshot: Snapshot) -> Verdict:
        """Return how far one snapshot is off."""
        table = snapshot.table
        places = [self._rows.get(key, -1) for key in _keys_of(table, self._keys)]
        place = np.array(places, dtype=np.int64)
        shown = np.flatnonzero(place >= 0)
        if not self._measured:
            missing = len(self._rows) - len(set(place[shown].tolist()))
            return Verdict(missing / max(len(self._rows), 1), np.nan, len(self._rows), 0, 0)
        cells = np.isfinite(self._values)
        errors = np.where(cells, WORST, 0.0)
        values = _matrix([table.column(position) for position in self._measured], table.num_rows)
        errors[place[shown]] = _relative(values[shown], self._values[place[shown]])
        certified, held, widths = self._intervals(snapshot, values, place, shown)
        return Verdict(
            error=float(errors.sum() / max(cells.sum(), 1)),
            half_width=float(widths.mean()) if len(widths) else np.nan,
            cells=int(cells.sum()),
            certified=certified,
            held=held,
        )

    def _intervals(
        self, snapshot: Snapshot, values: FloatArray, place: IntArray, shown: IntArray
    ) -> tuple[int, int, FloatArray]:
        """Return how many cells are certified, how many of these hold the truth, and their widths."""
        named = {column.position: column for column in snapshot.columns}
        certified = held = 0
        widths: list[FloatArray] = []
        for index, position in enumerate(self._measured):
            if (column := named.get(position)) is None:
                continue
            marks = snapshot.table.column(column.certified).to_numpy(zero_copy_only=False)
            sure: BoolArray = np.asarray(marks[shown], dtype=bool)
            truth = self._values[place[shown], index]
            sure &= np.isfinite(truth)
            low, high = (doubles(snapshot.table.column(name))[shown] for name in (column.low, column.high))
            slack = ROUNDING * np.abs(truth)
            missed = (truth < low - slack) | (truth > high + slack)
            certified += int(sure.sum())
            held += int((sure & ~missed).sum())
            size = np.abs(values[shown, index])
            has_width = sure & (size > 0) & np.isfinite(high - low)
            widths.append(((high - low) / 2 / np.where(size > 0, size, 1.0))[has_width])
        return certified, held, np.concatenate(widths) if widths else np.empty(0)


def _positions(plan: OnlinePlan, kinds: Sequence[OutputKind]) -> list[int]:
    return [position for position, output in enumerate(plan.outputs) if output.kind in kinds]


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _keys_of(table: pa.Table, positions: Sequence[int]) -> list[tuple[object, ...]]:
    """Return each row's key, and which of the rows with that key it is."""
    columns = [table.column(position).to_pylist() for position in positions]
    keys = list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
    seen: dict[tuple[object, ...], int] = {}
    told_apart = []
    for key in keys:
        seen[key] = seen.get(key, -1) + 1
        told_apart.append((*key, seen[key]))
    return told_apart


def _matrix(columns: Sequence[pa.ChunkedArray], rows: int) -> FloatArray:
    return np.stack([doubles(column) for column in columns], axis=1) if columns else np.empty((rows, 0))


def _relative(shown: FloatArray, exact: FloatArray) -> FloatArray:
    """Return the relative errors, at most WORST each, 0 where the exact value is none."""
    off = np.abs(shown - exact)
    size = np.abs(exact)
    relative = np.where(off <= ROUNDING * size, 0.0, off / np.where(size > 0, size, 1e-300))
    relative = np.where(np.isnan(relative), WORST, np.minimum(relative, WORST))
    return np.where(np.isfinite(exact), relative, 0.0)
