"""The value an estimator hands up: one answer so far, with intervals, ready to become a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


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
    still change which rows the answer has, so that no cell's interval speaks for the answer.
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

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ValueError(f"fraction is {self.fraction}; it must be in (0, 1]")

    def relative_error(self, watch: tuple[str, ...] | None = None) -> float:
        """Return the largest relative half-width over the watched certified cells.

        0.0 when exact, infinity while no watched cell is certified or the answer's rows are not settled.
        Every approximate column is watched where `watch` is None.
        """
        if self.is_exact:
            return 0.0
        if not self.rows_are_settled:
            return float("inf")
        chosen = [i for i, column in enumerate(self.approximate) if watch is None or column.name in watch]
        usable = self.certified[:, chosen]
        if not usable.any():
            return float("inf")
        values, halves = np.abs(self.values[:, chosen][usable]), self.half_widths[:, chosen][usable]
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(halves == 0.0, 0.0, halves / values)
        return float(np.max(relative))
