"""What a page may ask of the server: text from outside, turned into checked values or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from relaqs_dashboards.settings import PageError, check_name

LONGEST_BYTES = 64 << 10
LONGEST_USER_NAME = 40
_EDITABLE = frozenset({"sql", "title", "chart", "size", "scale", "x", "y", "series", "params"})
UNITS = ("minute", "hour", "day", "week", "month", "quarter", "year")
ACTS = ("stop", "pause", "resume", "restart")


class RequestError(PageError):
    """A message from a page is not one of the protocol."""


@dataclass(frozen=True, slots=True)
class Ack:
    seq: int


@dataclass(frozen=True, slots=True)
class Act:
    panel: str
    act: Literal["stop", "pause", "resume", "restart"]


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """Other settings of one panel: of how it runs (target, priority) or of what it is (sql, title, …)."""

    panel: str
    entries: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Add:
    entries: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    panel: str


@dataclass(frozen=True, slots=True)
class Save:
    pass


@dataclass(frozen=True, slots=True)
class Discard:
    """Back to the page as it was saved."""


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Brushing:
    """A selection in a panel. selection: {"values": […]} or {"range": [low, high]}, as in `selections`."""

    panel: str
    column: str
    selection: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unfilter:
    """Away with a filter, or with None with all."""

    filter: str | None


@dataclass(frozen=True, slots=True)
class NewPage:
    """A page without panels, under a title."""

    title: str


@dataclass(frozen=True, slots=True)
class Period:
    """The page shows a period of a table: of the days from `first` to `last`, both included. None: all."""

    table: str
    column: str
    days: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Grain:
    """Panels over time show it by this unit."""

    unit: str


@dataclass(frozen=True, slots=True)
class Move:
    """A panel goes before another one, or with None to the end."""

    panel: str
    before: str | None


Request = (
    Period
    | Grain
    | Move
    | Brushing
    | Unfilter
    | Ack
    | Act
    | SettingsChange
    | Add
    | Remove
    | Save
    | Discard
    | Name
    | NewPage
)


def parse_request(text: str) -> Request:
    """Return what the message asks. Raises RequestError."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise RequestError("the message is not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise RequestError('the message is not an object with a "type"')
    kind = message.pop("type")
    if kind not in _PARSERS:
        raise RequestError(f"there is no message {kind[:40]!r}; there are {', '.join(_PARSERS)}")
    return _PARSERS[kind](message)


def _ack(message: dict[str, Any]) -> Ack:
    seq = message.get("seq")
    if not isinstance(seq, int):
        raise RequestError("an ack has the number of the update it is for")
    return Ack(seq)


def _act(message: dict[str, Any]) -> Act:
    act = message.get("act")
    if act not in ACTS:
        raise RequestError(f"an act is one of {', '.join(ACTS)}")
    return Act(_panel(message), act)


def _set(message: dict[str, Any]) -> SettingsChange:
    panel = _panel(message)
    entries: dict[str, Any] = {name: message[name] for name in ("target", "priority") if name in message}
    if not entries or set(message) - {"panel", *entries}:
        raise RequestError("set has a panel, and a target or a priority")
    return SettingsChange(panel, entries)


def _edit(message: dict[str, Any]) -> SettingsChange:
    panel = _panel(message)
    entries = {name: value for name, value in message.items() if name != "panel"}
    if not entries or set(entries) - _EDITABLE:
        raise RequestError(f"edit has a panel, and any of {', '.join(sorted(_EDITABLE))}")
    return SettingsChange(panel, entries)


def _add(message: dict[str, Any]) -> Add:
    panel = message.get("panel")
    if not isinstance(panel, dict):
        raise RequestError("add has a panel, as a page's panels are written")
    return Add({name: value for name, value in panel.items() if name != "id"})


def _name(message: dict[str, Any]) -> Name:
    name = message.get("name")
    if not isinstance(name, str) or len(name) > LONGEST_USER_NAME:
        raise RequestError(f"a name is text of at most {LONGEST_USER_NAME} characters")
    return Name("".join(letter for letter in name if letter.isprintable()).strip())


def _new(message: dict[str, Any]) -> NewPage:
    title = message.get("title")
    if not isinstance(title, str) or not title.strip():
        raise RequestError("new has the title of a page")
    return NewPage(title.strip())


def _filter(message: dict[str, Any]) -> Brushing:
    panel, column = _panel(message), message.get("column")
    selection = {name: value for name, value in message.items() if name not in ("panel", "column")}
    if not isinstance(column, str) or set(selection) not in ({"values"}, {"range"}):
        raise RequestError("filter has a panel, a column of its answer, and values or a range")
    return Brushing(panel, column, selection)


def _unfilter(message: dict[str, Any]) -> Unfilter:
    if set(message) - {"filter"} or not isinstance(message.get("filter"), str | None):
        raise RequestError("unfilter has the id of a filter, or null for all")
    return Unfilter(message.get("filter"))


def _period(message: dict[str, Any]) -> Period:
    table, column, range_ = (message.get(name) for name in ("table", "column", "range"))
    is_range = isinstance(range_, list) and len(range_) == 2 and all(isinstance(end, str) for end in range_)
    if not isinstance(table, str) or not isinstance(column, str) or not (is_range or range_ is None):
        raise RequestError("period has a table, a column of it, and a range of two days, or null")
    return Period(table, column, None if range_ is None else (range_[0], range_[1]))


def _grain(message: dict[str, Any]) -> Grain:
    unit = message.get("unit")
    if unit not in UNITS:
        raise RequestError(f"grain has a unit: one of {', '.join(UNITS)}")
    return Grain(unit)


def _move(message: dict[str, Any]) -> Move:
    panel, before = _panel(message), message.get("before")
    if before is not None:
        check_name("before", before)
    return Move(panel, before)


def _panel(message: dict[str, Any]) -> str:
    panel = message.get("panel")
    check_name("panel", panel)
    assert isinstance(panel, str)
    return panel


_PARSERS: Mapping[str, Callable[[dict[str, Any]], Request]] = {
    "ack": _ack,
    "act": _act,
    "set": _set,
    "edit": _edit,
    "add": _add,
    "filter": _filter,
    "unfilter": _unfilter,
    "period": _period,
    "grain": _grain,
    "move": _move,
    "remove": lambda message: Remove(_panel(message)),
    "save": lambda message: Save(),
    "discard": lambda message: Discard(),
    "name": _name,
    "new": _new,
}
