"""What the server tells a page: frozen values, and their JSON. The protocol is docs/dashboard-protocol.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

PanelState = Literal[
    "waiting", "refining", "target_met", "paused", "stopped", "exact", "failed", "empty"
]  # the client adds "reconnecting"
Cell = float | int | str | bool | None | list[Any]  # [value, low, high, certified] in approximate columns


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer.

    Attributes:
        kind: key, measure, estimate, bound, distinct, quantile or opaque.
        type: number, text, date, timestamp or bool.
    """

    name: str
    kind: str
    type: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of an answer.

    Attributes:
        ranked: the query orders them.
        truncated: how many rows are left out, or None.
    """

    columns: tuple[AnswerColumn, ...]
    rows: list[list[Cell]]
    ranked: bool
    truncated: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """Who did what to a panel, and when (ms since 1970)."""

    who: str
    what: str
    at: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query failed.

    Attributes:
        position: of the character in the SQL, from 0. None where unknown.
        candidates: names that were likely meant.
    """

    message: str
    position: int | None
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PanelUpdate:
    """All that a panel shows but its answer.

    Attributes:
        run: a number that changes when the query is another one or starts anew.
        fraction: the share of the rows that was read.
        target_fraction: the share of the rows at which the target will be met.
        cores: what the query uses now.
        kept: whether the query goes on where it was after a stop, and after the server was started again.
        brushes: the columns of the answer whose values can be selected, to filter other panels.
        filters: the ids of the page's filters that this answer is filtered by.
        unfiltered: why a filter of the page does not reach this panel, in words. None where none is missing.
        partial: by columns of the answer that are periods, the beginnings of those that the table fills in
            part: the first and the last.
        spent: what costly functions were asked for it, in words. None where they were not.
    """

    state: PanelState
    reason: str | None
    run: int
    rows_read: int | None
    rows_total: int | None
    fraction: float
    elapsed_seconds: float
    cores: float
    error: float | None
    target: float | None
    priority: float
    target_fraction: float | None
    seconds_to_target: float | None
    unseen_groups: int | None
    warnings: tuple[str, ...]
    confidence: float
    interval: str
    confidence_for: str
    mode: str
    kept: bool
    viewers: int
    changed_by: Change | None
    failure: Failure | None
    brushes: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    unfiltered: str | None = None
    partial: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spent: str | None = None


@dataclass(frozen=True, slots=True)
class ShownFilter:
    """A filter of a page.

    Attributes:
        panel, column: where it was selected. A period of the page has the panel "".
        selection: as in `selections`.
        table: whose rows are filtered, of a period.
    """

    id: str
    panel: str
    column: str
    selection: Mapping[str, Any]
    table: str | None = None


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column of dates or moments that panels of a page read.

    Attributes:
        first, last: days, as ISO text.
        has_hours: whether its values are moments.
    """

    table: str
    column: str
    first: str
    last: str
    has_hours: bool


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """One job among those that share the cores.

    Attributes:
        share: planned cores.
        used: measured cores.
        history: pairs of work done and quality so far.
        predicted: pairs of work done and quality ahead.
        panel: the id of the panel that shows the job, if the page has one.
        core_seconds_left: what the job still needs. None where unknown.
        slots, batch_rows, rescales: of a model in training whose ranks live in workers: the slots it holds,
            the rows of a step, and how often these changed. None for other jobs.
        workers: the addresses of those that have parts of a model in training; empty for other jobs.
        urgency: from 1 to 10, how much its deadline counts.
        due: seconds until its deadline, negative once that is over. None without one.
        accuracy, accuracy_required: of a classifier in training: what it has and what it must have.
    """

    id: str
    name: str
    kind: str
    state: str
    share: float
    used: float
    weight: float
    quality: float | None
    target: float | None
    work_done: float | None
    core_seconds_left: float | None
    history: tuple[tuple[float, float], ...]
    predicted: tuple[tuple[float, float], ...]
    panel: str | None
    slots: int | None = None
    batch_rows: int | None = None
    rescales: int | None = None
    workers: tuple[str, ...] = ()
    urgency: float = 1.0
    due: float | None = None
    accuracy: float | None = None
    accuracy_required: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterUpdate:
    """The cores and who has them.

    Attributes:
        at: when, in ms since 1970.
        capacity: all cores.
    """

    at: int
    capacity: float
    policy: str
    jobs: tuple[ClusterJob, ...]


@dataclass(frozen=True, slots=True)
class LogLine:
    """Something that happened, in words. at: ms since 1970."""

    at: int
    text: str


def encoded(value: object) -> str:
    """Return the value as compact JSON, in ASCII, so that no text of an answer can fail to be sent.

    Raises ValueError for numbers that JSON does not have.
    """
    return json.dumps(value, default=_entries, allow_nan=False, separators=(",", ":"))


def joined(entries: Mapping[str, str]) -> str:
    """Return the JSON object of entries that are JSON already: what many pages are told is encoded once."""
    return "{" + ",".join(f"{encoded(name)}:{text}" for name, text in entries.items()) + "}"


def _entries(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
