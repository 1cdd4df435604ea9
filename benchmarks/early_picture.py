"""A chart for the README: how soon TPC-H queries are within 5 %, beside DuckDB's exact answers.

It draws the first table of docs/benchmarks.md, which `python -m benchmarks.overhead` measures.

    python -m benchmarks.early_picture docs/early.svg
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
OURS, THEIRS, INK, GRID = "#0b6e99", "#a8a8a8", "#333333", "#eeeeee"
TICKS_SECONDS = (0.03, 0.1, 0.3, 1, 3, 10)
INCHES = (8.4, 5.0)


@dataclass(frozen=True, slots=True)
class Timed:
    """One query of the table.

    Attributes:
        within_5_seconds: until 95 % of an answer's rows are in groups within 5 %.
        duckdb_seconds: until DuckDB's answer, on the same files.
    """

    query: str
    within_5_seconds: float
    duckdb_seconds: float


def timed(page: str) -> list[Timed]:
    """Return the queries of the page's first table, the greatest gain first."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith(("| query |", "| Q"))
    ]
    within_5, duckdb = (rows[0].index(heading) for heading in ("± 5 %", "DuckDB"))
    found = [Timed(row[0], float(row[within_5]), float(row[duckdb])) for row in rows[1:]]
    return sorted(found, key=lambda each: each.within_5_seconds / each.duckdb_seconds)


def drawn(queries: Sequence[Timed]) -> str:
    """Return the chart as SVG, the same text whenever and wherever it is drawn."""
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "relaqs",
        "font.family": "sans-serif",
        "font.size": 9.5,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot()
        places = range(len(queries))
        early = [each.within_5_seconds for each in queries]
        exact = [each.duckdb_seconds for each in queries]
        axes.hlines(places, early, exact, color=THEIRS, linewidth=3)
        axes.scatter(early, places, color=OURS, zorder=2, label="ReLAQS within 5 %")
        axes.scatter(exact, places, color=THEIRS, zorder=2, label="DuckDB, exact")
        axes.set_xscale("log")
        axes.set_xticks(TICKS_SECONDS, [f"{seconds:g} s" for seconds in TICKS_SECONDS])
        axes.minorticks_off()
        axes.grid(axis="x", color=GRID)
        axes.set_axisbelow(True)
        axes.set_yticks(places, [each.query for each in queries])
        axes.invert_yaxis()
        axes.set_xlabel("TPC-H at scale 10, laid out, two cores; not comparable to official results")
        axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
        axes.tick_params(length=0, colors=INK)
        figure.legend(loc="outside upper left", ncols=2, frameon=False)
        file = io.StringIO()
        figure.savefig(
            file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    return file.getvalue()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.early_picture", description=__doc__.split("\n")[0]
    )
    parser.add_argument("picture", type=Path, help="the file to write, an SVG")
    options = parser.parse_args(words)
    text = drawn(timed(PAGE.read_text(encoding="utf-8")))
    options.picture.write_text(text, encoding="utf-8")
    print(f"{options.picture}: {len(text) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
