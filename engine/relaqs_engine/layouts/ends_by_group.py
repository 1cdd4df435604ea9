"""Between which ends a column's values lie among the rows with each value of another column.

    airports:  latitude in −90…84, of Portugal's 32…42, of Norway's 58…81

An average is certified once no unread row could move it far. In the group of Portugal that is a latitude of
32 or 42, and not one of −90. So the ends by group certify averages by country after a tenth of the rows.

Ends are kept where they are much closer together than those of the whole column. A sample of the rows tells
where that is. Only these columns are then looked at in all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from relaqs_engine.duck import Cursor, parquet_rows, quote_name
from relaqs_engine.layouts.distinct import COUNTED_FILES_AT_ONCE, few_valued
from relaqs_engine.layouts.manifest import Column, GroupEnds
from relaqs_engine.layouts.number_types import is_number

NARROW = 0.6
"""Ends by group are kept if those of the average group are so much closer together than the column's own."""
_ENOUGH_ROWS = 10  # of a group in the sample: the ends of fewer are close together by chance
MOST_ENDS = 4_000
"""So many pairs of ends a manifest has at most."""
_MOST_GROUPS = 1_000  # values of all columns that tell groups apart
_SAMPLE_ROWS = 200_000

_Ends = dict[int | None, tuple[float | None, float | None]]


def with_ends_by_group(
    cursor: Cursor, files: Sequence[Path], columns: Sequence[Column], row_count: int
) -> tuple[Column, ...]:
    """Return the columns with their ends by group, where these are narrow.

    Args:
        cursor: of a database that may read the files.
        files: of Parquet, of which the first ones are a sample of the rows.
        columns: with what is known of their values over all rows.
        row_count: of the files.
    """
    groups = few_valued(columns, _MOST_GROUPS)
    values = [each for each in columns if is_number(each.type) and _has_ends(each)]
    sample = files[: max(1, -(-len(files) * _SAMPLE_ROWS // max(row_count, 1)))]
    chosen = sorted(
        (share, group.name, value)
        for group in groups
        for value, share in _shares(cursor, sample, group, [each for each in values if each is not group])
        if share <= NARROW
    )
    wanted: dict[str, list[str]] = {}
    left = MOST_ENDS
    sizes = {group.name: group.distinct_count + 1 for group in groups}
    for _, by, value in chosen:
        if sizes[by] <= left:
            wanted.setdefault(by, []).append(value)
            left -= sizes[by]
    found: dict[str, list[GroupEnds]] = {}
    for group in groups:
        for value, ends in ends_by(cursor, files, group, wanted.get(group.name, [])):
            found.setdefault(value, []).append(ends)
    return tuple(replace(each, ends_by=tuple(found.get(each.name, ()))) for each in columns)


def _has_ends(column: Column) -> bool:
    low, high = column.minimum, column.maximum
    return isinstance(low, int | float) and isinstance(high, int | float) and low < high


def _shares(
    cursor: Cursor, files: Sequence[Path], group: Column, values: Sequence[Column]
) -> Iterator[tuple[str, float]]:
    """Yield how close together the ends of columns are by group, as a share of how far apart all are.

    Rows of the outlier index are counted apart, so values beyond its ends do not matter.
    """
    rows = _by_value(cursor, files, group, [each.name for each in values]) if values else []
    rows = [row for row in rows if row[1] >= _ENOUGH_ROWS]
    for i, value in enumerate(values):
        least, most = _or(value.inlier_low, -np.inf), _or(value.inlier_high, np.inf)
        found = [row[2 + 2 * i : 4 + 2 * i] for row in rows if row[2 + 2 * i] is not None]
        ends = np.clip(np.array(found, dtype=np.float64).reshape(-1, 2), least, most)
        if len(ends) and (width := ends[:, 1].max() - ends[:, 0].min()) > 0.0:
            yield value.name, float(np.mean(ends[:, 1] - ends[:, 0]) / width)


def ends_by(
    cursor: Cursor, files: Sequence[Path], group: Column, names: Sequence[str]
) -> Iterator[tuple[str, GroupEnds]]:
    """Yield the ends of columns among all rows with each value of a group's column."""
    if not names:
        return
    assert group.distinct is not None
    found: list[_Ends] = [{} for _ in names]
    for first in range(0, len(files), COUNTED_FILES_AT_ONCE):
        for hashed, _, *ends in _by_value(cursor, files[first : first + COUNTED_FILES_AT_ONCE], group, names):
            for i, of_column in enumerate(found):
                low, high = of_column.get(hashed, (None, None))
                of_column[hashed] = _least(low, ends[2 * i]), _greatest(high, ends[2 * i + 1])
    for name, of_column in zip(names, found, strict=True):
        pairs = [of_column.get(hashed, (None, None)) for hashed in (*group.distinct.hashes, None)]
        yield name, GroupEnds(group.name, tuple(low for low, _ in pairs), tuple(high for _, high in pairs))


def _by_value(
    cursor: Cursor, files: Sequence[Path], group: Column, names: Sequence[str]
) -> list[tuple[int | None, int, *tuple[float | None, ...]]]:
    """Return for each value of a group's column its hash, its rows, and the ends of columns."""
    key = quote_name(group.name)
    ends = ", ".join(f"{end}({quote_name(name)})::DOUBLE" for name in names for end in ("min", "max"))
    return cursor.rows(
        f"SELECT any_value(CASE WHEN {key} IS NOT NULL THEN hash({key}) END), count(*), {ends} "
        f"FROM {parquet_rows(files)} GROUP BY {key}"
    )


def _or(end: float | None, otherwise: float) -> float:
    return otherwise if end is None else end


def _least(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _greatest(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)
