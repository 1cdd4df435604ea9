"""A snapshot in a notebook: one table of escaped text and small drawings. No script, no style sheet.

Colours are the page's own text colour at lower opacities and one blue that stands out (3:1 and more) on
white and on black, so that it reads in light and dark themes alike.

In a notebook this is also what a running query looks like, if no installed package draws a live chart of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from relaqs.arguments import ArgumentError
from relaqs.plugins import MissingPackageError, Plugins
from relaqs.rendering.rounding import Shown
from relaqs.rendering.view_model import AnswerView, Bar, Column, DrawableAnswer, view_of

if TYPE_CHECKING:
    from relaqs.rendering.view_model import WatchableQuery

MAX_ROWS = 30
_BLUE = "#3b82f6"
_BAR_WIDTH, _BAR_MARGIN = 150, 5
_CELL = "padding:2px 6px;border:none;background:none;white-space:nowrap;"


def render(snapshot: DrawableAnswer) -> str:
    """Return the snapshot as a self-contained fragment of HTML."""
    view = view_of(snapshot, MAX_ROWS)
    return "".join(_fragment(view))


def _fragment(view: AnswerView) -> Iterator[str]:
    label, _, rest = view.heading.partition(" · ")
    yield '<div style="font:13px/1.5 system-ui,sans-serif;color:inherit;overflow-x:auto">'
    yield f'<div><b>{escape(label)}</b><span style="opacity:.75"> · {escape(rest)}</span></div>'
    yield _progress(view.fraction)
    yield '<table style="border-collapse:collapse;border:none;margin:6px 0;font:inherit;color:inherit">'
    yield f"<thead>{_header_row(view)}</thead><tbody>"
    for row in range(view.row_count):
        yield f"<tr>{''.join(_cells(column, row, view.interval_name) for column in view.columns)}</tr>"
    yield "</tbody></table>"
    if view.hidden_rows:
        yield _note(view.rest)
    yield from map(_note, view.notes)
    yield "</div>"


def _progress(fraction: float) -> str:
    """Return a bar of the rows read. A <progress> would take its colours from the browser, not the page."""
    percent = f"{fraction * 100:.4g}"
    return (
        f'<div role="progressbar" aria-label="rows read" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent}" style="position:relative;width:320px;max-width:100%;height:4px;'
        f'border-radius:2px;overflow:hidden">'
        f'<div style="position:absolute;inset:0;background:currentColor;opacity:.2"></div>'
        f'<div style="position:absolute;inset:0;width:{percent}%;background:{_BLUE}"></div></div>'
    )


def _header_row(view: AnswerView) -> str:
    cells = []
    for column in view.columns:
        span = 2 if column.is_approximate else 1
        cells.append(_header(column.name, "right" if column.is_number and span == 1 else "left", span))
        if column.bars:
            cells.append(_header(view.interval_name, "left"))
    rule = "border-bottom:1px solid color-mix(in srgb,currentColor 40%,transparent)"
    return f'<tr style="{rule}">{"".join(cells)}</tr>'


def _header(text: str, align: str, span: int = 1) -> str:
    columns = f' colspan="{span}"' if span > 1 else ""
    return f'<th scope="col"{columns} style="{_CELL}text-align:{align};font-weight:600">{escape(text)}</th>'


def _cells(column: Column, row: int, interval_name: str) -> str:
    """Return one row's cells of one column: the value, its margin, its bar."""
    cell = column.cells[row]
    align = "right" if column.is_number else "left"
    html = (
        f'<td style="{_CELL}text-align:{align};font-variant-numeric:tabular-nums">{escape(cell.value)}</td>'
    )
    if column.is_approximate:
        html += f'<td style="{_CELL}text-align:left;opacity:.7">{_margin(cell, column.reason(row))}</td>'
    if column.bars:
        html += f'<td style="{_CELL}text-align:left">{_bar(column.bars[row], cell, interval_name)}</td>'
    return html


def _margin(cell: Shown, reason: str) -> str:
    if not cell.mark:
        return escape(cell.margin)
    title = escape(f"not certified: {reason}" if reason else "not certified", quote=True)
    return f'{escape(cell.margin)} <abbr title="{title}">{cell.mark}</abbr>'


def _bar(bar: Bar | None, cell: Shown, interval_name: str) -> str:
    """Return the interval as a rounded line with a dot at the estimate."""
    if bar is None:
        return ""
    low, value, high = (_BAR_MARGIN + at * _BAR_WIDTH for at in (bar.low, bar.value, bar.high))
    label = escape(f"{interval_name}: {cell.text}", quote=True)
    return (
        f'<svg width="{_BAR_WIDTH + 2 * _BAR_MARGIN}" height="12" role="img" aria-label="{label}">'
        f'<rect x="{low:.1f}" y="4" width="{max(1.0, high - low):.1f}" height="4" rx="2" fill="{_BLUE}" '
        f'opacity=".6"/><circle cx="{value:.1f}" cy="6" r="3" fill="{_BLUE}"/></svg>'
    )


def _note(text: str) -> str:
    return f'<div style="opacity:.75">{escape(text)}</div>'


FACES: Plugins[Callable[..., object]] = Plugins("relaqs.notebook", "face for notebooks")
DEFAULT_FACE = "dashboard"


def display(query: WatchableQuery, *, face: str = DEFAULT_FACE, **look: Any) -> object:
    """Return what a notebook shows of the query: a widget that follows it, or its newest snapshot.

    It is the newest snapshot where the packages that draw widgets are not installed.

    Args:
        face: the name of the entry point in the group `relaqs.notebook` that makes the widget.
        look: passed on to the face.

    Raises:
        ArgumentError: no installed package has this face.
        PluginError: the face cannot be loaded.
    """
    try:
        widget = FACES[face]
    except MissingPackageError:
        return _as_it_stands(query)
    except KeyError:
        if face == DEFAULT_FACE:
            return _as_it_stands(query)
        raise ArgumentError(
            f"there is no face {face!r} for notebooks; the installed ones are {', '.join(FACES) or 'none'}"
        ) from None
    return widget(query, **look)


def cell_forms(query: WatchableQuery) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the forms in which a cell can show the query, by media type, and their metadata.

    They are a live panel, and the newest snapshot as HTML and as text. A shell that shows nothing but text
    gets text alone, and no widget is made for it.
    """
    if _shows_text_only():
        return _still_forms(query), {}
    shown = display(query)
    bundle = getattr(shown, "_repr_mimebundle_", None)
    data, metadata = _with_metadata(bundle() if bundle is not None else {})
    return data | _still_forms(query), metadata


def _still_forms(query: WatchableQuery) -> dict[str, Any]:
    if (newest := query.latest) is None:
        return {"text/plain": repr(query)}
    from relaqs.rendering import html, terminal

    return {"text/html": html.render(newest), "text/plain": terminal.plain_text(newest)}


def _with_metadata(bundle: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a bundle and its metadata: some widgets give both, others the first alone."""
    return bundle if isinstance(bundle, tuple) else (bundle or {}, {})


def _shows_text_only() -> bool:
    """Return whether the shell around us is IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and shell.display_formatter.active_types == ["text/plain"]


def _as_it_stands(query: WatchableQuery) -> object:
    return query.latest or next(iter(query), query)
