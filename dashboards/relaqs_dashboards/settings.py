"""What a page says: its panels, each a query and how to draw it. Frozen values, checked when made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

from relaqs import RelaqsError

# Each kind of chart, and what people call it. The page draws it: see dashboards/web/src/charts/index.ts.
CHARTS = {
    "bars": "bars",
    "line": "line",
    "number": "big number",
    "table": "table",
    "scatter": "scatter",
    "histogram": "histogram",
    "rows": "horizontal bars",
    "stacked": "stacked bars",
    "areas": "stacked areas",
    "heatmap": "heat map",
}
TEXT = "text"  # such a panel has a text in the place of its SQL, and runs nothing
SIZES = ("small", "wide", "full")
SCALES = ("linear", "log")
MOST_PANELS = 48
MOST_PAGES = 200
LONGEST_TITLE = 200
LONGEST_SQL = 20_000
LONGEST_NAME = 64
MOST_PARAMS = 100

LONGEST_SHOWN = 60  # of a value that is refused

# Surrogates are halves of a character and have no UTF-8. Of the control characters, text needs white space.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_NAME = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{LONGEST_NAME - 1}}}")


Params = list[Any] | dict[str, Any]  # values for `?` in their order, or for `$name` by name


class PageError(RelaqsError):
    """A page, or a change of it, is not accepted. Says what was wrong, the value, and what is accepted."""


@dataclass(frozen=True, slots=True)
class PanelSettings:
    """One panel.

    Args:
        id: unique on its page.
        title: its heading.
        sql: its query, or its text where the chart is TEXT.
        chart: one of CHARTS, or TEXT.
        size: one of SIZES.
        target: the relative error that is good enough. None for the exact answer.
        priority: the query's weight beside others.
        x, y, series: names of columns of the answer. None lets the chart choose.
        params: values of the query's parameters: a list for `?`, a dict for `$name`, None where it has none.
        scale: of the axis of values, one of SCALES.

    Raises:
        PageError: a value is not accepted.
    """

    id: str
    title: str
    sql: str
    chart: str = "table"
    size: str = "small"
    target: float | None = None
    priority: float = 1.0
    x: str | None = None
    y: str | None = None
    series: str | None = None
    params: Params | None = None
    scale: str = "linear"

    def __post_init__(self) -> None:
        check_name("id", self.id)
        _check_text("title", self.title, LONGEST_TITLE)
        if self.sql == "":
            raise PageError(
                "the panel has no SQL yet; write a SELECT, such as SELECT count(*) AS n FROM a_table"
            )
        _check_text("sql", self.sql, LONGEST_SQL)
        for name, accepted in (("chart", (*CHARTS, TEXT)), ("size", SIZES), ("scale", SCALES)):
            if getattr(self, name) not in accepted:
                raise _refusal(name, getattr(self, name), f"one of {', '.join(accepted)}")
        if self.target is not None and not (_is_number(self.target) and 0 < self.target <= 1):
            raise _refusal("target", self.target, "a relative error up to 1, such as 0.01, or null")
        if not (_is_number(self.priority) and 0.01 <= self.priority <= 100):
            raise _refusal("priority", self.priority, "a number from 0.01 to 100")
        for name in ("x", "y", "series"):
            if getattr(self, name) is not None:
                _check_text(name, getattr(self, name), LONGEST_TITLE)
        _check_params(self.params)


@dataclass(frozen=True, slots=True)
class PageSettings:
    """One page.

    Args:
        name: as in its address and in its file's name.
        title: its heading.
        panels: in their order.
        owner: the only user who sees it. None: everybody sees it.

    Raises:
        PageError: a value is not accepted.
    """

    name: str
    title: str
    panels: tuple[PanelSettings, ...]
    owner: str | None = None

    def __post_init__(self) -> None:
        check_name("page", self.name)
        _check_text("title", self.title, LONGEST_TITLE)
        if self.owner is not None:
            check_name("owner", self.owner)
        if len(self.panels) > MOST_PANELS:
            raise PageError(f"page {self.name!r} has {len(self.panels)} panels; {MOST_PANELS} is the most")
        ids = [panel.id for panel in self.panels]
        if twice := {each for each in ids if ids.count(each) > 1}:
            raise PageError(f"page {self.name!r} has several panels {sorted(twice)}; give each its own id")

    def panel(self, id: str) -> PanelSettings:
        """Return the panel of that id. Raises PageError if there is none."""
        for panel in self.panels:
            if panel.id == id:
                return panel
        raise PageError(f"there is no panel {shown(id)} on page {self.name!r}")

    def with_panel(self, changed: PanelSettings) -> PageSettings:
        """Return the page with a panel in the place of the one with its id, or with one more."""
        if all(panel.id != changed.id for panel in self.panels):
            return replace(self, panels=(*self.panels, changed))
        return replace(self, panels=tuple(changed if p.id == changed.id else p for p in self.panels))

    def without_panel(self, id: str) -> PageSettings:
        self.panel(id)
        return replace(self, panels=tuple(panel for panel in self.panels if panel.id != id))

    def moved(self, id: str, before: str | None) -> PageSettings:
        """Return the page with a panel before another one, or with None at the end."""
        others = self.without_panel(id).panels
        if id == before:
            return self
        at = len(others) if before is None else others.index(self.panel(before))
        return replace(self, panels=(*others[:at], self.panel(id), *others[at:]))

    def free_id(self) -> str:
        """Return an id that no panel has."""
        taken = {panel.id for panel in self.panels}
        return next(name for i in range(1, MOST_PANELS + 2) if (name := f"p{i}") not in taken)


def panel_of(entries: Mapping[str, Any], **defaults: Any) -> PanelSettings:
    """Return the panel that the entries describe; defaults stand for entries that are missing.

    Raises PageError for unknown and missing entries and for values that are not accepted.
    """
    known = [field.name for field in fields(PanelSettings)]
    if unknown := set(entries) - set(known):
        raise PageError(f"a panel has no {shown(min(unknown))}; it may have {', '.join(known)}")
    given = defaults | dict(entries)
    needed = [field.name for field in fields(PanelSettings) if field.default is MISSING]
    if missing := [name for name in needed if name not in given]:
        raise PageError(
            f"a panel is incomplete: it has no {' and no '.join(missing)}; write {missing[0]} = …"
        )
    return PanelSettings(**given)


def changed_panel(panel: PanelSettings, changes: Mapping[str, Any]) -> PanelSettings:
    """Return the panel with some entries changed. Raises PageError."""
    return panel_of(asdict(panel) | dict(changes))


def check_name(what: str, name: object) -> None:
    """Raise PageError for a name that could not be part of an address and a file's name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refusal(
            what, name, f"1 to {LONGEST_NAME} of a-z, 0-9, - and _, beginning with a letter or digit"
        )


def mended(text: str) -> str:
    """Return the text with U+FFFD for every character that no title and no SQL may have."""
    return _NO_TEXT.sub("\ufffd", text)


def shown(value: object) -> str:
    """Return a refused value as a message repeats it: printable, short, and not what is nested inside."""
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…")
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 10**18):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def _check_text(name: str, text: object, most: int) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise _refusal(name, text, f"text of 1 to {most:,} characters")
    if (odd := _NO_TEXT.search(text)) is not None:
        raise PageError(
            f"{name} has U+{ord(odd[0]):04X} as its character {odd.start() + 1}; leave it out: control "
            "characters and halves of surrogate pairs are no text"
        )


def _check_params(params: object) -> None:
    accepted = "a list of values such as [1, 'JFK'], an object of them such as {'zone': 3}, or null"
    if params is None:
        return
    if not isinstance(params, (list, dict)) or len(params) > MOST_PARAMS:
        raise _refusal("params", params, f"{accepted}, of at most {MOST_PARAMS}")
    for name, value in params.items() if isinstance(params, dict) else enumerate(params, start=1):
        if isinstance(value, str):
            if len(value) > LONGEST_TITLE or _NO_TEXT.search(value):
                raise _refusal(f"parameter {name}", value, f"text of at most {LONGEST_TITLE} characters")
        elif not isinstance(value, (bool, int, float)):
            raise _refusal(f"parameter {name}", value, "text, a number, true or false")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _refusal(name: str, value: object, accepted: str) -> PageError:
    return PageError(f"{name} is {shown(value)}; it must be {accepted}")
