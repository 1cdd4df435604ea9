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
