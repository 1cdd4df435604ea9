"""What is known of a table's columns once rows were added: least and greatest values, NULLs, bytes.

Intervals are certified by these ends. So they hold for all rows, or are not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from relaqs_engine.duck import Cursor, quote_text
from relaqs_engine.layouts.manifest import Column, DistinctCount, Scalar


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Some rows of a table, and what is known of their columns."""

    columns: Sequence[Column]
    row_count: int

    def is_empty(self, column: Column) -> bool:
        """Whether a column has no values, so that its ends are not known because there are none."""
        return column.null_count == self.row_count


def grown_columns(
    cursor: Cursor, old: KnownRows, new: KnownRows, distinct_counts: Sequence[int]
) -> tuple[Column, ...]:
    """Return what is known of old and new rows together.

    Args:
        cursor: of DuckDB, which compares the values that a manifest has as texts.
        old: the rows that a table has. The ends of its outlier index stay.
        new: the rows that were added.
        distinct_counts: of each column, over all rows, by a sample.
    """
    return tuple(
        replace(
            before,
            minimum=_end(cursor, "least", before, added, old, new),
            maximum=_end(cursor, "greatest", before, added, old, new),
            null_count=before.null_count + added.null_count,
            distinct_count=_within(distinct_count, distinct),
            byte_count=before.byte_count + added.byte_count,
            most_unit_rows=None,  # a unit may have grown
            distinct=distinct,
            by_group=(),  # the new rows may have the same values
            ends_by=(),
        )
        for before, added, distinct_count in zip(old.columns, new.columns, distinct_counts, strict=True)
        for distinct in (before.distinct and before.distinct.with_rows(added.distinct),)
    )


def _within(number: int, known: DistinctCount | None) -> int:
    return number if known is None else round(min(max(number, known.least), known.most))


def _end(
    cursor: Cursor,
    which: Literal["least", "greatest"],
    before: Column,
    added: Column,
    old: KnownRows,
    new: KnownRows,
) -> Scalar:
    ends = [
        column.minimum if which == "least" else column.maximum
        for column, rows in ((before, old), (added, new))
        if not rows.is_empty(column)
    ]
    if not ends or None in ends:
        return None
    if any(isinstance(end, str) for end in ends):
        return _of_texts(cursor, which, before.type, [str(end) for end in ends])
    return (min if which == "least" else max)(ends)  # type: ignore[type-var]


def _of_texts(cursor: Cursor, which: str, type_text: str, ends: Sequence[str]) -> str | None:
    """Return one of the ends, compared as values of their type; None where one is not read back as such."""
    values = [f"TRY_CAST({quote_text(end)} AS {type_text})" for end in ends]
    is_read = " AND ".join(f"{value} IS NOT NULL" for value in values)
    ((found,),) = cursor.rows(f"SELECT CASE WHEN {is_read} THEN {which}({', '.join(values)})::VARCHAR END")
    assert found is None or isinstance(found, str)
    return found
