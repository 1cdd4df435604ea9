"""The value an estimator hands up: one answer so far, with intervals, ready to become a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs_engine.execution.headline import DEFAULT_JUDGE, Judge, relative_widths


@dataclass(frozen=True, slots=True)
class ApproximateColumn:
    """Where one approximate column stands in `Estimate.table`: its own name and those of its interval.

    position: of the column among the query's own, from 0; a query may give two columns one name.
    """

    name: str
    low: str
    high: str
    certified: str
    position: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """One answer so far.

    table: the query's columns in order (DuckDB's own types), then low, high and certified of each approximate
    column. Where nothing bounds a value, low or high is null. fraction: share of the streamed rows folded,
    in (0, 1]. values, half_widths, certified: arrays of shape (rows, approximate columns) for progress
    metrics; NaN where the column is not a number or nothing is known. unseen_groups: None where unknown.
    certain_rows: of each row, whether it is in the answer for sure, at the confidence asked for; no cell of
    another one is certified. None where every row is. rows_are_settled: False while rows not yet read may
    still change which rows the answer has, so that no cell's interval speaks for the answer. group_rows:
    joined rows seen behind each row, all alike where they are not known. either_sign, certifiable: of each
    approximate column, as in `OutputColumn`; where they are left out, no column's values cross zero and each
    may be certified. widths: how far off each cell may be, by `relative_widths`.
    """

    table: pa.Table
    columns: tuple[str, ...]
    approximate: tuple[ApproximateColumn, ...]
    fraction: float
    is_exact: bool
    values: FloatArray
    half_widths: FloatArray
    certified: BoolArray
    unseen_groups: int | None = None
    warnings: tuple[str, ...] = ()
    rows_are_settled: bool = True
    certain_rows: BoolArray | None = None
    group_rows: FloatArray | None = None
    either_sign: tuple[bool, ...] = ()
    certifiable: tuple[bool, ...] = ()
    widths: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ValueError(f"fraction is {self.fraction}; it must be in (0, 1]")
        count = len(self.approximate)
        either_sign = np.array(self.either_sign or [False] * count, dtype=bool)
        widths = relative_widths(self.values, self.half_widths, self.certified, either_sign, self._rows)
        widths[:, ~np.array(self.certifiable or [True] * count, dtype=bool)] = np.nan
        object.__setattr__(self, "widths", widths)

    @property
    def _rows(self) -> FloatArray:
        return np.ones(len(self.values)) if self.group_rows is None else self.group_rows

    def watched_widths(self, watch: tuple[str, ...] | None = None) -> FloatArray:
        """Return how far off the cells of the watched columns may be, shape (rows, watched columns).

        Every approximate column is watched where `watch` is None.
        """
        return self.widths[:, [watch is None or column.name in watch for column in self.approximate]]

    def relative_error(self, watch: tuple[str, ...] | None = None, judge: Judge = DEFAULT_JUDGE) -> float:
        """Return the error that most of the answer is within, as the judge weighs its watched cells.

        0.0 when exact, infinity while too little is certified or the answer's rows are not settled.
        """
        if self.is_exact:
            return 0.0
        return judge.error(self.watched_widths(watch), self._rows) if self.rows_are_settled else np.inf
