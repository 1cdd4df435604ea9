"""What a page shows of a query's answer, and the file that it can be saved as.

- `answer_of`: rows of cells, as many as a person can use, come of a snapshot.
- `panel_update`: how a query stands comes of its state and its newest snapshot, as an update of a panel.
- An export is CSV or Parquet, with the columns of the intervals.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from relaqs import Snapshot
from relaqs.prediction.ahead import fraction_at
from relaqs.python_values import python_values
from relaqs.rendering.view_model import doubts_said, not_judged_text
from relaqs_dashboards.settings import PanelSettings
from relaqs_dashboards.wire import Answer, AnswerColumn, Cell, Change, Failure, PanelState, PanelUpdate

MOST_ROWS = 1_000
MOST_BARS = 25  # that somebody sees who did not ask for bars
LONGEST_TEXT = 500
_NOT_FINITE = ("Infinity", "NaN", "-Infinity")
_LARGEST_WHOLE = 2**53  # beyond it JavaScript's numbers skip some


def answer_of(
    snapshot: Snapshot, kinds: Mapping[int, str], *, ranked: bool, most_rows: int = MOST_ROWS
) -> Answer:
    """Return the first rows of the snapshot. kinds: of the query's columns, by position."""
    shown = snapshot.table.slice(0, most_rows)
    names = snapshot.table.column_names
    own_count = snapshot.table.num_columns - 3 * len(snapshot.columns)
    sides = {column.position: own_count + 3 * i for i, column in enumerate(snapshot.columns)}
    columns, cells = [], []
    for i in range(own_count):
        columns.append(AnswerColumn(names[i], kinds.get(i, "key"), column_type(shown.schema.field(i).type)))
        values = _cells(shown.column(i))
        if i in sides:
            triple = [_cells(shown.column(sides[i] + side)) for side in range(3)]
            values = [_with_bounds(*cell) for cell in zip(values, *triple, strict=True)]
        cells.append(values)
    left_out = snapshot.table.num_rows - shown.num_rows
    rows = [list(row) for row in zip(*cells, strict=True)]
    return Answer(tuple(columns), rows, ranked, left_out or None)


def column_type(type_: pa.DataType) -> str:
    """Return number, text, date, timestamp or bool."""
    if pa.types.is_boolean(type_):
        return "bool"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_date(type_):
        return "date"
    return "timestamp" if pa.types.is_timestamp(type_) else "text"


def _cells(column: pa.ChunkedArray) -> list[Cell]:
    return [_cell(value) for value in python_values(column)]


def _with_bounds(value: Cell, low: Cell, high: Cell, certified: Cell) -> Cell:
    """Return the cell of an estimate. What is not finite bounds nothing, unless the value is exactly that."""
    if not value == low == high:
        low, high = (None if bound in _NOT_FINITE else bound for bound in (low, high))
    return [value, low, high, certified]


def _cell(value: Any) -> Cell:
    """Return what JSON has for a value.

    Numbers become text that JSON has no number for, and whole numbers and decimals that a double cannot hold.
    A text that is too long ends with a digest of the whole: two texts are never one because they are cut.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_WHOLE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE[math.isnan(value) + 2 * (value < 0)]
    if isinstance(value, Decimal):
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    text = value if isinstance(value, str) else str(value)
    if len(text) <= LONGEST_TEXT:
        return text
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{text[:LONGEST_TEXT]}… #{digest}"


def fitting_chart(columns: Sequence[AnswerColumn], row_count: int) -> str:
    """Return the chart of an answer for which nobody chose one, as the page of a table would have it.

    >>> month, n = AnswerColumn("month", "key", "date"), AnswerColumn("n", "estimate", "number")
    >>> fitting_chart([month, n], 12), fitting_chart([n], 1), fitting_chart([month, n, n], 12)
    ('line', 'number', 'table')
    """
    keys = [column.type for column in columns if column.kind == "key"]
    measures = [column.type for column in columns if column.kind != "key"]
    if not keys and row_count == 1 and "number" in measures:
        return "number"
    if measures != ["number"] or not 0 < len(keys) <= 2:
        return "table"
    if keys[0] in ("date", "timestamp"):
        return "line"
    return "bars" if row_count <= MOST_BARS else "table"


MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


def exported(snapshot: Snapshot, kind: str) -> bytes:
    """Return the whole snapshot in the format: "csv" or "parquet"."""
    sink = io.BytesIO()
    table = with_unique_names(snapshot.table)
    if kind == "csv":
        pa.csv.write_csv(_flat(table), sink)
    else:
        pa.parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def with_unique_names(table: pa.Table) -> pa.Table:
    """Return the table with names that a file can have: a query may give two columns one name."""
    names: list[str] = []
    for name in table.column_names:
        taken, number = set(names), 2
        free = name
        while free in taken:
            free, number = f"{name}_{number}", number + 1
        names.append(free)
    return table.rename_columns(names)


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with what CSV has no form for as text."""
    columns = [
        column
        if not pa.types.is_nested(column.type) and not pa.types.is_interval(column.type)
        else pa.array([None if value is None else str(value) for value in python_values(column)], pa.string())
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=table.column_names)


def is_met(snapshot: Snapshot | None, target: float | None) -> bool:
    """Whether an answer is good enough."""
    return snapshot is not None and target is not None and snapshot.error <= target


def shown_state(state: str, snapshot: Snapshot | None, target: float | None) -> PanelState:
    """Return the state of a panel. state: of its query, as `OnlineQuery.state`."""
    if state in ("paused", "stopped", "failed"):
        return cast(PanelState, state)
    if state == "exact":
        return "empty" if snapshot is not None and not len(snapshot) else "exact"
    if snapshot is None:
        return "waiting"
    return "target_met" if is_met(snapshot, target) else "refining"


def _remarks(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what the reader should know, the columns first that the error says nothing of."""
    left_out = (not_judged_text(snapshot.not_judged),) if snapshot.not_judged else ()
    return (*left_out, *snapshot.warnings, *doubts_said(snapshot))


def panel_update(
    settings: PanelSettings,
    state: PanelState,
    snapshot: Snapshot | None,
    *,
    mode: str,
    confidence: float,
    interval: str,
    confidence_for: str,
    run: int = 1,
    reason: str | None = None,
    failure: Failure | None = None,
    rows_total: int | None = None,
    cores: float = 0.0,
    kept: bool = True,
    viewers: int = 1,
    changed_by: Change | None = None,
    brushes: tuple[str, ...] = (),
    filters: tuple[str, ...] = (),
    unfiltered: str | None = None,
    partial: Mapping[str, tuple[str, ...]] | None = None,
    budget: float | str | None = None,
) -> PanelUpdate:
    """Return all that a page shows of a panel but its answer."""
    fraction = snapshot.fraction if snapshot is not None else 0.0
    met_at = seconds = None
    if snapshot is not None and settings.target is not None and not is_met(snapshot, settings.target):
        met_at = fraction_at(settings.target, snapshot.error, fraction)
        if met_at is not None and snapshot.course is not None:
            seconds = snapshot.expected(settings.target).seconds
    return PanelUpdate(
        state=state,
        reason=reason,
        run=run,
        rows_read=None if rows_total is None else round(fraction * rows_total),
        rows_total=rows_total,
        fraction=fraction,
        elapsed_seconds=round(snapshot.elapsed_seconds, 3) if snapshot is not None else 0.0,
        cores=round(cores, 2),
        error=snapshot.error if snapshot is not None and math.isfinite(snapshot.error) else None,
        target=settings.target,
        priority=settings.priority,
        target_fraction=met_at,
        seconds_to_target=seconds,
        unseen_groups=snapshot.unseen_groups if snapshot is not None else None,
        warnings=_remarks(snapshot) if snapshot is not None else (),
        confidence=confidence,
        interval=interval,
        confidence_for=confidence_for,
        mode=mode,
        kept=kept,
        viewers=viewers,
        changed_by=changed_by,
        failure=failure,
        brushes=brushes,
        filters=filters,
        unfiltered=unfiltered,
        partial=partial or {},
        spent=None if snapshot is None else spent_text(snapshot, budget),
    )


def spent_text(snapshot: Snapshot, budget: float | str | None) -> str | None:
    """Return what costly functions were asked for an answer, None for nothing.

    budget: the most that they may be asked; None for no limit.
    """
    if not snapshot.calls:
        return None
    if isinstance(budget, str):
        return f"{snapshot.calls:,} calls · ${snapshot.cost:,.2f} of ${float(budget.lstrip('$')):,.2f} spent"
    calls = f"{snapshot.calls:,}{f' of {budget:,.0f}' if budget else ''} calls"
    return f"{calls} · {snapshot.cost:,.2f} spent" if snapshot.cost else calls
