"""A page for a table that has none: from its columns' types and statistics. Pure, nothing is read."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from relaqs_dashboards.settings import LONGEST_NAME, LONGEST_TITLE, PageSettings, PanelSettings, mended

if TYPE_CHECKING:
    from relaqs import Layout

TARGET = 0.02
LONGEST_COLUMN = LONGEST_TITLE - 20  # "mean of …" is a column, too
FEWEST_GROUPS, MOST_GROUPS = 2, 25
BINS = 30
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL.*|DOUBLE|FLOAT|REAL")
_WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?")
_TIMES = re.compile(r"DATE|TIMESTAMP.*")
_UNITS = ((3 * 365, "month"), (120, "week"), (3, "day"))  # of a time line, by the days that it spans


class Column(Protocol):
    """What a layout knows of one of its columns."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def minimum(self) -> object: ...

    @property
    def maximum(self) -> object: ...

    @property
    def distinct_count(self) -> int: ...


def page_of_table(name: str, layout: Layout, taken: Collection[str] = ()) -> PageSettings:
    """Return the page of one table. taken: names that other pages have."""
    panels = [
        PanelSettings(f"p{i}", title[:LONGEST_TITLE], sql, chart, size, TARGET, x=x, y=y)
        for i, (title, sql, chart, size, x, y) in enumerate(_panels(name, layout), 1)
    ]
    title = mended(name)[:LONGEST_TITLE].strip() or "table"
    return PageSettings(_page_name(name, taken), title, tuple(panels))


_Draft = tuple[str, str, str, str, str | None, str | None]  # title, sql, chart, size, x, y


def _panels(name: str, layout: Layout) -> Iterator[_Draft]:
    table = _quoted(name)
    if not _can_be_shown(name):
        return
    columns = [column for column in layout.columns if _can_be_shown(column.name)]
    groups = [column for column in columns if _makes_groups(column)]
    measures = [column for column in columns if _is_measure(column, layout) and column not in groups]
    times = [column for column in columns if _TIMES.fullmatch(column.type) and _days(column)]
    yield f"Rows of {name}", f"SELECT count(*) AS rows FROM {table}", "number", "small", None, "rows"
    for time in times[:1]:
        yield _over_time(table, time)
    for i in range(2):  # side by side: a wide one and a small one
        if groups[i:]:
            yield _counts(table, groups[i])
        if groups and measures[i:]:
            yield _means(table, groups[i % len(groups)], measures[i])
    for measure in measures[:2]:
        yield from _histogram(table, measure)
    if groups and len(measures) > 1:
        yield _scatter(table, groups[0], measures[0], measures[1])
    if groups and measures:
        yield _summary(table, groups[0], measures[:3])
    if not groups and not measures:
        yield f"Some rows of {name}", f"SELECT * FROM {table} LIMIT 20", "table", "full", None, None


def _counts(table: str, group: Column) -> _Draft:
    key = _quoted(group.name)
    sql = f"SELECT {key}, count(*) AS rows\nFROM {table}\nGROUP BY {key}\nORDER BY {key}"
    return f"Rows by {group.name}", sql, "bars", "wide", group.name, "rows"


def _means(table: str, group: Column, measure: Column) -> _Draft:
    key, value = _quoted(group.name), _quoted(measure.name)
    sql = f"SELECT {key}, avg({value}) AS mean\nFROM {table}\nGROUP BY {key}\nORDER BY {key}"
    return f"Mean {measure.name} by {group.name}", sql, "bars", "small", group.name, "mean"


def _over_time(table: str, time: Column) -> _Draft:
    days = _days(time)
    unit = next((unit for least, unit in _UNITS if days > least), "hour")
    if time.type == "DATE" and unit == "hour":
        unit = "day"
    sql = (
        f"SELECT date_trunc('{unit}', {_quoted(time.name)}) AS {unit}, count(*) AS rows\n"
        f"FROM {table}\nGROUP BY 1\nORDER BY 1"
    )
    return f"Rows by {unit} of {time.name}", sql, "line", "wide", unit, "rows"


def _histogram(table: str, measure: Column) -> Iterator[_Draft]:
    low, high = measure.minimum, measure.maximum
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)) or low >= high:
        return
    width, value = _round_width((high - low) / BINS), _quoted(measure.name)
    sql = (
        f"SELECT floor({value} / {width:g}) * {width:g} AS bin, count(*) AS rows\n"
        f"FROM {table}\nWHERE {value} IS NOT NULL\nGROUP BY 1\nORDER BY 1"
    )
    yield f"Distribution of {measure.name}", sql, "histogram", "small", "bin", "rows"


def _scatter(table: str, group: Column, across: Column, up: Column) -> _Draft:
    key, x, y = _quoted(group.name), f"mean of {across.name}", f"mean of {up.name}"
    means = f"avg({_quoted(across.name)}) AS {_quoted(x)}, avg({_quoted(up.name)}) AS {_quoted(y)}"
    sql = f"SELECT {key}, {means}\nFROM {table}\nGROUP BY {key}"
    return f"{up.name} against {across.name}, by {group.name}", sql, "scatter", "small", x, y


def _summary(table: str, group: Column, measures: Sequence[Column]) -> _Draft:
    key = _quoted(group.name)
    means = "".join(f", avg({_quoted(each.name)}) AS {_quoted('mean of ' + each.name)}" for each in measures)
    sql = f"SELECT {key}, count(*) AS rows{means}\nFROM {table}\nGROUP BY {key}\nORDER BY rows DESC"
    return f"Summary by {group.name}", sql, "table", "full", None, None


def _can_be_shown(name: str) -> bool:
    """Whether a panel may name it."""
    return bool(name.strip()) and mended(name) == name and len(name) <= LONGEST_COLUMN


def _makes_groups(column: Column) -> bool:
    is_text_or_whole = not _NUMBERS.fullmatch(column.type) or _WHOLE.fullmatch(column.type)
    return (
        FEWEST_GROUPS <= column.distinct_count <= MOST_GROUPS
        and bool(is_text_or_whole)
        and not _TIMES.fullmatch(column.type)
    )


def _is_measure(column: Column, layout: Layout) -> bool:
    """Whether a mean of it says something: numbers, but not those that count or name the rows."""
    is_key = column.name in layout.cluster_key or re.search(r"(?i)(^|_)(id|key)$|key$", column.name)
    names_rows = _WHOLE.fullmatch(column.type) and column.distinct_count > 0.8 * layout.row_count
    return bool(_NUMBERS.fullmatch(column.type)) and column.distinct_count > 1 and not (is_key or names_rows)


def _days(column: Column) -> int:
    """Return the days from the first to the last value; 0 where they are not known."""
    try:
        first, last = (dt.date.fromisoformat(str(v)[:10]) for v in (column.minimum, column.maximum))
    except ValueError:
        return 0
    return (last - first).days


def _round_width(width: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= width * 0.999)


def _page_name(table: str, taken: Collection[str]) -> str:
    base = re.sub(r"[^a-z0-9_-]+", "-", table.lower()).strip("-_")[: LONGEST_NAME - 4] or "table"
    return next(name for i in range(1, 1000) if (name := base if i == 1 else f"{base}-{i}") not in taken)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
