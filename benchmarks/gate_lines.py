"""The lines of the gate: one of each data, storage, expression and fraction, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import isnan
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.coverage_cases import PARTITIONS
from benchmarks.gate_runs import Counted
from benchmarks.gate_tally import MANY, SUMS, Judged, judged
from benchmarks.tally import NOMINAL, Coverage

CAPTION = (
    "In percent. certified: share of the cells shown, and how many. held: share of those that hold the "
    "truth, ± two standard errors. worst: of the group whose misses are least by chance. width: "
    "half-width of certified cells ÷ an oracle's, the mean over orders and groups, the root mean square over "
    "layouts."
)
TWENTIETH, TENTH = 0.05, 0.10


@dataclass(frozen=True, slots=True)
class Line:
    """One line. path: how the data are read, of rows, clusters, row groups, …, alone or in a join.

    stored: the same, with the number of row groups. layouts: or files, over which the orders are. key: what
    is grouped by, and which rows count. fraction: of the table.
    """

    data: str
    path: str
    stored: str
    layouts: int
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
        if found.columns and query.asks == "cells":
            of = (query.table.name, found.run.stored.storage.name, query.by, query.expressions)
            together.setdefault(of, []).append(found)
    lines = []
    for (data, stored, key, expressions), layouts in together.items():
        path = path_of(layouts[0])
        # Which shares can be drawn, and what has error bars, may differ between files.
        fractions = sorted({fraction for found in layouts for fraction in found.counts})
        places = sorted({place for found in layouts for place in found.columns})
        for fraction, place in product(fractions, places):
            mine = [found for found in layouts if fraction in found.counts and place in found.columns]
            if mine:
                judgement = _judged(mine, fraction, place, has_spike=data == "spike")
                expression, count = expressions[place], len(mine)
                lines.append(Line(data, path, stored, count, key, expression, fraction, judgement))
    return sorted(lines, key=lambda line: line.place)


def path_of(found: Counted) -> str:
    """Return how a run's data are read, joins apart from others."""
    way = found.run.stored.storage.way
    return f"join of {way}" if found.run.query.table.joined else way


def _judged(layouts: Sequence[Counted], fraction: float, place: int, *, has_spike: bool) -> Judged:
    columns = [found.columns.index(place) for found in layouts]
    counts = np.concatenate(
        [found.counts[fraction][:, i : i + 1] for found, i in zip(layouts, columns, strict=True)]
    )
    spreads = [found.spreads[fraction].column(i) for found, i in zip(layouts, columns, strict=True)]
    row_groups = layouts[0].run.stored.storage.row_groups
    if row_groups:  # each file has rows of its own, and so groups of its own
        spreads = [{name: np.concatenate([spread[name] for spread in spreads]) for name in SUMS}]
    # Of pairs of neighbours one is drawn where half of a file is. A public file is what there is: no other
    # one is promised anything.
    is_public = layouts[0].run.query.table.rows is None
    drawn_anew = len(counts) if row_groups and is_public else len(layouts)
    partitions = row_groups // 2 or PARTITIONS
    return judged(counts, spreads, drawn_anew, has_spike=has_spike, partitions=partitions)


def table_of(lines: Sequence[Line]) -> Table:
    """Return the table people read."""
    table = Table(title="Certified 95 % intervals, the worst first", caption=CAPTION)
    for name in ("data", "stored", "by", "expression"):
        table.add_column(name)
    for name in ("read", "certified", "cells", "held", "±", "worst", "width"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for line in lines:
        table.add_row(line.data, line.stored, line.key, line.expression, *_texts(line))
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


def nearly_all(lines: Iterable[Line]) -> Iterator[str]:
    """Yield why nearly all cells hold, for each line of which they do: those of one reason together."""
    found: dict[tuple[str, str, str, str], list[Line]] = {}
    for line in lines:
        if line.judged.why_nearly_all:
            found.setdefault((line.data, line.stored, line.key, line.expression), []).append(line)
    for (data, stored, key, expression), mine in found.items():
        shares = ", ".join(f"{line.fraction:.0%}" for line in sorted(mine, key=lambda line: line.fraction))
        cells = sum(line.judged.certified for line in mine)
        reasons = "; ".join(dict.fromkeys(line.judged.why_nearly_all for line in mine))
        yield f"{data}, {stored}, {expression} by {key or 'nothing'} at {shares}: {cells:,} cells, {reasons}"


def summary_of(lines: Sequence[Line], of: Sequence[str] = ("data", "stored")) -> Table:
    """Return one row for each data and storage, or for each path: what is certified, what holds least."""
    table = Table(
        title=f"By {' and '.join(of)}", caption=f"Widest, held least: of lines with {MANY} cells or more."
    )
    for name in of:
        table.add_column(name)
    for name in ("lines", "failed", "unsure", "certified at 5 %", "10 %", "width", "widest", "cells", "held"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("least", justify="right", no_wrap=True)
    table.add_column("of")
    places: dict[tuple[str, ...], list[Line]] = {}
    for line in sorted(lines, key=_name):
        places.setdefault(tuple(getattr(line, name) for name in of), []).append(line)
    for place, mine in places.items():
        table.add_row(*place, *_summary(mine))
    return table


def _name(line: Line) -> tuple[str, str, str]:
    return line.path, line.data, line.stored


def _summary(lines: Sequence[Line]) -> list[str]:
    tenth = [line.judged for line in lines if line.fraction == TENTH]
    certified = sum(j.certified for j in tenth)
    cells, held = (sum(each) for each in zip(*(_held(line.judged) for line in lines), strict=True))
    wide = [j for j in tenth if not isnan(j.width)]
    width = sum(j.width * j.certified for j in wide) / max(sum(j.certified for j in wide), 1)
    widest = max((j.width for j in wide if j.certified >= MANY), default=float("nan"))
    many = [line for line in lines if line.judged.certified >= MANY]
    least = min(many, key=lambda line: line.judged.coverage.coverage, default=None)
    return [
        str(len(lines)),
        str(sum(line.judged.failed for line in lines)),
        str(sum(line.judged.verdict == "unsure" for line in lines)),
        _percent(certified_at(lines, TWENTIETH)),
        _percent(certified_at(lines, TENTH)),
        _times(width if certified and wide else float("nan")),
        _times(widest),
        f"{cells:,}",
        _percent(held / cells if cells else float("nan")),
        _percent(least.judged.coverage.coverage) if least else "–",
        f"{least.expression} by {least.key or 'nothing'}, {least.fraction:.0%}" if least else "",
    ]


def _held(judged: Judged) -> tuple[int, float]:
    """Return how many cells are certified, and how many of them hold."""
    return judged.certified, judged.certified * judged.coverage.coverage if judged.certified else 0.0


def certified_at(lines: Iterable[Line], fraction: float) -> float:
    """Return the share of all cells that is certified after this fraction of the table, NaN without cells."""
    mine = [line.judged for line in lines if line.fraction == fraction]
    cells = sum(j.coverage.cells for j in mine)
    return sum(j.certified for j in mine) / cells if cells else float("nan")


def page_rows(lines_by_orders: Mapping[str, Sequence[tuple[str, Line]]]) -> list[list[str]]:
    """Return the table of a page: for each data and storage the orders, what is certified, what holds, when.

    lines_by_orders: lines with their days, by how many orders they are over, and over how many layouts.
    """
    head = ["data", "stored", "orders", "lines", "failed", "certified at 5 %", "10 %", "width"]
    rows = [[*head, "cells", "held", "least", "of", "on"]]
    for orders, lines in lines_by_orders.items():
        places: dict[tuple[str, str], list[tuple[str, Line]]] = {}
        for day, line in sorted(lines, key=lambda dated: _name(dated[1])):
            joined = "joined, " if line.path.startswith("join") else ""
            places.setdefault((line.data, joined + line.stored), []).append((day, line))
        for place, mine in places.items():
            count, failed, _, twentieth, tenth, width, _, *others = _summary([line for _, line in mine])
            days = ", ".join(sorted({day for day, _ in mine}))
            rows.append([*place, orders, count, failed, twentieth, tenth, width, *others, days])
    return rows


def lines_of_record(lines: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Return lines as they were kept by `as_record`."""
    return [_line_of_record(line) for line in lines]


def _line_of_record(line: Mapping[str, Any]) -> Line:
    found = with_nan(line["judged"])
    coverage = Coverage(**with_nan(found.pop("coverage")))
    names = ("data", "path", "stored", "layouts", "key", "expression", "fraction")
    return Line(**{name: line[name] for name in names}, judged=Judged(coverage=coverage, **found))


def with_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was read of a record with NaN in the place of null."""
    return {name: float("nan") if value is None else value for name, value in values.items()}


def as_record(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Return the lines as they are kept in a file."""
    return [
        {**asdict(line), "verdict": line.judged.verdict, "why_nearly_all": line.judged.why_nearly_all}
        for line in lines
    ]
