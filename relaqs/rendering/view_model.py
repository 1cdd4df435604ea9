"""What a snapshot shows, decided once for every medium: heading, cells as text, bars, notes.

`DrawableAnswer` is what an answer must say of itself to be drawn.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context
from typing import Protocol

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import FloatArray, IntArray
from relaqs_engine.execution.estimate import ApproximateColumn

from relaqs.python_values import python_values
from relaqs.rendering.rounding import (
    UNKNOWN,
    Cell,
    Shown,
    seconds_of,
    show_column,
    show_measured,
    show_percent,
    show_value,
    visible,
)


class DrawableAnswer(Protocol):
    """An answer so far, as the renderers see it. `relaqs.Snapshot` documents the attributes.

    Renderers ask for this contract and not for `Snapshot`, because a snapshot draws itself: it imports the
    renderers, so they cannot import it.
    """

    @property
    def table(self) -> pa.Table: ...

    @property
    def estimate(self) -> pa.Table: ...

    @property
    def columns(self) -> tuple[ApproximateColumn, ...]: ...

    @property
    def fraction(self) -> float: ...

    @property
    def error(self) -> float: ...

    @property
    def widths(self) -> FloatArray: ...

    @property
    def not_judged(self) -> tuple[str, ...]: ...

    @property
    def reasons(self) -> tuple[str, ...]: ...

    @property
    def doubts(self) -> IntArray: ...

    @property
    def target(self) -> float | None: ...

    @property
    def confidence(self) -> float: ...

    @property
    def interval(self) -> str: ...

    @property
    def confidence_for(self) -> str: ...

    @property
    def elapsed_seconds(self) -> float: ...

    @property
    def is_exact(self) -> bool: ...

    @property
    def unseen_groups(self) -> int | None: ...

    @property
    def certain_rows(self) -> pa.BooleanArray | None: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    @property
    def calls(self) -> int: ...

    @property
    def cost(self) -> float: ...

    @property
    def measures(self) -> tuple[int, ...]: ...

    def within(self, error: float) -> tuple[int, int]: ...

    def __len__(self) -> int: ...


class WatchableQuery(Protocol):
    """A query that gives one snapshot after another, as a notebook sees it. A `relaqs.OnlineQuery` is one."""

    @property
    def latest(self) -> DrawableAnswer | None: ...

    def __iter__(self) -> Iterator[DrawableAnswer]: ...


_SOON_SECONDS = 1.0
_NAMED = 3  # of the columns that a line would list


@dataclass(frozen=True, slots=True)
class Bar:
    """Where an interval and its estimate stand on the column's common scale, each in 0..1."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the query as text.

    bars: one a row (None: no interval), or empty where none are drawn. reasons: why a cell is not certified,
    one a row, "" where that is not said.
    """

    name: str
    cells: tuple[Shown, ...]
    is_approximate: bool
    is_number: bool
    bars: tuple[Bar | None, ...] = ()
    reasons: tuple[str, ...] = ()

    def reason(self, row: int) -> str:
        return self.reasons[row] if self.reasons else ""


@dataclass(frozen=True, slots=True)
class AnswerView:
    """Everything a renderer draws.

    Attributes:
        hidden_rows: rows of the answer beyond those shown.
        notes: in words.
    """

    heading: str
    fraction: float
    interval_name: str
    columns: tuple[Column, ...]
    row_count: int
    hidden_rows: int
    notes: tuple[str, ...]

    @property
    def rest(self) -> str:
        """Return how many rows are not shown, in words."""
        return f"… {self.hidden_rows:,} more row{'s' if self.hidden_rows > 1 else ''}"


def view_of(snapshot: DrawableAnswer, max_rows: int) -> AnswerView:
    """Return what to draw, with at most `max_rows` rows of the answer."""
    shown = snapshot.table.slice(0, max_rows)
    columns = _columns(snapshot, shown)
    return AnswerView(
        heading=heading(snapshot),
        fraction=snapshot.fraction,
        interval_name=_interval_name(snapshot),
        columns=columns,
        row_count=shown.num_rows,
        hidden_rows=len(snapshot) - shown.num_rows,
        notes=_notes(snapshot, columns),
    )


def heading(snapshot: DrawableAnswer) -> str:
    """Return one line: how much was read, how sure the answer is, how long it took."""
    elapsed = f"{snapshot.elapsed_seconds:,.{2 if snapshot.elapsed_seconds < 10 else 1}f} s"
    if snapshot.calls:
        elapsed = (
            f"{snapshot.calls:,} calls{f', {snapshot.cost:,.2f} spent' if snapshot.cost else ''} · {elapsed}"
        )
    if snapshot.is_exact:
        return f"Exact · {elapsed}"
    read = f"{show_percent(snapshot.fraction)} of rows"
    if not snapshot.columns:  # rows, or keys alone: each is exact, more may come
        return f"So far · {read} · {elapsed}"
    error = f"± {show_percent(snapshot.error)}" if math.isfinite(snapshot.error) else "error not yet known"
    left_out = f"{not_judged_text(snapshot.not_judged)} · " if snapshot.not_judged else ""
    judged = f"{error} ({_interval_name(snapshot)}s){_within(snapshot)}"
    return f"Estimate · {read} · {judged} · {left_out}{elapsed}"


def not_judged_text(names: Sequence[str]) -> str:
    """Return which columns the error says nothing of."""
    named, more = [visible(name) for name in names[:_NAMED]], len(names) - _NAMED
    return f"{', '.join(named)}{f' and {more:,} more' if more > 0 else ''} not judged"


def _within(snapshot: DrawableAnswer) -> str:
    """Return how many numbers are within the target, or without one the error, where not all are.

    Where the error is not known, as that of a ranking of which some rows may leave, it is how many numbers
    are known, and within what.
    """
    goal = snapshot.target or snapshot.error
    if goal == math.inf:
        goal = _rounded_up(float(np.max(snapshot.widths, where=np.isfinite(snapshot.widths), initial=0.0)))
    if not 0 < goal < math.inf:
        return ""
    within, count = snapshot.within(goal)
    return f" · {within:,} of {count:,} within {show_percent(goal)}" if within < count else ""


def _rounded_up(share: float) -> float:
    """Return the next number of two digits."""
    return float(Context(prec=2, rounding=ROUND_UP).create_decimal(repr(share)))


def _interval_name(snapshot: DrawableAnswer) -> str:
    kind = "anytime " if snapshot.interval == "anytime" else ""
    kind += "table " if snapshot.confidence_for == "table" else ""
    return f"{snapshot.confidence * 100:.10g} % {kind}interval"


def _columns(snapshot: DrawableAnswer, shown: pa.Table) -> tuple[Column, ...]:
    intervals = {column.position: column for column in snapshot.columns}
    return tuple(
        replace(
            _approximate_column(shown, intervals[i], is_exact=snapshot.is_exact),
            reasons=_reasons(snapshot, snapshot.columns.index(intervals[i]), shown.num_rows),
        )
        if i in intervals
        else _plain_column(name, shown.column(i), show_measured if i in snapshot.measures else show_value)
        for i, name in enumerate(snapshot.estimate.column_names)
    )


def _plain_column(name: str, values: pa.ChunkedArray, show: Callable[[object], str]) -> Column:
    cells = tuple(Shown(show(value)) for value in python_values(values))
    return Column(visible(name), cells, is_approximate=False, is_number=is_number(values.type))


def _approximate_column(shown: pa.Table, interval: ApproximateColumn, *, is_exact: bool) -> Column:
    parts = (interval.position, interval.low, interval.high, interval.certified)
    columns = [shown.column(part) for part in parts]
    rows = [Cell(*row) for row in zip(*map(python_values, columns), strict=True)]
    return Column(
        visible(interval.name),
        tuple(Shown(show_measured(cell.value)) for cell in rows) if is_exact else show_column(rows),
        is_approximate=True,
        is_number=is_number(columns[0].type),
        bars=() if is_exact else _bars(rows),
    )


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _bars(rows: Sequence[Cell]) -> tuple[Bar | None, ...]:
    """Return a bar for each row with a bounded number.

    Nothing where fewer than two would share the scale, or all are points.
    """
    spans = [_span(cell) for cell in rows]
    known = [span for span in spans if span is not None]
    if len(known) < 2 or all(low == high for low, _, high in known):
        return ()
    start = min(low for low, _, _ in known)
    length = max(high for _, _, high in known) - start
    if not 0 < length < math.inf:
        return ()
    return tuple(
        None if span is None else Bar(*(min(1.0, max(0.0, (at - start) / length)) for at in span))
        for span in spans
    )


def _span(cell: Cell) -> tuple[float, float, float] | None:
    try:
        low, value, high = (_place(part) for part in (cell.low, cell.value, cell.high))
    except (TypeError, ValueError):
        return None
    return (low, value, high) if math.isfinite(low + value + high) else None


def _place(part: object) -> float:
    """Return where a number or a moment stands on a scale. Texts have none, even those of numbers."""
    if isinstance(part, datetime.date | datetime.time | pa.MonthDayNano):
        return seconds_of(part)
    return math.nan if isinstance(part, str) else float(part)  # type: ignore[arg-type]


def _notes(snapshot: DrawableAnswer, columns: Sequence[Column]) -> tuple[str, ...]:
    notes = []
    if not len(snapshot):
        notes.append("no rows" if snapshot.is_exact else "no rows yet")
    doubtful = _doubtful(columns)
    notes.extend(doubtful)
    unit = "group" if snapshot.columns else "row"
    is_told = any(each.endswith(" are missing") for each in snapshot.warnings)  # more exactly
    if snapshot.unseen_groups:
        count = snapshot.unseen_groups
        notes.append(f"about {count:,} {unit}{'s have' if count > 1 else ' has'} not been seen yet")
    elif snapshot.unseen_groups is None and not (snapshot.is_exact or is_told):
        notes.append(f"{unit}s that have not been seen yet are missing")
    told = (each for each in snapshot.warnings if not _is_said(each, doubtful))
    return (*notes, *(visible(each) for each in told if not _is_moot(each, snapshot)))


def _is_moot(warning: str, snapshot: DrawableAnswer) -> bool:
    """Whether a warning says why there was no estimate, of an answer that nobody waited for."""
    is_soon = snapshot.is_exact and snapshot.elapsed_seconds < _SOON_SECONDS
    return is_soon and warning.startswith("run as a whole: ")


def doubts_said(snapshot: DrawableAnswer) -> tuple[str, ...]:
    """Return why numbers of the answer are not certified, beyond what its warnings say, a line a reason."""
    lines = []
    for i, reason in enumerate(snapshot.reasons, start=1):
        rows_of = {
            column.name: int((snapshot.doubts[:, place] == i).sum())
            for place, column in enumerate(snapshot.columns)
            if (snapshot.doubts[:, place] == i).any()
        }
        lines.append(_said_of(rows_of, reason, len(snapshot)))
    said = [line for line in lines if not any(_is_said(each, [line]) for each in snapshot.warnings)]
    return tuple(map(visible, said))


def _is_said(warning: str, lines: Sequence[str]) -> bool:
    """Whether a line says why the columns that a warning names are not certified."""
    _, is_about, why = warning.partition(": not certified before the end, ")
    return bool(is_about) and any(line.endswith(visible(why)) for line in lines)


def _reasons(snapshot: DrawableAnswer, column: int, rows: int) -> tuple[str, ...]:
    doubts = snapshot.doubts[:rows, column] if snapshot.doubts.size else ()
    return tuple(visible(snapshot.reasons[i - 1]) if i else "" for i in doubts)


def _doubtful(columns: Sequence[Column]) -> list[str]:
    """Return a line for each reason why cells have a mark, with the columns that they are in."""
    rows_of: dict[str, dict[str, int]] = {}
    signs: dict[str, str] = {}
    for column in columns:
        for row, cell in enumerate(column.cells):
            if sign := cell.mark or cell.margin * (cell.margin == UNKNOWN):
                reason = column.reason(row)
                named = rows_of.setdefault(reason, {})
                named[column.name] = named.get(column.name, 0) + 1
                signs[reason] = min(sign, signs.get(reason, sign))
    count = max((len(column.cells) for column in columns), default=0)
    return [f"{signs[reason]}  {_said_of(named, reason, count)}" for reason, named in rows_of.items()]


def _said_of(rows_of: Mapping[str, int], reason: str, count: int) -> str:
    """Return why columns are not certified, in some of their rows or in all."""
    are_all = all(rows == count for rows in rows_of.values())
    named = [
        name if are_all else f"{name} in {'all' if rows == count else f'{rows:,} of'} {count:,} rows"
        for name, rows in rows_of.items()
    ]
    more = len(named) - _NAMED
    listed = ", ".join(named[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
    return f"{listed}: {reason or 'not certified so far'}"
