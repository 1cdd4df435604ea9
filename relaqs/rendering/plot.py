"""A snapshot as a chart of matplotlib: lines or bars with error bars, and what is not certified hollow."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray
from relaqs_engine.execution.estimate import ApproximateColumn

from relaqs.arguments import ArgumentError
from relaqs.plugins import needed
from relaqs.python_values import python_values
from relaqs.rendering.rounding import show_value
from relaqs.rendering.view import DrawableAnswer, heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SERIES = 20
_CAP_POINTS = 3
_HOLLOW_NOTE = "hollow: not certified"


@dataclass(frozen=True, slots=True)
class _Points:
    """What is drawn in one colour: where along x, the values, how far down and up each may be off."""

    name: str
    at: Sequence[Any]
    values: FloatArray
    below: FloatArray
    above: FloatArray
    certified: BoolArray


def plot(
    snapshot: DrawableAnswer, ax: Axes | None, *, x: str | None, y: str | None, series: str | None
) -> Axes:
    """Return the axes with the chart. `Snapshot.plot` says what the arguments mean."""
    axes = _new_axes() if ax is None else ax
    table = snapshot.estimate
    drawn = _position(table, y) if y is not None else _drawn_by_default(snapshot)
    split = None if series is None else _position(table, series)
    keys = [key for key in _keys(snapshot, drawn) if key != split]
    along = _position(table, x) if x is not None else next(iter(keys), None)
    is_line = along is not None and _is_scale(table.column(along).type)
    others = [key for key in keys if key != along]
    if along is not None and (is_line or x is not None):
        labels, by = [along], others if snapshot.columns else []
    else:
        labels, by = keys, []
    points = _split(snapshot, drawn, labels, by if split is None else [split], is_line=is_line)
    (_draw_lines if is_line else _draw_bars)(axes, points)
    _label(axes, snapshot, points, None if along is None else table.column_names[along], drawn)
    return axes


def _new_axes() -> Axes:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise needed("matplotlib", "plot", "plot") from error
    return pyplot.subplots(layout="constrained")[1]


def _position(table: pa.Table, name: str) -> int:
    names = table.column_names
    if name not in names:
        raise ArgumentError(f"there is no column {name!r}; the columns are {', '.join(names)}")
    return int(names.index(name))


def _drawn_by_default(snapshot: DrawableAnswer) -> int:
    """Return the first estimate, or where there is none the last number."""
    estimates = [column.position for column in snapshot.columns]
    numbers = [i for i, column in enumerate(snapshot.estimate.columns) if _is_number(column.type)]
    found = [i for i in estimates if i in numbers] or numbers[-1:]
    if not found:
        raise ArgumentError("the answer has no column of numbers to draw; select one")
    return found[0]


def _keys(snapshot: DrawableAnswer, drawn: int) -> list[int]:
    """Return the columns that say what a row is about. Without estimates these are taken to be the names."""
    estimates = {column.position for column in snapshot.columns}
    others = [i for i in range(snapshot.estimate.num_columns) if i != drawn and i not in estimates]
    if snapshot.columns:
        return others
    return [i for i in others if not _is_number(snapshot.estimate.column(i).type)] or others[:1]


def _split(
    snapshot: DrawableAnswer, drawn: int, labels: Sequence[int], by: Sequence[int], *, is_line: bool
) -> list[_Points]:
    """Return the rows of each series, in their order along x where they are lines."""
    table = snapshot.estimate
    names = _joined(table, by) if by else [""] * len(snapshot)
    several = list(dict.fromkeys(names)) or [""]
    if len(several) > _MOST_SERIES:
        raise ArgumentError(
            f"there are {len(several)} series, and a chart has at most {_MOST_SERIES}; keep fewer with WHERE"
        )
    at = python_values(table.column(labels[0])) if is_line else _joined(table, labels)
    values, below, above, certified = _numbers(snapshot, drawn)
    found = []
    for name in several:
        rows = [i for i, each in enumerate(names) if each == name and at[i] is not None]
        if is_line:
            rows.sort(key=lambda row: at[row])
        found.append(
            _Points(name, [at[i] for i in rows], values[rows], below[rows], above[rows], certified[rows])
        )
    return found


def _joined(table: pa.Table, columns: Sequence[int]) -> list[str]:
    """Return the values of some columns as one text a row."""
    texts = [[show_value(value) for value in python_values(table.column(i))] for i in columns]
    return [" · ".join(row) for row in zip(*texts, strict=True)] if texts else [""] * table.num_rows


def _numbers(snapshot: DrawableAnswer, drawn: int) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """Return values, how far down and up they may be off, and whether they are certified."""
    column = snapshot.estimate.column(drawn)
    if not _is_number(column.type):
        raise ArgumentError(f"the column {snapshot.estimate.column_names[drawn]!r} has no numbers to draw")
    values = _floats(column)
    interval = next((each for each in snapshot.columns if each.position == drawn), None)
    if interval is None:
        nothing = np.zeros(len(values))
        return values, nothing, nothing, np.ones(len(values), dtype=bool)
    return values, *_margins(snapshot.table, interval, values)


def _margins(
    table: pa.Table, interval: ApproximateColumn, values: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    low, high = (_floats(table.column(part)) for part in (interval.low, interval.high))
    certified = np.array(
        [value is True for value in table.column(interval.certified).to_pylist()], dtype=bool
    )
    return _distance(values - low), _distance(high - values), certified


def _distance(margins: FloatArray) -> FloatArray:
    """Return margins to draw: none where a side has no bound."""
    return np.where(np.isfinite(margins), np.maximum(margins, 0.0), 0.0)


def _floats(column: pa.ChunkedArray) -> FloatArray:
    numbers = [np.nan if value is None else float(value) for value in column.to_pylist()]
    return np.array(numbers, dtype=np.float64)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_scale(kind: pa.DataType) -> bool:
    return bool(_is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _draw_lines(axes: Axes, points: Sequence[_Points]) -> None:
    for each in points:
        at = np.array([float(x) if _is_plain(x) else x for x in each.at])
        (line,) = axes.plot(at, each.values, label=each.name)
        for chosen, face in ((each.certified, line.get_color()), (~each.certified, "none")):
            axes.errorbar(
                at[chosen],
                each.values[chosen],
                yerr=[each.below[chosen], each.above[chosen]],
                fmt="o",
                color=line.get_color(),
                markerfacecolor=face,
                capsize=_CAP_POINTS,
            )

    if any(not _is_plain(x) for each in points for x in each.at):
        _name_days(axes)


def _name_days(axes: Axes) -> None:
    """Name days and times along x in few characters, so that names do not touch."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _is_plain(x: object) -> bool:
    return not isinstance(x, datetime.date | datetime.datetime)


def _draw_bars(axes: Axes, points: Sequence[_Points]) -> None:
    names = list(dict.fromkeys(name for each in points for name in each.at))
    width = 0.8 / len(points)
    for i, each in enumerate(points):
        at = np.array([names.index(name) for name in each.at]) + (i - (len(points) - 1) / 2) * width
        bars = axes.bar(
            at,
            each.values,
            width,
            yerr=[each.below, each.above],
            label=each.name,
            capsize=_CAP_POINTS,
            linewidth=1,
        )
        for bar, is_certified in zip(bars, each.certified, strict=True):
            bar.set_edgecolor(bar.get_facecolor())
            if not is_certified:
                bar.set_facecolor("none")
                bar.set_linestyle("--")
    slanted = max(map(len, names), default=0) * len(names) > 60
    axes.set_xticks(
        range(len(names)), names, rotation=45 if slanted else 0, ha="right" if slanted else "center"
    )


def _label(
    axes: Axes, snapshot: DrawableAnswer, points: Sequence[_Points], along: str | None, drawn: int
) -> None:
    hollow = any((~each.certified).any() for each in points)
    axes.set_title(heading(snapshot) + (f"\n{_HOLLOW_NOTE}" if hollow else ""), fontsize="small")
    axes.set_ylabel(snapshot.estimate.column_names[drawn])
    if along is not None:
        axes.set_xlabel(along)
    if len(points) > 1:
        axes.legend()
