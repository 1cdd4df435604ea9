"""A snapshot on a terminal: a table, margins dimmed, each interval a bar on its column's common scale.

A wide answer is folded into blocks that fit the width, with the exact columns repeated in each; a number is
never cut. Without colours nothing is lost, and where only ASCII can be shown the signs are spelled in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from relaqs.rendering.drawable import DrawableAnswer
from relaqs.rendering.rounding import Shown
from relaqs.rendering.view import AnswerView, Bar, Column, view_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

MAX_ROWS = 20
_BAR_WIDTHS = (24, 18, 13)  # the widest that fits is drawn, and none rather than fold the answer
_MAX_TEXT_WIDTH = 40
_GAP = "  "
_ASCII = str.maketrans({"±": "+/-", "−": "-", "≥": ">=", "≤": "<=", "·": "|", "…": "..", "●": "o", "─": "-"})


def plain_text(snapshot: DrawableAnswer, *, ascii_only: bool = False) -> str:
    """Return the snapshot as text without colours, as wide as the terminal, or 100 columns without one."""
    width = shutil.get_terminal_size((100, 24)).columns
    page = _Page(view_of(snapshot, MAX_ROWS), width, ascii_only)
    return "\n".join(line.plain.rstrip() for line in _lines(page))


def render(snapshot: DrawableAnswer, options: ConsoleOptions) -> Iterator[Text]:
    """Yield what rich prints."""
    yield from _lines(_Page(view_of(snapshot, MAX_ROWS), options.max_width, options.ascii_only))


@dataclass(frozen=True, slots=True)
class SnapshotOnScreen:
    """A snapshot with as many rows as the screen has room for: what a live display redraws in place."""

    snapshot: DrawableAnswer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows, room = MAX_ROWS, max(1, options.max_height - 1)
        while True:
            page = _Page(view_of(self.snapshot, rows), options.max_width, options.ascii_only)
            lines = list(_lines(page))
            rows = min(rows, page.view.row_count) - 1
            if len(lines) <= room or rows < 1:
                break
        for line in lines[:room]:
            line.no_wrap, line.overflow = True, "ellipsis"  # a folded note would scroll the screen
            yield line


@dataclass(frozen=True, slots=True)
class _Page:
    """A view, the width it is drawn in, and whether the terminal knows ASCII alone."""

    view: AnswerView
    width: int
    ascii_only: bool = False

    def spell(self, text: str) -> str:
        return text.translate(_ASCII) if self.ascii_only else text


@dataclass(frozen=True, slots=True)
class _Strip:
    """A column ready to print: a header and cells of equal width. is_exact: repeated in every block."""

    header: str
    cells: tuple[Text, ...]
    width: int
    is_exact: bool = False


def _lines(page: _Page) -> Iterator[Text]:
    yield Text(page.spell(page.view.heading), "bold")
    for block in _blocks(page):
        yield Text("")
        yield Text(_GAP.join(strip.header for strip in block), "bold")
        yield Text(page.spell("─") * _width(block), "dim")
        for row in range(page.view.row_count):
            yield Text(_GAP).join(strip.cells[row] for strip in block)
    if page.view.hidden_rows:
        yield Text(page.spell(page.view.rest), "dim")
    for note in page.view.notes:
        yield Text(page.spell(note), "dim")


def _blocks(page: _Page) -> list[list[_Strip]]:
    """Return the columns in one block, with the widest bars that fit, or else in several without bars."""
    for bar_width in (*_BAR_WIDTHS, 0):
        strips = [strip for column in page.view.columns for strip in _strips(column, page, bar_width)]
        if _width(strips) <= page.width:
            return [strips]
    return _folded(strips, page.width)


def _folded(strips: Sequence[_Strip], width: int) -> list[list[_Strip]]:
    exact = [strip for strip in strips if strip.is_exact]
    if len(exact) == len(strips) or _width(exact) > width // 2:
        exact = []
    blocks = [list(exact)]
    for strip in strips:
        if strip in exact:
            continue
        if len(blocks[-1]) > len(exact) and _width([*blocks[-1], strip]) > width:
            blocks.append(list(exact))
        blocks[-1].append(strip)
    return blocks


def _width(strips: Sequence[_Strip]) -> int:
    return sum(strip.width for strip in strips) + len(_GAP) * max(0, len(strips) - 1)


def _strips(column: Column, page: _Page, bar_width: int) -> Iterator[_Strip]:
    """Yield the column's values with their margins and, if it has them, its bars."""
    values = [_cropped(page.spell(cell.value)) for cell in column.cells]
    margins = [page.spell(_margin(cell)) for cell in column.cells]
    value_width, margin_width = _longest(values), _longest(margins)
    content = value_width + (1 + margin_width if margin_width else 0)
    width = max(content, cell_len(column.name))
    pad = " " * (width - content) if column.is_number else ""
    cells = []
    for value, margin in zip(values, margins, strict=True):
        spaces = " " * (value_width - cell_len(value))
        text = Text(pad + spaces + value if column.is_number else value + spaces)
        text.append(f" {margin}" if margin else "", "dim")
        cells.append(_padded(text, width))
    header = column.name.rjust(width) if column.is_number else column.name
    yield _Strip(set_cell_size(header, width), tuple(cells), width, not column.is_approximate)
    if column.bars and bar_width:
        bars = tuple(Text(page.spell(_bar(bar, bar_width))) for bar in column.bars)
        yield _Strip(set_cell_size(page.view.interval_name, bar_width), bars, bar_width)


def _margin(cell: Shown) -> str:
    return f"{cell.margin} {cell.mark}".strip()


def _bar(bar: Bar | None, width: int) -> str:
    """Return a line from low to high with a dot at the estimate."""
    if bar is None:
        return " " * width
    low, value, high = (round(at * (width - 1)) for at in (bar.low, bar.value, bar.high))
    line = " " * low + "─" * (high - low + 1) + " " * (width - 1 - high)
    return line[:value] + "●" + line[value + 1 :]


def _longest(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _cropped(text: str) -> str:
    return text if cell_len(text) <= _MAX_TEXT_WIDTH else set_cell_size(text, _MAX_TEXT_WIDTH - 1) + "…"


def _padded(text: Text, width: int) -> Text:
    text.append(" " * (width - cell_len(text.plain)))
    return text
