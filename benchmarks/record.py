"""Where a measurement was made, and the file it is kept in."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaqs_lab import records
from relaqs_lab.records.store import json_value

RESULTS = Path(__file__).with_name("results")
DATA = RESULTS / "data"
NOT_OFFICIAL = "Unaudited: no figure here is comparable to an official TPC-H result."


def circumstances(benchmark: str, words: Sequence[str] | None) -> dict[str, Any]:
    """Return the machine, the versions and the command, for the reader of a record.

    words: what the benchmark was called with; None for those of this process.
    """
    given = sys.argv[1:] if words is None else words
    facts = records.circumstances(["python", "-m", f"benchmarks.{benchmark}", *given]).as_record()
    return {**facts.pop("packages"), **facts}


def headline(facts: Mapping[str, Any]) -> str:
    """Return the circumstances in one line, as it stands above a table."""
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['memory_bytes'] / 1e9:.0f} GB, load "
        f"{facts['load_average']:.1f} · DuckDB {facts['duckdb']} · {facts['command']}"
    )


def write(name: str, facts: Mapping[str, Any], content: Mapping[str, Any]) -> Path:
    """Write a record to `results/` and return its path. NaN and infinity become null."""
    RESULTS.mkdir(exist_ok=True)
    stamp = str(facts["at"])[:19].replace(":", "")
    path = RESULTS / f"{name}-{stamp}.json"
    text = json.dumps(json_value({**facts, **content}), indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def put_into(
    page: Path, name: str, facts: Mapping[str, Any], rows: Sequence[Sequence[str]], *, kept_by: int = 0
) -> None:
    """Write a table of what was measured into a page, in the place of the one that is there by this name.

    Args:
        page: of Markdown, with the two comments between which the table stands.
        name: of the table.
        facts: of the measurement.
        rows: the first one is the head.
        kept_by: so many first cells name a row. Rows of the table there with other names are kept, so that
            the line above the table has the command alone, and each row its day.
    """
    before, there, after = place_in(page, name)
    if kept_by:
        rows = [rows[0], *_kept(there, rows, kept_by), *rows[1:]]
    head, *others = ["| " + " | ".join(row) + " |" for row in rows]
    said = f"`{facts['command']}`, "
    if kept_by:
        said += "each row on a day of its own:"
    else:
        said += f"{facts['at'][:10]}, {facts['processor']}, {facts['cores']} cores, "
        said += f"load {facts['load_average']:.0f} when it began:"
    lines = ["", "", said, "", head, "|---" * len(rows[0]) + "|", *others, "", ""]
    page.write_text(before + "\n".join(lines) + after, encoding="utf-8")


def place_in(page: Path, name: str) -> tuple[str, str, str]:
    """Return what of a page is before the table of this name, the table, and what is after it.

    Raises ValueError where the page has no place for it. Who measures for long asks before that.
    """
    begin, end = f"<!-- measured: {name} -->", "<!-- end of measured -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    there, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no place for {name}: write {begin} and {end} into it")
    return before + begin, there, end + after


def _kept(table: str, rows: Sequence[Sequence[str]], kept_by: int) -> list[list[str]]:
    """Return the rows of a table in Markdown that the new ones do not replace, as long as the new head."""
    head, *new = rows
    named = {tuple(row[:kept_by]) for row in new}
    found = [
        [cell.strip() for cell in line[1:-1].split(" | ")] for line in table.splitlines() if line[:2] == "| "
    ]
    return [[*row, *[""] * (len(head) - len(row))] for row in found[1:] if tuple(row[:kept_by]) not in named]
