"""A snapshot as a chart of matplotlib: lines or bars with error bars, and what is not certified hollow."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from relaqs_bootstrap.arrays import BoolArray, FloatArray

from relaqs.arguments import ArgumentError
from relaqs.plugins import needed
from relaqs.python_values import python_values
from relaqs.rendering.rounding import show_value
from relaqs.rendering.view_model import DrawableAnswer, heading, is_number

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
        labels, by = [along], others if snapshot.columns or snapshot.measures else []
    else:
        labels, by = keys, []
    names, groups = _names_of(table, labels), _names_of(table, by if split is None else [split])
    if len(set(zip(names, groups, strict=True))) < len(names):  # rows without keys: none hides another
        names = [(f"{key} {row}", name) for row, (key, name) in enumerate(names)]
    at = python_values(table.column(labels[0])) if is_line else [key for key, _ in names]
    points = _split(snapshot, drawn, at, groups, is_line=is_line)
    if is_line:
        _draw_lines(axes, points)
    else:
        _draw_bars(axes, points, dict(names))
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
    numbers = [i for i, column in enumerate(snapshot.estimate.columns) if is_number(column.type)]
    found = [i for i in estimates if i in numbers] or numbers[-1:]
    if not found:
        raise ArgumentError("the answer has no column of numbers to draw; select one")
    return found[0]


def _keys(snapshot: DrawableAnswer, drawn: int) -> list[int]:
    """Return the columns that say what a row is about. Without estimates these are taken to be the names."""
    values = {drawn, *snapshot.measures, *(column.position for column in snapshot.columns)}
    others = [i for i in range(snapshot.estimate.num_columns) if i not in values]
    if snapshot.columns or snapshot.measures:
        return others
    return [i for i in others if not is_number(snapshot.estimate.column(i).type)] or others[:1]


def _split(
    snapshot: DrawableAnswer,
    drawn: int,
    at: Sequence[Any],
    names: Sequence[tuple[str, str]],
    *,
    is_line: bool,
) -> list[_Points]:
    """Return the rows of each series, in their order along x where they are lines."""
    several = list(dict.fromkeys(names)) or [("", "")]
    if len(several) > _MOST_SERIES:
        raise ArgumentError(
            f"there are {len(several)} series, and a chart has at most {_MOST_SERIES}; keep fewer with WHERE"
        )
    values, below, above, certified = _numbers(snapshot, drawn)
    found = []
    for name in several:
        # NaN, which is not even itself, has no place on a line, and text such as "infinity" has none
        rows = [
            i
            for i, each in enumerate(names)
            if each == name and at[i] == at[i] is not None and not (is_line and isinstance(at[i], str))
        ]
        if is_line:
            rows.sort(key=lambda row: at[row])
        found.append(
            _Points(name[1], [at[i] for i in rows], values[rows], below[rows], above[rows], certified[rows])
        )
    return found


def _names_of(table: pa.Table, columns: Sequence[int]) -> list[tuple[str, str]]:
    """Return of each row what tells its values of some columns from others, and how they are written."""
    values = [python_values(table.column(i)) for i in columns]
    texts = zip(*map(_written, values), strict=True)
    found = [
        (repr(row), " · ".join(text)) for row, text in zip(zip(*values, strict=True), texts, strict=True)
    ]
    return found or [("", "")] * table.num_rows


def _written(values: Sequence[object]) -> list[str]:
    """Return values as text for matplotlib, where $ begins a formula and _ hides a name from the legend."""
    moments = {repr(value): value for value in values if isinstance(value, datetime.datetime)}
    days = {value.date() for value in moments.values() if value.time() == datetime.time()}
    if len(days) == len(moments):
        values = [value.date() if isinstance(value, datetime.datetime) else value for value in values]
    texts = [show_value(value).replace("$", r"\$") for value in values]
    return [f" {text}" if text.startswith("_") else text for text in texts]


def _numbers(snapshot: DrawableAnswer, drawn: int) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """Return values, how far down and up they may be off, and whether they are certified."""
    column = snapshot.estimate.column(drawn)
    if not is_number(column.type):
        raise ArgumentError(f"the column {snapshot.estimate.column_names[drawn]!r} has no numbers to draw")
    values = _floats(column)
    interval = next((each for each in snapshot.columns if each.position == drawn), None)
    if interval is None:
        nothing = np.zeros(len(values))
        return values, nothing, nothing, np.ones(len(values), dtype=bool)
    low, high = (_floats(snapshot.table.column(part)) for part in (interval.low, interval.high))
    certified = _floats(snapshot.table.column(interval.certified)) == 1.0
    return values, _distance(values - low), _distance(high - values), certified


def _distance(margins: FloatArray) -> FloatArray:
    """Return margins to draw: none where a side has no bound."""
    return np.where(np.isfinite(margins), np.maximum(margins, 0.0), 0.0)


def _floats(column: pa.ChunkedArray) -> FloatArray:
    return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])


def _is_scale(kind: pa.DataType) -> bool:
    return bool(is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _draw_lines(axes: Axes, points: Sequence[_Points]) -> None:
    for each in points:
        at = np.array([x if isinstance(x, datetime.date) else float(x) for x in each.at])
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
    if (day := next((x for each in points for x in each.at), None)) and isinstance(day, datetime.date):
        _name_days(axes, getattr(day, "tzinfo", None))


def _name_days(axes: Axes, zone: datetime.tzinfo | None) -> None:
    """Name days and times along x in few characters, so that names do not touch."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]


def _draw_bars(axes: Axes, points: Sequence[_Points], names: Mapping[str, str]) -> None:
    """Draw bars side by side, a place for each key. names: how the keys are written."""
    places = {key: place for place, key in enumerate(names)}
    width = 0.8 / len(points)
    for i, each in enumerate(points):
        at = np.array([places[key] for key in each.at]) + (i - (len(points) - 1) / 2) * width
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
    texts = list(names.values())
    slanted = max(map(len, texts), default=0) * len(texts) > 60
    axes.set_xticks(
        range(len(texts)), texts, rotation=45 if slanted else 0, ha="right" if slanted else "center"
    )


def _label(
    axes: Axes, snapshot: DrawableAnswer, points: Sequence[_Points], along: str | None, drawn: int
) -> None:
    hollow = any((~each.certified).any() for each in points)
    notes = [_HOLLOW_NOTE] if hollow else []
    if placeless := len(snapshot) - sum(len(each.at) for each in points):
        notes.append(f"{placeless:,} row{'s' * (placeless > 1)} not drawn: NULL or NaN along the line")
    axes.set_title("\n".join([heading(snapshot), *notes]), fontsize="small")
    axes.set_ylabel(snapshot.estimate.column_names[drawn])
    if along is not None:
        axes.set_xlabel(along)
    if len(points) > 1:
        axes.legend()
