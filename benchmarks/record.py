"""Where a measurement was made, and the file it is kept in."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relaqs.executors.threads import usable_cores
from relaqs.memory import machine_memory_bytes

RESULTS = Path(__file__).with_name("results")
DATA = RESULTS / "data"
NOT_OFFICIAL = "Unaudited: no figure here is comparable to an official TPC-H result."

_PACKAGES = ("relaqs", "duckdb", "pyarrow", "numpy", "sqlglot")


def circumstances(benchmark: str, words: Sequence[str] | None) -> dict[str, Any]:
    """Return the machine, the versions and the command, for the reader of a record.

    words: what the benchmark was called with; None for those of this process.
    """
    given = sys.argv[1:] if words is None else words
    return {
        "at": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": " ".join([f"python -m benchmarks.{benchmark}", *given]),
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_bytes": machine_memory_bytes(),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


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
    text = json.dumps(_plain({**facts, **content}), indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _processor() -> str:
    """Return the processor's name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
