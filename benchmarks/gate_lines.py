"""The lines of the gate: one of each data, units, expression and fraction, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.gate_runs import Counted
from benchmarks.gate_tally import MANY, Judged, judged
from benchmarks.tally import NOMINAL

CAPTION = (
    "In percent. certified: share of the cells shown, and how many. held: share of those that hold the "
    "truth, ± two standard errors. worst: of the group whose misses are least by chance. width: mean "
    "half-width of certified cells, of an oracle's."
)
TENTH = 0.10


@dataclass(frozen=True, slots=True)
class Line:
    """One line. key: what is grouped by. fraction: of the table."""

    data: str
    units: str
    key: str
    expression: str
    fraction: float
    judged: Judged

    @property
    def place(self) -> tuple[bool, float]:
        """Return where the line stands: what failed first, by how many cells it misses too many."""
        held = self.judged.coverage.coverage
        too_many = 0.0 if isnan(held) else (NOMINAL - held) * self.judged.certified
        return not self.judged.failed, -too_many


def lines_of(counted: Iterable[Counted]) -> list[Line]:
    """Return all lines, the layouts of one query together, the worst first."""
    together: dict[tuple[str, str, str, tuple[str, ...]], list[Counted]] = {}
    for found in counted:
        query = found.run.query
        of = (query.table.name, found.run.units.name, query.key, query.expressions)
        together.setdefault(of, []).append(found)
    lines = []
    for (data, units, key, expressions), layouts in together.items():
        for fraction in layouts[0].counts:
            for i, place in enumerate(layouts[0].columns):
                found = _judged(layouts, fraction, i, has_spike=data == "spike")
                lines.append(Line(data, units, key, expressions[place], fraction, found))
    return sorted(lines, key=lambda line: line.place)


def _judged(layouts: Sequence[Counted], fraction: float, i: int, *, has_spike: bool) -> Judged:
    counts = np.concatenate([found.counts[fraction][:, i : i + 1] for found in layouts])
    spreads = [found.spreads[fraction].column(i) for found in layouts]
    return judged(counts, spreads, len(layouts), has_spike=has_spike)


def table_of(lines: Sequence[Line]) -> Table:
    """Return the table people read."""
    table = Table(title="Certified 95 % intervals, the worst first", caption=CAPTION)
    for name in ("data", "units", "by", "expression"):
        table.add_column(name)
    for name in ("read", "certified", "cells", "held", "±", "worst", "width"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for line in lines:
        table.add_row(line.data, line.units, line.key, line.expression, *_texts(line))
    return table


def _texts(line: Line) -> list[str]:
    found, c = line.judged, line.judged.coverage
    error = 2.0 * c.standard_error if found.certified else float("nan")
    shares = [_percent(share) for share in (c.coverage, error, found.worst)]
    read = f"{line.fraction:.0%}"
    return [
        read,
        _percent(c.certified_share),
        f"{found.certified:,}",
        *shares,
        _times(found.width),
        found.verdict,
    ]


def _percent(share: float) -> str:
    return "–" if isnan(share) else f"{100 * share:.1f}"


def _times(ratio: float) -> str:
    return "–" if isnan(ratio) else f"{ratio:.2f}"


def summary_of(lines: Sequence[Line]) -> Table:
    """Return one row for each data and units: what is certified at a tenth of the rows, what holds least."""
    table = Table(title="By data", caption=f"Widest, held least: of lines with {MANY} cells or more.")
    for name in ("data", "units"):
        table.add_column(name)
    for name in ("lines", "failed", "certified at 10 %", "width", "widest", "held", "held least"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("of")
    for data, units in dict.fromkeys((line.data, line.units) for line in sorted(lines, key=_name)):
        table.add_row(data, units, *_summary([x for x in lines if (x.data, x.units) == (data, units)]))
    return table


def _name(line: Line) -> tuple[str, str]:
    return line.data, line.units


def _summary(lines: Sequence[Line]) -> list[str]:
    tenth = [line.judged for line in lines if line.fraction == TENTH]
    cells, certified = sum(j.coverage.cells for j in tenth), sum(j.certified for j in tenth)
    held = sum(j.certified * j.coverage.coverage for j in tenth if j.certified)
    wide = [j for j in tenth if not isnan(j.width)]
    width = sum(j.width * j.certified for j in wide) / max(sum(j.certified for j in wide), 1)
    widest = max((j.width for j in wide if j.certified >= MANY), default=float("nan"))
    many = [line for line in lines if line.judged.certified >= MANY]
    least = min(many, key=lambda line: line.judged.coverage.coverage, default=None)
    return [
        str(len(lines)),
        str(sum(line.judged.failed for line in lines)),
        _percent(certified / cells if cells else float("nan")),
        _times(width if wide else float("nan")),
        _times(widest),
        _percent(held / certified if certified else float("nan")),
        _percent(least.judged.coverage.coverage) if least else "–",
        f"{least.expression} by {least.key or 'nothing'}, {least.fraction:.0%}" if least else "",
    ]


def as_record(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Return the lines as they are kept in a file."""
    return [{**asdict(line), "verdict": line.judged.verdict} for line in lines]
