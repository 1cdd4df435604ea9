"""SUMMARIZE so far: one wide row of measures becomes one row for each column that is summarized.

DuckDB writes averages, quantiles and the like of columns of any type as text. So do answers so far, and the
ends of their intervals are text as well: those of a date are dates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray
from relaqs_bootstrap.certify import distinct_interval

from relaqs_engine.arrow_arrays import arrow_booleans
from relaqs_engine.duck import Cursor, quote_name
from relaqs_engine.execution.estimate import Estimate, Reason, approximate_columns
from relaqs_engine.layouts.manifest import is_number
from relaqs_engine.plans.aggregate import STATE
from relaqs_engine.plans.composite import SampledThenExact, SummarizedColumn
from relaqs_engine.plans.plan import TIME_TYPES, OutputColumn, OutputKind, time_sql
from relaqs_engine.sql.expressions import Sign

SKETCH_ERROR = 0.033
"""The standard error of DuckDB's approximate count. Of 150 sets of 20,000 values 0.032 was measured."""

_TWO_SIDED = 1.96
_FEWEST_ROWS = 10  # as for any cell that is certified
_HALF_A_STEP = 0.005  # of percentages, which have two decimals
_QUANTILES = ("q25", "q50", "q75")
_TEXTS = ("min", "max", "avg", "std", *_QUANTILES)
_TYPES = {"approx_unique": pa.int64(), "count": pa.int64(), "null_percentage": pa.decimal128(9, 2)}


@dataclass(frozen=True, slots=True)
class _Cell:
    """One cell of the summary.

    Attributes:
        value: as DuckDB has it in this column: text, a whole number or a decimal.
        low: the lower end, text or a double, None where nothing bounds it.
        high: the upper end, likewise.
        number: the value as a number, NaN where it is none.
        half_width: of the interval, NaN where it is not known.
        certified: whether the interval is certified.
        size: what the error is relative to, NaN for the value itself.
        doubt: why it is not certified, where it is not.
    """

    value: object = None
    low: object = None
    high: object = None
    number: float = np.nan
    half_width: float = np.nan
    certified: bool = False
    size: float = np.nan
    doubt: Reason = Reason.SO_FAR


def summary_so_far(plan: SampledThenExact, wide: Estimate, cursor: Cursor, confidence: float) -> Estimate:
    """Return the rows of the summary.

    Args:
        wide: the estimate of its sample.
        cursor: sees the state of the sample.
    """
    source = _Wide(plan, wide, cursor, confidence)
    rows = [source.row(i, column) for i, column in enumerate(plan.summarized)]
    known = [i for i, output in enumerate(plan.outputs) if output.kind is not OutputKind.KEY]
    names = [output.name for output in plan.outputs]
    approximate = approximate_columns(tuple(names), known)
    arrays = [_own(output, rows, plan.summarized) for output in plan.outputs]
    for column in approximate:
        cells = [row[column.name] for row in rows]
        end = pa.float64() if column.name in _TYPES else pa.string()
        arrays += [pa.array([cell.low for cell in cells], end), pa.array([cell.high for cell in cells], end)]
        arrays.append(arrow_booleans(np.array([cell.certified for cell in cells], dtype=bool)))
        names += [column.low, column.high, column.certified]
    shape = (len(rows), len(approximate))

    def of_cells(values: Iterable[float]) -> FloatArray:
        return np.array(list(values), dtype=np.float64).reshape(shape)

    cells = [row[column.name] for row in rows for column in approximate]
    return Estimate(
        table=pa.Table.from_arrays(arrays, names=names),
        columns=tuple(output.name for output in plan.outputs),
        approximate=approximate,
        fraction=wide.fraction,
        is_exact=False,
        values=of_cells(cell.number for cell in cells),
        half_widths=of_cells(cell.half_width for cell in cells),
        doubts=np.array([_doubt(cell) for cell in cells], dtype=np.int64).reshape(shape),
        certain_rows=np.ones(len(rows), dtype=bool),
        unseen_groups=0,
        warnings=plan.warnings,
        # Of distinct values too little is known early to wait for: other columns tell how good the answer is.
        never=tuple("few are met early" if column.name == "approx_unique" else "" for column in approximate),
        sizes=of_cells(cell.size for cell in cells),
    )


def _own(
    output: OutputColumn, rows: list[dict[str, _Cell]], columns: tuple[SummarizedColumn, ...]
) -> pa.Array:
    if output.kind is OutputKind.KEY:
        is_name = output.name == "column_name"
        return pa.array([each.name if is_name else each.type for each in columns], pa.string())
    kind = _TYPES.get(output.name, pa.string())
    return pa.array([row[output.name].value for row in rows], kind)


class _Wide:
    """The measures of each column, from the one row of the sample's estimate."""

    def __init__(self, plan: SampledThenExact, wide: Estimate, cursor: Cursor, confidence: float) -> None:
        self._plan = plan
        self._wide = wide
        self._cursor = cursor
        self._confidence = confidence
        self._places = {column.name: i for i, column in enumerate(wide.approximate)}
        self._outputs = {output.name: output for output in plan.sample.outputs}
        self._written = self._texts(plan.summarized)

    def row(self, i: int, column: SummarizedColumn) -> dict[str, _Cell]:
        cells = {measure: self._text(measure, i, column) for measure in _TEXTS}
        for measure in ("avg", *_QUANTILES):
            cells[measure] = self._sized(cells[measure], i)
        return {
            **cells,
            "approx_unique": self._distinct(column),
            "count": self._count(),
            "null_percentage": self._nulls(i, column),
        }

    def _texts(self, columns: tuple[SummarizedColumn, ...]) -> Mapping[str, str | None]:
        """Return each text of the summary, by its measure: `avg_3`, `avg_3_low` and `avg_3_high`."""
        values = [
            named
            for i, column in enumerate(columns)
            for measure in _TEXTS
            if f"{measure}_{i}" in self._outputs
            for named in self._values(measure, i, column)
        ]
        if not values:
            return {}
        names = [name for name, _ in values]
        found = [f"CAST({sql} AS VARCHAR)" for _, sql in values]
        with self._cursor.registered(answer=self._wide.table):
            ((*texts,),) = self._cursor.rows(f"SELECT {', '.join(found)} FROM answer")
        return dict(zip(names, texts, strict=True))

    def _values(self, measure: str, i: int, column: SummarizedColumn) -> Iterator[tuple[str, str]]:
        name = f"{measure}_{i}"
        for each in (name, *(f"{name}_{side}" for side in ("low", "high") if name in self._places)):
            value = quote_name(each)
            if measure in _QUANTILES and column.time_type:
                microseconds = f"CAST({value} AS BIGINT)"
                if column.lists_cut_values and each.endswith("_high"):
                    microseconds += " + 1"
                value = f"CAST({time_sql(column.time_type, microseconds)} AS {column.time_type})"
            elif measure in _QUANTILES:
                value = f"TRY_CAST({value} AS {column.type})"
            yield each, value

    def _text(self, measure: str, i: int, column: SummarizedColumn) -> _Cell:
        name = f"{measure}_{i}"
        if name not in self._outputs:
            return _Cell(certified=_is_null(measure, column))
        if column.null_percentage == 100.0:
            return _Cell(certified=True)
        value, low, high = (self._written.get(f"{name}{side}") for side in ("", "_low", "_high"))
        if name not in self._places:
            return _Cell(value, value, value, certified=True)
        place = self._places[name]
        return _Cell(value, low, high, *self._numbers(place), doubt=self._doubt(place))

    def _sized(self, cell: _Cell, i: int) -> _Cell:
        """Return the cell with what its error is relative to. Near zero that is the column's spread."""
        output = self._outputs.get(f"avg_{i}")
        if output is None:
            return cell
        size = np.nan
        if output.time is not None:
            size = output.time.span_microseconds
        elif output.sign is Sign.EITHER and f"std_{i}" in self._places:
            size = np.fmax(abs(cell.number), float(self._wide.values[0, self._places[f"std_{i}"]]))
        return replace(cell, size=float(size))

    def _count(self) -> _Cell:
        cell = self._double("rows")
        return replace(cell, value=round(cell.number))

    def _nulls(self, i: int, column: SummarizedColumn) -> _Cell:
        if column.null_percentage is not None:
            known = float(_percent(column.null_percentage))
            return _Cell(_percent(known), known, known, known, 0.0, True, 100.0)
        cell = self._double(f"null_{i}")
        if not np.isfinite(cell.number):
            return _Cell()
        if cell.low is None and cell.number in (0.0, 100.0):
            cell = self._one_sided(cell.number)
        low = max(0.0, cell.low - _HALF_A_STEP) if isinstance(cell.low, float) else None
        high = min(100.0, cell.high + _HALF_A_STEP) if isinstance(cell.high, float) else None
        return replace(cell, value=_percent(cell.number), low=low, high=high, size=100.0)

    def _numbers(self, place: int) -> tuple[float, float, bool]:
        """Return the value of an output of the sample, its half-width, and whether it is certified."""
        wide = self._wide
        return float(wide.values[0, place]), float(wide.half_widths[0, place]), bool(wide.certified[0, place])

    def _doubt(self, place: int) -> Reason:
        doubt = Reason(int(self._wide.doubts[0, place]))
        return Reason.UNBOUNDED if doubt is Reason.NEVER else doubt

    def _one_sided(self, seen: float) -> _Cell:
        """Return the percentage of what was seen in all rows or in none, where rows are the sampling units.

        If a share p of all rows is unlike, n rows at random are alike with a chance of at most (1 − p)ⁿ. So p
        is at most 1 − (α/2)^(1/n) (Clopper and Pearson 1934, The use of confidence or fiducial limits).
        """
        plan, alpha = self._plan, 1.0 - self._confidence
        rows = 0.0 if self._wide.group_rows is None else float(self._wide.group_rows[0])
        are_units = len(plan.sample.streams) == 1 and not plan.sample.hoists and plan.part.max_unit_rows == 1
        if not are_units or rows < _FEWEST_ROWS:
            return _Cell(number=seen)
        most = 100.0 * (1.0 - (alpha / 2) ** (1.0 / rows))
        low, high = (0.0, most) if seen == 0.0 else (100.0 - most, 100.0)
        return _Cell(None, low, high, seen, most / 2, certified=True)

    def _double(self, name: str) -> _Cell:
        place = self._places[name]
        column = self._wide.approximate[place]
        low, high = (self._wide.table.column(end)[0].as_py() for end in (column.low, column.high))
        return _Cell(None, low, high, *self._numbers(place), doubt=self._doubt(place))

    def _distinct(self, column: SummarizedColumn) -> _Cell:
        """Return how many distinct values DuckDB will say there are, by those seen.

        Values that were listed without their last digits are at least as many as what is left of them.
        """
        if column.null_percentage == 100.0:
            return _Cell(0, 0.0, 0.0, 0.0, 0.0, True)
        if not column.listed:
            return _Cell()
        values = f"SELECT row_number() OVER () AS r, unnest({column.listed}) AS v FROM {STATE}"
        there = f"SELECT DISTINCT r, v FROM ({values}) WHERE v IS NOT NULL"
        units = f"SELECT v, count(*) AS n FROM ({there}) GROUP BY v"
        ((seen, once, count),) = self._cursor.rows(
            f"SELECT count(*), count(*) FILTER (n = 1), coalesce(sum(n), 0)::BIGINT FROM ({units})"
        )
        fraction = self._wide.fraction
        sketched = 1.0 + _TWO_SIDED * SKETCH_ERROR
        if column.lists_cut_values:
            return _Cell(seen, seen / sketched, None, float(seen))
        low, high = distinct_interval(
            np.array([float(seen)]), np.array([float(once)]), fraction, self._confidence
        )
        ends = float(low[0]) / sketched, float(high[0]) * sketched
        share = once / count if count else 0.0
        value = seen / (1.0 - (1.0 - fraction) * share)  # the jackknife of `_distinct_sql` in estimator.py
        return _Cell(round(value), *ends, value, (ends[1] - ends[0]) / 2, True)


def _doubt(cell: _Cell) -> Reason:
    return Reason.NONE if cell.certified else cell.doubt


def _is_null(measure: str, column: SummarizedColumn) -> bool:
    """Whether DuckDB has no such measure of a column, by its type."""
    if measure in ("min", "max"):
        return False
    return not (is_number(column.type) or (column.type in TIME_TYPES and measure != "std"))


def _percent(number: float) -> Decimal:
    return Decimal(repr(number)).quantize(Decimal("0.01"))
