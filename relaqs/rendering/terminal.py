"""A snapshot as text: on a terminal, and as Markdown for a report, a pull request, a message.

On a terminal it is a table. Margins are dimmed, and each interval is a bar on its column's common scale.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relaqs.rendering.view_model import AnswerView, Bar, Column, DrawableAnswer, view_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

    from relaqs.jobs.job import ClusterStatus, JobStatus


def markdown_of(snapshot: DrawableAnswer) -> str:
    """Return a table with all rows, its margins beside the values, the heading above and notes below."""
    view = view_of(snapshot, max_rows=max(1, len(snapshot)))
    rules = ["---:" if column.is_number else "---" for column in view.columns]
    cells = [[_plain(cell.text) for cell in column.cells] for column in view.columns]
    names = [_plain(column.name) for column in view.columns]
    lines = [f"*{_plain(view.heading)}*", "", _line(names), _line(rules)]
    lines += [_line(row) for row in zip(*cells, strict=True)]
    lines += [line for note in view.notes for line in ("", _plain(note))]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Return the text with a backslash before what Markdown would read as more than text."""
    for sign in "\\|*_`[]<>":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")


Line = tuple[tuple[str, str], ...]
"""Pieces of text, each with rich's name of its style, or ""."""

MAX_ROWS = 20
_BAR_WIDTHS = (24, 18, 13)  # the widest that fits is drawn, and none rather than fold the answer
_MAX_TEXT_WIDTH = 40
_GAP = "  "
_ASCII = str.maketrans({"±": "+/-", "−": "-", "≥": ">=", "≤": "<=", "·": "|", "…": "..", "●": "o", "─": "-"})


def plain_text(snapshot: DrawableAnswer, *, ascii_only: bool = False) -> str:
    """Return the snapshot as text without colours, as wide as the terminal, or 100 columns without one."""
    width = shutil.get_terminal_size((100, 24)).columns
    page = _Page(view_of(snapshot, MAX_ROWS), width, ascii_only)
    return "\n".join("".join(text for text, _ in line).rstrip() for line in _lines(page))


def render(snapshot: DrawableAnswer, options: ConsoleOptions) -> Iterator[Text]:
    """Yield what rich prints."""
    yield from map(_styled, _lines(_Page(view_of(snapshot, MAX_ROWS), options.max_width, options.ascii_only)))


def _styled(line: Line) -> Text:
    from rich.text import Text

    return Text.assemble(*line)


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
        for line in map(_styled, lines[:room]):
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
    cells: tuple[Line, ...]
    width: int
    is_exact: bool = False


def _lines(page: _Page) -> Iterator[Line]:
    yield ((page.spell(page.view.heading), "bold"),)
    for block in _blocks(page):
        yield ()
        yield ((_GAP.join(strip.header for strip in block), "bold"),)
        yield ((page.spell("─") * _width(block), "dim"),)
        for row in range(page.view.row_count):
            first, *others = (strip.cells[row] for strip in block)
            yield (*first, *(piece for cell in others for piece in ((_GAP, ""), *cell)))
    if page.view.hidden_rows:
        yield ((page.spell(page.view.rest), "dim"),)
    for note in page.view.notes:
        yield ((page.spell(note), "dim"),)


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
    margins = [page.spell(f"{cell.margin} {cell.mark}".strip()) for cell in column.cells]
    value_width, margin_width = _longest(values), _longest(margins)
    content = value_width + (1 + margin_width if margin_width else 0)
    width = max(content, _cell_count(column.name))
    pad = " " * (width - content) if column.is_number else ""
    cells = []
    for value, margin in zip(values, margins, strict=True):
        spaces = " " * (value_width - _cell_count(value))
        text = pad + spaces + value if column.is_number else value + spaces
        beside = f" {margin}" if margin else ""
        rest = " " * (width - _cell_count(text + beside))
        cells.append(((text, ""), (beside, "dim"), (rest, "")))
    header = column.name.rjust(width) if column.is_number else column.name
    yield _Strip(_fitted(header, width), tuple(cells), width, not column.is_approximate)
    if column.bars and bar_width:
        bars = tuple(((page.spell(_bar(bar, bar_width)), ""),) for bar in column.bars)
        yield _Strip(_fitted(page.view.interval_name, bar_width), bars, bar_width)


def _bar(bar: Bar | None, width: int) -> str:
    """Return a line from low to high with a dot at the estimate."""
    if bar is None:
        return " " * width
    low, value, high = (round(at * (width - 1)) for at in (bar.low, bar.value, bar.high))
    line = " " * low + "─" * (high - low + 1) + " " * (width - 1 - high)
    return line[:value] + "●" + line[value + 1 :]


def _longest(texts: Sequence[str]) -> int:
    return max(map(_cell_count, texts), default=0)


def _cropped(text: str) -> str:
    return text if _cell_count(text) <= _MAX_TEXT_WIDTH else _fitted(text, _MAX_TEXT_WIDTH - 1) + "…"


def _cell_count(text: str) -> int:
    """Return how many cells of a terminal a text takes: some letters take two, and accents none."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _fitted(text: str, width: int) -> str:
    """Return a text cut or filled up to so many cells."""
    if text.isascii() and text.isprintable():
        return text[:width].ljust(width)
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


NAME_WIDTH = 48  # at most so much of a name, e.g. of SQL, is shown
WIDE = 100  # columns of a screen, from which all is shown
_WORDS = ("kind", "state", "client")
_NAMES = (
    *(*_WORDS, "weight", "share", "used", "slots", "batch", "rescales"),
    *("quality", "target", "accuracy", "due", "done", "core-s", "left"),
)
_OF_GANGS = {"slots", "batch", "rescales"}  # shown where there is a gang
_OF_GOALS = {"accuracy", "due"}  # shown where a job has one
# On a narrow screen, whose numbers must not be cut.
_LEFT_OUT = {"client", "weight", "target", "core-s", "batch", "rescales"}


def status_table(status: ClusterStatus, width: int = WIDE) -> Table:
    """Return one row a job, the oldest first, under a line on the cores. width: of the screen, in columns."""
    from rich.table import Table
    from rich.text import Text

    used = sum(job.used_cores for job in status.jobs)
    gangs = f", slots by {status.slot_policy}" if any(job.slots is not None for job in status.jobs) else ""
    table = Table(
        title=f"{status.capacity_cores:g} cores, {used:.1f} used, shared by policy {status.policy}{gangs}",
        title_justify="left",
        title_style="",
        box=None,
        header_style="dim",
        pad_edge=False,
    )
    rows = [_cells(job) for job in status.jobs]
    table.add_column("job", min_width=8, max_width=NAME_WIDTH, no_wrap=True, overflow="ellipsis")
    unused = set() if any(job.slots is not None for job in status.jobs) else _OF_GANGS
    unused |= {name for name in _OF_GOALS if not any(cells[name] for cells in rows)}
    left_out = unused if width >= WIDE else unused | _LEFT_OUT
    names = [name for name in _NAMES if name not in left_out]
    for name in names:
        longest = max([len(name), *(len(cells[name]) for cells in rows)])
        table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=True, min_width=longest)
    for job, cells in zip(status.jobs, rows, strict=True):
        # Names are text, never markup: they are what a user typed.
        table.add_row(Text(job.name or job.id), *(Text(cells[name]) for name in names))
    if not rows:
        table.add_row(Text("no jobs", style="dim"))
    return table


def _cells(job: JobStatus) -> dict[str, str]:
    left = job.core_seconds_left
    return {
        "kind": job.kind,
        "state": job.state,
        "client": job.user or job.client,
        "weight": f"{job.weight:g}",
        "share": f"{job.share_cores:.2f}",
        "used": f"{job.used_cores:.2f}",
        "slots": _number(job.slots),
        "batch": _number(job.batch_rows),
        "rescales": _number(job.rescales),
        "quality": _quality(job, job.quality),
        "target": _quality(job, job.target),
        "accuracy": _accuracy(job),
        "due": "" if job.deadline_seconds_left is None else f"{job.deadline_seconds_left:.0f} s",
        "done": f"{job.work_done:.0%}" if job.work_total == 1.0 else f"{job.work_done:.0f} steps",
        "core-s": f"{job.attained_core_seconds:.1f}",
        "left": "" if left is None else f"{left:.1f}",
    }


def _accuracy(job: JobStatus) -> str:
    """Return the accuracy so far, and behind a stroke the one that is required."""
    parts = [job.accuracy, job.accuracy_required]
    return " / ".join(f"{each:.1%}" for each in parts if each is not None)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _quality(job: JobStatus, value: float | None) -> str:
    """Return an error as a percentage, a loss in its own unit."""
    if value is None:
        return ""
    return f"{value:.2%}" if job.kind == "query" else f"{value:.4g}"
