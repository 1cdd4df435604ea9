"""What an estimator returns: one answer so far with its intervals, ready to become a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray, IntArray

from relaqs_engine.execution.headline import DEFAULT_JUDGE, Judge, relative_widths
from relaqs_engine.execution.reasons import Reason, text_of


@dataclass(frozen=True, slots=True)
class ApproximateColumn:
    """The place of one approximate column in `Estimate.table`: its own name, and the names of its interval.

    Attributes:
        name: its own name.
        low: the name of the column of lower ends.
        high: the name of the column of upper ends.
        certified: the name of the column that says which intervals are certified.
        position: its position among the query's own columns, from 0. A query may give two columns one name.

    >>> ApproximateColumn("total", "total_low", "total_high", "total_certified", position=1).low
    'total_low'
    """

    name: str
    low: str
    high: str
    certified: str
    position: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """One answer so far.

    Attributes:
        table: the query's columns in order (DuckDB's own types), then low, high and certified of each
            approximate column. Where nothing bounds a value, low or high is null.
        columns: the names of the query's own columns.
        approximate: the approximate columns among them.
        fraction: the share of the streamed rows that was folded, in (0, 1].
        is_exact: whether this is the final answer.
        values: shape (rows, approximate columns), for progress metrics. NaN where a column is not a number.
            A moment is its microseconds from an origin of the column.
        half_widths: of the intervals, in the same shape. NaN where nothing is known.
        certified: which cells are certified, in the same shape.
        unseen_groups: an estimate of the groups not seen yet, None where it is unknown.
        certain_rows: for each row, whether it is certain to be in the answer, at the confidence asked for. No
            cell of another row is certified. None where every row is certain.
        rows_are_settled: False while unread rows may still change which rows the answer has. Then no cell's
            interval speaks for the answer.
        warnings: sentences for the reader.
        group_rows: the joined rows seen behind each row, all alike where they are not known.
        either_sign: for each approximate column, whether its values may lie on both sides of zero, as in
            `OutputColumn`. If left out, no column's may.
        certifiable: for each approximate column, whether it can be certified before the end. If left out,
            each can.
        doubts: why each cell is not certified, a `Reason`. If left out, nothing is known of it.
        never: for each approximate column why none of its cells can be certified, "" where they may be.
        sizes: what the errors of cells are relative to that are not measured by their own value, in the shape
            of `values`, and NaN for all others. None where there are no such cells.
        widths: how far off each cell may be, by `relative_widths`.
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
    sizes: FloatArray | None = None
    doubts: IntArray | None = None
    never: tuple[str, ...] = ()
    widths: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ValueError(f"fraction is {self.fraction}; it must be in (0, 1]")
        count = len(self.approximate)
        either_sign = np.array(self.either_sign or [False] * count, dtype=bool)
        widths = relative_widths(
            self.values, self.half_widths, self.certified, either_sign, self._rows, self.sizes
        )
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

    def reasons(self) -> tuple[tuple[str, ...], IntArray]:
        """Return why cells are not certified in words, and for each cell which of these texts it has.

        The second has the shape of `values`: 0 for certified cells and bounds, else i for the text i - 1.
        """
        found: dict[str, int] = {}
        if self.doubts is None:
            return (), np.zeros(self.values.shape, dtype=np.int64)
        which = np.zeros(self.values.shape, dtype=np.int64)
        for i, codes in enumerate(self.doubts.T):
            for code in np.unique(codes[(codes != Reason.NONE) & (codes != Reason.BOUND)]):
                text = self.never[i] if code == Reason.NEVER else text_of(code)
                which[codes == code, i] = found.setdefault(text, len(found) + 1)
        return tuple(found), which

    def not_judged(
        self, watch: tuple[str, ...] | None = None, judge: Judge = DEFAULT_JUDGE
    ) -> tuple[str, ...]:
        """Return the approximate columns that `relative_error` says nothing of.

        They are not watched, or no number of them has an error before the end, as that of a MAX. A column
        whose numbers are all final is not among them.
        """
        if self.is_exact or not self.table.num_rows:
            return ()
        certifiable = self.certifiable or (True,) * len(self.approximate)
        if self.doubts is None:
            certified = [all(self.table.column(each.certified).to_pylist()) for each in self.approximate]
        else:
            certified = list((self.doubts == Reason.NONE).all(axis=0))
        final = [can_be and sure for can_be, sure in zip(certifiable, certified, strict=True)]
        return tuple(
            column.name
            for column, *is_known in zip(self.approximate, judge.judges(self.widths), final, strict=True)
            if not any(is_known) or (watch is not None and column.name not in watch)
        )

    def relative_error(self, watch: tuple[str, ...] | None = None, judge: Judge = DEFAULT_JUDGE) -> float:
        """Return the error that most of the answer is within, as the judge weighs its watched cells.

        0.0 when exact, infinity while too little is certified or the answer's rows are not settled.
        """
        if self.is_exact:
            return 0.0
        return judge.error(self.watched_widths(watch), self._rows) if self.rows_are_settled else np.inf
