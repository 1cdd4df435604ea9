"""What the page is made of: figures, tables of policies, and what was not measured; each with its command."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaqs_lab.report.style import Picture

NOT_GIVEN = "not given"  # a number of a paper that this project does not know


@dataclass(frozen=True, slots=True)
class Finding:
    """One number: of the paper, and of the records."""

    what: str
    paper: str
    ours: str


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A figure, what the papers say of it, and what was measured.

    Attributes:
        name: of its files.
        source: which figure of which paper it follows.
        commands: that made the records.
    """

    name: str
    title: str
    source: str
    caption: str
    picture: Picture
    findings: tuple[Finding, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """An exhibit without records. command: what makes them, but for where they go."""

    title: str
    source: str
    command: str


@dataclass(frozen=True, slots=True)
class PolicyTable:
    """Policies in one setting.

    Attributes:
        title: the setting.
        rows: under `headings` of the exhibit, lines by "\n".
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyTables:
    """An exhibit without a figure: policies side by side in each setting of the records."""

    name: str
    title: str
    source: str
    caption: str
    headings: tuple[str, ...]
    tables: tuple[PolicyTable, ...]


Part = Exhibit | PolicyTables | Missing


def in_percent(share: float, digits: int = 0) -> str:
    """Return a share as the page writes it: "7.0 %", a dash where it is unknown."""
    return f"{share * 100:.{digits}f} %" if math.isfinite(share) else "–"


def commands_of(circumstances: Sequence[Any]) -> tuple[str, ...]:
    """Return the commands of records, each once, in the order they were first used."""
    return tuple(dict.fromkeys(str(each.get("command", "?")) for each in circumstances))
