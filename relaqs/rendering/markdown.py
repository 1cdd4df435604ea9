"""A snapshot as Markdown: for a report, a pull request, a message."""

from __future__ import annotations

from collections.abc import Sequence

from relaqs.rendering.rounding import Shown
from relaqs.rendering.view import Column, DrawableAnswer, view_of


def render(snapshot: DrawableAnswer) -> str:
    """Return a table with all rows, its margins beside the values, the heading above and notes below."""
    view = view_of(snapshot, max_rows=max(1, len(snapshot)))
    rules = ["---:" if column.is_number else "---" for column in view.columns]
    cells = [[_cell(cell) for cell in column.cells] for column in view.columns]
    lines = [f"*{_plain(view.heading)}*", "", _line(list(map(_header, view.columns))), _line(rules)]
    lines += [_line(row) for row in zip(*cells, strict=True)]
    lines += [line for note in view.notes for line in ("", _plain(note))]
    return "\n".join(lines) + "\n"


def _header(column: Column) -> str:
    return _plain(column.name)


def _cell(cell: Shown) -> str:
    return _plain(" ".join(filter(None, (cell.value, cell.margin, cell.mark))))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Return the text with a backslash before what Markdown would read as more than text."""
    for sign in "\\|*_`[]<>":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
